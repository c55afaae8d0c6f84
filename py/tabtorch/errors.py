"""Exceptions that PyTorch has and Python has not. Everything else is raised as Python's own types."""

from __future__ import annotations

__all__ = ["AcceleratorError", "OutOfMemoryError"]


class OutOfMemoryError(RuntimeError):
    """The device could not allocate a buffer. `torch.OutOfMemoryError`."""

    __module__ = "torch"


class AcceleratorError(RuntimeError):
    """The device failed while it ran, or was lost. `torch.AcceleratorError`."""

    __module__ = "torch"
