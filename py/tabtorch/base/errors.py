"""Exceptions that PyTorch has and Python has not. Everything else is raised as Python's own types."""

from __future__ import annotations


class OutOfMemoryError(RuntimeError):
    """The device could not allocate a buffer. `torch.OutOfMemoryError`."""

    __module__ = "torch"


class AcceleratorError(RuntimeError):
    """The device failed while it ran, or was lost. `torch.AcceleratorError`."""

    __module__ = "torch"


class LinAlgError(RuntimeError):
    """A matrix has not what a decomposition needs (it is singular, not positive-definite, …). `torch.linalg.LinAlgError`."""


LinAlgError.__name__ = LinAlgError.__qualname__ = "_LinAlgError"  # what PyTorch's tracebacks call it
LinAlgError.__module__ = "torch._C"
