"""Constraints on parameters and samples. See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints

`check(value)` tells by a bool tensor, over the batch dimensions, where a value satisfies one; `event_dim` is the number of
dimensions that one value has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tabtorch as torch


def _need(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


class Constraint:
    """A region over which a variable is valid."""

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Any) -> Any:
        """A bool tensor: whether each event of `value` satisfies it."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.__class__.__name__[1:] + "()"


class _Dependent(Constraint):
    """One that depends on other variables, and cannot be checked by itself."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    def _known(self, name: str) -> Any:
        value = getattr(self, "_" + name)
        if value is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    is_discrete = property(lambda self: self._known("is_discrete"))
    event_dim = property(lambda self: self._known("event_dim"))

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> Any:
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, x: Any) -> Any:
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """Whether it depends on other variables."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property that gives the constraint of an instance, and on the class says what is known of all."""

    def __init__(self, fn: Any = None, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        property.__init__(self, fn)
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    def __call__(self, fn: Any) -> Any:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def _all_from(result: Any, ndim: int) -> Any:
    """`all` over the dimensions from `ndim` on."""
    return result.reshape((*result.shape[:ndim], -1)).all(-1)


class _Over(Constraint):
    def __init__(self, base_constraint: Any) -> None:
        _need(
            isinstance(base_constraint, Constraint),
            f"base_constraint must be a Constraint, got {type(base_constraint).__name__}",
        )
        self.base_constraint = base_constraint

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim)


class _IndependentConstraint(_Over):
    """Another one, with some of its batch dimensions taken into the event."""

    def __init__(self, base_constraint: Any, reinterpreted_batch_ndims: int) -> None:
        super().__init__(base_constraint)
        n = reinterpreted_batch_ndims
        _need(isinstance(n, int), f"reinterpreted_batch_ndims must be an int, got {type(n).__name__}")
        _need(n >= 0, f"reinterpreted_batch_ndims must be >= 0, got {n}")
        self.reinterpreted_batch_ndims = n

    event_dim = property(lambda self: self.base_constraint.event_dim + self.reinterpreted_batch_ndims)

    def check(self, value: Any) -> Any:
        result = self.base_constraint.check(value)
        if result.dim() < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return _all_from(result, result.dim() - self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__[1:]}({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(_Over):
    """The constraint of each component of a mixture."""

    def check(self, value: Any) -> Any:
        result = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return _all_from(result, value.dim() - self.event_dim)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.base_constraint!r})"


# ---- of one element


class _Bounded(Constraint):
    def __repr__(self) -> str:
        bounds = ", ".join(f"{k}={v}" for k, v in self.__dict__.items())
        return f"{self.__class__.__name__[1:]}({bounds})"


class _Lower(_Bounded):
    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class _Upper(_Bounded):
    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound


class _Both(_Bounded):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound


def _simple(name: str, base: type, check: Callable[[Any, Any], Any], is_discrete: bool = False) -> Any:
    return type(name, (base,), {"check": check, "is_discrete": is_discrete, "__module__": __name__})


_Boolean = _simple("_Boolean", Constraint, lambda self, x: (x == 0) | (x == 1), True)
_Real = _simple("_Real", Constraint, lambda self, x: x == x)
_GreaterThan = _simple("_GreaterThan", _Lower, lambda self, x: self.lower_bound < x)
_GreaterThanEq = _simple("_GreaterThanEq", _Lower, lambda self, x: self.lower_bound <= x)
_LessThan = _simple("_LessThan", _Upper, lambda self, x: x < self.upper_bound)
_Interval = _simple("_Interval", _Both, lambda self, x: (self.lower_bound <= x) & (x <= self.upper_bound))
_HalfOpenInterval = _simple(
    "_HalfOpenInterval", _Both, lambda self, x: (self.lower_bound <= x) & (x < self.upper_bound)
)
_IntegerInterval = _simple(
    "_IntegerInterval", _Both, lambda self, x: (x % 1 == 0) & (self.lower_bound <= x) & (x <= self.upper_bound), True
)
_IntegerLessThan = _simple("_IntegerLessThan", _Upper, lambda self, x: (x % 1 == 0) & (x <= self.upper_bound), True)
_IntegerGreaterThan = _simple(
    "_IntegerGreaterThan", _Lower, lambda self, x: (x % 1 == 0) & (x >= self.lower_bound), True
)


# ---- of a vector


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Any) -> Any:
        return ((value == 0) | (value == 1)).all(-1) & value.sum(-1).eq(1)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Any) -> Any:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(_Upper):
    is_discrete = True
    event_dim = 1

    def check(self, x: Any) -> Any:
        return (x >= 0).all(dim=-1) & (x.sum(dim=-1) <= self.upper_bound)

    __repr__ = Constraint.__repr__


# ---- of a matrix


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Any) -> Any:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    def check(self, value: Any) -> Any:
        tolerance = torch.finfo(value.dtype).eps * value.size(-1) * 10
        norm = value.detach().square().sum(-1).sqrt()
        return super().check(value) & (norm - 1.0).abs().le(tolerance).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        square = value.shape[-2] == value.shape[-1]
        return torch.full(value.shape[:-2], square, dtype=torch.bool, device=value.device)


class _Symmetric(_Square):
    def check(self, value: Any) -> Any:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        symmetric = torch.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)
        return self._definite(value, symmetric) if symmetric.all() else symmetric

    def _definite(self, value: Any, symmetric: Any) -> Any:
        """Of symmetric ones."""
        return symmetric


class _PositiveSemidefinite(_Symmetric):
    def _definite(self, value: Any, symmetric: Any) -> Any:
        return torch.linalg.eigvalsh(value).ge(0).all(-1)


class _PositiveDefinite(_Symmetric):
    def _definite(self, value: Any, symmetric: Any) -> Any:
        return torch.linalg.cholesky_ex(value).info.eq(0)


# ---- of parts


class _Sequence(Constraint):
    def __init__(self, cseq: Any, dim: int = 0) -> None:
        _need(all(isinstance(c, Constraint) for c in cseq), "All elements of cseq must be Constraint instances")
        self.cseq = list(cseq)
        self.dim = dim

    is_discrete = property(lambda self: any(c.is_discrete for c in self.cseq))
    event_dim = property(lambda self: max(c.event_dim for c in self.cseq))

    def _check_dim(self, value: Any) -> None:
        n = value.dim()
        _need(-n <= self.dim < n, f"dim {self.dim} out of range for value with {n} dimensions")


class _Cat(_Sequence):
    """One for each of the submatrices along `dim`, whose sizes are `lengths`, as `torch.cat` joins them."""

    def __init__(self, cseq: Any, dim: int = 0, lengths: Any = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        _need(len(self.lengths) == len(self.cseq), f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})")

    def check(self, value: Any) -> Any:
        self._check_dim(value)
        parts = value.narrow(self.dim, 0, sum(self.lengths)).split(self.lengths, self.dim)
        return torch.cat([c.check(v) for c, v in zip(self.cseq, parts)], self.dim)


class _Stack(_Sequence):
    """One for each of the slices along `dim`, as `torch.stack` joins them."""

    @property
    def event_dim(self) -> int:
        dim = max(c.event_dim for c in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Any) -> Any:
        self._check_dim(value)
        return torch.stack([c.check(v) for v, c in zip(value.unbind(self.dim), self.cseq)], self.dim)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack

__all__ = [
    name
    for name, v in list(globals().items())
    if name[0] != "_"
    and (isinstance(v, (Constraint, type(is_dependent))) or (isinstance(v, type) and issubclass(v, Constraint)))
]
