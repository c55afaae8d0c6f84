"""`torch.fx.passes.graph_manipulation`: sizes of values, and calls of one thing as calls of another."""

from __future__ import annotations

from typing import Any, NamedTuple

from tabtorch.base.dtypes import dtype
from tabtorch.fx.graph import Graph
from tabtorch.fx.graph_module import GraphModule
from tabtorch.fx.node import Node, map_arg
from tabtorch.fx.passes.shape_prop import ShapeProp, TensorMetadata

__all__ = ["get_size_of_all_nodes", "get_size_of_node", "get_tensor_meta", "replace_target_nodes_with", "size_bytes"]


def replace_target_nodes_with(
    fx_module: GraphModule, old_op: str, old_target: Any, new_op: str, new_target: Any
) -> None:
    """Has every node that calls one thing call another, with the same arguments."""
    graph = Graph()
    env: dict[Node, Node] = {}
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            args, kwargs = [map_arg(x, lambda n: env[n]) for x in (node.args, node.kwargs)]
            env[node] = graph.create_node(new_op, new_target, args, kwargs, node.name)
        else:
            env[node] = graph.node_copy(node, lambda n: env[n])
    fx_module.graph = graph


class size_bytes(NamedTuple):
    """Of a node: bytes of its value, and with those of the parameters of the module that it calls."""

    output_size: int
    total_size: int


def get_size_of_all_nodes(fx_module: GraphModule, args: list[Any] | None = None) -> None:
    """Gives every node its `size_bytes`. args: what ShapeProp runs with first."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        node.size_bytes = get_size_of_node(fx_module, node)


def get_tensor_meta(node: Node) -> TensorMetadata:
    """What ShapeProp noted. RuntimeError if it did not run."""
    found: Any = node.meta.get("tensor_meta")
    if not found:
        raise RuntimeError(
            f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run."
        )
    meta: TensorMetadata = found
    return meta


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """The bytes of a node."""
    held = 0
    if node.op == "call_module":
        held = sum(p.numel() for p in fx_module.get_submodule(node.target).parameters())
    meta = get_tensor_meta(node)
    kind: dtype = meta.dtype
    n = meta.shape.numel()
    return size_bytes(kind.itemsize * n, kind.itemsize * (n + held))
