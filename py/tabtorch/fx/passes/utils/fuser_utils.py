"""`torch.fx.passes.utils.fuser_utils`: some nodes of a graph as one call of a module."""

from __future__ import annotations

import copy
import heapq
from collections.abc import Iterable
from typing import Any

from tabtorch.fx.graph import Graph
from tabtorch.fx.graph_module import GraphModule
from tabtorch.fx.node import Node
from tabtorch.fx.passes.tools_common import NodeList, stable_topological_sort
from tabtorch.fx.passes.utils.common import lift_subgraph_as_module
from tabtorch.fx.proxy import Proxy


def topo_sort(nodes: NodeList) -> NodeList:
    """The nodes, each after those that it uses, else in the order they are in."""
    place = {node: i for i, node in enumerate(nodes)}
    waits = {node: sum(n in place for n in node.all_input_nodes) for node in nodes}
    ready = [(place[n], n) for n in nodes if not waits[n]]
    heapq.heapify(ready)
    done: NodeList = []
    while ready:
        _, node = heapq.heappop(ready)
        done.append(node)
        for user in node.users:
            if user in waits:
                waits[user] -= 1
                if not waits[user]:
                    heapq.heappush(ready, (place[user], user))
    assert len(done) == len(nodes), "topological sorted nodes doesn't have same length as input nodes"
    return done


def validate_partition(partition: Iterable[Node]) -> bool:
    """Whether the nodes can be one call: nothing outside stands between two of them."""
    inside = set(partition)
    todo = [user for node in inside for user in node.users if user not in inside]
    seen: set[Node] = set()
    while todo:
        node = todo.pop()
        if node in inside:
            return False
        if node not in seen:
            seen.add(node)
            todo.extend(node.users)
    return True


def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: NodeList,
    module_name: str,
    partition_lookup_table: Any = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """The nodes as a module; which nodes its inputs are, and of which its results are the values."""
    for node in nodes:
        assert node.graph.owning_module is gm, f"{node} doesn't belong to passed in graph module {gm._get_name()}"
        assert not node._erased, f"{node} has been removed from owning graph"
    assert validate_partition(nodes), "Invalid partition, found dependency cycles"
    inside = nodes if partition_lookup_table is None else partition_lookup_table
    graph = Graph()
    inputs: dict[Node, Node] = {}
    made: dict[Node, Node] = {}

    def remap(x: Node) -> Node:
        if x in inside:
            return made[x]
        if x not in inputs:
            inputs[x] = graph.placeholder(x.name, type_expr=x.type)
            inputs[x].meta = copy.copy(x.meta)
        return inputs[x]

    for node in nodes:
        made[node] = graph.node_copy(node, remap)
    results = {node: made[node] for node in nodes if any(user not in inside for user in node.users)}
    outs = tuple(results.values())
    graph.output(outs[0] if len(outs) == 1 and not always_return_tuple else outs)
    graph.lint()
    fused, _ = lift_subgraph_as_module(gm, graph, comp_name="", class_name=module_name)
    return fused, tuple(inputs), tuple(results)


def insert_subgm(
    gm: GraphModule,
    sub_gm: GraphModule,
    orig_inputs: tuple[Node, ...],
    orig_outputs: tuple[Node, ...],
    insertion_point: Node | None = None,
) -> GraphModule:
    """Puts a call of `sub_gm` into the graph, in the place of the nodes of `orig_outputs`."""
    name = type(sub_gm).__name__
    gm.add_submodule(name, sub_gm)
    if insertion_point is None:
        insertion_point = next((n for n in reversed(gm.graph.nodes) if n in orig_outputs), None)
        assert insertion_point is not None, "Cannot determine insertion point"
    with gm.graph.inserting_after(insertion_point):
        call = gm.graph.call_module(name, args=orig_inputs, kwargs=None)
    if orig_outputs:
        with gm.graph.inserting_before(call.next):
            if len(orig_outputs) == 1 and not isinstance(sub_gm.graph.output_node().args[0], tuple):
                orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
            else:
                for i, old in enumerate(orig_outputs):
                    old.replace_all_uses_with(Proxy(call)[i].node, propagate_meta=True)
                call.meta["val"] = tuple([old.meta.get("val") for old in orig_outputs])
    return gm


def erase_nodes(gm: GraphModule, nodes: NodeList) -> None:
    """Takes the nodes away, from the last."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


def fuse_by_partitions(
    gm: GraphModule, partitions: list[Any], prefix: str = "fused_", always_return_tuple: bool = False
) -> GraphModule:
    """Every partition as one call of a module, whose name begins with `prefix`."""
    for i, partition in enumerate(partitions):
        nodes = topo_sort(list(partition))
        sub, inputs, outputs = fuse_as_graphmodule(
            gm, nodes, f"{prefix}{i}", partition, always_return_tuple=always_return_tuple
        )
        insert_subgm(gm, sub, inputs, outputs, nodes[-1])
        erase_nodes(gm, nodes)
    stable_topological_sort(gm)
    gm.graph.lint()
    return gm
