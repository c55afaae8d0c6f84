"""``torch.autograd.forward_ad``: tangents beside values, and the products with a Jacobian that they stand for.

There is no second derivative table. A dual tensor marks the tape; the tangent of a result is read off it. The backward of
what lies between, for a gradient v that is yet unknown, gives Jᵀv; that is linear in v, and its own backward, for the
tangents, is J applied to them. The values of Jᵀv are never asked for, so they are never computed: what reaches the device
is the forward formula. All of it is on the tape again, so tangents can be differentiated, and levels nest.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from tabtorch.autograd import engine
from tabtorch.autograd.engine import _add, _to_port
from tabtorch.autograd.grad_mode import _Mode
from tabtorch.autograd.match_input import fit_gradient
from tabtorch.autograd.tape import (
    FREED,
    LEAF,
    GradFn,
    OpFn,
    Saved,
    edge,
    freed_error,
    grad_class,
    modified_error,
    next_seq,
)
from tabtorch.base.thread_state import STATE
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery import registry
from tabtorch.ops.machinery.row_tape import PackedFn, RowFn

_by_seq = attrgetter("seq")


class Level:
    """One differentiation in forward mode: who carries its tangents (`fn.tangents[level]`, one for each output)."""

    def __init__(self, lazy: bool = False) -> None:
        self.lazy = lazy  # the tangents come later
        self.marked: list[Any] = []

    def mark(self, fn: GradFn, tangents: Sequence[Tensor | None]) -> None:
        if fn.tangents is None:
            fn.tangents = weakref.WeakKeyDictionary()
        fn.tangents[self] = tangents
        self.marked.append(weakref.ref(fn))

    def enter(self) -> None:
        on = STATE.enabled()
        STACK.append(self)
        STATE.duals += 1
        STATE.dualed = True
        STATE.enable(on)

    def leave(self) -> None:
        on = STATE.enabled()
        STACK.remove(self)
        if STATE.duals == 1:
            STATE.enable(True)  # nothing is hidden outside of levels
        STATE.duals -= 1
        if not STATE.duals:
            STATE.grad = on
            _PAST.clear()

    def forget(self) -> None:
        """Drops the tangents."""
        for ref in self.marked:
            fn = ref()
            if fn is not None:
                fn.tangents.pop(self, None)
        self.marked = []


#: the levels that are entered, the outermost first
STACK: list[Level] = []


class AliasFn(GradFn):
    """The same values: where a tangent is attached, or cut off."""

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        return (g,)


def _alias(x: Tensor, name: str = "ViewBackward0") -> Tensor:
    """Another tensor of the same storage and history, with a node of its own."""
    t = Tensor._view_of(x, x._tab_meta)
    fn: Any = grad_class(name, AliasFn)()
    fn.edges = ((x._tab_grad_fn or edge(x)) if x._tab_requires_grad else None,)
    fn.metas = (x._tab_meta,)
    fn.outs = x._tab_meta
    fn.seq = next_seq()
    t._tab_requires_grad = True
    t._tab_grad_fn = fn
    return t


# ---- what the tape says


def is_hidden(fn: GradFn) -> bool:
    """Whether it was recorded where autograd was off for the user."""
    return bool(bisect_right(STATE.flips, fn.seq) & 1)


def is_real(t: Tensor) -> bool:
    """Whether a tensor that is on the tape requires grad for the user, and is not there for its tangent only."""
    # the history of such a view is that of its base: to make it anew may be refused
    if t._tab_stale and t._base is not None and t._base._tab_requires_grad:
        return is_real(t._base)
    e = t._tab_grad_fn or edge(t)
    if e.edge_kind == LEAF:
        return True
    root = e.fn
    if root.real is None:
        found, stack = {root}, [root]
        while stack:
            for e in stack.pop().edges:
                if e is not None and e.edge_kind != LEAF and e.fn.real is None and e.fn not in found:
                    found.add(e.fn)
                    stack.append(e.fn)
        for fn in sorted(found, key=_by_seq):
            fn.real = not is_hidden(fn) and any(e is not None and (e.edge_kind == LEAF or e.fn.real) for e in fn.edges)
    if not root.real and not STATE.duals:  # the levels are gone, and this tape with them
        t._tab_requires_grad = False
        t._tab_grad_fn = None
    return bool(root.real)


def make_real(t: Tensor) -> None:
    """`requires_grad_()` of a tensor that is on the tape: nothing, unless it is there for its tangent only."""
    if not is_real(t) and t._tab_grad_fn is not None:
        fn = t._tab_grad_fn.fn
        fn.real = True
        fn.retains = {**(fn.retains or {}), t.output_nr: weakref.ref(t)}
        t._tab_retained = True


def is_dual(root: GradFn) -> bool:
    """Whether it has a tangent in one of the levels."""
    seen, stack = {root}, [root]
    while stack:
        fn = stack.pop()
        if fn.tangents and any(level in fn.tangents for level in STACK):
            return True
        for e in fn.edges:
            if e is not None and e.edge_kind != LEAF and e.fn not in seen:
                seen.add(e.fn)
                stack.append(e.fn)
    return False


def _kept(t: Tensor) -> Tensor:
    """`t` without a tape that leads nowhere."""
    if not t._tab_requires_grad:
        return t
    return t if is_real(t) or (t._tab_grad_fn is not None and is_dual(t._tab_grad_fn.fn)) else t.detach()


# ---- the two passes


class _Reach:
    """The part of the tape between `roots` and the nodes where `stop` holds."""

    def __init__(self, roots: list[GradFn], stop: Callable[[GradFn], bool]) -> None:
        seen, stack, order = set(roots), list(dict.fromkeys(roots)), []
        self.ends: dict[GradFn, None] = {}
        self.tracked = False  # whether anything else is differentiated with respect to
        while stack:
            fn = stack.pop()
            if stop(fn):
                self.ends[fn] = None
                self.tracked = self.tracked or bool(fn.real) or any(e is not None for e in fn.edges)
                continue
            order.append(fn)
            self.tracked = self.tracked or bool(fn.tangents) or bool(fn.real)
            for e in fn.edges:
                if e is None:
                    continue
                if e.edge_kind == LEAF:
                    self.tracked = True
                elif e.fn not in seen:
                    seen.add(e.fn)
                    stack.append(e.fn)
        order.sort(key=_by_seq)
        self.live = set(self.ends)
        self.leading = []  # what leads to the ends, oldest first
        for fn in order:
            if any(e is not None and e.edge_kind != LEAF and e.fn in self.live for e in fn.edges):
                self.live.add(fn)
                self.leading.append(fn)

    def sweep(self, roots: Sequence[tuple[Any, Tensor]], frozen: bool) -> dict[GradFn, Any]:
        """Backward from (edge, gradient) pairs; the gradients at the ends. frozen: with respect to `roots` alone."""
        grads: dict[GradFn, Any] = {}
        live = self.live
        alone = len(STACK) == 1 and bool(STATE.flips)
        for e, g in roots:
            _send(grads, e, g)
        for fn in reversed(self.leading):
            g = grads.pop(fn, None)
            if g is None:
                continue
            wanted = [e is not None and e.edge_kind != LEAF and e.fn in live for e in fn.edges]
            found = _gradients(fn, g, wanted, frozen or (alone and is_hidden(fn)))
            if engine.leaving is not None:
                found = engine.leaving(fn, found)
            for k, d in enumerate(found):
                if d is not None and wanted[k]:
                    _send(grads, fn.edges[k], fit_gradient(d, fn.metas[k], fn, k))
        return grads


def _send(grads: dict[GradFn, Any], e: Any, g: Tensor) -> None:
    if e.is_port:
        _to_port(grads, e, g)
    else:
        old = grads.get(e)
        grads[e] = g if old is None else _add(old, g)


def _gradients(fn: GradFn, g: Any, wanted: list[bool], frozen: bool) -> Sequence[Tensor | None]:
    """`fn.apply(g)`, but only what is wanted; frozen: what was saved counts as constant."""
    if isinstance(fn, RowFn) and not isinstance(fn, PackedFn):
        out, args = fn.out, fn.args  # in this order, as `apply`
        if args is FREED:
            raise freed_error()
        args = [*args, None]
        for k, v in enumerate(fn.versions or ()):
            if v >= 0 and args[k]._tab_storage.version != v:
                past = _past(args[k]._tab_storage, args[k]._tab_meta, v) if frozen else None
                if past is None:
                    raise modified_error(args[k], v, args[k]._tab_grad_fn)
                args[k] = past
        if out is not None:
            old = _past(*out) if frozen and out[0].version != out[2] else None
            args[-1] = fn.unpack_out(out) if old is None else old
        if frozen:
            args = [_constant(x) for x in args]
        options = fn.options or {}
        return [f(g, *args, **options) if w and f is not None else None for f, w in zip(fn.grads, wanted, strict=True)]
    if isinstance(fn, OpFn):
        kept = fn.saved
        if kept is FREED:
            raise freed_error()
        saved: list[Any] = []
        for s in kept:
            old = None
            if frozen and isinstance(s, Saved) and s.tensor._tab_storage.version != s.version:
                old = _past(s.tensor._tab_storage, s.tensor._tab_meta, s.version)
            x = s.unpack(fn) if s is not None and old is None else old
            saved.append(_constant(x) if frozen else x)
        b = fn.backward
        if type(b) is tuple:
            return [f(g, *saved) if w and f is not None else None for f, w in zip(b, wanted, strict=True)]
        r = b(g, *saved)
        return r if type(r) is tuple or type(r) is list else (r,)
    return fn.apply(g)


#: values that were written over while there are levels: PyTorch's tangents are there when an operation has run, and do
#: not mind; here they come later
_PAST: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()


def remember(x: Tensor) -> None:
    """`x` is about to be written to."""
    s = x._tab_storage
    _PAST.setdefault(s, {})[s.version] = s.node


def _past(s: Any, m: Any, version: int) -> Tensor | None:
    """What a storage was at that version."""
    node = _PAST.get(s, {}).get(version)
    return None if node is None else Tensor._wrap(node, m)


def _constant(x: Any) -> Any:
    return x.detach() if isinstance(x, Tensor) and x._tab_requires_grad else x


class _Linear:
    """The derivative of `outs` at what carries tangents of `level`. Calling it applies it to them."""

    def __init__(self, outs: Sequence[Tensor], level: Level) -> None:
        self.level = level
        edges = [(o._tab_grad_fn or edge(o)) if o._tab_requires_grad else None for o in outs]
        self.edges = edges = [None if e is None or e.edge_kind == LEAF else e for e in edges]
        down = _Reach([e.fn for e in edges if e is not None], lambda fn: bool(fn.tangents) and level in fn.tangents)
        self.outer = STATE.enabled() or any(other is not level for other in STACK)
        self.tracked = (
            down.tracked and self.outer and (len(STACK) > 1 or any(o._tab_requires_grad and is_real(o) for o in outs))
        )
        self.probes: list[Any] = [None] * len(outs)
        self.pairs: list[tuple[Any, GradFn, int]] = []  # (edge of Jᵀv, who has the tangent, which output of it)
        roots = []
        zeros: Any = registry.function("zeros_like")
        for k, e in enumerate(edges):
            if e is not None and e.fn in down.live and e.fn not in down.ends:
                v = _alias(zeros(outs[k].detach()))
                self.probes[k] = v._tab_grad_fn
                roots.append((e, v))
        before, STATE.grad = STATE.grad, True
        try:
            grads = down.sweep(roots, not self.tracked)
        finally:
            STATE.grad = before
        for fn in down.ends:
            several = grads.get(fn)
            for nr, g in enumerate(several if isinstance(several, list) else [several]):
                if g is not None and g._tab_requires_grad and g._tab_grad_fn is not None:
                    self.pairs.append((g._tab_grad_fn, fn, nr))
        stops = {p for p in self.probes if p is not None}
        self.up = _Reach([e.fn for e, _, _ in self.pairs], stops.__contains__)

    def __call__(self, tangent_of: Callable[[GradFn, int], Tensor | None]) -> list[Tensor | None]:
        """tangent_of(fn, nr): that of an output of one of the marked nodes. The tangents of `outs`, None for none."""
        given = [(e, t) for e, fn, nr in self.pairs if (t := tangent_of(fn, nr)) is not None]
        record = self.tracked or (self.outer and any(t._tab_requires_grad for _, t in given))
        before = STATE.grad
        STATE.grad = record and (STATE.grad or bool(STATE.duals))
        try:
            grads = self.up.sweep(given, not record)
        finally:
            STATE.grad = before
        zeros: Any = registry.function("zeros")
        results: list[Tensor | None] = []
        for e, probe in zip(self.edges, self.probes, strict=True):
            found: Tensor | None = None
            if probe is not None:
                found = grads.get(probe)
                if found is None and given:  # a derivative that is zero everywhere
                    found = zeros(probe.outs.shape, dtype=probe.outs.dtype, device=probe.outs.device)
            elif e is not None and e.fn.tangents and self.level in e.fn.tangents:
                found = tangent_of(e.fn, e.nr if e.is_port else 0)
            results.append(found)
        return results


def pushforward(outs: Sequence[Tensor], level: Level) -> list[Tensor | None]:
    """The tangents that `outs` have in `level`."""
    return _Linear(outs, level)(lambda fn, nr: fn.tangents[level][nr])


# ---- functional: for torch.func and autograd.functional


def linearize(f: Callable[..., Sequence[Tensor]], primals: Sequence[Tensor]) -> tuple[list[Tensor], Any]:
    """(outputs of `f(*primals)`, push): `push(tangents)` are the outputs' tangents, None where an output has none.

    f is called once, and each `push` costs one backward pass. Levels nest: `f` may do the same inside.
    """
    level = Level(lazy=True)
    level.enter()
    try:
        duals = [_alias(x) for x in primals]
        for d in duals:
            level.mark(d._tab_grad_fn, (None,))
        outs = list(f(*duals))
        linear = _Linear(outs, level)
    finally:
        level.leave()
    place = {d._tab_grad_fn: k for k, d in enumerate(duals)}

    def push(tangents: Sequence[Tensor | None]) -> list[Tensor | None]:
        found = linear(lambda fn, nr: tangents[place[fn]] if fn in place else None)
        return [t if t is None else _kept(t) for t in found]

    return [_kept(o) for o in outs], push


def jvp(
    f: Callable[..., Sequence[Tensor]], primals: Sequence[Tensor], tangents: Sequence[Tensor | None]
) -> tuple[list[Tensor], list[Tensor]]:
    """(outputs of `f(*primals)`, their tangents for those of the primals); zeros for an output that has none.

    f takes tensors and returns a sequence of some. Can be differentiated in either mode; custom Functions use their `jvp`.
    """
    level = Level()
    level.enter()
    try:
        duals = [_alias(x) for x in primals]
        for d, t in zip(duals, tangents, strict=True):
            if t is not None:
                _check_tangent(d, t)
            level.mark(d._tab_grad_fn, (t,))
        outs = list(f(*duals))
        found = pushforward(outs, level)
    finally:
        level.leave()
    zeros: Any = registry.function("zeros_like")
    outs = [_kept(o) for o in outs]
    result = outs, [zeros(o.detach()) if t is None else _kept(t) for o, t in zip(outs, found, strict=True)]
    level.forget()
    return result


# ---- the public functions


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` gives: the value, and its tangent or None."""

    primal: Tensor
    tangent: Tensor | None


#: that of `dual_level`; there is at most one
_level: Level | None = None


def enter_dual_level() -> int:
    """Begins a level: duals can be made until `exit_dual_level()`. RuntimeError inside of one."""
    global _level
    if _level is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _level = Level()
    _level.enter()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Ends the level; the tangents are gone then."""
    global _level
    current = -1 if _level is None else 0
    if level is not None and level != current:
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    if _level is None:
        raise RuntimeError("Dual level must be a positive number.")
    ended, _level = _level, None
    ended.leave()
    ended.forget()


class dual_level(_Mode):
    """`enter_dual_level()` until the end of the block, which gets the level; a decorator too."""

    def __enter__(self) -> Any:
        return enter_dual_level()

    def __exit__(self, *exc: Any) -> None:
        exit_dual_level()


def _check_tangent(x: Tensor, tangent: Tensor) -> None:
    if tangent._tab_meta.shape != x._tab_meta.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(x.shape)} while the given forward gradient is of size "
            f"{list(tangent.shape)}."
        )


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor of the same storage that has `tangent` (of the same shape). Can be differentiated backwards.

    RuntimeError outside of a level, for another shape, or where one of both has a tangent already; ValueError for types
    that are neither floating nor complex.
    """
    if _level is None or (level is not None and level < 0):
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for what, t in (("primal", tensor), ("tangent", tangent)):
        if not (t.is_floating_point() or t.is_complex()):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {t.dtype}")
    if level:
        raise RuntimeError("Invalid level given to _make_dual")
    have = pushforward([tensor, tangent], _level)
    if have[0] is not None:
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not "
            "supported."
        )
    if have[1] is not None:
        raise RuntimeError(
            "Setting a forward grad that itself has a forward gradient at the same level0 is not supported."
        )
    _check_tangent(tensor, tangent)
    dual = _alias(tensor)
    if tensor._tab_requires_grad:
        dual._base = tensor if tensor._base is None else tensor._base
    _level.mark(dual._tab_grad_fn, (tangent,))
    return dual


def _cut(t: Tensor, level: Level) -> Tensor:
    """`t` without its tangent in `level`."""
    if t._tab_requires_grad and (
        is_real(t) or (len(STACK) > 1 and t._tab_grad_fn is not None and is_dual(t._tab_grad_fn.fn))
    ):
        t = _alias(t, "Identity")
        level.mark(t._tab_grad_fn, (None,))
        return t
    return t.detach()


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """(value, tangent or None) of a tensor. Both can be differentiated backwards."""
    if _level is None or (level is not None and level < 0):
        return UnpackedDualTensor(tensor, None)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"_unpack_dual(): argument 'dual' (position 1) must be Tensor, not {type(tensor).__name__}")
    if not tensor._tab_requires_grad:
        return UnpackedDualTensor(tensor.detach(), None)
    tangent = pushforward([tensor], _level)[0]
    fn = tensor._tab_grad_fn
    if tangent is not None and tangent._tab_requires_grad and not (fn.tangents and _level in fn.tangents):
        tangent = _cut(tangent, _level)
    if fn is not None and not fn.is_port:
        _level.mark(fn, (tangent,))  # so that nothing below it is looked at again
    return UnpackedDualTensor(_cut(tensor, _level), tangent)


# ---- custom functions


def tangents_of(inputs: Sequence[Tensor]) -> list[tuple[Level, list[Tensor | None]]]:
    """The levels in which some of `inputs` have tangents, with these."""
    found = []
    for level in STACK:
        if not level.lazy:
            tangents = pushforward(inputs, level)
            if any(t is not None for t in tangents):
                found.append((level, tangents))
    return found


def call_jvp(ctx: Any, cls: Any, outputs: Sequence[Any], levels: list[tuple[Level, list[Tensor | None]]]) -> None:
    """Asks a Function's `jvp` for the tangents of its outputs."""
    zeros: Any = registry.function("zeros")
    for level, tangents in levels:
        given: list[Any] = [None] * ctx.count
        for slot, t, m in zip(ctx.slots, tangents, ctx.metas, strict=True):
            if t is None and ctx.materialize_grads and m.dtype.category > 1:
                t = zeros(m.shape, dtype=m.dtype, device=m.device)
            given[slot] = t
        ctx.forward_saved = tuple([_cut(x, level) if isinstance(x, Tensor) else x for x in ctx.to_save_forward])
        try:
            r = cls.jvp(ctx, *given)
        finally:
            ctx.forward_saved = None
        r = r if isinstance(r, tuple) else (r,)
        if len(r) != len(outputs):
            raise RuntimeError(
                f"Function's jvp returned an invalid number of forward gradients (expected {len(outputs)} but got {len(r)})"
            )
        for k, (t, o) in enumerate(zip(r, outputs, strict=True)):
            if t is not None and not isinstance(t, Tensor):
                raise RuntimeError(f"expected Variable or None (got {type(t).__name__}) for grad output {k}.")
            if t is not None and isinstance(o, Tensor):
                _check_tangent(o, t)
        level.mark(ctx, [t if t is None else _cut(t, level) if t._tab_requires_grad else t for t in r])
    ctx.to_save_forward = ()
