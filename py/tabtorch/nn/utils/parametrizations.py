"""Weights kept orthogonal, of unit spectral norm, or split into a length and a direction."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
from tabtorch import Tensor
from tabtorch.nn import functional as F
from tabtorch.nn.modules.module import Module
from tabtorch.nn.utils import parametrize
from tabtorch.nn.utils.spectral_norm import output_dim

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def _positive_qr(A: Any) -> Any:
    """The Q of A = QR, A (n, k) tall, with which R's diagonal is positive."""
    X, tau = torch.geqrf(A)
    return torch.linalg.householder_product(X, tau) * X.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def _is_orthogonal(Q: Any) -> bool:
    n, k = Q.shape[-2:]
    return bool(
        torch.allclose(Q.mH @ Q, torch.eye(k, dtype=Q.dtype, device=Q.device), atol=10.0 * n * torch.finfo(Q.dtype).eps)
    )


class _Orthogonal(Module):
    base: Any

    def __init__(self, weight: Any, orthogonal_map: str, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Any) -> Any:
        n, k = X.shape[-2:]
        transposed = n < k
        if transposed:
            X, n, k = X.mT, k, n
        if self.orthogonal_map == "householder":
            A = X.tril(diagonal=-1)
            tau = 2.0 / (1.0 + (A * A).sum(dim=-2))
            Q = torch.linalg.householder_product(A, tau) * X.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)
        else:
            X = X.tril()
            if n != k:
                X = torch.cat([X, X.new_zeros(n, n - k).expand(*X.shape[:-2], -1, -1)], dim=-1)
            A = X - X.mH  # skew-symmetric: its exponential and its Cayley transform are orthogonal
            if self.orthogonal_map == "matrix_exp":
                Q = torch.matrix_exp(A)
            else:
                one = torch.eye(n, dtype=A.dtype, device=A.device)
                Q = torch.linalg.solve(torch.add(one, A, alpha=-0.5), torch.add(one, A, alpha=0.5))
            if n != k:
                Q = Q[..., :k]
        if hasattr(self, "base"):
            Q = self.base @ Q
        return Q.mT if transposed else Q

    @torch.no_grad()
    def right_inverse(self, Q: Any) -> Any:
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {Q.shape}."
            )
        given = Q
        n, k = Q.shape[-2:]
        transposed = n < k
        if transposed:
            Q, n, k = Q.mT, k, n
        if not hasattr(self, "base"):
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential "
                    "or the Cayley parametrizations when use_trivialization=False."
                )
            A, tau = torch.geqrf(Q)
            diagonal = A.diagonal(dim1=-2, dim2=-1)
            diagonal.sign_()
            diagonal[tau == 0.0] *= -1
            return A.mT if transposed else A
        if n == k:
            Q = Q.clone() if _is_orthogonal(Q) else _positive_qr(Q)
        else:
            more = torch.randn(*Q.shape[:-2], n, n - k, dtype=Q.dtype, device=Q.device)
            Q = _positive_qr(torch.cat([Q, more], dim=-1))
        self.base = Q
        # with the base for what was given, the parameter is the point that maps to the identity
        minus = torch.zeros_like(given)
        minus.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return minus


def _tensor_of(module: Any, name: str) -> Any:
    found = getattr(module, name, None)
    if not isinstance(found, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return found


def orthogonal(
    module: Any, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Any:
    """Keeps the matrix (..., m, n) orthogonal: orthonormal columns, or rows where m < n.

    ``orthogonal_map``: "matrix_exp", "cayley" or "householder"; https://arxiv.org/abs/1909.09501
    """
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        return torch._weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Any) -> Any:
        return torch.norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """w = g v / |v|, the norm over all but ``dim`` (None: over all). https://arxiv.org/abs/1602.07868"""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def from_older(state_dict: Any, prefix: str, *_: Any) -> None:
        """State dicts of `torch.nn.utils.weight_norm` name them weight_g and weight_v."""
        old = [f"{prefix}{name}_{part}" for part in "gv"]
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(from_older)
    return module


class _SpectralNorm(Module):
    _u: Any
    _v: Any

    def __init__(self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.ndim
        if dim >= ndim or dim < -ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim % ndim
        self.eps = eps
        if ndim > 1:  # a vector is divided by its norm
            self.n_power_iterations = n_power_iterations
            matrix = self._as_matrix(weight)
            for key, size in zip(("_u", "_v"), matrix.shape):
                self.register_buffer(key, F.normalize(matrix.new_empty(size).normal_(0, 1), dim=0, eps=eps))
            self._power_method(matrix, 15)

    def _as_matrix(self, weight: Any) -> Any:
        return weight.movedim(self.dim, 0).flatten(1)

    @torch.no_grad()
    def _power_method(self, matrix: Any, n_power_iterations: int) -> None:
        for _ in range(n_power_iterations):  # in place: the copies of a module on other devices share them
            self._u = F.normalize(torch.mv(matrix, self._v), dim=0, eps=self.eps, out=self._u)
            self._v = F.normalize(torch.mv(matrix.H, self._u), dim=0, eps=self.eps, out=self._v)

    def forward(self, weight: Any) -> Any:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._as_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # the next forward pass overwrites them, before backward reads these
        return weight / torch.vdot(u, torch.mv(matrix, v))

    def right_inverse(self, value: Any) -> Any:
        return value


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Divides the weight by its largest singular value, found by power iteration. https://arxiv.org/abs/1802.05957

    ``dim``: the one of the outputs; 0, for transposed convolutions 1.
    """
    weight = _tensor_of(module, name)
    made = _SpectralNorm(weight, n_power_iterations, output_dim(module) if dim is None else dim, eps)
    return parametrize.register_parametrization(module, name, made)
