"""What is registered with PyTorch: the device's name and module, its kernels, and what else has to know of it."""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tabtorch import _lazy
from tabtorch.backend import (
    accelerator,
    autocast,
    composites,
    device,
    kernels,
    modules,
    printing,
    random_kernels,
    special_kernels,
    storages,
)
from tabtorch.backend.tensors import NAME
from tabtorch.base import thread_state

__all__ = ["random_kernels", "register"]  # which enters its kernels when it is imported


def _after_a_step(*args: Any) -> None:
    """Sends what waits. So what is sent together begins and ends at the same places in each step, and is planned once."""
    _lazy.engine_graph.flush()


def register() -> list[Any]:
    """Gives PyTorch the device. Returns what has to be kept as long as it is there."""
    thread_state.several()  # PyTorch's autograd has a thread for each device, which no Python starts
    _setup_privateuseone_for_python_backend(NAME, backend_module=device)
    storages.register()
    modules.register()
    accelerator.register()
    printing.register()
    register_optimizer_step_post_hook(_after_a_step)
    return [*special_kernels.register(), *kernels.register(), *autocast.register(), *composites.register()]
