"""`torch.fx._utils`: texts of graphs, for logs."""

from __future__ import annotations

from typing import Any


class _Lazy:
    def __init__(self, make: Any) -> None:
        self.make = make

    def __str__(self) -> str:
        return str(self.make())


def lazy_format_graph_code(name: str, gm: Any, maybe_id: Any = None, **kwargs: Any) -> Any:
    """The code of a graph, written when it is printed."""
    return _Lazy(lambda: f" ===== {name}{'' if maybe_id is None else f' {maybe_id}'} =====\n {gm.code}")


def first_call_function_nn_module_stack(graph: Any) -> Any:
    """The modules in which the first call was made, or None."""
    return next(
        (n.meta["nn_module_stack"] for n in graph.nodes if n.op == "call_function" and "nn_module_stack" in n.meta),
        None,
    )


def get_node_context(node: Any, num_nodes: int = 2) -> str:
    """The lines of a node and of those before it."""
    lines = []
    for _ in range(num_nodes):
        lines.append(str(node.format_node()))
        if node.op == "root":
            break
        node = node.prev
    return "\n".join(reversed(lines))
