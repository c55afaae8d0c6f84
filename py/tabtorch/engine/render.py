"""From expressions to text: what the WGSL and the JavaScript renderer share.

A renderer keeps the lines of one kernel, a stack of scopes (a loop body is one), and the names already bound in them,
so that equal subexpressions are computed once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

from tabtorch.base.device import BACKENDS

from .expr import Expr, Loop, definition, variable

_INLINE = ("var", "const", "param")


class Renderer:
    """Text of one kernel. Subclasses say how the language spells things."""

    language = ""
    #: whether a kernel is one thread that goes through all items, rather than one for an item (or a workgroup)
    serial = False
    #: whether sums of float32 are kept in doubles, and there are doubles to compute with
    doubles = False
    prelude: dict[str, str] = {}  # helper name -> text, taken in where the name occurs
    exact_prelude: dict[str, str] = {}  # the same for a device whose quotients and roots are correctly rounded
    fused_prelude: dict[str, str] = {}  # and for one whose `fma` rounds once

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indent = 1
        self.count = 0
        self.scopes: list[dict[Any, str]] = [{}]
        self._numbers: dict[int, tuple[int, Expr]] = {}
        self._shapes: dict[tuple, int] = {}
        self.inside = (
            ""  # the function of `define`, or "load" of a matmul, whose body this is: a few ulp are allowed there
        )
        self.origins: dict[str, str] = {}  # name of a value -> the operation that made it
        self.functions: dict[tuple[str, str], tuple[str, str]] = {}  # (name, type) -> (name in text, text)

    # ---- statements

    def line(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    def name(self, hint: str = "v") -> str:
        self.count += 2 if self.count in (15, 31) else 1  # none may be called i32, or f16
        return f"{hint}{self.count}"

    def push(self, head: str) -> None:
        self.line(head + " {")
        self.indent += 1
        self.scopes.append({})

    def pop(self) -> None:
        self.scopes.pop()
        self.indent -= 1
        self.line("}")

    def let(self, e: Expr, hint: str = "v") -> Expr:
        """Binds an expression to a name, and gives back the variable."""
        if e.op in _INLINE:
            return e
        text = self.text(e)
        if re.fullmatch(r"\w+", text):
            self.origins[text] = self.made_by(e)
            return variable(text, e.type)
        n = self.name(hint)
        self.origins[n] = self.made_by(e)
        self.declare(n, e.type, text)
        self.scopes[-1][self._key(e)] = n
        return variable(n, e.type)

    def var(self, e: Expr, hint: str = "acc") -> Expr:
        """A variable that may be assigned to, with its first value."""
        text = self.text(e)
        n = self.name(hint)
        self.declare_var(n, e.type, text)
        return variable(n, e.type)

    def assign(self, target: Expr, e: Expr) -> None:
        self.line(f"{target.value} = {self.text(e)};")

    # ---- expressions

    def made_by(self, e: Expr) -> str:
        """The operation whose value an expression is, but for its sign."""
        while e.op in ("fit", "neg"):
            e = e.args[0]
        return self.origins.get(e.value, "") if e.op == "var" else e.op

    def _key(self, e: Expr) -> int:
        """A number that equal expressions share; found once for each object, however often it is used."""
        known = self._numbers.get(id(e))
        if known is not None:
            return known[0]
        shape = (e.op, e.type, repr(e.value), *map(self._key, e.args))
        n = self._shapes.setdefault(shape, len(self._shapes))
        self._numbers[id(e)] = (n, e)  # keeps `e`, so that its id stays its own
        return n

    def _find(self, key: Any) -> str | None:
        for s in reversed(self.scopes):
            r = s.get(key)
            if r is not None:
                return r
        return None

    def text(self, e: Expr) -> str:
        """The expression as text; long or shared parts have been bound to names in the current scope."""
        if e.op == "var":
            return str(e.value)
        if e.op == "const":
            return self.constant(e.value, e.type)
        if e.op == "param":
            return self.param(e.value, e.type)
        key = self._key(e)
        known = self._find(key)
        if known is not None:
            return known
        if e.op == "after":
            return self.repeated(*e.value)
        args = [self.text(a) for a in e.args]
        out = self.spell(e, args)
        calls = e.op == "call" or (
            e.op == "cast" and out.startswith("tt_")
        )  # not every compiler sees that two calls are one
        if len(out) > 48 or e.op in ("load", "fit") or calls:
            n = self.name()
            self.declare(n, e.type, out)
            out = n
        # remembered even when it has no name of its own: the same text means the same value in this scope
        self.scopes[-1][key] = out
        return out

    def repeated(self, loop: Loop, i: int) -> str:
        """The variable that holds state `i` of a loop once it has run; the loop itself comes out with the first of them."""
        if self._find(("loop", id(loop))) is None:
            for name, x in zip(loop.names, loop.first, strict=True):
                self.declare_var(name, x.type, self.text(x))
            self.loop(loop.count, self.uint(0), self.uint(loop.limit))
            after = [loop.go, *loop.next]  # all of it is known before any state changes
            kept = [(self.name(), x.type, self.text(x)) for x in after]
            for part in kept:
                self.declare(*part)
            for name, part in zip(loop.names, kept[1:], strict=True):
                self.line(f"{name} = {part[0]};")
            self.line(f"if (!{kept[0][0]}) {{ break; }}")
            self.pop()
            self.scopes[-1]["loop", id(loop)] = ""
        return str(loop.names[i])

    def call_defined(self, fname: str, type: str, arg_types: tuple[str, ...]) -> str:
        """The name of a function made with `define`, rendered once a kernel."""
        key = (fname, type)
        if key not in self.functions:
            body = definition(fname)
            if body is None:
                raise KeyError(f"no function {fname} in {self.language} or in functions.py")
            self.functions[key] = (f"tt_{fname}_{type}", "")  # in place first: a body may not call itself
            sub = self.__class__()
            sub.functions = self.functions
            sub.inside = fname
            names = [f"a{k}" for k in range(len(arg_types))]
            result = body(*(variable(n, t) for n, t in zip(names, arg_types, strict=True)))
            text = sub.text(result)
            self.functions.pop(key)
            self.functions[key] = (
                f"tt_{fname}_{type}",
                self.function(f"tt_{fname}_{type}", names, arg_types, type, sub.lines, text),
            )
        return self.functions[key][0]

    def helpers(self, text: str) -> str:
        """The prelude functions that occur in `text`, in an order in which each stands before its users."""
        need: list[str] = []
        seen: set[str] = set()

        def take(t: str) -> None:
            for n in dict.fromkeys(re.findall(r"\btt_\w+", t)):
                if n in self.prelude and n not in seen:
                    seen.add(n)
                    take(self.prelude[n])
                    need.append(n)

        take(text)
        return "\n".join(self.prelude[n] for n in need)

    def uint(self, n: int) -> str:
        """A number as a u32."""
        return self.constant(n, "u32")

    # ---- what a language must say

    def source(self, k: Any, head: Sequence[str]) -> str:
        """The whole text of Kernel `k`: declarations, the functions that it uses, and the body behind `head`."""
        raise NotImplementedError

    def template_function(self, name: str, args: str, result: str | None, lines: list[str]) -> str:
        """A function that a template calls (see template.py), with the types that WGSL has for arguments and result."""
        raise NotImplementedError

    @classmethod
    def element_type(cls, dtype: Any) -> str:
        """The type of the elements of a buffer that holds a dtype."""
        raise NotImplementedError

    @classmethod
    def packs(cls, dtype: str) -> int:
        """How many elements of a dtype share a word, which only its owner may write."""
        return 1

    def store(self, buffer: str, dtype: str, at: str, value: str) -> None:
        """Writes an element of a buffer."""
        raise NotImplementedError

    def store_complex(self, buffer: str, at: str, re: str, im: str) -> None:
        raise NotImplementedError

    def exchange(self, buffer: str, dtype: str, at: str, value: str) -> None:
        """The same of a packed dtype, whoever writes the other elements of its word meanwhile."""
        raise NotImplementedError

    def add(self, buffer: str, dtype: str, at: str, value: str) -> None:
        """Adds to an element, whichever threads do so at once. AssertionError for a dtype for which that cannot be."""
        raise NotImplementedError

    def write_once(self, buffer: str, words: list[str]) -> None:
        """Writes int64 words to the beginning of a buffer, if the first word there is 0; one thread does."""
        raise NotImplementedError

    def constant(self, v: Any, type: str) -> str:
        raise NotImplementedError

    def param(self, word: int, type: str) -> str:
        raise NotImplementedError

    def spell(self, e: Expr, a: list[str]) -> str:
        raise NotImplementedError

    def declare(self, name: str, type: str, text: str) -> None:
        raise NotImplementedError

    def loop(self, i: str, start: str, end: str, step: str = "") -> None:
        raise NotImplementedError

    def declare_var(self, name: str, type: str, text: str) -> None:
        raise NotImplementedError

    def function(
        self, name: str, args: list[str], types: tuple[str, ...], type: str, lines: list[str], result: str
    ) -> str:
        raise NotImplementedError


@cache
def renderer_of(number: int) -> type[Renderer]:
    """The class that writes text for the device with that number."""
    module, _, name = BACKENDS[number].renderer.rpartition(".")
    found: type[Renderer] = getattr(import_module(module), name)
    return found
