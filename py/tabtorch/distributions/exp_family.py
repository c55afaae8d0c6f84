"""Exponential families, whose entropy follows from their log normalizer."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions.distribution import Distribution


class ExponentialFamily(Distribution):
    """p(x; θ) = exp(<t(x), θ> - F(θ) + k(x)). The entropy is a Bregman divergence: Nielsen & Nock (2010)."""

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        carried = -self._mean_carrier_measure
        params = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*params)
        gradients = torch.autograd.grad(normalizer.sum(), params, create_graph=True)
        result = normalizer + carried
        for p, g in zip(params, gradients):
            result = result - (p * g).reshape((*self._batch_shape, -1)).sum(-1)
        return result
