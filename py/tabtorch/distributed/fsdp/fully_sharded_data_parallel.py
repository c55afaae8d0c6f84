"""The module in which PyTorch has `FullyShardedDataParallel`."""

from __future__ import annotations

from tabtorch.distributed.fsdp import FullyShardedDataParallel as FullyShardedDataParallel
from tabtorch.distributed.fsdp import MixedPrecision as MixedPrecision
