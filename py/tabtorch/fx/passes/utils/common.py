"""`torch.fx.passes.utils.common`: a part of a graph as a module."""

from __future__ import annotations

import importlib
from typing import Any

from tabtorch.fx.graph import Graph
from tabtorch.fx.graph_module import GraphModule
from tabtorch.nn.modules.module import Module

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


class HolderModule(Module):
    """A module of these modules."""

    def __init__(self, d: dict[str, Any]) -> None:
        super().__init__()
        for k, v in d.items():
            self.add_module(k, v)


def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """A graph whose calls are of `gm`'s attributes as a module that has those; and where each is, in `comp_name`."""
    holder = HolderModule({})
    where: dict[str, str] = {}
    for n in subgraph.nodes:
        if n.op not in ("call_module", "get_attr"):
            continue
        *prefix, last = n.target.split(".")
        to: Any = holder
        source: Any = gm
        for name in prefix:
            if not hasattr(to, name):
                to.add_module(name, HolderModule({}))
            to, source = getattr(to, name), getattr(source, name)
        where[n.target] = f"{comp_name}.{n.target}"
        setattr(to, last, getattr(source, last))
    return GraphModule(holder, subgraph, class_name), where


def compare_graphs(left: Graph, right: Graph) -> bool:
    """Whether `right` does what `left` does, in the same calls."""
    matching = importlib.import_module("tabtorch.fx.passes.utils.matcher_utils")
    return bool(matching.SubgraphMatcher(left, match_output=True, match_placeholder=True).match(right))
