"""The weights of convolutions in another memory order."""

from __future__ import annotations

from typing import Any

from tabtorch.nn.modules import conv

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module: Any, memory_format: Any, kinds: Any) -> Any:
    for each in module.modules():
        if isinstance(each, kinds):
            each.weight.data = each.weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Stores the weights of Conv2d and ConvTranspose2d in ``memory_format``; returns the module."""
    return _convert(module, memory_format, (conv.Conv2d, conv.ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Stores the weights of Conv3d and ConvTranspose3d in ``memory_format``; returns the module."""
    return _convert(module, memory_format, (conv.Conv3d, conv.ConvTranspose3d))
