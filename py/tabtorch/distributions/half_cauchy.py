"""The absolute value of a Cauchy number."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions.cauchy import Cauchy
from tabtorch.distributions.half_normal import Half


class HalfCauchy(Half):
    """|x| of a Cauchy x with median 0 and half width `scale`."""

    _whole = Cauchy

    @property
    def mean(self) -> Any:
        return self._all(math.inf, self.scale)

    @property
    def variance(self) -> Any:
        return self.base_dist.variance

    def log_prob(self, value: Any) -> Tensor:
        if isinstance(value, Tensor) or not self._validate_args:
            value = torch.as_tensor(value, dtype=self.scale.dtype, device=self.scale.device)
        return super().log_prob(value)
