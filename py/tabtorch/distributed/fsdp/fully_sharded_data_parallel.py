"""The module in which PyTorch has `FullyShardedDataParallel`."""

from __future__ import annotations

from . import FullyShardedDataParallel as FullyShardedDataParallel
from . import MixedPrecision as MixedPrecision
