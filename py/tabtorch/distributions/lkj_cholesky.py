"""Cholesky factors of correlation matrices: Lewandowski, Kurowicka & Joe (2009)."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.beta import Beta
from tabtorch.distributions.distribution import Distribution, one_read
from tabtorch.distributions.utils import broadcast_all


class LKJCholesky(Distribution):
    """Lower factors, shape (dim, dim), of correlation matrices M of density det(M)^(concentration - 1), up to a factor."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    _fields = "dim= concentration _beta:1"

    @one_read()
    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        # the onion method: section 3.2 of the paper
        c = self.concentration + 0.5 * (dim - 2)
        offset = torch.arange(dim - 1, dtype=c.dtype, device=c.device)
        offset = torch.cat([offset.new_zeros((1,)), offset])
        self._beta = Beta(offset + 0.5, c.unsqueeze(-1) - 0.5 * offset)
        super().__init__(c.size(), (dim, dim), validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            y = self._beta.sample(sample_shape).unsqueeze(-1)
            u = torch.randn(self._extended_shape(sample_shape), dtype=y.dtype, device=y.device).tril(-1)
            first = torch.arange(self.dim, device=y.device).unsqueeze(-1) == 0  # its row is zero
            u = (u / u.norm(dim=-1, keepdim=True)).masked_fill(first, 0.0)
            w = torch.sqrt(y) * u
            rest = torch.clamp(1 - torch.sum(w**2, dim=-1), min=torch.finfo(w.dtype).tiny).sqrt()
            return w + torch.diag_embed(rest)

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        c, n = self.concentration, self.dim - 1
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = 2 * (c - 1).unsqueeze(-1) + self.dim - torch.arange(2, self.dim + 1, device=c.device)
        # the normalization: pages 1999-2000 of the paper
        alpha = c + 0.5 * n
        normalizer = 0.5 * n * math.log(math.pi) + torch.mvlgamma(alpha - 0.5, n) - torch.lgamma(alpha) * n
        return torch.sum(order * diagonal.log(), dim=-1) - normalizer
