"""Sizes of arguments that vary: which of them do, and Symbols in their place while a function is recorded.

See dynamic.py, which makes a recording of what they lead to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from tabtorch.compiled.guards import marked
from tabtorch.compiled.tree import sources
from tabtorch.core.tensor import Tensor
from tabtorch.core.tensor_base import inside
from tabtorch.engine.graph import Inst, Node
from tabtorch.engine.symbols import ConstraintViolationError, Symbol, concrete, given, is_number
from tabtorch.engine.trace import Trace
from tabtorch.engine.view import Meta, Size, concrete_meta, contiguous_strides, meta, symbolic_meta

if TYPE_CHECKING:
    from tabtorch.compiled.dynamic import DynamicRecording

#: recordings kept of one form of arguments
MOST = 4


def form(t: Tensor) -> Any:
    """What two arguments have in common that may differ in sizes; None for one whose sizes are part of what it is."""
    m = t._tab_meta
    if (
        type(t) is not Tensor
        or not m.ndim
        or not m.contiguous
        or m.offset
        or not m.numel
        or t._grad is not None
        or marked(t)
    ):
        return None
    out = t._tab_storage.out
    return (
        "sized",
        m.dtype,
        m.device,
        m.mark,
        tuple([n if n < 2 else -1 for n in m.shape]),
        t._tab_requires_grad,
        t._tab_grad_fn is None,
        t._tab_inference,
        type(t._tab_storage),
        None if whole(m, out) else out,
        frozenset(getattr(t, "_dynamo_static_indices", ())),
    )


def whole(m: Meta, out: Meta) -> bool:
    return m.numel == out.numel and m.dtype is out.dtype


class Shapes:
    """What is known of calls whose arguments have one form. Sizes are named by (which tensor, dimension)."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, ...]] = []
        self.varied: set[tuple[int, int]] = set()
        self.static: set[tuple[int, int]] = set()
        self.recordings: list[DynamicRecording] = []
        self.astray = 0  # runs that were not as foretold
        self.never = False  # whether all sizes are static

    def dynamic(self, tensors: Sequence[Tensor], every: bool, automatic: bool) -> list[tuple[int, int]]:
        """The sizes that are to be Symbols. every: all that may be; automatic: those that have varied."""
        if self.never:
            return []
        shapes = [tuple(t._tab_meta.shape) for t in tensors]
        if automatic and self.seen:
            self.varied |= {
                (a, d)
                for a, (x, y) in enumerate(zip(shapes, self.seen, strict=True))
                for d, (m, n) in enumerate(zip(x, y))
                if m != n
            }
        self.seen = self.seen or shapes
        roots = [id(t._tab_storage.root) for t in tensors]
        found = []
        for a, t in enumerate(tensors):
            if form(t) is None or roots.count(roots[a]) > 1:
                continue
            own = inside(t)
            wanted = {*own.get("_dynamo_dynamic_indices", ()), *own.get("_dynamo_weak_dynamic_indices", ())}
            for d, n in enumerate(t._tab_meta.shape):
                if n < 2 or (a, d) in self.static or d in own.get("_dynamo_static_indices", ()):
                    continue
                if every or (a, d) in self.varied or d in wanted:
                    found.append((a, d))
        return found


class Sizes:
    """The Symbols of one run."""

    def __init__(self, tensors: Sequence[Tensor], which: Sequence[tuple[int, int]]) -> None:
        self.which = which
        self.shapes = [tuple(t._tab_meta.shape) for t in tensors]
        self.trace = Trace([self.shapes[a][d] for a, d in which], captures=True)
        self.tensors = {a: tensors[a] for a, _ in which}
        self.before: list[tuple[Tensor, Meta, Meta, Node, Inst]] = []

    def put(self) -> None:
        """Puts them in the place of the arguments' sizes."""
        given[0] = True
        symbols = dict(zip(self.which, self.trace.symbols, strict=True))
        for a, t in self.tensors.items():
            m, node = t._tab_meta, t._tab_storage.node
            shape = tuple([symbols.get((a, d), n) for d, n in enumerate(m.shape)])
            shown = symbolic_meta(shape, contiguous_strides(shape), 0, m.dtype, m.device, m.mark)
            self.before.append((t, m, shown, node, node.inst))
            if whole(m, node.inst.out):
                flat = node.inst.out
                if tuple(flat.shape) != tuple(m.shape):
                    flat = meta((shown.numel,), (1,), 0, m.dtype, m.device)
                else:
                    flat = symbolic_meta(shape, contiguous_strides(shape), 0, m.dtype, m.device)
                twin = copy(node.inst)
                twin.out, twin.concrete, twin.structure = flat, node.inst, None
                node.inst = twin
            t._tab_meta = shown

    def take(self) -> None:
        """Takes them out again."""
        for t, m, shown, node, own in self.before:
            t._tab_meta = m if t._tab_meta is shown else concrete_meta(t._tab_meta)
            node.inst = own
        self.before = []

    def pinned(self) -> set[tuple[int, int]]:
        """Those that came out static."""
        found = self._constant(self.trace.guards)
        return {self.which[k] for atoms in found for k in atoms if k < len(self.which)}

    def _constant(self, keys: Iterable[Any]) -> dict[tuple[int, ...], int]:
        """The products of atoms that guards with these keys make constants, and those."""
        found = {}
        for op, a, b, answer in [self.trace.guards[k] for k in keys if k in self.trace.guards]:
            if op == "==" and answer:
                for x, y in ((a, b), (b, a)):
                    if type(y) is int and type(x) is Symbol and len(x.terms) == 1:
                        ((atoms, _),) = x.terms.items()
                        found[atoms] = x.value
        return found

    def specialized(self) -> list[tuple[int, int]]:
        """Those that were marked as dynamic, and that the function has made constants."""
        found = []
        for atoms in self._constant(self.trace.demanded):
            if len(atoms) == 1 and atoms[0] < len(self.which):
                a, d = self.which[atoms[0]]
                if d in inside(self.tensors[a]).get("_dynamo_dynamic_indices", ()):
                    found.append((a, d))
        return sorted(found)


class Specialized(Exception):
    """A function has made constants of sizes (tensor, dimension) that are marked as dynamic."""

    def __init__(self, found: list[tuple[int, int]]) -> None:
        self.found = found

    def violation(self, function: Any, args: Any, kwargs: Any, tensors: Sequence[Tensor]) -> ConstraintViolationError:
        """What PyTorch raises then, for a call with these arguments."""
        names = sources(function, args, kwargs)
        places = [f"{names[a]}.size()[{d}]" for a, d in self.found]
        lines = [
            f"  - You marked {place} as dynamic but your code specialized it to be a constant ({tensors[a]._tab_meta.shape[d]}). "
            "If you're using mark_dynamic, either remove it or use maybe_mark_dynamic. If you're using Dim.DYNAMIC, replace it "
            "with either Dim.STATIC or Dim.AUTO.\n"
            for place, (a, d) in zip(places, self.found, strict=True)
        ]
        return ConstraintViolationError(
            f'Constraints violated ({", ".join(places)})! For more information, run with TORCH_LOGS="+dynamic".\n'
            + "".join(lines)
        )


def asks_for_symbols(tensors: Sequence[Tensor]) -> bool:
    """Whether a size of them is marked as dynamic. ConstraintViolationError for one outside of the range that it was given."""
    found = False
    for t in tensors:
        own = inside(t)
        found = found or "_dynamo_dynamic_indices" in own or "_dynamo_weak_dynamic_indices" in own
        for d, low, high in own.get("_dynamo_dynamic_range", ()):
            n = t._tab_meta.shape[d]
            if low is not None and high is not None and not max(2, low) <= n <= high:
                raise ConstraintViolationError(f"{n} not in range [{max(2, low)}, {high}]")
    return found


def settled(x: Any) -> Any:
    """A value with plain numbers and views in the place of Symbols: what has been returned, or is kept, of tensors and numbers."""
    if isinstance(x, Tensor):
        if x._tab_meta.symbolic:
            x._tab_meta = concrete_meta(x._tab_meta)
        return x
    if is_number(x):
        return concrete(x)
    kind: Any = type(x)
    if kind is Size:
        return Size(map(concrete, x))
    if isinstance(x, (list, tuple)):
        found = [settled(v) for v in x]
        if all(a is b for a, b in zip(x, found, strict=True)):
            return x
        if isinstance(x, list):
            x[:] = found
            return x
        return kind(*found) if hasattr(x, "_fields") else kind(found)
    if isinstance(x, dict):
        for k, v in list(dict.items(x)):
            if (new := settled(v)) is not v:
                x[k] = new
    return x


__all__ = ["MOST", "Shapes", "Sizes", "Specialized", "asks_for_symbols", "form", "settled", "whole"]
