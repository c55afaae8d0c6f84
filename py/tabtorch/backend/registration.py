"""What is registered with PyTorch: the device's name and module, its kernels, and what else has to know of it."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tabtorch.backend import device, kernels, special_kernels, storages
from tabtorch.backend.tensors import NAME


def register() -> list[Any]:
    """Gives PyTorch the device. Returns what has to be kept as long as it is there."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=device)
    assert special_kernels.aten is torch.ops.aten  # it has entered its kernels when it was imported
    storages.register()
    return kernels.register()
