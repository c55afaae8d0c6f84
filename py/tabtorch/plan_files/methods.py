"""One method recorded on paper, for one set of sizes or for all of them that its guards allow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tabtorch._dynamo.exc import Unsupported
from tabtorch.autograd.grad_mode import no_grad
from tabtorch.base.thread_state import STATE
from tabtorch.compiled.capture import Capture
from tabtorch.compiled.guards import PARTS, Guards
from tabtorch.compiled.record import CallRecorder
from tabtorch.compiled.replay import Replay
from tabtorch.compiled.symbolic_sizes import Sizes
from tabtorch.core.layout import contiguous_format
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import Buffer, Inst, Window, all_queues, bridge, undisturbed
from tabtorch.engine.plan import Plan
from tabtorch.engine.view import contiguous_meta
from tabtorch.ops.machinery.asserts import every_log
from tabtorch.plan_files.paper import Unread
from tabtorch.plan_files.trees import flatten
from tabtorch.plan_files.world import World, unwritten


class ExportError(RuntimeError):
    """What a method does cannot be written to a file. It names the line."""


class Method:
    """A function and an example of its arguments."""

    def __init__(self, name: str, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self.name = name
        self.function = function
        self.args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        try:
            signature = inspect.signature(getattr(function, "forward", function))
            bound = signature.bind(*self.args)
        except (TypeError, ValueError) as e:
            raise TypeError(f"{name}: {e}") from None
        given: dict[str, Any] = {}
        for p, value in bound.arguments.items():
            if signature.parameters[p].kind is inspect.Parameter.VAR_POSITIONAL:
                given |= {f"{p}.{i}": v for i, v in enumerate(value)}
            else:
                given[p] = value
        self.tensors: list[Tensor] = []
        try:
            self.tree = {"dict": {k: flatten(v, self.tensors) for k, v in given.items()}}
        except TypeError as e:
            raise TypeError(f"{name}: {e} is no input of a plan") from None

    def guards(self) -> Guards:
        """What its Python sees. ExportError where that cannot be known."""
        scope = Guards([self.function, *every_log()])
        if scope.opaque:
            raise ExportError(f"{self.name} cannot be exported: {scope.opaque}")
        return scope


class Told(Capture):
    """A capture that remembers on which line the reason came up for which there can be no file."""

    def __init__(self, name: str) -> None:
        super().__init__(name, set(), True)
        self.where = ""

    @property
    def reason(self) -> str:
        return self._reason

    @reason.setter
    def reason(self, why: str) -> None:
        if why and not getattr(self, "_reason", ""):
            file, line, text = self.place()
            self.where = f" at {file}:{line}" + (f" (`{text}`)" if text else "")
        self._reason = why

    def breaks(self, what: str) -> None:
        file, line, text = self.place()
        where = f"{file}:{line}" + (f" (`{text}`)" if text else "")
        raise Unsupported(f"it {what} at {where}")


class KeptPlan:
    """A plan of a recording, and what its window was made of."""

    def __init__(self, plan: Plan, shown: list[Inst]) -> None:
        self.plan = plan
        self.shown = shown


class _Recorder(CallRecorder):
    """Keeps the plans, and the windows with their Symbols."""

    kept: list[KeptPlan]

    def _plan(self, window: Window, wanted: Any, targets: Any, keep: Any) -> Any:
        shown = [i for i, _ in window.symbolic] or [n.inst for n in window.nodes]
        plan = super()._plan(window, wanted, targets, keep)
        self.kept.append(KeptPlan(plan, shown))
        return plan


class Recorded:
    """What one recording came to."""

    def __init__(self, recorder: Any, replay: Replay, hold: Told, tree: Any, sizes: Sizes | None) -> None:
        self.recorder = recorder
        self.replay = replay
        self.hold = hold
        self.tree = tree
        self.sizes = sizes


def arguments(method: Method, shapes: Sequence[Sequence[int]], world: World) -> tuple[list[Tensor], tuple[Any, ...]]:
    """Tensors like the arguments, of these shapes and on paper, and the arguments with those."""
    tensors = []
    for t, shape in zip(method.tensors, shapes, strict=True):
        m = contiguous_meta(tuple(shape), t._tab_meta.dtype, world.device)
        new = Tensor._wrap(unwritten(m), m)
        new._tab_requires_grad = t._tab_requires_grad
        tensors.append(new)
    return tensors, tuple([_with(a, method.tensors, tensors) for a in method.args])


def _with(x: Any, old: list[Tensor], new: list[Tensor]) -> Any:
    if isinstance(x, Tensor):
        return next(b for a, b in zip(old, new, strict=True) if a is x)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*[_with(v, old, new) for v in x])
    if isinstance(x, (list, tuple)):
        return type(x)([_with(v, old, new) for v in x])
    if isinstance(x, dict):
        return {k: _with(v, old, new) for k, v in x.items()}
    return x


def _hold(method: Method, keeper: Any) -> Told:
    hold = Told(method.name)
    keeper.hold = hold
    return hold


def _failed(method: Method, why: object) -> ExportError:
    return ExportError(f"{method.name} cannot be exported: {why}")


def warm_up(method: Method, world: World, keeper: Any, leaves: Sequence[Tensor]) -> set[int]:
    """Runs a method on paper, so that what its first run makes, or lays otherwise, is there. Returns the ids of the `leaves` whose
    gradients from before it reads."""
    hold = _hold(method, keeper)
    _, args = arguments(method, [t.shape for t in method.tensors], world)
    before = []
    for p in leaves:
        m = contiguous_meta(tuple(p.shape), p.dtype, p._tab_meta.device)
        p._grad = Tensor._wrap(unwritten(m), m)
        before.append(p._grad._tab_storage.node)
    try:
        with hold:
            method.function(*args)
    except (Unsupported, Unread) as e:
        raise _failed(method, e) from None
    if hold.reason:
        raise _failed(method, hold.reason + hold.where)
    read = {id(s) for q in all_queues() for n in q.nodes for s in n.srcs}
    found = {id(p) for p, n in zip(leaves, before, strict=True) if id(n) in read}
    del args
    for p in leaves:
        p._grad = None
    before = []
    _settle()
    return found


def _settle() -> None:
    """Gives what waits memory, without a plan."""
    with undisturbed():
        for q in all_queues():
            if not q.nodes:
                continue
            w = Window(q)
            w.survey()
            for n, live in zip(w.nodes, w.live, strict=True):
                if live:
                    m = n.inst.out
                    n.buf = Buffer(bridge().new_buffer(), m.numel * m.dtype.itemsize, m.device.number)
            w.alias()
            for n in w.nodes:
                n.srcs = n.scalars = ()


def record(
    method: Method,
    world: World,
    keeper: Any,
    shapes: Sequence[Sequence[int]],
    which: Sequence[tuple[int, int]],
    grads: dict[int, tuple[Tensor, Tensor]],
    leaves: Sequence[Tensor],
) -> Recorded:
    """Records a call with inputs of these shapes, of which the sizes `which`, (input, dimension), may be others.

    grads: id of a leaf -> the leaf, and the gradient that it has before and after each call. Of the other `leaves` none is kept.
    """
    why = ""
    for _ in range(3):  # a first run may set up what its Python sees
        tensors, args = arguments(method, shapes, world)
        for p in leaves:
            p._grad = grads[id(p)][1] if id(p) in grads else None
        scope = method.guards()
        hold = _hold(method, keeper)
        sizes = Sizes(tensors, which) if which else None
        recorder: Any = _Recorder(scope, tensors, [], False, {}, sizes, sizes is not None)
        recorder.kept = []
        tree: list[Any] = []

        def call(args: Any = args, recorder: Any = recorder, tree: list[Any] = tree) -> list[Tensor]:
            out = method.function(*args)
            return _finished(method, out, recorder, grads, leaves, tree)

        held = STATE.held
        try:
            _, made = recorder.run(hold, call)
        except (Unsupported, Unread) as e:
            raise _failed(method, e) from None
        finally:
            STATE.held = held
        del args
        if made is not None:
            if sizes is not None and recorder.recording is None:
                raise _failed(method, recorder.refusal or "its sizes cannot vary")
            return Recorded(recorder, made, hold, tree[-1], sizes)
        if recorder.why == "it changes what its Python sees":
            recorder.why += _changed(scope)
        why = recorder.why + (hold.where if recorder.why == hold.reason else "")
        world.rewind()
    raise _failed(method, why)


def _changed(scope: Guards) -> str:
    """What of it is not as it was, in brackets."""
    found = [f"its {len(x)} items" for x, n in zip(scope._sized, scope.sizes, strict=True) if len(x) != n]
    names = [f".{a}" for a in PARTS] * len(scope._watched) + ["an item"] * sum(map(len, scope._seqs))
    names += [*[f".{a}" for a in scope._attributes], *map(str, scope._keys)]
    try:
        now = list(scope._now())
    except AttributeError as e:
        return f" ({e})"
    if len(now) == len(scope.snap) == len(names):
        each = zip(names, scope.snap, now, strict=True)
        found += [f"{name} of type {type(b).__name__}" for name, a, b in each if a is not b]
    return f" ({', '.join(dict.fromkeys(found[:3]))})" if found else ""


def _finished(
    method: Method, out: Any, recorder: Any, grads: dict[int, Any], leaves: Sequence[Tensor], tree: list[Any]
) -> list[Tensor]:
    """What a method gives as whole tensors of their own, without a history; and its gradients where a file keeps them."""
    with no_grad():
        results: list[Tensor] = []
        sizes: list[Any] = []

        def size(x: Any) -> int:
            sizes.append(x)
            return len(sizes) - 1

        try:
            form = flatten(out, results, size)
        except TypeError as e:
            recorder.hold.reason = recorder.hold.reason or f"it returns {e}"
            return []
        tree.append((form, sizes))
        made = []
        for t in results:
            own = id(t._tab_storage.root) in recorder.index
            t = t.detach()
            made.append(t.clone(memory_format=contiguous_format) if own or not _whole(t) else t)
        for p in leaves:
            kept = grads.get(id(p))
            if kept is None:
                p._grad = None
            elif p._grad is not kept[1]:
                if p._grad is None:
                    kept[1].zero_()
                else:
                    kept[1].copy_(p._grad)
                p._grad = kept[1]
        return made


def _whole(t: Tensor) -> bool:
    m = t._tab_meta
    return bool(
        m.whole and m.numel == t._tab_storage.node.inst.out.numel and m.dtype is t._tab_storage.node.inst.out.dtype
    )
