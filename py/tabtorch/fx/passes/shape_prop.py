"""`torch.fx.passes.shape_prop`: a graph run once, to note the shape and type of every value."""

from __future__ import annotations

import traceback
from typing import Any, NamedTuple

import tabtorch
from tabtorch.core.tensor import Tensor
from tabtorch.fx.interpreter import Interpreter
from tabtorch.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    found = None
    if include_contiguity:
        formats = (tabtorch.contiguous_format, tabtorch.channels_last, tabtorch.channels_last_3d)
        found = next((f for f in formats if result.is_contiguous(memory_format=f)), None)
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(), found, False, {})


class ShapeProp(Interpreter):
    """`propagate(*args)`: nodes have "tensor_meta" and "type" in their `meta` then."""

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        """fake_mode: a context in which the nodes run."""
        super().__init__(gm)
        self.fake_mode = fake_mode
        self.fake_module = None
        self.real_module = self.module

    def run_node(self, n: Node) -> Any:
        try:
            if self.fake_mode is not None:
                with self.fake_mode:
                    result = super().run_node(n)
            else:
                result = super().run_node(n)
        except Exception as e:
            traceback.print_exc()
            raise RuntimeError(f"ShapeProp error for: node={n.format_node()} with meta={n.meta}") from e
        tensors = []

        def note(x: Any) -> Any:
            if isinstance(x, Tensor):
                tensors.append(x)
                return _extract_tensor_metadata(x)
            return x

        meta = map_aggregate(result, note)
        if tensors:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the graph with these arguments; what it gives."""
        return super().run(*args)
