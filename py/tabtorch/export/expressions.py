"""Expressions of sizes: parsed by a small parser of their own, and computed. Nothing is evaluated as Python.

A file has them in two ways: as SymPy's constructors (`Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(1))`), and as
the text of a condition (`L['x'].size()[0] % 2 == 0`). Both are read by one grammar, that of Python's expressions without
comprehensions, lambdas, and any name that is not in `FUNCTIONS`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any

from tabtorch.export.fields import bad

_LONGEST = 1 << 16
_MOST_TOKENS = 4000
_DEEPEST = 60
#: parts that are in one another, a sum's too
_TALLEST = 200
#: bits of a number that comes of an expression
_WIDEST = 256

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.\d*(?:[eE][-+]?\d+)?|\d+(?:[eE][-+]?\d+)?|\.\d+)|(?P<name>[A-Za-z_]\w*)|"
    r"(?P<text>'[^'\\\n]*'|\"[^\"\\\n]*\")|(?P<sign>\*\*|//|<<|>>|<=|>=|==|!=|[-+*/%<>()\[\],.&|~=]))"
)

#: a parsed expression: (kind, …)
Tree = tuple[Any, ...]


def _tokens(source: str) -> list[tuple[str, str]]:
    if len(source) > _LONGEST:
        raise bad(f"an expression of {len(source)} characters")
    found, at, end = [], 0, len(source.rstrip())
    while at < end:
        m = _TOKEN.match(source, at)
        if m is None:
            raise bad(f"the expression {source[:80]!r} is not understood at {source[at : at + 20]!r}")
        kind = str(m.lastgroup)
        found.append((kind, m[kind]))
        at = m.end()
    if len(found) > _MOST_TOKENS:
        raise bad(f"an expression of {len(found)} words")
    return found


#: operators of two operands by how strongly they bind, weakest first
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("or",),
    ("and",),
    ("<", "<=", ">", ">=", "==", "!="),
    ("|",),
    ("&",),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "//", "%"),
)
_COMPARING = 2


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = _tokens(source)
        self.at = 0
        self.depth = 0

    def error(self) -> Exception:
        return bad(f"the expression {self.source[:80]!r} is not understood")

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> tuple[str, str]:
        if self.at >= len(self.tokens) or (wanted and self.tokens[self.at][1] != wanted):
            raise self.error()
        self.at += 1
        return self.tokens[self.at - 1]

    def parse(self) -> Tree:
        found = self.binary(0)
        if self.at != len(self.tokens):
            raise self.error()
        return found

    def binary(self, level: int) -> Tree:
        if level == len(_LEVELS):
            return self.unary()
        self.depth += level == 0
        if self.depth > _DEEPEST:
            raise self.error()
        left = self.binary(level + 1)
        chain: list[Tree] = []
        while self.peek() in _LEVELS[level] and self.tokens[self.at][0] != "text":
            sign = self.take()[1]
            right = self.binary(level + 1)
            if level == _COMPARING:  # a < b < c
                chain.append(("binary", sign, left, right))
                left = right
            else:
                left = ("binary", sign, left, right)
        self.depth -= level == 0
        if chain:
            return reduce(lambda a, b: ("binary", "and", a, b), chain)
        return left

    def unary(self) -> Tree:
        sign = self.peek()
        if sign in ("-", "+", "~", "not") and self.tokens[self.at][0] != "text":
            self.take()
            self.depth += 1
            if self.depth > _DEEPEST:
                raise self.error()
            operand = self.binary(_COMPARING) if sign == "not" else self.unary()
            self.depth -= 1
            return ("unary", sign, operand)
        return self.power()

    def power(self) -> Tree:
        base = self.postfix()
        if self.peek() == "**":
            self.take()
            return ("binary", "**", base, self.unary())
        return base

    def postfix(self) -> Tree:
        found = self.atom()
        while self.peek() in ("(", "[", "."):
            sign = self.take()[1]
            if sign == ".":
                kind, name = self.take()
                if kind != "name":
                    raise self.error()
                found = ("attribute", found, name)
            elif sign == "[":
                found = ("item", found, self.binary(0))
                self.take("]")
            else:
                found = ("call", found, *self.arguments())
        return found

    def arguments(self) -> tuple[list[Tree], dict[str, Tree]]:
        args: list[Tree] = []
        named: dict[str, Tree] = {}
        while self.peek() != ")":
            if self.at + 1 < len(self.tokens) and self.tokens[self.at + 1][1] == "=":
                kind, name = self.take()
                self.take("=")
                named[name] = self.binary(0)
            else:
                args.append(self.binary(0))
            if self.peek() != ")":
                self.take(",")
        self.take(")")
        return args, named

    def atom(self) -> Tree:
        kind, found = self.take()
        if kind == "number":
            if found.isdigit():
                if len(found) > 40:
                    raise self.error()
                return ("constant", int(found))
            return ("constant", float(found))
        if kind == "text":
            return ("constant", found[1:-1])
        if kind == "name":
            return ("name", found)
        if found == "(":
            inner = self.binary(0)
            self.take(")")
            return inner
        raise self.error()


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and (b < 0 or max(a.bit_length(), 1) * b > _WIDEST):
        if b >= 0 or a == 0:
            raise bad(f"{a} ** {b} is too large")
        return float(a) ** b
    return a**b


def _shifted(a: int, b: int) -> int:
    if not 0 <= b <= 64:
        raise bad(f"{a} << {b} is too large")
    return a << b


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "|": operator.or_, "&": operator.and_, "<<": _shifted, ">>": operator.rshift, "+": operator.add, "-": operator.sub,
    "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod, "**": _power,
}  # fmt: skip


_UNARY: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
    "not": operator.not_,
}


def _sum(*x: Any) -> Any:
    return sum(x)


def _modular(x: int, divisor: int, modulus: int) -> int:
    return x // divisor % modulus


#: the functions that a file's expressions are of: SymPy's, PyTorch's own (torch/utils/_sympy/functions.py), and a few of Python
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Integer": int, "Float": lambda x, precision=0: float(x), "Rational": lambda a, b=1: a / b, "Identity": lambda x: x,
    "Add": _sum, "Mul": lambda *x: math.prod(x), "Pow": _power, "PowByNatural": _power, "FloatPow": _power,
    "FloorDiv": operator.floordiv, "CleanDiv": operator.floordiv, "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv, "CeilDiv": lambda a, b: -(-a // b), "Mod": operator.mod, "PythonMod": operator.mod,
    "ModularIndexing": _modular, "Max": max, "Min": min, "Abs": abs, "max": max, "min": min, "abs": abs,
    "floor": math.floor, "ceiling": math.ceil, "FloorToInt": math.floor, "CeilToInt": math.ceil,
    "TruncToInt": math.trunc, "TruncToFloat": lambda x: float(math.trunc(x)), "RoundToInt": round,
    "RoundDecimal": round, "ToFloat": float, "OpaqueUnaryFn_sqrt": math.sqrt, "Eq": operator.eq, "Equality": operator.eq,
    "Ne": operator.ne, "Unequality": operator.ne, "Lt": operator.lt, "StrictLessThan": operator.lt, "Le": operator.le,
    "LessThan": operator.le, "Gt": operator.gt, "StrictGreaterThan": operator.gt, "Ge": operator.ge,
    "GreaterThan": operator.ge, "And": lambda *x: all(x), "Or": lambda *x: any(x), "Not": operator.not_,
    "Where": lambda c, a, b: a if c else b, "LShift": _shifted, "RShift": operator.rshift,
    "BitwiseFn_bitwise_and": operator.and_, "BitwiseFn_bitwise_or": operator.or_, "int": int, "float": float,
}  # fmt: skip
_CONSTANTS = {
    "True": True,
    "False": False,
    "true": True,
    "false": False,
    "inf": math.inf,
    "oo": math.inf,
    "int_oo": math.inf,
}


class Expression:
    """A parsed expression. `names`: the symbols in it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tree = _Parser(source).parse()
        if _height(self.tree) > _TALLEST:
            raise bad(f"the expression {source[:80]!r} is nested too deeply")
        self.names = tuple(dict.fromkeys(_symbols(self.tree)))

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """The value where symbols (and "L", the inputs by name) have these. SerializeError for what cannot be computed."""
        try:
            return _value(self.tree, values)
        except (ArithmeticError, TypeError, ValueError, KeyError, IndexError, AttributeError) as e:
            raise bad(f"the expression {self} cannot be computed: {type(e).__name__}: {e}") from None

    @property
    def symbol(self) -> str | None:
        """The symbol that this is, if it is nothing else."""
        return _symbol(self.tree)

    def __str__(self) -> str:
        return _text(self.tree, 0)

    __repr__ = __str__

    def solved(self, value: int) -> int | None:
        """For which value of its one symbol this is `value`; None if for none, or it is not linear."""
        (name,) = self.names
        start = self({name: 0})
        step = self({name: 1}) - start
        if not step or self({name: 7}) != start + 7 * step or (value - start) % step:
            return None
        return int((value - start) // step)


def _height(tree: Any) -> int:
    """How many parts are in one another; found without recursion."""
    most, todo = 0, [(tree, 0)]
    while todo:
        found, depth = todo.pop()
        most = max(most, depth)
        inner = found.values() if isinstance(found, dict) else found
        todo += [(x, depth + isinstance(x, tuple)) for x in inner if isinstance(x, (tuple, list, dict))]
    return most


def _symbol(tree: Tree) -> str | None:
    if tree[0] == "call" and tree[1] == ("name", "Symbol"):
        (first, *_) = tree[2] or [("constant", None)]
        if first[0] == "constant" and isinstance(first[1], str):
            return first[1]
        raise bad("a symbol without a name")
    if tree[0] == "name" and tree[1] not in FUNCTIONS and tree[1] not in _CONSTANTS and tree[1] not in ("L", "math"):
        return str(tree[1])
    return None


def _symbols(tree: Tree) -> Iterator[str]:
    name = _symbol(tree)
    if name is not None:
        yield name
    elif tree[0] == "call":
        for t in (*tree[2], *tree[3].values()):
            yield from _symbols(t)
        if tree[1][0] != "name":
            yield from _symbols(tree[1])
    else:
        for t in tree[1:]:
            if isinstance(t, tuple):
                yield from _symbols(t)


def _value(tree: Tree, values: Mapping[str, Any]) -> Any:
    kind = tree[0]
    if kind == "constant":
        return tree[1]
    name = _symbol(tree)
    if name is not None:
        if name not in values:
            raise bad(f"nothing says what {name} is")
        return values[name]
    if kind == "name":
        return values["L"] if tree[1] == "L" else _CONSTANTS[tree[1]]
    if kind == "unary":
        x = _value(tree[2], values)
        return _UNARY[tree[1]](x)
    if kind == "binary":
        sign, left = tree[1], _value(tree[2], values)
        if sign in ("and", "or"):
            return _value(tree[3], values) if bool(left) == (sign == "and") else left
        return _checked(_BINARY[sign](left, _value(tree[3], values)))
    if kind == "item":
        return _value(tree[1], values)[_value(tree[2], values)]
    if kind == "attribute":
        if tree[2] == "shape":
            return tuple(_value(tree[1], values).shape)
        raise bad(f"an expression asks for .{tree[2]}")
    callee, args, _ = tree[1:]
    if callee[0] == "attribute" and callee[2] in ("size", "dim", "numel", "storage_offset"):
        return getattr(_value(callee[1], values), callee[2])(*[_value(a, values) for a in args])
    if (
        callee[0] == "attribute"
        and callee[1] == ("name", "math")
        and callee[2] in ("trunc", "floor", "ceil", "isnan", "sqrt")
    ):
        return getattr(math, callee[2])(*[_value(a, values) for a in args])
    if callee[0] != "name" or callee[1] not in FUNCTIONS:
        raise bad(f"an expression calls {_text(callee, 0)}")
    return _checked(FUNCTIONS[callee[1]](*[_value(a, values) for a in args]))


def _checked(x: Any) -> Any:
    if isinstance(x, int) and x.bit_length() > _WIDEST:
        raise bad("an expression has a value of more than 256 bits")
    return x


#: constructors that are shown as operators: name -> (sign, level)
_SHOWN = {
    "Add": (" + ", 6),
    "Mul": ("*", 7),
    "FloorDiv": ("//", 7),
    "Mod": (" % ", 7),
    "PythonMod": (" % ", 7),
    "Pow": ("**", 8),
}


def _text(tree: Tree, level: int) -> str:
    """As SymPy shows it, roughly."""
    name = _symbol(tree)
    if name is not None:
        return name
    kind = tree[0]
    if kind in ("constant", "name"):
        return str(tree[1]) if kind == "name" else repr(tree[1])
    if kind == "attribute":
        return f"{_text(tree[1], 9)}.{tree[2]}"
    if kind == "item":
        return f"{_text(tree[1], 9)}[{_text(tree[2], 0)}]"
    if kind == "unary":
        return f"{tree[1]}{' ' if tree[1] == 'not' else ''}{_text(tree[2], 8)}"
    if kind == "call":
        called = _text(tree[1], 9)
        if called == "Integer" and len(tree[2]) == 1:
            return _text(tree[2][0], level)
        if called not in _SHOWN:
            return f"{called}({', '.join(_text(a, 0) for a in tree[2])})"
        sign, own = _SHOWN[called]
        joined = sign.join(_text(a, own + 1) for a in tree[2])
    else:
        own = next((n for n, signs in enumerate(_LEVELS) if tree[1] in signs), 8)
        joined = f"{_text(tree[2], own)} {tree[1]} {_text(tree[3], own + 1)}"
    return f"({joined})" if own < level else joined
