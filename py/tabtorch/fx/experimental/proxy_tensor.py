"""`torch.fx.experimental.proxy_tensor`."""

from __future__ import annotations


def get_proxy_mode() -> None:
    """None: no trace is being made."""
