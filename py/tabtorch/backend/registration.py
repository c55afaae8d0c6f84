"""What is registered with PyTorch: the device's name and module, its kernels, and what else has to know of it."""

from __future__ import annotations

import sys
from typing import Any

import torch
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
from tabtorch.backend.tensors import NAME, before_the_first
from tabtorch.base import errors, thread_state

__all__ = ["random_kernels", "register"]  # which enters its kernels when it is imported


def _after_a_step(*args: Any) -> None:
    """Sends what waits. So what is sent together begins and ends at the same places in each step, and is planned once."""
    _lazy.engine_graph.flush()


def _errors() -> None:
    """Puts PyTorch's errors in the place of ours, so that whoever catches those catches what is raised here."""
    theirs = {
        errors.LinAlgError: torch.linalg.LinAlgError,
        errors.OutOfMemoryError: torch.OutOfMemoryError,
        errors.AcceleratorError: torch.AcceleratorError,
    }
    for module in [m for name, m in list(sys.modules.items()) if name.partition(".")[0] == "tabtorch"]:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value in theirs:
                setattr(module, name, theirs[value])


#: PyTorch forgets the kernels of a library that nobody refers to
_kept: list[Any] = []


def register() -> None:
    """Gives PyTorch the device. What takes long is left for the first tensor."""
    thread_state.several()  # PyTorch's autograd has a thread for each device, which no Python starts
    _setup_privateuseone_for_python_backend(NAME, backend_module=device)
    _errors()
    storages.register()
    modules.register()
    accelerator.register()
    printing.register()
    autocast.register()
    register_optimizer_step_post_hook(_after_a_step)
    _kept.extend([*special_kernels.register(), *kernels.register(), *composites.register()])
    before_the_first.append(lambda: _kept.extend(kernels.register_own()))
    before_the_first.append(lambda: _kept.extend(autocast.register_casts()))
