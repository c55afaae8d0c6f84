"""`torch.distributed.fsdp`: modules whose parameters are spread over processes. There is one: making one is a RuntimeError.

The classes are there for `isinstance` and annotations: no module is of one of them.
"""

from __future__ import annotations

from typing import Any

from tabtorch.distributed import _unavailable
from tabtorch.nn.modules.module import Module

__all__ = ["FSDPModule", "FullyShardedDataParallel", "MixedPrecision", "MixedPrecisionPolicy", "fully_shard"]


class FullyShardedDataParallel(Module):
    """RuntimeError: there is one process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _unavailable("FullyShardedDataParallel")()


class FSDPModule:
    """RuntimeError: there is one process. PyTorch's `fully_shard` makes modules of this class."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _unavailable("FSDPModule")()


class MixedPrecision:
    """RuntimeError: there is one process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _unavailable(type(self).__name__)()


class MixedPrecisionPolicy(MixedPrecision):
    """RuntimeError: there is one process."""


fully_shard = _unavailable("fully_shard")
