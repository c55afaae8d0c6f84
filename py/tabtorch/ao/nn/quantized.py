"""`torch.ao.nn.quantized`, which is also `torch.nn.quantized`: layers of quantized tensors. There are none of those here, so making a layer
is a NotImplementedError; the classes are there for those who derive from them, or ask whether a layer is one.
"""

from __future__ import annotations

from typing import Any

from tabtorch.nn._missing import missing_class
from tabtorch.nn.modules.module import Module

__all__: list[str] = []

_get: Any = missing_class(
    "torch.ao.nn.quantized",
    "BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d DeQuantize Dropout ELU Embedding "
    "EmbeddingBag FXFloatFunctional FloatFunctional GroupNorm Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d LSTM LayerNorm "
    "LeakyReLU Linear MultiheadAttention PReLU QFunctional Quantize ReLU6 Sigmoid Softmax",
    Module,
)


def __getattr__(name: str) -> Any:
    return _get(name)
