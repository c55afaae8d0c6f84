"""`torch.profiler`: where the time of a program goes. See https://docs.pytorch.org/docs/stable/profiler.html"""

from tabtorch.profiler._record import record_function
from tabtorch.profiler.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)


def kineto_available() -> bool:
    """False: events are recorded in Python."""
    return False


__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]
