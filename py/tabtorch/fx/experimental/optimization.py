"""`torch.fx.experimental.optimization`: what a model for inference does not need is taken out."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from tabtorch import nn
from tabtorch.fx._symbolic_trace import Tracer, symbolic_trace
from tabtorch.fx.graph import Graph
from tabtorch.fx.graph_module import GraphModule
from tabtorch.fx.interpreter import Transformer
from tabtorch.fx.node import Node
from tabtorch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = [
    "extract_subgraph",
    "fuse",
    "matches_module_pattern",
    "optimize_for_inference",
    "remove_dropout",
    "replace_node_module",
]


def _parent_name(target: str) -> tuple[str, str]:
    parent, _, name = target.rpartition(".")
    return parent, name


def matches_module_pattern(pattern: Iterable[type], node: Node, modules: dict[str, Any]) -> bool:
    """Whether a node calls a module of the second class, of what one of the first class gave."""
    if not node.args:
        return False
    return all(
        isinstance(n, Node) and n.op == "call_module" and type(modules.get(n.target)) is kind
        for kind, n in zip(pattern, (node.args[0], node))
    )


def replace_node_module(node: Node, modules: dict[str, Any], new_module: nn.Module) -> None:
    """Puts another module where a node has one."""
    parent, name = _parent_name(node.target)
    modules[node.target] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: nn.Module, inplace: bool = False, no_trace: bool = False) -> nn.Module:
    """The model with batch normalizations computed into the convolutions and products before them. It has to be in eval mode."""
    if not inplace:
        model = copy.deepcopy(model)
    gm = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules = dict(gm.named_modules())
    graph = copy.deepcopy(gm.graph)
    for kind, norm in (
        (nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d), (nn.Conv3d, nn.BatchNorm3d), (nn.Linear, nn.BatchNorm1d)
    ):  # fmt: skip
        for node in graph.nodes:
            if not matches_module_pattern((kind, norm), node, modules) or len(node.args[0].users) > 1:
                continue
            layer, bn = modules[node.args[0].target], modules[node.target]
            if not bn.track_running_stats:
                continue
            fused: Any = (fuse_linear_bn_eval if kind is nn.Linear else fuse_conv_bn_eval)(layer, bn)
            replace_node_module(node.args[0], modules, fused)
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    return GraphModule(gm, graph)


class _DropoutRemover(Transformer):
    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(self.submodules[target], nn.Dropout):
            (x,) = args
            return x
        return super().call_module(target, args, kwargs)


def remove_dropout(model: nn.Module) -> nn.Module:
    """The model without Dropout layers."""
    return _DropoutRemover(symbolic_trace(model)).transform()


def extract_subgraph(orig_module: nn.Module, nodes: list[Node], inputs: list[Node], outputs: list[Node]) -> GraphModule:
    """Some nodes as a module, from `inputs` to a list of `outputs`."""
    graph = Graph()
    env = {n: graph.placeholder(n.name) for n in inputs}
    for node in nodes:
        env[node] = graph.node_copy(node, lambda x: env[x])
    graph.output([env[n] for n in outputs])
    graph.lint()
    return GraphModule(orig_module, graph)


def optimize_for_inference(
    model: nn.Module, pass_config: dict[str, Any] | None = None, tracer: type[Tracer] = Tracer
) -> nn.Module:
    """`fuse` and `remove_dropout`. What PyTorch does for MKL-DNN besides has nothing to be done for here."""
    config = {"conv_bn_fuse": True, "remove_dropout": True, **(pass_config or {})}
    if config["conv_bn_fuse"]:
        model = fuse(model)
    return remove_dropout(model) if config["remove_dropout"] else model
