"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.distribution import Distribution
from tabtorch.distributions.utils import _standard_normal, lazy_property


def _batch_mv(matrix: Any, vector: Any) -> Any:
    return torch.matmul(matrix, vector.unsqueeze(-1)).squeeze(-1)


def _batch_mahalanobis(L: Any, x: Any) -> Any:
    """|L^-1 x|^2 of each vector, for lower triangular L whose batch broadcasts with that of x."""
    n = x.size(-1)
    if L.dim() == 2:  # all vectors at once, as the columns of one matrix
        rows = torch.linalg.solve_triangular(L, x.reshape(-1, n).mT, upper=False)
        return rows.pow(2).sum(-2).reshape(x.shape[:-1])
    return torch.linalg.solve_triangular(L, x.unsqueeze(-1), upper=False).squeeze(-1).pow(2).sum(-1)


def _half_log_det(L: Any) -> Any:
    return L.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _precision_to_scale_tril(P: Any) -> Any:
    """The lower factor of the inverse of P."""
    upper = torch.linalg.cholesky(torch.flip(P, (-2, -1)))
    inverse = torch.transpose(torch.flip(upper, (-2, -1)), -2, -1)
    return torch.linalg.solve_triangular(inverse, torch.eye(P.shape[-1], dtype=P.dtype, device=P.device), upper=False)


class ByMatrix(Distribution):
    """A distribution with one of `covariance_matrix`, `precision_matrix` and `scale_tril`; the others are made of it."""

    _unbroadcasted_scale_tril: Any

    def _matrix_shape(self) -> Any:
        return self._batch_shape + self._event_shape[-1:] * 2

    @staticmethod
    def _given_matrix(error: type[Exception], called: str = "", **matrices: Any) -> tuple[str, Any]:
        """Name and value of the one matrix that is given; `error` for another number. ValueError for what is no matrix."""
        given = [(k, v) for k, v in matrices.items() if v is not None]
        if len(given) != 1:
            raise error(f"Exactly one of {' or '.join(matrices)} may be specified.")
        name, matrix = given[0]
        if matrix.dim() < 2:
            raise ValueError(
                f"{called or name} must be at least two-dimensional, with optional leading batch dimensions"
            )
        return name, matrix

    def _set_matrix(self, name: str, value: Any) -> None:
        """The lower factor of the one that is given."""
        if name == "covariance_matrix":
            value = torch.linalg.cholesky(value)
        elif name == "precision_matrix":
            value = _precision_to_scale_tril(value)
        self._unbroadcasted_scale_tril = value

    @lazy_property
    def scale_tril(self) -> Any:
        return self._unbroadcasted_scale_tril.expand(self._matrix_shape())

    @lazy_property
    def covariance_matrix(self) -> Any:
        L = self._unbroadcasted_scale_tril
        return torch.matmul(L, L.mT).expand(self._matrix_shape())

    @lazy_property
    def precision_matrix(self) -> Any:
        L = self._unbroadcasted_scale_tril
        inverse = torch.linalg.solve_triangular(L, torch.eye(L.shape[-1], dtype=L.dtype, device=L.device), upper=False)
        return (inverse.mT @ inverse).expand(self._matrix_shape())


class MultivariateNormal(ByMatrix):
    """Mean `loc` (…, n), and one of three matrices (…, n, n). `scale_tril` is the fastest: it needs no decomposition."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True
    _fields = "loc:1 covariance_matrix:2 scale_tril:2 precision_matrix:2 _unbroadcasted_scale_tril="

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = self._given_matrix(
            ValueError, covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril
        )
        batch_shape = torch.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        self.loc = loc.expand((*batch_shape, -1))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._set_matrix(name, matrix)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        eps = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, eps)

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        L = self._unbroadcasted_scale_tril
        distance = _batch_mahalanobis(L, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - _half_log_det(L)

    def entropy(self) -> Tensor:
        half_log_det = _half_log_det(self._unbroadcasted_scale_tril)
        return (0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + half_log_det).expand(self._batch_shape)
