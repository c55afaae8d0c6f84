"""Schedules: what a window comes to, whatever its sizes.

A window is looked up by its structure: operations, dtypes, ranks, who reads whom, which sizes and strides are 0 or 1. Under
each structure lie the schedules that were made for it, with a `Symbol` in the place of every other size and stride. One whose
guards hold for the sizes at hand is *bound* to them: its numbers (parameter words, grids, bytes) are computed, nothing is
fused and no text written. See symbols.py for what a guard is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

from .. import bridge as _bridges
from .instructions import Inst
from .memory import bridge, largest
from .nodes import Node
from .recipes import Recipe, recipe_of
from .steps import Step
from .symbols import concrete
from .temporaries import Places, lay_out
from .trace import Trace
from .view import Meta, Size
from .window import counts

#: structures kept
MOST_STRUCTURES = 2048
#: whether a kernel that cannot be written with symbols is an error; if not, it is written for the sizes at hand
strict = False
#: schedules kept of one structure: where more are needed, what was used longest ago goes
MOST_SCHEDULES = 16


# ---- the structure of a window

_forms: dict[tuple, int] = {}


def _number(form: tuple) -> int:
    """A number that stands for this form, and for no other, ever. A view's begins with a dtype, an instruction's with an operation."""
    return _forms.setdefault(form, len(_forms))


def _of_meta(m: Meta) -> tuple[int, tuple[int, ...]]:
    """A view's structure, and its sizes, strides and beginning as far as they are no part of that."""
    r = m.structure
    if r is None:
        numbers = (*m.shape, *m.strides, m.offset)
        fixed = tuple([n if n < 2 else None for n in numbers])
        r = m.structure = (_number((m.dtype, m.device, m.mark, *fixed)), tuple([n for n in numbers if n > 1]))
    return r


#: types of which equal values are the same, and no views
_PLAIN = frozenset((int, str, type(None)))


def _of_static(x: Any, sized: bool) -> tuple[Any, tuple[int, ...]]:
    """The same of what an operation has been told besides: views, what knows its sizes itself (`Layout`), numbers if `sized`."""
    if x is None:
        return None, ()
    if type(x) is Meta:
        return _of_meta(x)
    if type(x) is tuple:
        if not sized and _PLAIN.issuperset(map(type, x)):
            return ("as they are", x), ()
        found = [_of_static(y, sized) for y in x]
        return tuple([form for form, _ in found]), tuple(chain.from_iterable(numbers for _, numbers in found))
    if hasattr(x, "of_parts"):
        form, numbers = _of_static(x.sizes(), True)
        return (type(x), form, x.rest()), numbers
    if sized and type(x) is int and x > 1:
        return "size", (x,)
    return ("as it is", type(x), x), ()


def of_inst(i: Inst) -> tuple[int, tuple[int, ...], int]:
    """The same of an instruction; and how many of the numbers, the first ones, are those of views."""
    r = i.structure
    if r is None and i.base is not i:
        r = i.structure = of_inst(i.base)
    if r is None:
        found = [m.structure or _of_meta(m) for m in (*i.ins, i.out)]
        static, more = (None, ()) if i.static is None else _of_static(i.static, i.op.sized)
        forms, parts = zip(*found)
        form = _number((i.op, i.compute, i.scalars, static, *forms))
        numbers = sum(parts, ())
        r = i.structure = (form, numbers + more, len(numbers))
    return r


class Sized:
    """A window as its structure (`key`) and its numbers (`values`)."""

    __slots__ = ("_found", "inputs", "key", "nodes", "values")

    def __init__(self, nodes: list[Node], inputs: list[Node], more: tuple) -> None:
        """more: whatever else the planning depends on. Nodes know their positions in the window, inputs theirs."""
        self.nodes = nodes
        self.inputs = inputs
        found = self._found = [n.inst.structure or of_inst(n.inst) for n in nodes]
        key: list[Any] = [form for form, _, _ in found]
        key += [s.pos for n in nodes for s in n.srcs]
        key.append(more)
        key += [s.inst.out.dtype.name for s in inputs]
        roots: dict[int, int] = {}  # inputs that lie in the same memory
        for s in inputs:
            b = s.buf
            assert b is not None
            key.append(roots.setdefault(id(b.base or b), len(roots)))
            key.append(b.base is None)
        self.key = tuple(key)
        self.values = tuple(chain.from_iterable([numbers for _, numbers, _ in found]))

    @property
    def kinds(self) -> Iterable[bool]:
        """Of each number, whether it is one of a view."""
        return (at < views for _, numbers, views in self._found for at in range(len(numbers)))


def _shadow(i: Any, srcs: tuple[Node, ...], of: Node) -> Node:
    """What stands for a node while its window is scheduled. It is no node that an operation has made."""
    n: Node = object.__new__(Node)
    n.inst, n.srcs, n.scalars = i, srcs, ()
    n.buf, n.pos = of.buf, of.pos
    return n


class _Shadows:
    """The nodes of a window with symbols in the place of their numbers."""

    def __init__(self, trace: Trace, window: Sized, pattern: Sequence[int]) -> None:
        """pattern: the symbol of each number."""
        self._symbols = trace.symbols
        self._pattern = pattern
        self._at = 0
        self._metas: dict[Any, Meta] = {}
        self._insts: dict[Any, Inst] = {}
        self.inputs = [self._input(s) for s in window.inputs]
        self.nodes: list[Node] = []
        for n in window.nodes:
            srcs = tuple(self.nodes[s.pos] if s.buf is None else self.inputs[-s.pos - 1] for s in n.srcs)
            self.nodes.append(_shadow(self._inst(n.inst.base), srcs, n))

    @staticmethod
    def _input(s: Node) -> Node:
        """An input's size is no part of a window's structure: only how it is read."""
        out = SimpleNamespace(dtype=s.inst.out.dtype, device=s.inst.out.device)
        return _shadow(SimpleNamespace(out=out, op=s.inst.op), (), s)

    def _take(self, numbers: Iterable[int]) -> list[Any]:
        """The symbols of these numbers, those of the window that come next."""
        out: list[Any] = []
        for n in numbers:
            if n > 1:
                out.append(self._symbols[self._pattern[self._at]])
                self._at += 1
            else:
                out.append(n)
        return out

    def _meta(self, m: Meta) -> Meta:
        form, numbers = _of_meta(m)
        key = form, tuple(self._pattern[self._at : self._at + len(numbers)])
        shown = self._metas.get(key)
        if shown is not None:
            self._at += len(numbers)
            return shown
        found = self._take((*m.shape, *m.strides, m.offset))
        shape, strides = Size(found[: m.ndim]), tuple(found[m.ndim : -1])
        shown = self._metas[key] = Meta(shape, strides, found[-1], m.dtype, m.device, m.mark)
        return shown

    def _static(self, x: Any, sized: bool) -> Any:
        if type(x) is Meta:
            return self._meta(x)
        if type(x) is tuple:
            return tuple([self._static(y, sized) for y in x])
        if hasattr(x, "of_parts"):
            return type(x).of_parts(self._static(x.sizes(), True), x.rest())
        return self._take((x,))[0] if sized and type(x) is int else x

    def _inst(self, i: Inst) -> Inst:
        form, numbers, _ = of_inst(i)
        key = form, tuple(self._pattern[self._at : self._at + len(numbers)])
        shown = self._insts.get(key)
        if shown is not None:
            self._at += len(numbers)
            return shown
        shown = self._insts[key] = object.__new__(Inst)
        shown.op, shown.compute, shown.scalars, shown.offsets = i.op, i.compute, i.scalars, i.offsets
        shown.queue, shown.work, shown.structure, shown.base = i.queue, 0, None, shown
        shown.ins = tuple([self._meta(m) for m in i.ins])
        shown.out = self._meta(i.out)
        shown.static = self._static(i.static, i.op.sized)
        return shown


# ---- what was decided for it


class Schedule:
    """A window's launches and what they bind, with numbers that may hang on the sizes.

    steps: over slots, which are inputs, then fresh outputs, then temporaries. fresh: the positions whose values get memory of their
    own, and its slots and bytes. taken: (position, input) of those that take over an input's. temps: of each temporary the first
    and last step that names it, and its bytes. apart: those that it may not share a piece of memory with, see temporaries.py.
    """

    def __init__(
        self,
        device: int,
        slots: int,
        fresh: list[tuple[int, int, Any]],
        taken: list[tuple[int, int]],
        temps: list[tuple[int, int, Any]],
        apart: list[list[int]],
        types: list[str],
        steps: list[Step],
        pairs: bool,
    ) -> None:
        self.device = device
        self.slots = slots
        self.fresh = [p for p, _, _ in fresh]
        self.taken = taken
        self.lives = [(first, last) for first, last, _ in temps]
        self.apart = apart
        self.types = types
        self.steps = steps
        self.pairs = pairs  # whether scalars are complex
        self.output_slots = [slot for _, slot, _ in fresh]
        self.numbers: list[Any] = []  # all that hang on sizes, in the order of the runtime (js/src/binding.ts)
        for s in steps:
            self.numbers += s.numbers()
        self.first_output = len(self.numbers)
        self.numbers += [nbytes for _, _, nbytes in fresh]
        self.first_temp = len(self.numbers)
        self.numbers += [nbytes for _, _, nbytes in temps]
        self.template = 0  # the plan that the runtime knows it by
        self.users = 0  # plans, and the table, that need that
        self.used = 0
        self.recipe: Recipe | None = None  # how they come about: made when another size is first asked for

    def made_for(self, trace: Trace, pattern: Sequence[int]) -> None:
        """Keeps what it takes to bind it to other sizes. pattern: the symbol of each number of the window."""
        self._trace: Trace | None = trace
        first: dict[int, int] = {}
        for at, k in enumerate(pattern):
            first.setdefault(k, at)
        self._firsts = [first[k] for k in range(len(trace.symbols))]
        self._pattern = pattern
        # where both lists are as long as 1, an itemgetter gives no tuple
        self._spread: Any = itemgetter(*pattern) if len(pattern) > 1 else tuple

    def bound(self, values: tuple[int, ...]) -> list[int] | None:
        """The numbers for a window with these values; None if it was not made for such."""
        sizes = [values[at] for at in self._firsts]
        if sizes and self._spread(sizes) != values:
            return None
        if self.recipe is None:
            assert self._trace is not None
            self.recipe = recipe_of(self._trace, self.numbers)
            self._trace = None
            self.numbers = []
        return self.recipe.values(sizes) if self.recipe.holds(sizes) else None

    def at_hand(self) -> list[int]:
        """The numbers for the window it was made for."""
        return [concrete(x) for x in self.numbers]

    def placed(self, sizes: list[int]) -> tuple[list[int], Places]:
        """Memory for its temporaries, of these bytes: bytes of each piece, and the place of each temporary."""
        return lay_out(self.lives, sizes, self.apart, largest(self.device))


class _Family:
    """The schedules of one structure. `pattern` numbers the window's numbers so that two have one symbol only if they were equal
    in all windows for which a schedule was made: sizes that are the same by chance are told apart once they were not."""

    __slots__ = ("pattern", "schedules", "used")

    def __init__(self) -> None:
        self.pattern: Sequence[int] | None = None
        self.schedules: list[Schedule] = []
        self.used = 0


_families: dict[tuple, _Family] = {}
#: the runtime that knows their kernels
_runtime: list[Any] = [None]


def forget() -> None:
    """Drops all of them: the runtime that knew them has ended."""
    _families.clear()
    _runtime[0] = None


_bridges.on_close(forget)
_bridges.keeps(globals(), "_families")
_bridges.keeps(globals(), "_runtime", lambda: [None])


def find(window: Sized) -> tuple[Schedule, list[int]] | None:
    """A schedule for this window, and its numbers."""
    if _runtime[0] is not (b := bridge()):
        forget()
        _runtime[0] = b
    family = _families.get(window.key)
    if family is None:
        return None
    now = counts["flushes"]
    for s in family.schedules:
        numbers = s.bound(window.values)
        if numbers is not None:
            s.used = family.used = now
            return s, numbers
    return None


def shadows(window: Sized) -> tuple[_Shadows, Trace, Sequence[int]]:
    """The window with symbols for its numbers, to be scheduled."""
    family = _families.get(window.key)
    index: dict[Any, int] = {}
    named: Any = zip(window.values, window.kinds, strict=True)
    if family is not None and family.pattern is not None:
        named = zip(window.values, window.kinds, family.pattern, strict=True)
    pattern = [index.setdefault(x, len(index)) for x in named]
    sizes = [0] * len(index)
    for k, value in zip(pattern, window.values, strict=True):
        sizes[k] = value
    trace = Trace(sizes)
    return _Shadows(trace, window, pattern), trace, pattern


def add(window: Sized, schedule: Schedule, trace: Trace, pattern: Sequence[int]) -> None:
    """Keeps a schedule that was made for this window."""
    schedule.made_for(trace, pattern)
    family = _families.get(window.key)
    if family is None:
        if len(_families) >= MOST_STRUCTURES:
            for k in sorted(_families, key=lambda k: _families[k].used)[: max(1, len(_families) // 8)]:
                for s in _families.pop(k).schedules:
                    _dropped(s)
        family = _families[window.key] = _Family()
    if len(family.schedules) >= MOST_SCHEDULES:
        oldest = min(family.schedules, key=lambda s: s.used)
        family.schedules.remove(oldest)
        _dropped(oldest)
    family.pattern = pattern
    schedule.used = family.used = counts["flushes"]
    schedule.users += 1
    family.schedules.insert(0, schedule)


def _dropped(s: Schedule) -> None:
    s.users -= 1
    if not s.users and s.template:
        bridge().forget_plans([s.template])


__all__ = ["Schedule", "Sized", "add", "find", "forget", "shadows"]
