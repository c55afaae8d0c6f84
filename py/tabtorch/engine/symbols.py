"""Sizes that are not known yet: what makes one schedule serve windows of every size.

A window is scheduled once with a `Symbol` in the place of each size and stride. A Symbol has the value of the window at hand, so
the code that fuses and writes kernels runs as it does with ints. Arithmetic gives Symbols again, whose expressions later become
the numbers of kernels (recipes.py). What the code decides is noted: a comparison gives the answer for the value at hand,
and is a *guard* of the schedule, which only serves sizes with the same answer. Where Python needs the very int (an index, a
range, text), the Symbol is *pinned*: its value is a guard. So code that knows nothing of symbols stays right, and is only less
general.

Every number that stands for a Symbol at first is at least 2: 0, 1 and negative ones are part of a window's structure.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trace import Trace

#: whether a script was ever given Symbols: what is made of views has to look for them from then on
given = [False]


class ConstraintViolationError(RuntimeError):
    """A size that `mark_dynamic` says varies cannot: it is `torch.fx.experimental.symbolic_shapes.ConstraintViolationError`."""


class Symbol:
    """A whole number as an expression of a window's sizes: a sum of terms, each a number times a product of atoms.

    terms: {atoms, sorted, as indices of `Trace.atoms`: factor}. least: a bound from below that holds for all sizes, or None.
    """

    __slots__ = ("least", "terms", "trace", "value")

    def __init__(self, trace: Trace, value: int, terms: dict[tuple[int, ...], int], least: int | None) -> None:
        self.trace = trace
        self.value = value
        self.terms = terms
        self.least = least

    def __hash__(self) -> int:
        """Own tables compare what they find, and that is noted. Those of a script have ints in them, and must not miss one."""
        trace = self.trace
        if not trace.captures:
            return trace.hash
        if trace.closed or _of_script(1):
            return hash(self.pinned(True))
        return trace.hash

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Sizes that a script sees are ints to `isinstance`; to C code they are none, and so it asks for the value."""
        return int if self.trace.captures else Symbol

    def __getattr__(self, name: str) -> Any:
        if not hasattr(int, name):
            raise AttributeError(f"'int' object has no attribute '{name}'")
        return getattr(self.pinned(), name)

    def __reduce__(self) -> Any:
        return int, (self.pinned(),)

    def __deepcopy__(self, memo: Any) -> Symbol:
        return self

    # ---- arithmetic

    def __add__(self, o: Any) -> Any:
        return self.trace.binary("+", self, o)

    def __radd__(self, o: Any) -> Any:
        return self.trace.binary("+", o, self)

    def __sub__(self, o: Any) -> Any:
        return self.trace.binary("-", self, o)

    def __rsub__(self, o: Any) -> Any:
        return self.trace.binary("-", o, self)

    def __mul__(self, o: Any) -> Any:
        return self.trace.binary("*", self, o)

    def __rmul__(self, o: Any) -> Any:
        return self.trace.binary("*", o, self)

    def __floordiv__(self, o: Any) -> Any:
        return self.trace.binary("//", self, o)

    def __rfloordiv__(self, o: Any) -> Any:
        return self.trace.binary("//", o, self)

    def __mod__(self, o: Any) -> Any:
        return self.trace.binary("%", self, o)

    def __rmod__(self, o: Any) -> Any:
        return self.trace.binary("%", o, self)

    def __divmod__(self, o: Any) -> Any:
        return self // o, self % o

    def __rdivmod__(self, o: Any) -> Any:
        return o // self, o % self

    def __neg__(self) -> Any:
        return self.trace.binary("*", self, -1)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __and__(self, o: Any) -> Any:
        if o == 0xFFFFFFFF:  # a parameter word: those that may be negative are cut when they are known
            return self
        return self.pinned() & o

    # ---- comparison

    def __eq__(self, o: Any) -> Any:
        return self.trace.compare("==", self, o)

    def __ne__(self, o: Any) -> Any:
        r = self.trace.compare("==", self, o)
        return r if r is NotImplemented else not r

    def __lt__(self, o: Any) -> Any:
        return self.trace.compare("<", self, o)

    def __le__(self, o: Any) -> Any:
        return self.trace.compare("<=", self, o)

    def __gt__(self, o: Any) -> Any:
        r = self.trace.compare("<=", self, o)
        return r if r is NotImplemented else not r

    def __ge__(self, o: Any) -> Any:
        r = self.trace.compare("<", self, o)
        return r if r is NotImplemented else not r

    def __bool__(self) -> bool:
        return not self.trace.compare("==", self, 0)

    # ---- where the very number is needed

    def pinned(self, asked: bool = False) -> int:
        """The value, which becomes a guard. asked: whether a script needs it to be just that, see `Trace.demanded`."""
        self.trace.compare("==", self, self.value, asked)
        return self.value

    __int__ = pinned

    def __index__(self) -> int:
        return self.pinned(self.trace.captures and _of_script(1))

    def __float__(self) -> float:
        return float(self.pinned())

    def __truediv__(self, o: Any) -> Any:
        return self.trace.real("/", self, o)

    def __rtruediv__(self, o: Any) -> Any:
        return self.trace.real("/", o, self)

    def __pow__(self, o: Any, modulus: Any = None) -> Any:
        if modulus is None and type(o) is int and 0 < o < 5:
            return self if o == 1 else self * self ** (o - 1)
        return self.trace.real("**", self, o) if modulus is None else pow(self.pinned(), o, modulus)

    def __rpow__(self, o: Any) -> Any:
        return o ** self.pinned()

    def __round__(self, digits: Any = None) -> Any:
        return self if digits is None else round(self.pinned(), digits)

    def __trunc__(self) -> Symbol:
        return self

    __floor__ = __ceil__ = __trunc__

    def __rand__(self, o: Any) -> Any:
        return o & self.pinned()

    def __or__(self, o: Any) -> Any:
        return self.pinned() | o

    __ror__ = __or__

    def __xor__(self, o: Any) -> Any:
        return self.pinned() ^ o

    __rxor__ = __xor__

    def __lshift__(self, o: Any) -> Any:
        return self.pinned() << o

    def __rlshift__(self, o: Any) -> Any:
        return o << self.pinned()

    def __rshift__(self, o: Any) -> Any:
        return self.pinned() >> o

    def __rrshift__(self, o: Any) -> Any:
        return o >> self.pinned()

    def __invert__(self) -> int:
        return ~self.pinned()

    def bit_length(self) -> int:
        return self.pinned().bit_length()

    def __repr__(self) -> str:
        return repr(self.pinned())

    def __format__(self, spec: str) -> str:
        return format(self.pinned(), spec)


def _of_script(depth: int) -> bool:
    """Whether the caller, or who called that many functions before it, is no part of the package."""
    return str(sys._getframe(1 + depth).f_globals.get("__name__")).partition(".")[0] != "tabtorch"


def concrete(x: Any) -> Any:
    """The number that a Symbol has for the window at hand; it is no guard."""
    return x.value if type(x) is Symbol or type(x) is Real else x


def fixed(x: Any) -> Any:
    """The same, which becomes a guard."""
    return x.pinned() if is_number(x) else x


class Real:
    """A float made of Symbols: `trace` knows how. Whatever is not arithmetic asks for its value, which pins the Symbols in it."""

    __slots__ = ("parts", "trace", "value")

    def __init__(self, trace: Trace, value: float, parts: tuple[str, Any, Any]) -> None:
        """parts: operator and operands."""
        self.trace = trace
        self.value = value
        self.parts = parts

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float

    def pinned(self) -> float:
        """The value, which becomes a guard."""
        stack: list[Any] = [self]
        while stack:
            x = stack.pop()
            if type(x) is Real:
                stack += x.parts[1:]
            elif type(x) is Symbol:
                x.pinned()
        return self.value

    __float__ = pinned

    def __getattr__(self, name: str) -> Any:
        if not hasattr(float, name):
            raise AttributeError(f"'float' object has no attribute '{name}'")
        return getattr(self.pinned(), name)

    def __reduce__(self) -> Any:
        return float, (self.pinned(),)

    def __deepcopy__(self, memo: Any) -> Real:
        return self

    def __pos__(self) -> Real:
        return self

    def __neg__(self) -> Any:
        return self.trace.real("*", self, -1.0)


def _arithmetic(op: str, swapped: bool) -> Any:
    return lambda a, b: a.trace.real(op, b, a) if swapped else a.trace.real(op, a, b)


def _of_value(name: str) -> Any:
    f = getattr(float, name)
    return lambda a, *rest: f(a.pinned(), *[x.pinned() if type(x) in (Real, Symbol) else x for x in rest])


for _name, _op in {"add": "+", "sub": "-", "mul": "*", "truediv": "/"}.items():
    setattr(Real, f"__{_name}__", _arithmetic(_op, False))
    setattr(Real, f"__r{_name}__", _arithmetic(_op, True))
for _name in (
    "lt le eq ne gt ge hash bool int trunc floor ceil round abs repr str format pow rpow floordiv rfloordiv mod rmod "
    "divmod rdivmod"
).split():
    setattr(Real, f"__{_name}__", _of_value(f"__{_name}__"))


def is_number(x: Any) -> bool:
    """Whether it is a Symbol or a Real."""
    return type(x) is Symbol or type(x) is Real
