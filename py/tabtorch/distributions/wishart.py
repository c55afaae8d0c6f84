"""The Wishart distribution."""

from __future__ import annotations

import math
import warnings
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.chi2 import Chi2
from tabtorch.distributions.exp_family import ExponentialFamily
from tabtorch.distributions.multivariate_normal import ByMatrix, _half_log_det
from tabtorch.distributions.utils import _Number, lazy_property


class Wishart(ByMatrix, ExponentialFamily):
    """Matrices (…, p, p): X Xᵀ of `df` normal columns of the given covariance. `df` > p - 1."""

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0
    _fields = "df covariance_matrix:2 scale_tril:2 precision_matrix:2 _unbroadcasted_scale_tril="

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = self._given_matrix(
            AssertionError,
            "scale_tril",
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
            scale_tril=scale_tril,
        )
        event_shape = matrix.shape[-2:]
        if isinstance(df, _Number):
            batch_shape = torch.Size(matrix.shape[:-2])
            self.df = torch.full((), df, dtype=matrix.dtype, device=matrix.device)
            least = float(df)
        else:
            batch_shape = torch.broadcast_shapes(matrix.shape[:-2], df.shape)
            self.df = df.expand(batch_shape)
            least = self.df.detach().min().item()
        if least <= event_shape[-1] - 1:
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {event_shape[-1] - 1}.")
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        if least < event_shape[-1]:
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        self._set_matrix(name, matrix)

    @property
    def arg_constraints(self) -> Any:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    @lazy_property
    def _dist_chi2(self) -> Any:
        less = torch.arange(self._event_shape[-1], dtype=self.df.dtype, device=self.df.device)
        return Chi2(self.df.unsqueeze(-1) - less.expand((*self._batch_shape, -1)), validate_args=False)

    def _each(self, x: Any) -> Tensor:
        """Numbers of the batch against matrices."""
        return x.view((*self._batch_shape, 1, 1))

    @property
    def mean(self) -> Any:
        return self._each(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self.df - self._event_shape[-1] - 1
        return self._each(factor.masked_fill(factor <= 0, math.nan)) * self.covariance_matrix

    @property
    def variance(self) -> Any:
        V = self.covariance_matrix
        d = V.diagonal(dim1=-2, dim2=-1)
        return self._each(self.df) * (V.pow(2) + d.unsqueeze(-1) * d.unsqueeze(-2))

    def _bartlett_sampling(self, sample_shape: Any = ()) -> Tensor:
        p = self._event_shape[-1]
        root = self._dist_chi2.rsample(sample_shape).sqrt()
        noise = root.clamp(min=torch.finfo(root.dtype).eps).diag_embed(dim1=-2, dim2=-1)
        below = torch.randn(
            torch.Size(sample_shape) + self._batch_shape + (p * (p - 1) // 2,), dtype=noise.dtype, device=noise.device
        )
        i, j = torch.tril_indices(p, p, offset=-1, device=noise.device)
        noise[..., i, j] = below
        chol = self._unbroadcasted_scale_tril @ noise
        return chol @ chol.mT

    def rsample(self, sample_shape: Any = (), max_try_correction: int | None = None) -> Tensor:
        """Samples by Bartlett's decomposition; singular ones are drawn again, `max_try_correction` (10) times at most."""
        sample_shape = torch.Size(sample_shape)
        dims = [-1 - d for d in range(len(self._batch_shape))]

        def over_batch(flags: Any) -> Tensor:
            return flags.amax(dims) if dims else flags

        sample = self._bartlett_sampling(sample_shape)
        # PyTorch takes those that pass the first time, and so draws them again; its numbers are the second ones
        again = over_batch(self.support.check(sample))
        if again.any():
            warnings.warn("Singular sample detected.", stacklevel=2)
            for _ in range(10 if max_try_correction is None else max_try_correction):
                new = self._bartlett_sampling(again[again].shape)
                sample[again] = new
                again[again.clone()] = over_batch(~self.support.check(new))
                if not again.any():
                    break
        return sample

    def _det_and_size(self) -> tuple[Any, int]:
        p = self._event_shape[-1]
        return p * math.log(2) / 2 + _half_log_det(self._unbroadcasted_scale_tril), p

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        nu, (half_log_det, p) = self.df, self._det_and_size()
        solved = torch.cholesky_solve(value, self._unbroadcasted_scale_tril)
        return (
            -nu * half_log_det
            - torch.mvlgamma(nu / 2, p=p)
            + (nu - p - 1) / 2 * torch.linalg.slogdet(value).logabsdet
            - solved.diagonal(dim1=-2, dim2=-1).sum(dim=-1) / 2
        )

    def entropy(self) -> Tensor:
        nu, (half_log_det, p) = self.df, self._det_and_size()
        shifts = torch.arange(p, dtype=nu.dtype, device=nu.device) / 2
        digamma = torch.digamma(nu.unsqueeze(-1) / 2 - shifts).sum(-1)
        return (p + 1) * half_log_det + torch.mvlgamma(nu / 2, p=p) - (nu - p - 1) / 2 * digamma + nu * p / 2

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Any, y: Any) -> Tensor:
        p = self._event_shape[-1]
        y = y + (p + 1) / 2
        return y * (-torch.linalg.slogdet(-2 * x).logabsdet + math.log(2) * p) + torch.mvlgamma(y, p=p)
