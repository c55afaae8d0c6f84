"""`torch._custom_ops`: what `torch.library` replaced. Of it there is what fakes ask for."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["get_ctx"]


def get_ctx() -> NoReturn:
    """RuntimeError: a fake that gives a size which hangs on data cannot run here, as no size is unknown."""
    raise RuntimeError(
        "get_ctx(): a fake cannot give a size that hangs on the values of tensors here; call the operator itself"
    )
