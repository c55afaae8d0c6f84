"""`torch.fx._lazy_graph_module`: who makes GraphModules. None is lazy here: code is cheap to write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tabtorch.fx.graph_module import GraphModule

_force_skip_lazy_graph_module_flag = False


@contextmanager
def _use_lazy_graph_module(should_use: bool) -> Iterator[None]:
    yield


def _get_graph_module_cls() -> type[GraphModule]:
    return GraphModule


def _make_graph_module(*args: Any, graph_module_cls: Any = None, **kwargs: Any) -> GraphModule:
    made: GraphModule = (graph_module_cls or GraphModule)(*args, **kwargs)
    return made


class _LazyGraphModule(GraphModule):
    """A GraphModule."""

    @classmethod
    def from_graphmodule(cls, gm: GraphModule) -> GraphModule:
        return gm

    @staticmethod
    def force_recompile(gm: Any) -> None:
        """Nothing waits to be compiled."""

    def real_recompile(self) -> Any:
        return self.recompile()
