"""`biject_to(constraint)` and `transform_to(constraint)`: a transform from all real numbers onto a constraint.

`biject_to` is one to one and has a log |det J|, for sampling; `transform_to` need not be, for optimizing.
"""

from __future__ import annotations

from typing import Any

from tabtorch.distributions import constraints, transforms
from tabtorch.distributions.utils import _Number

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Constraint classes and what makes a transform of an instance."""

    def __init__(self) -> None:
        self._registry: dict[Any, Any] = {}

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Registers `factory(constraint) -> Transform` for a class, or for that of an instance. Also a decorator."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        if isinstance(constraint, constraints.Constraint):
            constraint = type(constraint)
        if not isinstance(constraint, type) or not issubclass(constraint, constraints.Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[constraint] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """The transform. NotImplementedError for a constraint that has none."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _scaled(first: Any, loc: Any, scale: Any) -> Any:
    return transforms.ComposeTransform([first, transforms.AffineTransform(loc, scale)])


def _to_interval(c: Any) -> Any:
    low, high = c.lower_bound, c.upper_bound
    if isinstance(low, _Number) and low == 0 and isinstance(high, _Number) and high == 1:
        return transforms.SigmoidTransform()
    return _scaled(transforms.SigmoidTransform(), low, high - low)


def _to_greater(c: Any) -> Any:
    return _scaled(transforms.ExpTransform(), c.lower_bound, 1)


for _to in (biject_to, transform_to):
    for _constraint, _factory in {
        constraints._Real: lambda c: transforms.identity_transform,
        constraints._IndependentConstraint: lambda c, to=_to: transforms.IndependentTransform(
            to(c.base_constraint), c.reinterpreted_batch_ndims
        ),
        constraints._GreaterThan: _to_greater,
        constraints._GreaterThanEq: _to_greater,
        constraints._LessThan: lambda c: _scaled(transforms.ExpTransform(), c.upper_bound, -1),
        constraints._Interval: _to_interval,
        constraints._HalfOpenInterval: _to_interval,
        constraints._CorrCholesky: lambda c: transforms.CorrCholeskyTransform(),
        constraints._Cat: lambda c, to=_to: transforms.CatTransform([to(x) for x in c.cseq], c.dim, c.lengths),
        constraints._Stack: lambda c, to=_to: transforms.StackTransform([to(x) for x in c.cseq], c.dim),
    }.items():
        _to.register(_constraint, _factory)

biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda c: transforms.PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite, lambda c: transforms.PositiveDefiniteTransform())
