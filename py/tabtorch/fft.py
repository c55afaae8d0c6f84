"""`torch.fft`: discrete Fourier transforms, along one or several dimensions. They load when the first is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from tabtorch.ops.machinery.registry import Missing, overridable


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        ops = importlib.import_module("tabtorch.ops.fourier.transforms")
        if name in ops.NAMES:
            globals()[name] = f = overridable(getattr(ops, name))
            return f
    raise Missing(f"module 'torch.fft' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(importlib.import_module("tabtorch.ops.fourier.transforms").NAMES)
