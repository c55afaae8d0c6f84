"""The expression form kernels are written in; `wgsl.py` and `js.py` render it.

An `Expr` is a typed, immutable tree node. Types: f32 f64 i32 u32 i64 bool (u32 is also the index type). Complex numbers
are a pair of real expressions (`Complex`), so the renderers never meet them.

Arithmetic means what PyTorch's does for the compute type: integers wrap, `//`-like integer division is spelled `idiv`
(towards zero) and `imod`; comparison with NaN is false; `minimum`/`maximum` here do not care about NaN (rows that must, say so).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

REAL = ("f32", "f64")
INTS = ("i32", "u32", "i64")


class Expr:
    """One operation on typed arguments. `value` holds a constant, a name, or a slot, by `op`."""

    __slots__ = ("args", "op", "type", "value")

    def __init__(self, op: str, type: str, args: tuple[Expr, ...] = (), value: Any = None) -> None:
        self.op = op
        self.type = type
        self.args = args
        self.value = value

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.args)) if self.args else repr(self.value)
        return f"{self.op}:{self.type}({inside})"

    def __add__(self, o: Any) -> Any:
        return _binary("add", self, o)

    def __radd__(self, o: Any) -> Any:
        return _binary("add", o, self)

    def __sub__(self, o: Any) -> Any:
        return _binary("sub", self, o)

    def __rsub__(self, o: Any) -> Any:
        return _binary("sub", o, self)

    def __mul__(self, o: Any) -> Any:
        return _binary("mul", self, o)

    def __rmul__(self, o: Any) -> Any:
        return _binary("mul", o, self)

    def __truediv__(self, o: Any) -> Any:
        return _binary("div", self, o)

    def __rtruediv__(self, o: Any) -> Any:
        return _binary("div", o, self)

    def __neg__(self) -> Any:
        return Expr("neg", self.type, (self,))

    def __lt__(self, o: Any) -> Any:
        return _compare("lt", self, o)

    def __le__(self, o: Any) -> Any:
        return _compare("le", self, o)

    def __gt__(self, o: Any) -> Any:
        return _compare("gt", self, o)

    def __ge__(self, o: Any) -> Any:
        return _compare("ge", self, o)

    def __eq__(self, o: Any) -> Any:
        return _compare("eq", self, o)

    def __ne__(self, o: Any) -> Any:
        return _compare("ne", self, o)

    def __and__(self, o: Any) -> Any:
        return _binary("and", self, o)

    def __rand__(self, o: Any) -> Any:
        return _binary("and", o, self)

    def __or__(self, o: Any) -> Any:
        return _binary("or", self, o)

    def __ror__(self, o: Any) -> Any:
        return _binary("or", o, self)

    def __xor__(self, o: Any) -> Any:
        return _binary("xor", self, o)

    def __invert__(self) -> Any:
        return Expr("not", self.type, (self,))

    def __lshift__(self, o: Any) -> Any:
        return _binary("shl", self, o)

    def __rshift__(self, o: Any) -> Any:
        return _binary("shr", self, o)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError("an Expr has no truth value: use where()")


class Complex:
    """A complex value as two real expressions; `type` is c64 or c128."""

    __slots__ = ("im", "re", "type")

    def __init__(self, re: Expr, im: Expr) -> None:
        self.re = re
        self.im = im
        self.type = "c64" if re.type == "f32" else "c128"

    def __add__(self, o: Any) -> Any:
        o = self._lift(o)
        return Complex(self.re + o.re, self.im + o.im)

    __radd__ = __add__

    def __sub__(self, o: Any) -> Any:
        o = self._lift(o)
        return Complex(self.re - o.re, self.im - o.im)

    def __rsub__(self, o: Any) -> Any:
        return self._lift(o) - self

    def __mul__(self, o: Any) -> Any:
        o = self._lift(o)
        return Complex(self.re * o.re - self.im * o.im, self.re * o.im + self.im * o.re)

    __rmul__ = __mul__

    def __truediv__(self, o: Any) -> Any:
        o = self._lift(o)
        # Smith's method: scale by the larger part, so that squares cannot overflow. Exact quotients would gain nothing here.
        big = absolute(o.re) >= absolute(o.im)
        large, small = where(big, o.re, o.im), where(big, o.im, o.re)
        r = call("ratio", large.type, small, large)
        d = large + small * r
        re = where(big, self.re + self.im * r, self.re * r + self.im)
        im = where(big, self.im - self.re * r, self.im * r - self.re)
        # by zero each part is divided by itself, as in PyTorch, so that an infinity says where the number was
        zero = (o.re == 0) & (o.im == 0)
        re, d_re = where(zero, self.re, re), where(zero, absolute(o.re), d)
        im, d_im = where(zero, self.im, im), where(zero, absolute(o.im), d)
        return Complex(call("ratio", d.type, re, d_re), call("ratio", d.type, im, d_im))

    def __rtruediv__(self, o: Any) -> Any:
        return self._lift(o) / self

    def __neg__(self) -> Any:
        return Complex(-self.re, -self.im)

    def __eq__(self, o: Any) -> Any:
        o = self._lift(o)
        return (self.re == o.re) & (self.im == o.im)

    def __ne__(self, o: Any) -> Any:
        o = self._lift(o)
        return (self.re != o.re) | (self.im != o.im)

    __hash__ = object.__hash__

    def _lift(self, o: Any) -> Complex:
        if isinstance(o, Complex):
            return o
        t = self.re.type
        if isinstance(o, Expr):
            return Complex(o, const(0, t))
        o = complex(o)
        return Complex(const(o.real, t), const(o.imag, t))


def const(value: Any, type: str) -> Any:
    """A literal. Numbers that vary from call to call are scalars of the node instead, so that no kernel is keyed on them."""
    if type in ("c64", "c128"):
        value = complex(value)
        t = "f32" if type == "c64" else "f64"
        return Complex(const(value.real, t), const(value.imag, t))
    if type == "bool":
        value = bool(value)
    elif type in INTS:
        value = int(value)
    else:
        value = float(value)
    return Expr("const", type, (), value)


def _lift(v: Any, like: Any) -> Any:
    if isinstance(v, (Expr, Complex)):
        return v
    return const(v, like.type)


def _binary(op: str, a: Any, b: Any) -> Any:
    if isinstance(a, Complex) or isinstance(b, Complex):
        z = a if isinstance(a, Complex) else b
        a, b = z._lift(a), z._lift(b)
        return {"add": a.__add__, "sub": a.__sub__, "mul": a.__mul__, "div": a.__truediv__}[op](b)
    a, b = (_lift(a, b), b) if not isinstance(a, Expr) else (a, _lift(b, a))
    if a.type != b.type and op not in ("shl", "shr"):
        raise TypeError(f"{op} of {a.type} and {b.type}")
    if a.type == "u32" and a.op == "const" and b.op == "const" and op in ("add", "mul"):
        return const(a.value + b.value if op == "add" else a.value * b.value, "u32")
    if a.type == "u32" and a.op == "const" and b.op == "const" and op in ("idiv", "imod") and b.value:
        return const(a.value // b.value if op == "idiv" else a.value % b.value, "u32")
    if op == "add" and a.type == "u32":  # index arithmetic: keep the text short
        if a.op == "const" and a.value == 0:
            return b
        if b.op == "const" and b.value == 0:
            return a
    if op == "mul" and a.type == "u32":
        if a.op == "const" and a.value in (0, 1):
            return b if a.value else a
        if b.op == "const" and b.value in (0, 1):
            return a if b.value else b
    return Expr(op, a.type, (a, b))


def _compare(op: str, a: Any, b: Any) -> Any:
    if isinstance(b, Complex):
        return getattr(b._lift(a), f"__{op}__")(b)
    b = _lift(b, a)
    if a.type != b.type:
        raise TypeError(f"{op} of {a.type} and {b.type}")
    return Expr(op, "bool", (a, b))


def where(cond: Expr, a: Any, b: Any) -> Any:
    """`a` where `cond` holds, else `b`. Both sides may be evaluated."""
    if isinstance(a, Complex) or isinstance(b, Complex):
        z = a if isinstance(a, Complex) else b
        a, b = z._lift(a), z._lift(b)
        return Complex(where(cond, a.re, b.re), where(cond, a.im, b.im))
    if not isinstance(a, Expr):
        a = _lift(a, b)
    b = _lift(b, a)
    if a.type != b.type:
        raise TypeError(f"where of {a.type} and {b.type}")
    return Expr("select", a.type, (cond, a, b))


def cast(x: Any, type: str) -> Any:
    """Conversion as PyTorch's `to`: float to integer truncates, to bool is `!= 0`."""
    if isinstance(x, Complex):
        if type in ("c64", "c128"):
            t = "f32" if type == "c64" else "f64"
            return Complex(cast(x.re, t), cast(x.im, t))
        if type == "bool":
            return (x.re != 0) | (x.im != 0)
        return cast(x.re, type)
    if type in ("c64", "c128"):
        t = "f32" if type == "c64" else "f64"
        return Complex(cast(x, t), const(0, t))
    if x.type == type:
        return x
    if x.op == "const":
        if type in INTS and x.type in REAL:
            return Expr("cast", type, (x,))
        return const(x.value, type)
    if type == "bool":
        return x != const(0, x.type)
    return Expr("cast", type, (x,))


def bitcast(x: Expr, type: str) -> Expr:
    """The same 32 bits as another type (f32, i32, u32)."""
    return Expr("bitcast", type, (x,))


def as_single(x: Expr) -> Expr:
    """An f32 rounded to its 32 bits, where that must overflow: the cpu device computes in double precision up to a store."""
    return bitcast(bitcast(x, "i32"), "f32") if x.type == "f32" else x


def fit(x: Any, name: str) -> Any:
    """Brings a computed value to exactly what the dtype called `name` can hold (wraps small integers, rounds 16-bit floats)."""
    if isinstance(x, Complex):
        t = "f32" if name == "complex64" else "f64"
        return Complex(cast(x.re, t), cast(x.im, t))
    return Expr("fit", x.type, (x,), name) if name in _NARROW else x


_NARROW = ("uint8", "int8", "int16", "float16", "bfloat16", "float32")


def _unary(name: str) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        if isinstance(x, Complex):
            from .complex import FUNCTIONS

            return FUNCTIONS[name](x)
        return Expr("call", x.type, (x,), name)

    f.__name__ = name
    return f


#: functions that mean the same in both languages; those WGSL is loose on are written out in functions.py and wgsl_math.py
NATIVE = ("abs", "floor", "ceil", "trunc", "round", "sqrt", "rsqrt", "sign")

absolute = _unary("abs")
floor = _unary("floor")
ceil = _unary("ceil")
trunc = _unary("trunc")
rint = _unary("round")
sqrt = _unary("sqrt")
rsqrt = _unary("rsqrt")
exp = _unary("exp")
exp2 = _unary("exp2")
log = _unary("log")
log2 = _unary("log2")
sin = _unary("sin")
cos = _unary("cos")
tan = _unary("tan")
asin = _unary("asin")
acos = _unary("acos")
atan = _unary("atan")
sinh = _unary("sinh")
cosh = _unary("cosh")
tanh = _unary("tanh")
asinh = _unary("asinh")
acosh = _unary("acosh")
atanh = _unary("atanh")


def call(name: str, type: str, *args: Expr) -> Expr:
    """A call of a native function, or of one defined with `define`."""
    return Expr("call", type, args, name)


def minimum(a: Any, b: Any) -> Any:
    return _binary("min", a, b)


def maximum(a: Any, b: Any) -> Any:
    return _binary("max", a, b)


def idiv(a: Any, b: Any) -> Any:
    """Integer quotient towards zero; 0 where the divisor is 0."""
    return _binary("idiv", a, b)


def imod(a: Any, b: Any) -> Any:
    """Integer remainder with the dividend's sign (C's %); 0 where the divisor is 0."""
    return _binary("imod", a, b)


def isnan(x: Any) -> Any:
    if isinstance(x, Complex):
        return isnan(x.re) | isnan(x.im)
    return Expr("isnan", "bool", (x,)) if x.type in REAL else const(False, "bool")


def isinf(x: Any) -> Any:
    if isinstance(x, Complex):
        return isinf(x.re) | isinf(x.im)
    return Expr("isinf", "bool", (x,)) if x.type in REAL else const(False, "bool")


def signbit(x: Any) -> Any:
    """True for negative numbers and -0.0."""
    return Expr("signbit", "bool", (x,)) if x.type in REAL else x < 0


_defined: dict[str, Callable[..., Any]] = {}


def define(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function written in expressions. Kernels that use it get it once, as a function of their language.

    The result has the type of the first argument; the body is traced once a type.
    """

    def wrap(body: Callable[..., Any]) -> Callable[..., Any]:
        _defined[name] = body

        def f(*args: Any) -> Any:
            if isinstance(args[0], Complex):
                from .complex import FUNCTIONS

                return FUNCTIONS[name](*args)
            like = next(a for a in args if isinstance(a, Expr))
            return Expr("call", like.type, tuple([_lift(a, like) for a in args]), name)

        f.__name__ = name
        f.__doc__ = body.__doc__
        return f

    return wrap


def definition(name: str) -> Callable[..., Any] | None:
    from . import functions  # noqa: F401  (fills the table)

    return _defined.get(name)


def variable(name: str, type: str) -> Expr:
    """A name that the kernel around the expression declares."""
    return Expr("var", type, (), name)


class Loop:
    """A loop of one function: the variables that it carries, their first values, and what becomes of them."""

    __slots__ = ("count", "first", "go", "limit", "names", "next")

    def __init__(self, name: str, limit: int, body: Callable[..., Any], first: tuple[Expr, ...]) -> None:
        self.count = name + "_k"
        self.limit = limit
        self.first = first
        self.names = [f"{name}_{i}" for i in range(len(first))]
        count = cast(variable(self.count, "u32"), first[0].type)
        self.go, *self.next = body(count, *(variable(n, x.type) for n, x in zip(self.names, first, strict=True)))


def repeat(name: str, limit: int, body: Callable[..., Any], *first: Expr) -> tuple[Expr, ...]:
    """The state after `(go, *state) = body(k, *state)` for k = 0, 1, … below `limit`, as long as `go` holds.

    k has the type of the first value. Only inside `define`, under a name of its own there: the body may use nothing but
    its state and what the function has.
    """
    loop = Loop(name, limit, body, first)
    return tuple([Expr("after", x.type, (), (loop, i)) for i, x in enumerate(first)])
