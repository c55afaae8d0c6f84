"""`profile`, and the schedule of its steps. See https://docs.pytorch.org/docs/stable/profiler.html"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from tabtorch import _lazy
from tabtorch.profiler._record import Recorder, record_function
from tabtorch.profiler._table import EventList, FunctionEventAvg


class ProfilerActivity(Enum):
    """What to record. Dispatches are counted whichever is named; "CUDA" and "WEBGPU" mean the GPU."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    WEBGPU = 4


class ProfilerAction(Enum):
    """What the profiler does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """The host, and the GPU where there is one."""
    gpu = {ProfilerActivity.CUDA, ProfilerActivity.WEBGPU}
    return {ProfilerActivity.CPU} | (gpu if _lazy.webgpu.is_available() else set())


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Step -> action: after `skip_first` steps, cycles of `wait`, `warmup` and `active`, `repeat` times (0: for ever)."""
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), "
            f"active={active} (need > 0), repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0)."
        )
    if warmup == 0:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results", stacklevel=2)

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        length = wait + warmup + active
        if repeat > 0 and step >= repeat * length:
            return ProfilerAction.NONE
        at = step % length
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """For `on_trace_ready`: writes a trace into a folder, under a name of its own."""

    def handler(prof: Any) -> None:
        os.makedirs(dir_name, exist_ok=True)
        name = os.path.join(dir_name, f"{worker_name or 'tab'}.{time.time_ns()}.pt.trace.json")
        prof.export_chrome_trace(name)
        if use_gzip:
            import gzip

            with open(name, "rb") as plain, gzip.open(name + ".gz", "wb") as packed:
                packed.write(plain.read())
            os.remove(name)

    return handler


class profile:
    """Records what runs within it: for each operation its calls, time in Python and dispatches, and each kernel that was sent.

    schedule: a function of the step number, as `schedule` makes it; `step()` ends a step. on_trace_ready: called with the
    profiler when a recording is done. record_shapes, profile_memory, with_stack: what is noted of each call.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Any = None,
    ) -> None:
        if with_flops or with_modules or execution_trace_observer is not None:
            raise NotImplementedError(
                "torch.profiler in tabtorch has no with_flops, with_modules and execution_trace_observer"
            )
        self.activities = set(activities) if activities else supported_activities()
        if not self.activities <= supported_activities() | {ProfilerActivity.CPU}:
            self.activities &= supported_activities()
        if not self.activities:
            raise AssertionError("No valid profiler activities found")
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.step_num = 0
        self.current_action = ProfilerAction.NONE
        self._recorder: Recorder | None = None
        self._recording = False
        self._step: Any = None

    def _act(self, action: ProfilerAction | None) -> None:
        """Goes on to a step with this action; None: the end."""
        before, self.current_action = self.current_action, action or ProfilerAction.NONE
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        goes_on = action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if self._recording and (not goes_on or before is ProfilerAction.RECORD_AND_SAVE):
            assert self._recorder is not None
            self._recorder.stop()
            self._recording = False
            if self.on_trace_ready is not None and (action is None or before is ProfilerAction.RECORD_AND_SAVE):
                self.on_trace_ready(self)
        if goes_on and not self._recording:
            gpu = bool(self.activities & {ProfilerActivity.CUDA, ProfilerActivity.WEBGPU})
            self._recorder = Recorder(self.record_shapes, self.profile_memory, self.with_stack, gpu)
            self._recorder.start()
            self._recording = True
        if self._recording and self.schedule is not None:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def start(self) -> None:
        """Begins; a with block does so by itself."""
        self._act(self.schedule(self.step_num) if self.schedule else ProfilerAction.RECORD)

    def stop(self) -> None:
        """Ends."""
        self._act(None)

    def step(self) -> None:
        """Says that the next step of the program begins."""
        if self.schedule is not None:
            self.step_num += 1
            self._act(self.schedule(self.step_num))

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.stop()

    def events(self) -> EventList:
        """The events of the last recording, in order. AssertionError where there is none."""
        if self._recorder is None:
            raise AssertionError("Expected profiling results: the profiler has recorded nothing")
        return EventList(self._recorder.events, self.profile_memory)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The events added up by name: see `EventList.table`."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self) -> FunctionEventAvg:
        """All events in one line."""
        return self.events().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """µs of Python in all events."""
        return self.events().self_cpu_time_total

    def export_chrome_trace(self, path: Any) -> None:
        """A JSON file for chrome://tracing and Perfetto."""
        self.events().export_chrome_trace(path)

    def export_stacks(self, path: Any, metric: str = "self_cpu_time_total") -> None:
        """For flame graphs: a line for each stack, and its figure. Needs `with_stack=True`."""
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        figure = metric.replace("cuda", "device")
        with open(path, "w", encoding="utf-8") as f:
            for e in self.events():
                value = int(getattr(e, figure))
                if e.stack and value > 0:
                    f.write(";".join(reversed([s.replace(";", "_") for s in e.stack])) + f" {value}\n")

    def add_metadata(self, key: str, value: str) -> None:
        """Traces hold no metadata of the user's."""
        raise NotImplementedError("torch.profiler in tabtorch has no add_metadata")
