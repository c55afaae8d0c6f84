"""Whether a graph is well formed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tabtorch
from tabtorch.fx.node import Node, _legal_ops

if TYPE_CHECKING:
    from tabtorch.fx.graph import Graph


def lint(graph: Graph) -> None:
    """RuntimeError for a node that uses what is not before it, or of another graph, or a name twice, or an attribute that is not there."""
    names: set[str] = set()
    seen: set[Node] = set()
    for node in graph.nodes:
        if node.op not in _legal_ops or node.op == "root":
            raise RuntimeError(f"Node {node} had unknown opcode {node.op}!")
        if node.graph is not graph:
            raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
        if node not in graph._find_nodes_lookup_table:
            raise RuntimeError(f"Node '{node}' is not added to the side table")
        for arg in node._input_nodes:
            if arg.graph is not graph:
                raise RuntimeError(
                    f"Argument '{arg}' of Node '{node}' does not belong to this Graph, but was used as an argument! If you are "
                    f"copying nodes from another graph, make sure to use ``arg_transform`` on node_copy() to remap values\n{graph}"
                )
            if arg not in seen:
                raise RuntimeError(
                    f"Argument '{arg}' of Node '{node}' was used before it has been defined! Please check that Nodes in the graph "
                    f"are topologically ordered\n{graph}"
                )
        seen.add(node)
        if node.name in names:
            raise RuntimeError(f"Node redefined name {node.name}!")
        names.add(node.name)
    if graph.owning_module:
        for node in graph.nodes:
            _check_target(node, graph.owning_module)


def _check_target(node: Node, owner: Any) -> None:
    kind = "Callable" if node.op == "call_function" else "str"
    if not (callable(node.target) if kind == "Callable" else isinstance(node.target, str)):
        raise ValueError(
            f"Node {node} target {node.target} has type {tabtorch.typename(node.target)} but a {kind} is expected"
        )
    if node.op not in ("get_attr", "call_module"):
        return
    atoms = node.target.split(".")
    for i, atom in enumerate(atoms):
        path = ".".join(atoms[:i])
        found = getattr(owner, atom, None)
        if found is None:
            raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute {atom} of {path}")
        if node.op == "call_module" and not isinstance(found, tabtorch.nn.Module):
            raise RuntimeError(f"Node {node} target {node.target} {atom} of {path} does not reference an nn.Module")
        owner = found
