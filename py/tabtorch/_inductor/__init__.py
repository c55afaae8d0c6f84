"""`torch._inductor`: the names of it that programs use."""

from . import config

__all__ = ["config"]
