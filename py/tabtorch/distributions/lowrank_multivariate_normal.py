"""Normals whose covariance is of low rank plus a diagonal."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.distribution import Distribution
from tabtorch.distributions.multivariate_normal import _batch_mahalanobis, _batch_mv, _half_log_det
from tabtorch.distributions.utils import _standard_normal, lazy_property


def _plus_identity(K: Any) -> Any:
    return K + torch.eye(K.size(-1), dtype=K.dtype, device=K.device)


def _batch_lowrank_logdet(W: Any, D: Any, capacitance_tril: Any) -> Any:
    """log det(W Wt + D), by the matrix determinant lemma."""
    return 2 * _half_log_det(capacitance_tril) + D.log().sum(-1)


def _batch_lowrank_mahalanobis(W: Any, D: Any, x: Any, capacitance_tril: Any) -> Any:
    """xt (W Wt + D)^-1 x, by the Woodbury identity."""
    projected = _batch_mv(W.mT / D.unsqueeze(-2), x)
    return (x.pow(2) / D).sum(-1) - _batch_mahalanobis(capacitance_tril, projected)


class LowRankMultivariateNormal(Distribution):
    """Mean `loc` (…, n), covariance cov_factor cov_factorᵀ + diag(cov_diag): `cov_factor` (…, n, m), `cov_diag` (…, n)."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    _fields = "loc:1 cov_diag:1 cov_factor:2 _unbroadcasted_cov_factor= _unbroadcasted_cov_diag= _capacitance_tril="

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m")
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}")
        try:
            columns = torch.broadcast_tensors(loc.unsqueeze(-1), cov_factor, cov_diag.unsqueeze(-1))
        except RuntimeError as e:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from e
        self.loc, self.cov_factor, self.cov_diag = columns[0][..., 0], columns[1], columns[2][..., 0]
        self._unbroadcasted_cov_factor = W = cov_factor
        self._unbroadcasted_cov_diag = D = cov_diag
        self._capacitance_tril = torch.linalg.cholesky(_plus_identity((W.mT / D.unsqueeze(-2)) @ W))
        super().__init__(self.loc.shape[:-1], event_shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    def _wide(self, matrix: Any) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def variance(self) -> Any:
        total = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return total.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        # W Wt + D = D^1/2 (1 + D^-1/2 W Wt D^-1/2) D^1/2, of which the middle is the better conditioned
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        W = self._unbroadcasted_cov_factor / root
        return self._wide(root * torch.linalg.cholesky(_plus_identity(W @ W.mT)))

    @lazy_property
    def covariance_matrix(self) -> Any:
        W = self._unbroadcasted_cov_factor
        return self._wide(W @ W.mT + torch.diag_embed(self._unbroadcasted_cov_diag))

    @lazy_property
    def precision_matrix(self) -> Any:
        D = self._unbroadcasted_cov_diag
        A = torch.linalg.solve_triangular(
            self._capacitance_tril, self._unbroadcasted_cov_factor.mT / D.unsqueeze(-2), upper=False
        )
        return self._wide(torch.diag_embed(D.reciprocal()) - A.mT @ A)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        W, D = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        eps_W = _standard_normal(shape[:-1] + self.cov_factor.shape[-1:], self.loc.dtype, self.loc.device)
        eps_D = _standard_normal(shape, self.loc.dtype, self.loc.device)
        return self.loc + _batch_mv(W, eps_W) + D.sqrt() * eps_D

    def _log_det(self) -> Tensor:
        return _batch_lowrank_logdet(
            self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag, self._capacitance_tril
        )

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        W, D = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        distance = _batch_lowrank_mahalanobis(W, D, value - self.loc, self._capacitance_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_det() + distance)

    def entropy(self) -> Tensor:
        entropy = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_det())
        return entropy.expand(self._batch_shape)
