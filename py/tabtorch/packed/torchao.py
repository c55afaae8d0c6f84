"""torchao's names for weights that are quantized in place. After `tabtorch.install()` it is `torchao.quantization`, where no
torchao is installed: `quantize_(model, Int4WeightOnlyConfig(group_size=32))`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tabtorch.nn.modules.linear import Linear
from tabtorch.packed.quantization import quantize_int4, quantize_int8
from tabtorch.packed.weight import Packed

__all__ = ["Int4WeightOnlyConfig", "Int8WeightOnlyConfig", "quantize_"]


@dataclass
class Int8WeightOnlyConfig:
    """Codes of 8 bits; a scale for each row, or for each `group_size` columns of it."""

    group_size: int | None = None

    def _quantize(self, weight: Any) -> Packed | None:
        if self.group_size is not None and weight.shape[-1] % self.group_size:
            return None
        return quantize_int8(weight, self.group_size)


@dataclass
class Int4WeightOnlyConfig:
    """Codes of 4 bits; a scale and a zero for each `group_size` columns of a row."""

    group_size: int = 128

    def _quantize(self, weight: Any) -> Packed | None:
        return None if weight.shape[-1] % self.group_size else quantize_int4(weight, self.group_size)


def _is_linear(module: Any, fqn: str) -> bool:
    return isinstance(module, Linear) and not isinstance(module.weight, Packed)


def quantize_(model: Any, config: Any, filter_fn: Callable[[Any, str], bool] | None = None, device: Any = None) -> None:
    """Packs the weights of a model's linear layers, in place; a layer whose columns are not of whole groups stays, with a warning.

    config: `Int4WeightOnlyConfig` or `Int8WeightOnlyConfig`. filter_fn(module, name): whether to pack the weight of a module;
    without it those of all `nn.Linear`. device: where to. TypeError or ValueError for anything else, before any weight is packed.
    """
    if not isinstance(config, (Int4WeightOnlyConfig, Int8WeightOnlyConfig)):
        raise TypeError(f"quantize_ takes Int4WeightOnlyConfig or Int8WeightOnlyConfig here, and not {config!r}")
    size = config.group_size
    if not (type(size) is int and size > 0) and not (size is None and isinstance(config, Int8WeightOnlyConfig)):
        raise ValueError(f"group_size must be a positive number, and not {size!r}")
    wanted = _is_linear if filter_fn is None else filter_fn
    chosen = [(name, module) for name, module in model.named_modules() if wanted(module, name)]
    for name, module in chosen:
        if not isinstance(module, Linear):
            raise TypeError(f"quantize_ packs weights of nn.Linear, and {name!r} is a {type(module).__name__}")
    for name, module in chosen:
        if isinstance(module.weight, Packed):
            continue
        weight = module.weight if device is None else module.weight.to(device)
        packed = config._quantize(weight)
        if packed is None:
            warnings.warn(
                f"{name!r} stays as it is: {weight.shape[-1]} columns are not of groups of {size}", stacklevel=2
            )
            continue
        module.weight = packed
        if device is not None:
            module.to(device)
