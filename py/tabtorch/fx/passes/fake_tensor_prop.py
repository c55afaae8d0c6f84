"""`torch.fx.passes.fake_tensor_prop`: a graph run with tensors that have no values."""

from __future__ import annotations

from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.fx.interpreter import Interpreter
from tabtorch.fx.node import Node, map_aggregate

__all__ = ["FakeTensorProp"]


class FakeTensorProp(Interpreter):
    """`propagate(*args)`: nodes have a tensor of the meta device as `meta["val"]` then."""

    def __init__(self, module: Any, mode: Any = None) -> None:
        super().__init__(module)
        self._mode = mode

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        n.meta["val"] = map_aggregate(result, lambda x: x.to("meta") if isinstance(x, Tensor) else x)
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the graph with these arguments."""
        return super().run(*args)
