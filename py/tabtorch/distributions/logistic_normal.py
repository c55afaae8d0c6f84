"""Normal vectors moved onto the simplex."""

from __future__ import annotations

from typing import Any

from tabtorch.distributions import constraints
from tabtorch.distributions.distribution import one_read
from tabtorch.distributions.normal import Normal
from tabtorch.distributions.transformed_distribution import TransformedDistribution
from tabtorch.distributions.transforms import StickBreakingTransform


class LogisticNormal(TransformedDistribution):
    """Points of the simplex, shape (…, K + 1): the stick-breaking transform of normals with `loc`, `scale` (…, K)."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True
    _fields = ""

    @one_read()
    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Any:
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Any:
        return self.base_dist.base_dist.scale
