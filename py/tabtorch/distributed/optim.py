"""`torch.distributed.optim`: optimizers whose state is spread over processes. There is one process: RuntimeError."""

from __future__ import annotations

from typing import Any

from tabtorch.distributed import _unavailable
from tabtorch.optim.optimizer import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer):
    """RuntimeError: there is one process. No optimizer is one, which is what `isinstance` is asked for."""

    def __init__(self, params: Any, optimizer_class: type[Optimizer], **kwargs: Any) -> None:
        _unavailable("ZeroRedundancyOptimizer")()
