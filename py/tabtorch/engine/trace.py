"""Traces: the symbols of one window, how their arithmetic goes, and what was asked about them. See symbols.py for what a symbol is."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import gcd
from typing import Any

from .symbols import Real, Symbol, concrete, is_number

#: the hash of every Symbol: tables that have them in their keys compare them, and that is noted
_HASH = 0x53796D626F6C

_WITH_FLOATS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}

_OF_REALS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}


def _plain(x: Any) -> bool:
    return type(x) in (int, float, Symbol, Real)


class Trace:
    """The symbols of one window, and what was asked about them."""

    def __init__(self, values: Sequence[int], captures: bool = False) -> None:
        """values: the number that each symbol has, at least 2. captures: whether a script sees them, see compiled/dynamic.py."""
        self.captures = captures
        #: whether what was asked is known to have been all: what is asked later is no guard
        self.closed = False
        #: that of every Symbol. Those of a script stay in tables, where they must not meet those of another trace
        self.hash = hash((_HASH, id(self))) if captures else _HASH
        #: views of such sizes, each once
        self.views: dict[Any, Any] = {}
        #: those of the guards by which a size has to be a constant because a script compared it, or took it for a range or an index,
        #: rather than because something here knows no Symbols
        self.demanded: set[Any] = set()
        #: an index: a size of the window; else (operator, what it is applied to)
        self.atoms: list[tuple[str, Any, Any] | int] = []
        self._bounds: list[int] = []
        self._known: dict[Any, Symbol] = {}
        self._memo: dict[Any, Any] = {}
        self._atom_of: dict[Any, int] = {}
        self._ids: dict[int, Any] = {}  # keeps alive what the memo names by id
        self.guards: dict[Any, tuple[str, Any, Any, bool]] = {}
        #: the answers that hold for all sizes, or are guards: nearly all that is asked was asked before
        self._answers: dict[Any, bool] = {}
        #: while this is so, numbers that are not equal may be so for other sizes: for code that is right all the same
        self.lenient = False
        self.symbols = [self._atom(i, n, 2) for i, n in enumerate(values)]

    def drop(self, key: Any) -> None:
        """Takes a guard back: it is one again when that is asked again."""
        del self.guards[key]
        self._answers.clear()

    def pin(self) -> None:
        """Makes the value of each symbol the only guard."""
        self.guards.clear()
        self._answers.clear()
        for s in self.symbols:
            s.pinned()

    def _atom(self, what: Any, value: int, least: int | None) -> Symbol:
        self.atoms.append(what)
        return self._symbol({(len(self.atoms) - 1,): 1}, value, least)

    def _symbol(self, terms: dict[tuple[int, ...], int], value: int, least: int | None) -> Any:
        """The one Symbol with these terms; an int where there is none but a constant."""
        if not terms:
            return 0
        if len(terms) == 1:
            ((mono, factor),) = terms.items()
            if not mono:
                return factor
            key: Any = (mono, factor)
        else:
            key = frozenset(terms.items())
        s = self._known.get(key)
        if s is None:
            s = self._known[key] = Symbol(self, value, terms, least)
        elif least is not None and (s.least is None or s.least < least):
            s.least = least
        return s

    def _own(self, x: Any) -> Any:
        """An operand: a Symbol of this trace or an int; NotImplemented for what is neither."""
        if type(x) is Symbol:
            return x if x.trace is self else x.pinned()
        return int(x) if isinstance(x, int) else NotImplemented

    # ---- arithmetic

    def binary(self, op: str, a: Any, b: Any) -> Any:
        key = (op, id(a) if type(a) is Symbol else ("int", a), id(b) if type(b) is Symbol else ("int", b))
        try:
            return self._memo[key]
        except (KeyError, TypeError):
            pass
        if isinstance(a, float) or isinstance(b, float):
            if self.captures and op in "+-*":
                return self.real(op, a, b)
            return _WITH_FLOATS[op](
                a if isinstance(a, float) else a.pinned(), b if isinstance(b, float) else b.pinned()
            )
        x, y = self._own(a), self._own(b)
        if x is NotImplemented or y is NotImplemented:
            return NotImplemented
        r = self._binary(op, x, y)
        for s in (a, b):
            if type(s) is Symbol:
                self._ids[id(s)] = s
        self._memo[key] = r
        return r

    def _binary(self, op: str, a: Any, b: Any) -> Any:
        if op == "+":
            return self._sum(a, b, 1)
        if op == "-":
            return self._sum(a, b, -1)
        if op == "*":
            return self._product(a, b)
        if b == 0:  # which is a guard
            raise ZeroDivisionError("integer division or modulo by zero")
        if op == "//":
            return self._quotient(a, b)
        exact = self._exact(a, b)
        return 0 if exact is not None else self._opaque("%", a, b)

    def _terms(self, x: Any) -> dict[tuple[int, ...], int]:
        return x.terms if type(x) is Symbol else {(): x} if x else {}

    def _sum(self, a: Any, b: Any, sign: int) -> Any:
        terms = dict(self._terms(a))
        for mono, factor in self._terms(b).items():
            n = terms.get(mono, 0) + sign * factor
            if n:
                terms[mono] = n
            else:
                terms.pop(mono, None)
        return self._symbol(terms, concrete(a) + sign * concrete(b), self._least(terms))

    def _product(self, a: Any, b: Any) -> Any:
        terms: dict[tuple[int, ...], int] = {}
        for m, f in self._terms(a).items():
            for n, g in self._terms(b).items():
                mono = tuple(sorted(m + n)) if m and n else m or n
                terms[mono] = terms.get(mono, 0) + f * g
        terms = {m: f for m, f in terms.items() if f}
        return self._symbol(terms, concrete(a) * concrete(b), self._least(terms))

    def _least(self, terms: dict[tuple[int, ...], int]) -> int | None:
        """A bound from below, where all is added, but for a constant; None: none is known."""
        total = 0
        for mono, factor in terms.items():
            if not mono:
                total += factor
                continue
            if factor < 0:
                return None
            for a in mono:
                bound = self._bound(a)
                if bound is None:
                    return None
                factor *= bound
            total += factor
        return total

    def _bound(self, atom: int) -> int | None:
        return self._known[(atom,), 1].least

    def _exact(self, a: Any, b: Any) -> Any:
        """a / b where that is a whole number for all sizes, else None."""
        divisor = self._terms(b)
        if len(divisor) != 1:
            return 1 if a is b else None
        ((mono, factor),) = divisor.items()
        out: dict[tuple[int, ...], int] = {}
        for m, f in self._terms(a).items():
            if f % factor:
                return None
            rest = list(m)
            for atom in mono:
                if atom not in rest:
                    return None
                rest.remove(atom)
            out[tuple(rest)] = f // factor
        return self._symbol(out, concrete(a) // concrete(b), self._least(out))

    def _quotient(self, a: Any, b: Any) -> Any:
        exact = self._exact(a, b)
        if exact is not None:
            return exact
        if type(a) is Symbol and a.value < 0 and all(f < 0 for f in a.terms.values()):
            return -self._opaque("ceil", -a, b)  # as -(-a // b) is written
        return self._opaque("//", a, b)

    def _opaque(self, op: str, a: Any, b: Any) -> Symbol:
        key = (op, self._key(a), self._key(b))
        at = self._atom_of.get(key)
        if at is not None:
            return self._known[(at,), 1]
        x, y = concrete(a), concrete(b)
        low, divisor = self.least_of(a), self.least_of(b)
        least = None
        if low is not None and low >= 0 and divisor is not None and divisor > 0:
            least = 1 if op == "ceil" and low > 0 else 0
            if type(b) is int and op != "%":
                least = low // b if op == "//" else -(-low // b)
        value = x // y if op == "//" else x % y if op == "%" else -(-x // y)
        self._atom_of[key] = len(self.atoms)
        return self._atom((op, a, b), value, least)

    @staticmethod
    def least_of(x: Any) -> int | None:
        return x.least if type(x) is Symbol else x

    @staticmethod
    def _key(x: Any) -> Any:
        return ("s", id(x)) if type(x) is Symbol else x  # Symbols are interned, and live as long as the trace

    def real(self, op: str, a: Any, b: Any) -> Any:
        """`a op b`, which is no whole number."""
        if not (self.captures and _plain(a) and _plain(b)):
            a, b = (x.pinned() if is_number(x) else x for x in (a, b))
            return _OF_REALS[op](a, b)
        value = _OF_REALS[op](concrete(a), concrete(b))
        return Real(self, value, (op, a, b)) if type(value) is float else NotImplemented

    # ---- comparison

    def compare(self, op: str, a: Symbol, b: Any, asked: bool = True) -> Any:
        """`a op b`, one of == < <=: the answer, which is noted unless it is the same for all sizes. asked: see `demanded`."""
        if a is b:
            return op != "<"
        # Symbols are interned, and live as long as the trace
        number = type(b) is int
        key = (op, id(a), b if number else id(b), number, asked)
        known = self._answers.get(key)
        if known is not None:
            return known
        if type(b) is Real:
            b = b.pinned()
        if isinstance(b, float):
            n = a.pinned()
            return n == b if op == "==" else n < b if op == "<" else n <= b
        foreign = type(b) is Symbol and b.trace is not self
        b = self._own(b)
        if b is NotImplemented:
            return NotImplemented
        x, y = a.value, concrete(b)
        answer = x == y if op == "==" else x < y if op == "<" else x <= y
        if foreign:
            a.pinned()
            return answer
        left, right = self._reduced(a, b)
        if not self._for_all(op, left, right):
            if op == "==" and not answer and self.lenient:
                return answer
            self._noted(op, left, right, answer, asked)
        if (number or type(b) is Symbol) and not self.closed:
            self._answers[key] = answer
        return answer

    def _for_all(self, op: str, a: Any, b: Any) -> bool:
        """Whether the answer is the same for all sizes."""
        low, high = self.least_of(a), self.least_of(b)
        if type(a) is int and type(b) is int:
            return True
        if type(b) is int:  # a > b, or a >= b
            return low is not None and (low > b or (low == b and op == "<"))
        if type(a) is int:
            return high is not None and (high > a or (high == a and op == "<="))
        return False

    def _noted(self, op: str, a: Any, b: Any, answer: bool, asked: bool) -> None:
        if self.closed:
            return
        key = (op, self._key(a), self._key(b))
        if asked and answer and op == "==":
            self.demanded.add(key)
        if op != "==" or (op, key[2], key[1]) not in self.guards:
            self.guards.setdefault(key, (op, a, b, answer))

    def _reduced(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Both sides without the positive factors that they have in common, and without terms that they share."""
        if len(self._terms(a)) != 1 or len(self._terms(b)) != 1:
            if type(a) is Symbol and type(b) is Symbol:
                d = self._sum(a, b, -1)
                if type(d) is not Symbol:
                    return d, 0
                if d.least is not None and d.least >= 0:
                    return d, 0
                e = self._sum(b, a, -1)
                if e.least is not None and e.least >= 0:
                    return 0, e
            return a, b
        ((m, f),) = self._terms(a).items()
        ((n, g),) = self._terms(b).items()
        left, right = list(m), []
        for atom in n:
            if atom in left and (self._bound(atom) or 0) > 0:
                left.remove(atom)
            else:
                right.append(atom)
        c = gcd(f, g)
        if len(left) == len(m) and c == 1:
            return a, b
        return self._single(left, f // c), self._single(right, g // c)

    def _single(self, mono: list[int], factor: int) -> Any:
        terms = {tuple(mono): factor}
        value = factor
        for atom in mono:
            value *= self._known[(atom,), 1].value
        return self._symbol(terms, value, self._least(terms))
