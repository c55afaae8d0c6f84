"""`torch.signal`: window functions, in `torch.signal.windows`."""

from __future__ import annotations

from tabtorch.signal import windows

__all__ = ["windows"]
