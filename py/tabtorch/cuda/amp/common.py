"""`torch.cuda.amp.common`: what other packages ask before they use `torch.cuda.amp`."""

from __future__ import annotations

from importlib.util import find_spec

from tabtorch import cuda

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """Whether there is neither CUDA nor a torch_xla."""
    return not (cuda.is_available() or find_spec("torch_xla"))
