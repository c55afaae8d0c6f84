"""`torch.distributed.rpc`: not there, as in a PyTorch that was built without it."""

from __future__ import annotations


def is_available() -> bool:
    """False: there are no other processes to call."""
    return False


__all__ = ["is_available"]
