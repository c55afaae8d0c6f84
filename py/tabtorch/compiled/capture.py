"""Running a function with the engine's windows held open, so that all it computes is sent as one plan at its end.

`Capture` stands in `STATE.held` of its thread meanwhile. It is told what leaves the window before the end (a read, a value that crosses
between devices) and what comes in besides: draws of generators, copies, uploads.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
import warnings
from _thread import get_ident
from collections.abc import Iterator
from typing import Any

from tabtorch._dynamo.exc import Unsupported
from tabtorch.autograd import engine as autograd
from tabtorch.base.thread_state import STATE
from tabtorch.compiled import recording
from tabtorch.compiled.guards import ours
from tabtorch.compiled.inputs import Ahead, CopyAhead, DrawAhead
from tabtorch.compiled.symbolic_numbers import symbolic_int
from tabtorch.engine import graph
from tabtorch.engine.nodes import blank
from tabtorch.engine.symbols import concrete, fixed
from tabtorch.engine.view import concrete_meta, pinned_meta
from tabtorch.random import HostGenerator, PhiloxGenerator

_SEEDING = [(c, n) for c in (HostGenerator, PhiloxGenerator) for n in ("_start", "_restore")]
_SEEDING.append((PhiloxGenerator, "set_offset"))


class Capture:
    """One run of a compiled function."""

    def __init__(self, name: str, warned: set[Any], fullgraph: bool) -> None:
        self.name = name
        self.warned = warned
        self.fullgraph = fullgraph
        #: why the run cannot be replayed
        self.reason = ""
        #: what is done ahead of the plan
        self.ahead: list[Ahead] = []
        #: buffer id -> which of `ahead` has made it; what keeps those buffers alive
        self.made: dict[int, int] = {}
        self.alive: list[Any] = []
        #: buffer id -> what was uploaded to it
        self.uploads: dict[int, int] = {}
        #: how often each Philox generator was asked
        self.words: list[PhiloxGenerator] = []
        self.raw: list[tuple[int, ...]] = []
        #: (id of a node, view of it, the Range that it has to be in) of what the host could tell
        self.looks: list[tuple[int, Any, Any]] = []
        #: whether the function was told where a tensor begins in its storage
        self.asked = False
        #: functions of the tape that have been run and let go
        self.freed: set[Any] = set()
        #: whether nothing may be sent: gradients are computed of values that are not there
        self.fixed = False
        self._inside = 0
        self._thread = get_ident()
        #: whether another thread has used what waits in the function's window
        self.disturbed = False
        #: whether the function has ended: until the plan is made, others have to wait for its values
        self.closed = False
        #: whether the run has
        self.over = False

    def mine(self) -> bool:
        """Whether what is done now is the function's doing. What is exchanged for a run is so for all threads."""
        return not self._inside and get_ident() == self._thread

    def shared(self) -> None:
        """Another thread uses a value of the function's, or gives it one, while it runs."""
        self.disturbed = True
        self.reason = self.reason or "another thread takes part in it"

    # ---- what the engine tells

    def cut(self, q: Any) -> None:
        """A window is sent before the end."""
        if self.fixed:
            raise ValueError("they need a value")
        if q in graph.all_queues():
            self.reason = self.reason or "a value is needed before the end"

    def read(self) -> None:
        """A value is read; raises Unsupported where that is not allowed."""
        self.breaks("reads a value")

    def breaks(self, what: str) -> None:
        if self.fixed:
            raise ValueError("they need a value")
        if self.fullgraph or not self.reason or what not in self.reason:
            file, line, text = self.place()
            where = f"{file}:{line}" + (f" (`{text}`)" if text else "")
            if self.fullgraph:
                raise Unsupported(
                    f"torch.compile with fullgraph=True: graph break in {self.name}: it {what} at {where}"
                )
            if (file, line) not in self.warned:
                self.warned.add((file, line))
                warnings.warn_explicit(
                    f"torch.compile: graph break in {self.name}: it {what} at {where}, so that its Python runs on every call",
                    UserWarning,
                    file,
                    line,
                )
        self.reason = what

    @staticmethod
    def place() -> tuple[str, int, str]:
        """File, line and text of the user's line that runs now."""
        f: Any = sys._getframe(1)
        while f is not None:
            if not ours(f.f_globals.get("__name__")):
                found = traceback.extract_stack(f, 1)[0]
                return found.filename, found.lineno or 0, found.line or ""
            f = f.f_back
        return "?", 0, ""

    # ---- taking hold

    def __enter__(self) -> Capture:
        if not (recording.of(self) or recording.begin(self)):
            raise RuntimeError("torch.compile: another thread is compiling a function")
        for q in graph.all_queues():
            if q.nodes:
                graph.flush_queue(q)
        bridge = graph.bridge()
        self._bridge = bridge
        self._before = (bridge.copy, bridge.upload, bridge.alloc, PhiloxGenerator.next, HostGenerator.draw)
        copy, upload, alloc, following, draw = self._before

        def copied(dev: int, source: int, nbytes: int) -> int:
            ident = copy(dev, source, concrete(nbytes))
            if not self.mine():
                return ident
            if source in self.uploads:  # still what was uploaded
                self.made.pop(ident, None)
                self.uploads[ident] = self.uploads[source]
            else:
                self.uploads.pop(ident, None)
                self.made[ident] = len(self.ahead)
                self.ahead.append(CopyAhead(dev, source, nbytes))
            return ident

        def uploaded(dev: int, data: Any) -> int:
            ident = upload(dev, data)
            if self.mine():
                self.made.pop(ident, None)
                self.uploads[ident] = hash(bytes(data))
            return ident

        def allocated(dev: int, nbytes: int) -> int:
            if self.mine():
                self.reason = self.reason or "it takes memory of its own"
            return alloc(dev, nbytes)

        def words(generator: PhiloxGenerator) -> tuple[int, ...]:
            if get_ident() != self._thread:
                return following(generator)
            k = len(self.words)
            self.words.append(generator)
            self.raw.append(following(generator))
            return tuple([symbolic_int(w, ("r", k, j)) for j, w in enumerate(self.raw[k])])

        def drawn(generator: HostGenerator, distribution: Any, out: Any, inputs: tuple[Any, ...] = ()) -> Any:
            if get_ident() != self._thread:
                return draw(generator, distribution, out, inputs)
            if inputs:
                out = pinned_meta(out)
                distribution = distribution.with_sizes(fixed)
            with self.aside():
                node: Any = draw(generator, distribution.with_sizes(concrete), concrete_meta(out), inputs)
            if out.symbolic:
                node.inst = blank(out).inst
            self.uploads.pop(node.buf.id, None)
            self.made[node.buf.id] = len(self.ahead)
            self.alive.append(node)
            self.ahead.append(DrawAhead(generator, distribution, out, inputs))
            return node

        bridge.copy, bridge.upload, bridge.alloc = copied, uploaded, allocated
        PhiloxGenerator.next, HostGenerator.draw = words, drawn  # type: ignore[method-assign, assignment]
        self._out = [(name, getattr(sys, name), Watched(getattr(sys, name), self)) for name in ("stdout", "stderr")]
        for name, _, watched in self._out:
            setattr(sys, name, watched)
        self._seeding = [(c, n, vars(c)[n]) for c, n in _SEEDING]
        for cls, name, own in self._seeding:
            setattr(cls, name, self._telling(own))
        autograd.ran = self._ran
        amp: Any = sys.modules.get("tabtorch.amp._switch")
        self._autocast = amp if amp is not None and any(amp.NOW.enabled) else None
        if self._autocast:  # its copies of weights outlive a call
            self._cached, amp.NOW.cache_enabled = amp.NOW.cache_enabled, False
        STATE.held = self
        return self

    def __exit__(self, *exc: Any) -> None:
        STATE.held = None
        self.over = True
        autograd.ran = None
        if self._autocast:
            self._autocast.NOW.cache_enabled = self._cached
        bridge = self._bridge
        bridge.copy, bridge.upload, bridge.alloc, PhiloxGenerator.next, HostGenerator.draw = self._before  # type: ignore[method-assign]
        for name, own, watched in self._out:
            if getattr(sys, name) is watched:
                setattr(sys, name, own)
        for cls, name, own in self._seeding:
            setattr(cls, name, own)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """What is done inside is none of the function's doing."""
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def _telling(self, own: Any) -> Any:
        def told(*args: Any) -> Any:
            if self.mine():
                self.reason = self.reason or "it sets the state of a generator"
            return own(*args)

        return told

    def _ran(self, order: Any, retained: bool) -> None:
        if not retained and self.mine():
            self.freed.update(order)


class Watched:
    """A stream that tells when it is written to, for what is written has to be written each time."""

    def __init__(self, own: Any, hold: Capture) -> None:
        self._own = own
        self._hold = hold

    def write(self, text: str) -> Any:
        if self._hold.mine():
            self._hold.reason = self._hold.reason or "it writes to a stream"
        return self._own.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)
