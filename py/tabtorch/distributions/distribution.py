"""`Distribution`, the base of all: shapes, expanding, and the checks of parameters and samples.

A check is a bool tensor, and to look at it is to wait for the device. So the checks of one construction, or of one call of
`log_prob`, those of the distributions inside it too, are joined and read at once (`one_read`); only if they do not all
hold are they looked at one by one, for the error of the first that fails.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import tabtorch as torch
from tabtorch import _lazy
from tabtorch.base.thread_state import STATE
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.utils import _Number, broadcast_all, lazy_property

_Check = tuple[Any, Callable[[], Exception]]
#: checks that wait for the end of the outermost `one_read`
_waiting: list[_Check] | None = None


@contextlib.contextmanager
def one_read() -> Iterator[None]:
    """All checks that are asked for inside are read at its end. Also a decorator."""
    global _waiting
    if _waiting is not None:
        yield
        return
    checks: list[_Check] = []
    _waiting = checks
    try:
        yield
    except Exception:
        _waiting = None
        _settle(checks)  # what was wrong first
        raise
    finally:
        _waiting = None
    _settle(checks)


def _ask(checks: list[_Check]) -> None:
    if _waiting is None:
        _settle(checks)
    else:
        _waiting.extend(checks)


def _settle(checks: list[_Check]) -> None:
    """Raises the error of the first check that fails."""
    if STATE.levels:  # vmap: of all examples
        checks = [(v if isinstance(v, bool) else _lazy.func.debug_unwrap(v), error) for v, error in checks]
    joined: dict[Any, Any] = {}
    for valid, _ in checks:
        if valid is False:
            joined[None] = False
        elif valid is not True:
            key = valid.device, valid.shape
            joined[key] = joined[key] & valid if key in joined else valid
    holds: dict[Any, Any] = {}
    for key, valid in joined.items():
        device = key and key[0]
        valid = valid if key is None else valid.all()
        holds[device] = holds[device] & valid if device in holds else valid
    if not all(holds.values()):
        for valid, error in checks:
            if not (valid if isinstance(valid, bool) else valid.all()):
                raise error()


class Distribution:
    """The base class of probability distributions. `batch_shape`: of its parameters; `event_shape`: of one sample."""

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args: Any = __debug__
    #: what `expand` does with attributes: "name" is expanded to the batch shape, "name:n" to that and its own last n
    #: dimensions, "name=" is kept. A class that has a constructor of its own must have its own list.
    _fields: str
    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    _given: Any = {}  # parameters that were numbers: they can be checked without the device

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether arguments are checked where `validate_args` is not given."""
        if value not in [True, False]:
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None) -> None:
        self._batch_shape = torch.Size(batch_shape)
        self._event_shape = torch.Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _set(self, **parameters: Any) -> tuple[Tensor, ...]:
        """Sets parameters, broadcast against each other."""
        tensors = broadcast_all(*parameters.values())
        for name, t in zip(parameters, tensors):
            setattr(self, name, t)
        if tensors[0].dtype.is_floating_point:
            self._given = {
                k: v for k, v in parameters.items() if isinstance(v, _Number) and (v == 0 or 1e-30 < abs(v) < 1e30)
            }
        return tensors

    def _begin(self, validate_args: bool | None, **parameters: Any) -> None:
        """The rest of a constructor whose parameters broadcast, and whose event is one number."""
        Distribution.__init__(self, self._set(**parameters)[0].size(), validate_args=validate_args)

    def _check_parameters(self) -> None:
        try:
            wanted = self.arg_constraints
        except NotImplementedError:
            wanted = {}
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. "
                "Please set `arg_constraints = {}` or initialize the distribution "
                "with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
        checks: list[_Check] = []
        present = set(self.__dict__)
        try:
            for name, constraint in wanted.items():
                if constraints.is_dependent(constraint):
                    continue
                if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                    continue  # made of the others
                value = getattr(self, name)
                valid = constraint.check(self._given.get(name, value))
                checks.append((valid, partial(self._wrong, name, constraint, value, present)))
        finally:
            _ask(checks)

    def _wrong(self, name: str, constraint: Any, value: Any, present: set[str]) -> ValueError:
        for later in set(self.__dict__) - present:  # made by another check, and not to be shown
            del self.__dict__[later]
        return ValueError(
            f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) "
            f"of distribution {self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
        )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with its parameters expanded to `batch_shape`. Nothing is checked anew."""
        new, batch_shape = self._expanded(batch_shape, _instance)
        return self._finish(new, batch_shape, self._event_shape)

    def _expanded(self, batch_shape: Any, _instance: Any) -> tuple[Any, Any]:
        """A new instance that has the attributes of `_fields`, and the batch shape as a Size."""
        owner: Any = next((c for c in type(self).__mro__ if "_fields" in c.__dict__), None)
        if owner is None:
            raise NotImplementedError
        new = self._get_checked_instance(owner, _instance)
        batch_shape = torch.Size(batch_shape)
        for field in owner._fields.split():
            name, _, own = field.rstrip("=").partition(":")
            value = self.__dict__.get(name)
            if value is None:
                continue  # made when somebody asks for it
            if not field.endswith("="):
                shape = value.shape if isinstance(value, Tensor) else value._batch_shape
                value = value.expand(batch_shape + shape[len(shape) - int(own or 0) :])
            setattr(new, name, value)
        return new, batch_shape

    def _finish(self, new: Any, batch_shape: Any, event_shape: Any) -> Any:
        Distribution.__init__(new, batch_shape, event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def batch_shape(self) -> Any:
        """The shape over which parameters are batched."""
        return self._batch_shape

    @property
    def event_shape(self) -> Any:
        """The shape of one sample."""
        return self._event_shape

    @property
    def arg_constraints(self) -> Any:
        """The constraint of each argument."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint that samples satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Samples, shape sample_shape + batch_shape + event_shape, with no gradient."""
        with torch.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Samples through which gradients reach the parameters. NotImplementedError where there are none."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """`sample((n,))`."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", category=FutureWarning, stacklevel=2
        )
        return self.sample(torch.Size((n,)))

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density or mass at `value`."""
        raise NotImplementedError

    def cdf(self, value: Any) -> Tensor:
        """The cumulated probability up to `value`."""
        raise NotImplementedError

    def icdf(self, value: Any) -> Tensor:
        """The inverse of `cdf`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along a new first dimension; with `expand` in the batch shape, else with sizes of 1."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy, of batch_shape."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """exp of the entropy."""
        return torch.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = ()) -> Any:
        return torch.Size(sample_shape) + self._batch_shape + self._event_shape

    def _all(self, number: float, like: Any) -> Tensor:
        return torch.full(self._extended_shape(), number, dtype=like.dtype, device=like.device)

    def _enumerated(self, values: Any, expand: bool) -> Tensor:
        """Values along the first dimension, and the batch after it."""
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values

    def _validate_sample(self, value: Any) -> None:
        """ValueError if the shape of `value` does not fit, or it is outside of the support."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape = value.size()
        if shape[len(shape) - len(self._event_shape) :] != self._event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {shape} vs {self._event_shape}.")
        expected = self._batch_shape + self._event_shape
        for i, j in zip(reversed(shape), reversed(expected)):
            if i != 1 and j != 1 and i != j:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {shape} vs {expected}.")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `support` to enable "
                "sample validation. Please initialize the distribution with "
                "`validate_args=False` to turn off validation.",
                stacklevel=2,
            )
            return
        if support is None:
            raise AssertionError("support is unexpectedly None")
        _ask([(support.check(value), lambda: self._outside(value, support))])

    def _outside(self, value: Any, support: Any) -> ValueError:
        return ValueError(
            f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
            f"to be within the support ({support!r}) of the distribution {self!r}, "
            f"but found invalid values:\n{value}"
        )

    def _get_checked_instance(self, cls: Any, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"Subclass {self.__class__.__name__} of {cls.__name__} that defines a custom __init__ method "
                "must also define a custom .expand() method."
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        own = {k: self.__dict__[k] for k in self.arg_constraints if k in self.__dict__}
        args = ", ".join(f"{k}: {v if v.numel() == 1 else v.size()}" for k, v in own.items())
        return f"{self.__class__.__name__}({args})"
