"""`torch.distributed`: not available, for a tab is one process. Scripts ask `is_available()`, or only start it under torchrun."""

from __future__ import annotations

import enum
import importlib
from typing import Any

_WHY = (
    "torch.distributed is not available in tabtorch: a browser tab is one process. Run the script without torchrun "
    "(no RANK in the environment), or take it to PyTorch."
)


def is_available() -> bool:
    """False."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_torchelastic_launched() -> bool:
    """False."""
    return False


is_nccl_available = is_gloo_available = is_mpi_available = is_available


def _unavailable(name: str) -> Any:
    def f(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{name}: {_WHY}")

    f.__name__ = f.__qualname__ = name
    f.__doc__ = "RuntimeError: there is one process."
    return f


for _name in (
    "init_process_group destroy_process_group new_group get_rank get_world_size get_backend barrier all_reduce all_gather "
    "all_gather_object broadcast broadcast_object_list reduce gather scatter send recv isend irecv reduce_scatter all_to_all "
    "init_device_mesh monitored_barrier"
).split():
    globals()[_name] = _unavailable(_name)


class ReduceOp(enum.Enum):
    """How a collective would combine what the processes bring."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


class ProcessGroup:
    """RuntimeError: there is one process. Other packages name it in their annotations."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"ProcessGroup: {_WHY}")


class group:
    """`group.WORLD` is the group of all processes, which is None where none was started, as in PyTorch."""

    WORLD: ProcessGroup | None = None


class GroupMember:
    """As `group`."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = -100


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "device_mesh":  # the one module that `import torch.distributed` brings along, as in PyTorch
        return importlib.import_module("tabtorch.distributed.device_mesh")
    if name == "DeviceMesh":
        return importlib.import_module("tabtorch.distributed.device_mesh").DeviceMesh
    raise AttributeError(f"module 'torch.distributed' has no attribute '{name}': {_WHY}")
