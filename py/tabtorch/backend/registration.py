"""What is registered with PyTorch: the device's name and module, its kernels, and what else has to know of it."""

from __future__ import annotations

from typing import Any

from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tabtorch.backend import (
    accelerator,
    autocast,
    device,
    kernels,
    modules,
    random_kernels,
    special_kernels,
    storages,
)
from tabtorch.backend.tensors import NAME

__all__ = ["random_kernels", "register"]  # which enters its kernels when it is imported


def register() -> list[Any]:
    """Gives PyTorch the device. Returns what has to be kept as long as it is there."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=device)
    storages.register()
    modules.register()
    accelerator.register()
    return [*special_kernels.register(), *kernels.register(), *autocast.register()]
