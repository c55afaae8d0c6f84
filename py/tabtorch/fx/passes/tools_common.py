"""`torch.fx.passes.tools_common`: what passes share."""

from __future__ import annotations

import collections
import heapq
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.fx import _names
from tabtorch.fx.graph import Graph
from tabtorch.fx.graph_module import GraphModule
from tabtorch.fx.node import Node, _get_qualified_name

__all__ = [
    "FxNetAccFusionsFinder",
    "get_acc_ops_name",
    "get_node_target",
    "is_node_output_tensor",
    "legalize_graph",
    "stable_topological_sort",
]

Tensors = tuple[Tensor] | list[Tensor]
TensorOrTensors = Tensor | Tensors
NodeList = list[Node]
NodeSet = set[Node]
Names = list[str]
CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


def get_acc_ops_name(k: Any) -> str:
    """The name of a function or class, with its module's."""
    if isinstance(k, str):
        return k
    if k.__module__ and "acc_ops" in k.__module__:
        return f"acc_ops.{k.__name__}"
    return f"{_names.module_of(k).replace('torch._ops', 'torch.ops')}.{k.__name__}"


def get_node_target(submodules: Mapping[str, Any], node: Node) -> str:
    """What a node calls: a function's name, a module's class, a method."""
    assert node.op in CALLABLE_NODE_OPS, "Expect op types of " + ", ".join(CALLABLE_NODE_OPS) + f", but found {node.op}"
    if node.op == "call_module":
        module = submodules[node.target]
        return get_acc_ops_name(getattr(module, "_base_class_origin", type(module)))
    if node.op == "call_function":
        f = node.target
        return f"acc_ops.{f.__name__}" if "acc_ops" in (f.__module__ or "") else _get_qualified_name(f)
    return str(node.target)


def is_node_output_tensor(node: Node) -> bool:
    """Whether ShapeProp saw a tensor there."""
    found = node.meta.get("type")
    return found is not None and issubclass(found, Tensor)


class FxNetAccFusionsFinder:
    """Groups of nodes between which there are values that are no tensors: those are to stay together."""

    def __init__(self, module: GraphModule, acc_nodes: NodeSet) -> None:
        self.module = module
        self.nodes = list(module.graph.nodes)
        self.acc_nodes = acc_nodes
        self.node_index = {node: i for i, node in enumerate(self.nodes)}

    @dataclass
    class FusionGroup:
        """A group that is being found."""

        top_node_idx: int
        nodes: NodeSet
        inputs: NodeSet
        nodes_need_process: NodeSet

        def add_node(self, node: Node) -> None:
            """Takes a node in, with what it needs."""
            if node not in self.nodes:
                self.nodes_need_process.add(node)
                self.nodes.add(node)
                self.inputs.discard(node)
                self.inputs |= {n for n in node.all_input_nodes if n.op in CALLABLE_NODE_OPS and n not in self.nodes}

    def recursive_add_node(self, group: FusionGroup, inputs: Any, visited: NodeSet | None = None) -> bool:
        """Takes in what lies between the group and these of its inputs."""
        for arg in list(inputs):
            if visited is not None:
                if arg in visited:
                    continue
                visited.add(arg)
            if arg.op not in CALLABLE_NODE_OPS or self.node_index[arg] < group.top_node_idx:
                continue
            if arg in group.nodes:
                return True
            if self.recursive_add_node(group, arg.all_input_nodes, visited):
                group.add_node(arg)
                return True
        return False

    def __call__(self) -> dict[Node, NodeSet]:
        found: dict[Node, NodeSet] = {}
        for node in list(self.acc_nodes):
            if node in found or node.op not in CALLABLE_NODE_OPS or "tensor_meta" in node.meta:
                continue
            if node not in self.acc_nodes:
                continue
            group = self.FusionGroup(self.node_index[node], {node}, set(node.all_input_nodes), {node})
            while group.nodes_need_process:
                n = group.nodes_need_process.pop()
                self.recursive_add_node(group, group.inputs, set())
                if "tensor_meta" not in n.meta:
                    for user in n.users:
                        if user.op in CALLABLE_NODE_OPS and user not in group.nodes:
                            group.add_node(user)
                            self.recursive_add_node(group, group.inputs, set())
                for arg in n.all_input_nodes:
                    if arg.op in CALLABLE_NODE_OPS and "tensor_meta" not in arg.meta and arg not in group.nodes:
                        group.add_node(arg)
                        group.top_node_idx = min(group.top_node_idx, self.node_index[arg])
                        self.recursive_add_node(group, group.inputs, set())
            if group.nodes <= self.acc_nodes:
                found.update(dict.fromkeys(group.nodes, group.nodes))
            else:
                self.acc_nodes -= group.nodes
        return found


def _sorted(gm: GraphModule, take: Any, put: Any) -> int:
    """Makes the graph anew: `take()` gives the node that comes next of those that are ready, `put(node)` says that one is."""
    waits = dict.fromkeys(gm.graph.nodes, 0)
    for node in gm.graph.nodes:
        for user in node.users:
            waits[user] += 1
    for node, n in waits.items():
        if not n:
            put(node, True)
    new = Graph()
    env: dict[Node, Node] = {}
    while (node := take()) is not None:
        env[node] = new.node_copy(node, lambda x: env[x])
        for user in node.users:
            waits[user] -= 1
            if not waits[user]:
                put(user, False)
    if len(env) < len(waits):
        raise RuntimeError(f"Input graph has cycles, unable to add {[n for n in waits if waits[n] != 0]}")
    new._codegen = gm.graph._codegen
    gm.graph = new
    return len(env)


_FIRST = {getattr(operator, n) for n in "add mul sub floordiv truediv mod le lt ge gt eq ne".split()}


def legalize_graph(gm: GraphModule) -> GraphModule:
    """The same nodes, each after those that it uses: as soon as it can be, arithmetic of numbers before all else."""
    queue: collections.deque[Node] = collections.deque()

    def put(node: Node, first: bool) -> None:
        early = not first and node.op == "call_function" and node.target in _FIRST
        (queue.appendleft if early else queue.append)(node)

    _sorted(gm, lambda: queue.popleft() if queue else None, put)
    return gm


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """The same nodes, each after those that it uses, else in the order that they are in."""
    place = {node: i for i, node in enumerate(gm.graph.nodes)}
    ready: list[tuple[int, Node]] = []
    _sorted(
        gm,
        lambda: heapq.heappop(ready)[1] if ready else None,
        lambda node, first: heapq.heappush(ready, (place[node], node)),
    )
    return gm
