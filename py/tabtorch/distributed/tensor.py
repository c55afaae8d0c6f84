"""`torch.distributed.tensor`: tensors that are spread over devices. There is one device: no tensor is one."""

from __future__ import annotations

from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.distributed import _unavailable

__all__ = ["DTensor"]


class DTensor(Tensor):
    """RuntimeError: there is one process. It is there for `isinstance`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> DTensor:
        _unavailable("DTensor")()
        raise AssertionError
