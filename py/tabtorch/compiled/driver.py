"""What a call of a compiled function does: replay, record, or run."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from tabtorch._dynamo import config
from tabtorch._dynamo.utils import counters
from tabtorch.autograd import engine
from tabtorch.base import dtypes
from tabtorch.base.device import default_device
from tabtorch.base.thread_state import STATE
from tabtorch.bridge import WEBGPU, on_loss
from tabtorch.compiled import recording
from tabtorch.compiled.capture import Capture
from tabtorch.compiled.dynamic import DynamicRecording
from tabtorch.compiled.guards import Guards
from tabtorch.compiled.record import CallRecorder
from tabtorch.compiled.replay import Replay, Stale
from tabtorch.compiled.symbolic_sizes import MOST, Shapes, Sizes, Specialized, asks_for_symbols, form
from tabtorch.compiled.tree import flatten
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph, window
from tabtorch.engine.target import permitted
from tabtorch.interception.torch_function import STATE as overriding
from tabtorch.ops.compatibility.settings import deterministic
from tabtorch.ops.machinery.asserts import every_log

#: runs in a row that were not as foretold, before a function is only run
TRIES = 5

#: sizes for which what a recording foretells is kept, of one function
MOST_SIZES = 256

#: `torch.compiler.set_stance`
stance = "default"
#: every compiled function, for `torch.compiler.reset`
every: weakref.WeakSet[Compiled] = weakref.WeakSet()


def modes() -> tuple[Any, ...]:
    """The settings on which it depends what operations do."""
    autocast: Any = sys.modules.get("tabtorch.amp._switch")
    return (
        STATE.grad,
        STATE.inference,
        STATE.lays_out,
        dtypes.get_default_dtype(),
        default_device(),
        autocast is not None and any(autocast.NOW.enabled) and (*autocast.NOW.enabled, *autocast.NOW.low_dtype),
        deterministic(),
        permitted[0],
    )


class Entry:
    """What is known of calls with equal arguments."""

    __slots__ = ("astray", "keep", "key", "of", "provisional", "replays", "shapes", "tries", "why")

    def __init__(self, key: Any, keep: list[Any]) -> None:
        self.key = key
        self.astray = 0  # runs with an argument that began elsewhere that were not as foretold
        self.keep = keep  # objects whose ids are in the key
        self.replays: list[Replay] = []
        self.provisional: Replay | None = None  # recorded, and not yet seen to be right
        self.tries = 0
        self.why = ""  # why it is only run
        #: where sizes may vary: what is known of calls of this form, and the recording that `provisional` is made of
        self.shapes: Shapes | None = None
        self.of: DynamicRecording | None = None


class Compiled:
    """A compiled function."""

    _is_compiled = True  # guards of another one look at its function only

    def __init__(self, function: Callable[..., Any], fullgraph: bool = False, dynamic: bool | None = None) -> None:
        self.function = function
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self.fullgraph = fullgraph
        self.dynamic = dynamic
        self.shapes: dict[Any, Shapes] = {}
        self.entries: dict[Any, Entry] = {}
        self.plans: dict[Any, Any] = {}
        self.pinned: set[Any] = set()  # keys of calls for which it matters where arguments begin
        self.warned: set[Any] = set()
        self.runtime: Any = None
        self.layouts = 0  # the version of the layouts that its plans have
        every.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if recording.current() is not None or STATE.nesting or stance == "force_eager" or config.disable:
            return self.function(*args, **kwargs)
        if (
            STATE.duals or overriding.modes or STATE.hooks or engine.check is not None
        ):  # who wants to see each operation
            return self.function(*args, **kwargs)
        tensors: list[Tensor] = []
        objects: list[Any] = []
        boxes: list[Any] = []
        key = (*modes(), flatten(args, tensors, objects, boxes), flatten(kwargs, tensors, objects, boxes))
        if key in self.pinned:
            key = (*key, *[t._tab_meta.offset for t in tensors])
        bridge = graph.bridge()
        if self.runtime is not bridge or self.layouts != window.layouts_version:  # plans are those of a runtime
            self.reset()
            self.runtime, self.layouts = bridge, window.layouts_version
        with graph.LOCK:  # a replay is for one thread at a time
            entry = self.entries.get(key)
            if entry is None:
                entry = self._entry(key, args, kwargs, tensors, objects)
            elif entry.shapes is not None and not (entry.replays or entry.provisional or entry.why):
                self._resized(entry, tensors)
            if entry.of is not None and entry.of.proven and entry.provisional is entry.of.replay:
                entry.replays.append(entry.of.replay)  # another size has shown that it is right
                entry.provisional = None
            for replay in entry.replays:
                if recording.current() is not None:
                    break
                if replay.scope.unchanged():
                    try:
                        return replay.run(tensors)
                    except Stale:
                        entry.provisional = replay
                        break
        try:
            return self._run(entry, tensors, objects, boxes, lambda: self.function(*args, **kwargs))
        except Specialized as e:
            violation = e.violation(self.function, args, kwargs, tensors)
        raise violation

    def _entry(self, key: Any, args: Any, kwargs: Any, tensors: list[Tensor], objects: list[Any]) -> Entry:
        """A new entry. Where a recording serves these sizes, it has a replay of that."""
        entry = Entry(key, objects)
        if (asks_for_symbols(tensors) or self.dynamic is not False) and tensors:
            unused: list[Any] = []
            loose = (*modes(), *[flatten(x, [], unused, unused, form) for x in (args, kwargs)])
            entry.shapes = self.shapes.setdefault(loose, Shapes())
            self._resized(entry, tensors)
            if entry.of is not None or entry.shapes.dynamic(tensors, self._every(), config.automatic_dynamic_shapes):
                known = [e for e in self.entries.values() if e.of is not None]
                if len(known) >= MOST_SIZES:
                    self._forget(known[0])
                self.entries[key] = entry
                return entry
        if sum(e.of is None for e in self.entries.values()) < config.limit():
            self.entries[key] = entry
        else:  # and nothing is kept of it
            self._limited(entry)
        return entry

    def _every(self) -> bool:
        return self.dynamic is True or (self.dynamic is None and not config.assume_static_by_default)

    def _resized(self, entry: Entry, tensors: list[Tensor]) -> None:
        """Gives an entry what a recording foretells for its sizes."""
        assert entry.shapes is not None
        for each in list(entry.shapes.recordings):
            if not each.replay.scope.unchanged():
                continue
            sizes = each.fits(tensors)
            if sizes is None:
                continue
            try:
                replay = each.at(sizes)
            except ArithmeticError:
                continue
            entry.of = each
            if each.proven:
                entry.replays.append(replay)
            else:
                entry.provisional = replay
            return

    def _forget(self, entry: Entry) -> None:
        """Drops an entry whose replay can be made again."""
        self.entries.pop(entry.key, None)
        for replay in [*entry.replays, *([entry.provisional] if entry.provisional else [])]:
            if entry.of is not None and replay is not entry.of.replay:
                for plan, _, _ in replay.steps:
                    if all(plan is not p for p in self.plans.values()):
                        plan.forget()

    def _limited(self, entry: Entry) -> None:
        entry.why = "recompile_limit is reached"
        if "limit" not in self.warned:
            self.warned.add("limit")
            warnings.warn(
                f"torch.compile: {self.name} was recompiled for {config.limit()} kinds of arguments or states, and hit "
                "torch._dynamo.config.recompile_limit: for others it runs eagerly",
                UserWarning,
                stacklevel=4,
            )

    def _run(
        self, entry: Entry, tensors: list[Tensor], objects: list[Any], boxes: list[Any], call: Callable[[], Any]
    ) -> Any:
        """Runs the function, and records the run unless it is known that none can be replayed."""
        if stance == "eager_on_recompile":
            return call()
        if stance == "fail_on_recompile":
            raise RuntimeError("Detected recompile when torch.compile stance is 'fail_on_recompile'")
        hold = Capture(self.name, self.warned, self.fullgraph)
        if not recording.begin(hold):  # another thread is recording: this call is none of its
            return call()
        try:
            last = entry.provisional
            if not entry.why:
                if last is not None and last.scope.unchanged():
                    scope = last.scope
                else:
                    scope = Guards([self.function, *objects, *every_log()])
                entry.why = scope.opaque
            if entry.why:
                with hold:
                    out = call()
                graph.flush()
                return out
            plain = last is not None and last.scope is scope
            sizes = None
            if not plain and entry.shapes is not None and not scope.asks_types:
                automatic = self.dynamic is None and config.automatic_dynamic_shapes
                which = entry.shapes.dynamic(tensors, self._every(), automatic)
                sizes = Sizes(tensors, which) if which else None
            recorder = CallRecorder(
                scope, tensors, boxes, plain, self.plans, sizes, sizes is not None or entry.of is not None
            )
            before = modes()
            out, made = recorder.run(hold, call)
            if made is not None and modes() != before:
                made, recorder.why = None, "it changes a mode, or a default"
            counters["frames"]["total"] += 1
            counters["frames"]["ok"] += made is not None
            counters["stats"]["unique_graphs"] += made is not None and not plain
        finally:
            if recording.of(hold):
                recording.end()
        with graph.LOCK:
            self._judge(entry, last, recorder, made, plain)
        return out

    def _judge(
        self, entry: Entry, last: Replay | None, recorder: CallRecorder, made: Replay | None, plain: bool
    ) -> None:
        """What a run that was recorded says of those to come."""
        entry.provisional = None
        of = entry.of
        if made is not None and plain and last is not None and last.agrees(recorder) and last.alike(made):
            if of is not None and last is not of.replay:
                of.proven = True
                of.replay.trusted = last.trusted
            if last not in entry.replays:
                entry.replays.insert(0, last)
                if of is None and sum(len(e.replays) for e in self.entries.values() if e.of is None) > config.limit():
                    entry.replays.pop()
                    self._limited(entry)
            entry.tries = 0
            return
        if entry.shapes is not None:
            self._judge_sizes(entry, entry.shapes, recorder, plain)
        entry.tries += not recorder.hold.disturbed
        if plain and last is not None and last.moved(recorder):
            entry.astray += 1
            if entry.astray > 1:
                self.pinned.add(entry.key)
                self.entries.pop(entry.key, None)
        if last in entry.replays:
            entry.replays.remove(last)
        if made is not None and (not plain or not recorder.scope.numbers):
            entry.provisional = made
        if entry.tries > TRIES:
            entry.why = recorder.why or "no two runs of it were alike"

    def _judge_sizes(self, entry: Entry, shapes: Shapes, recorder: CallRecorder, plain: bool) -> None:
        """What such a run says of sizes that vary."""
        if entry.of is not None and plain:  # it is not as foretold
            if entry.of in shapes.recordings:
                shapes.recordings.remove(entry.of)
            entry.of = None
            shapes.astray += 1
        sizes, made = recorder.sizes, recorder.recording
        if recorder.refused:
            shapes.astray = TRIES + 1
        if sizes is not None:
            static = sizes.pinned()
            shapes.static |= static
            if made is not None and len(static) < len(sizes.which):
                entry.of = made
                shapes.recordings.insert(0, made)
                del shapes.recordings[MOST:]
            elif recorder.refusal:
                shapes.astray = TRIES + 1
        if shapes.astray > TRIES:
            shapes.never = True

    def let_go(self) -> None:
        """Holds no values until it is called again: others can write in place to what it writes to."""
        with graph.LOCK:
            for entry in self.entries.values():
                for replay in entry.replays:
                    replay.let_go()

    def reset(self) -> None:
        """Forgets all that was recorded."""
        self.entries.clear()
        self.shapes.clear()
        self.pinned.clear()
        if self.runtime is not None and self.runtime.alive:
            for plan in self.plans.values():
                plan.forget()
        self.plans.clear()

    def lost(self) -> None:
        """Forgets what keeps values on the GPU, which was lost: the next calls record those again."""
        for shapes in self.shapes.values():
            shapes.recordings = [r for r in shapes.recordings if not r.replay.keeps_on(WEBGPU)]
        for entry in list(self.entries.values()):
            entry.replays = [r for r in entry.replays if not r.keeps_on(WEBGPU)]
            if entry.provisional is not None and entry.provisional.keeps_on(WEBGPU):
                entry.provisional = None

    def __del__(self) -> None:
        self.reset()


def _lost() -> None:
    with graph.LOCK:
        for compiled in list(every):
            compiled.lost()


on_loss(_lost)
