"""What happens while a profiler is on: every operation's call, and every dispatch that the engine sends.

Operations are timed on the host, in Python: an operation only appends to the graph, the work is sent in windows. What a window
became is recorded as its kernels, whose names are those of the operations fused into them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from types import FunctionType
from typing import Any

from tabtorch.core import operators
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph, plan
from tabtorch.engine.plan import Plan
from tabtorch.engine.steps import Dispatch
from tabtorch.interception.code_swapping import Layer
from tabtorch.ops.machinery import registry

#: the one that records now
active: Recorder | None = None


class FunctionEvent:
    """One call of an operation, one region of the user's, or one dispatch. Times are in µs since the recording began."""

    def __init__(self, id: int, name: str, start: float, kernel: bool = False) -> None:
        self.id = id
        self.name = self.trace_name = name
        self.key = "ProfilerStep*" if name.startswith("ProfilerStep#") else name  # what it is added up by
        self.start = start
        self.end = start
        self.is_kernel = kernel
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] = []
        self.input_shapes: list[list[int]] = []
        self.stack: list[str] = []
        self.memory = 0
        self.count = 1
        self.dispatches = 1 if kernel else 0
        self.device_time_total = 0.0
        self.is_user_annotation = False
        self.scope = ""

    @property
    def cpu_time_total(self) -> float:
        return 0.0 if self.is_kernel else self.end - self.start

    @property
    def self_cpu_time_total(self) -> float:
        return self.cpu_time_total - sum(c.cpu_time_total for c in self.cpu_children)

    @property
    def self_memory(self) -> int:
        return self.memory - sum(c.memory for c in self.cpu_children)

    @property
    def self_device_time_total(self) -> float:
        return self.device_time_total if self.is_kernel else 0.0

    cpu_time = cpu_time_total

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_total:.3f}us start_us={self.start:.3f} "
            f"end_us={self.end:.3f} cpu_children={[c.id for c in self.cpu_children]} input_shapes={self.input_shapes}>"
        )


class Recorder:
    """The events of one recording."""

    def __init__(self, shapes: bool = False, memory: bool = False, stack: bool = False, gpu: bool = False) -> None:
        self.gpu = gpu  # whether to time dispatches on the device
        self.shapes, self.memory, self.stack = shapes, memory, stack
        self.events: list[FunctionEvent] = []
        self.open: list[FunctionEvent] = []
        self.zero = perf_counter()

    def now(self) -> float:
        return (perf_counter() - self.zero) * 1e6

    def begin(self, name: str, args: tuple[Any, ...] = ()) -> FunctionEvent:
        e = FunctionEvent(len(self.events), name, 0.0)
        if self.open:
            e.cpu_parent = self.open[-1]
            self.open[-1].cpu_children.append(e)
        if self.shapes:
            e.input_shapes = [list(a.shape) if isinstance(a, Tensor) else [] for a in args]
        if self.stack:
            e.stack = _stack()
        if self.memory:
            e.memory = -sum(graph.memory.live)
        self.events.append(e)
        self.open.append(e)
        e.start = self.now()
        return e

    def finish(self, e: FunctionEvent) -> None:
        e.end = self.now()
        if self.memory:
            e.memory += sum(graph.memory.live)
        while self.open and self.open.pop() is not e:
            pass

    def dispatched(self, p: Plan) -> None:
        """The kernels of a plan, as it is sent."""
        at = self.now()
        for step in p.steps:
            if type(step) is Dispatch:
                e = FunctionEvent(len(self.events), step.label, at, True)
                e.scope = "cpu" if p.device else "webgpu"
                self.events.append(e)

    def start(self) -> None:
        global active
        if active is not None:
            raise RuntimeError("Profiler is already enabled on this thread")
        graph.flush()
        runtime = graph.bridge()
        self.gpu = self.gpu and runtime.start_times()
        active = self
        runtime.watched = True
        _the_layer().switch(True)
        self.zero = perf_counter()

    def stop(self) -> None:
        """Sends what waits, so that its dispatches are counted, and ends the recording."""
        global active
        if active is self:
            graph.flush()
            _the_layer().switch(False)
            active = None
            graph.bridge().watched = False
            for e in self.open:
                e.end = self.now()
            self.open = []
            if self.gpu:
                self._place(graph.bridge().take_times())

    def _place(self, times: list[tuple[float, float]]) -> None:
        """The device's times to the kernels that were sent, in the same order."""
        kernels = [e for e in self.events if e.is_kernel and e.scope == "webgpu"]
        if len(kernels) == len(times):
            zero = device_zero([e.start for e in kernels], times)
            for e, (begin, ns) in zip(kernels, times):
                e.start = zero + begin / 1e3
                e.end = e.start + ns / 1e3
                e.device_time_total = ns / 1e3


def device_zero(sent: Sequence[float], times: Sequence[tuple[float, float]]) -> float:
    """Where the device's clock, in ns, has its nought on the host's, in µs: no kernel began before it was sent."""
    return max((s - begin / 1e3 for s, (begin, _) in zip(sent, times)), default=0.0)


def _stack() -> list[str]:
    """The user's frames, the innermost first."""
    out = []
    frame: Any = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("tabtorch"):
            out.append(f"{frame.f_code.co_filename}({frame.f_lineno}): {frame.f_code.co_name}")
        frame = frame.f_back
    return out


# ---- looking on


def _timed(name: str) -> Callable[..., Any]:
    def hook(f: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
        r = active
        if r is None or (r.open and r.open[-1].name == name):  # a method and its function are one call
            return f(*args, **kw)
        e = r.begin(name, args)
        try:
            return f(*args, **kw)
        finally:
            r.finish(e)

    return hook


def _operation(name: str) -> Callable[..., Any] | None:
    """The hook of an operation of the registry, whichever of its names it goes by."""
    if name.startswith("__"):
        return None
    if name in registry.ROW_NAMES:
        row, in_place = registry.ROW_NAMES[name]
        return _timed(f"aten::{row.name}{'_' if in_place else ''}")
    f = registry.FUNCTIONS.get(name) or registry.METHODS.get(name)
    return _timed("aten::" + getattr(f, "__name__", name))


def _step(f: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
    return _timed(f"Optimizer.step#{type(args[0]).__name__}.step")(f, args, kw)


def _sending(f: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
    if active is not None:
        active.dispatched(args[0])
    return f(*args, **kw)


def _operator_names() -> dict[str, str]:
    names = {**operators._BINARY, **operators._REFLECTED, **operators._INPLACE, **operators._UNARY}
    own = {
        "__matmul__": "matmul",
        "__rmatmul__": "matmul",
        "__rsub__": "rsub",
        "__rtruediv__": "div",
        "__invert__": "bitwise_not",
    }
    return {**names, **own}


_layer: Layer | None = None


def _the_layer() -> Layer:
    global _layer
    if _layer is None:
        _layer = Layer(1, _operation)
        for name, operation in _operator_names().items():
            f = Tensor.__dict__[name]
            if "make" in f.__code__.co_freevars:  # not made yet: it would replace itself when called
                f = f.__closure__[f.__code__.co_freevars.index("make")].cell_contents()
                setattr(Tensor, name, f)
            _layer.meet(f, _timed("aten::" + operation))
        _layer.meet(plan.Plan.__dict__["send"], _sending)
        _layer.meet(plan.make_plan, _timed("tabtorch::make_plan"))
        _layer.meet(graph.flush_queue, _timed("tabtorch::send"))
        _layer.meet(graph.read, _timed("tabtorch::read"))
        _layer.meet(Tensor.__dict__["backward"], _timed("autograd::backward"))
    modules = sys.modules
    functional = modules.get("tabtorch.nn.functional")
    if functional is not None:
        for name, f in vars(functional).items():
            if isinstance(f, FunctionType) and name[0] != "_":
                _layer.meet(f, _timed("aten::" + name))
    if "tabtorch.optim.optimizer" in modules:
        for cls in modules["tabtorch.optim.optimizer"].Optimizer.__subclasses__():
            if "step" in cls.__dict__:
                _layer.meet(cls.__dict__["step"], _step)
    if "tabtorch.utils.data.dataloader" in modules:
        iterator: Any = modules["tabtorch.utils.data.dataloader"]._BaseDataLoaderIter
        _layer.meet(iterator.__next__, _timed("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"))
    return _layer


class record_function:
    """A region of the program with a name, as a with block or decorator. Without a profiler that records, nothing."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._event: tuple[Recorder, FunctionEvent] | None = None

    def __enter__(self) -> record_function:
        if active is not None:
            e = active.begin(self.name)
            e.is_user_annotation = True
            self._event = active, e
        return self

    def __exit__(self, *exc: Any) -> None:
        if self._event is not None:
            recorder, e = self._event
            self._event = None
            recorder.finish(e)

    def __call__(self, f: Callable[..., Any]) -> Callable[..., Any]:
        import functools

        @functools.wraps(f)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return f(*args, **kwargs)

        return wrapped
