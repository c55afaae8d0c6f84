"""`torch.amp`: automatic mixed precision. See https://docs.pytorch.org/docs/stable/amp.html"""

from typing import Any

from tabtorch.amp import autocast_mode
from tabtorch.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from tabtorch.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


def __getattr__(name: str) -> Any:
    if "autocast" not in name:
        raise AttributeError(f"module 'torch.amp' has no attribute '{name}'")
    return getattr(autocast_mode, name)  # what `torch.NAME` has
