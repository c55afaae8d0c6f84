"""`torch.autograd.profiler`: the older form of `torch.profiler`."""

from __future__ import annotations

from typing import Any

from tabtorch.profiler import profiler as _profiler
from tabtorch.profiler._record import FunctionEvent, record_function
from tabtorch.profiler._table import EventList, FunctionEventAvg

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "emit_nvtx", "profile", "record_function"]


class emit_nvtx:
    """RuntimeError where it is entered: NVIDIA's tools, which would show the ranges, do not see a tab's work."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled

    def __enter__(self) -> emit_nvtx:
        if self.enabled:
            raise RuntimeError("emit_nvtx: NVIDIA's tools do not see what runs here; see torch.profiler")
        return self

    def __exit__(self, *exc: Any) -> None:
        pass


class profile(_profiler.profile):
    """Records what runs within it; `table` and `key_averages` show it. enabled=False: nothing."""

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            record_shapes=record_shapes,
            with_flops=with_flops,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_modules=with_modules,
        )
        self.enabled = enabled

    def __enter__(self) -> profile:
        if self.enabled:
            self.start()
        return self

    @property
    def function_events(self) -> EventList:
        """The events."""
        return self.events()

    def table(self, sort_by: str | None = None, row_limit: int = 100, **kwargs: Any) -> str:
        """The events, one a line."""
        return self.events().table(sort_by, row_limit, **kwargs)
