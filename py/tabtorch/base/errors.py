"""Exceptions that PyTorch has and Python has not. Everything else is raised as Python's own types."""

from __future__ import annotations

from typing import Any


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


class Refused(NotImplementedError, AttributeError, TypeError):
    """The dense state of a tensor that has none, as a sparse one, was asked for.

    It is of all kinds that calls are tried again for, so that what leads a failed call elsewhere meets it (see
    tabtorch.sparse.tensor). Where nothing does, it is PyTorch's NotImplementedError.
    """

    #: (name, args, kwargs) -> what the call of that operation gives; set by the package that makes such tensors
    dispatch: Any = None

    def __str__(self) -> str:
        name, tb = "?", self.__traceback__
        while tb is not None:
            if str(tb.tb_frame.f_globals.get("__name__", "")).startswith("tabtorch"):
                name = tb.tb_frame.f_code.co_name.lstrip("_")
                break
            tb = tb.tb_next
        return (
            f"Could not run 'aten::{name}' with arguments from the 'SparseCPU' backend. This could be because the operator "
            "doesn't exist for this backend, or was omitted during the selective/custom build process."
        )


Refused.__name__ = Refused.__qualname__ = "NotImplementedError"
Refused.__module__ = "builtins"
