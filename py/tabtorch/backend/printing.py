"""Printing: PyTorch formats a tensor's values where they are, in float64. Those of the device are brought to the CPU first, at once."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import _tensor_str

from tabtorch.backend.tensors import NAME


def register() -> None:
    """Wraps the function that formats values. PyTorch has no hook there; it names the devices without float64 itself."""
    plain = _tensor_str._tensor_str

    @functools.wraps(plain)
    def _values(self: torch.Tensor, indent: int) -> Any:
        return plain(self.detach().cpu() if self.device.type == NAME else self, indent)

    _tensor_str._tensor_str = _values
