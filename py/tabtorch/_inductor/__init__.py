"""`torch._inductor`: the names of it that programs use."""

from tabtorch._inductor import config

__all__ = ["config"]
