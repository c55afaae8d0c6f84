"""`torch.fx.passes.split_utils`: a graph cut by the tags of its nodes."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from tabtorch.fx.graph import Graph
from tabtorch.fx.graph_module import GraphModule
from tabtorch.fx.node import Node, map_arg
from tabtorch.fx.passes.utils.common import HolderModule, lift_subgraph_as_module
from tabtorch.fx.proxy import Proxy

__all__ = ["Component", "getattr_recursive", "setattr_recursive", "split_by_tags"]


def getattr_recursive(obj: Any, name: str) -> Any:
    """The attribute at a path, or None."""
    for atom in name.split("."):
        obj = getattr(obj, atom, None)
    return obj


def setattr_recursive(obj: Any, attr: str, value: Any) -> None:
    """Puts the attribute at a path."""
    *prefix, last = attr.split(".")
    for atom in prefix:
        obj = getattr(obj, atom)
    setattr(obj, last, value)


@dataclass
class Component:
    """The nodes of one tag."""

    graph: Graph
    order: int
    name: str
    input_placeholders: list[Node] = field(default_factory=list)
    orig_inputs: list[Node] = field(default_factory=list)
    orig_outputs: list[Node] = field(default_factory=list)
    getattr_maps: dict[Node, Node] = field(default_factory=dict)
    constructor_args: list[str] = field(default_factory=list)
    gm: GraphModule | None = None


def split_by_tags(
    gm: GraphModule,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: Any = GraphModule,
) -> Any:
    """A module of a submodule for each tag, in that order: with the nodes whose `tag` it is.

    return_fqn_mapping: the result is (that, paths of attributes -> where they are now).
    """
    parts = {tag: Component(Graph(), i, tag) for i, tag in enumerate(tags)}
    of: dict[Node, Component] = {}
    copies: dict[Node, Node] = {}
    main = Graph()
    outer: dict[Node, Any] = {}
    wanted: dict[Node, None] = {}
    output = gm.graph.output_node()
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            outer[node] = main.placeholder(node.name, type_expr=node.type)
            outer[node].meta = copy.copy(node.meta)
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        assert hasattr(node, "tag"), f"Node does not have tag: {node.format_node()}"
        part = of[node] = parts[node.tag]
        latest = max([of[n].order for n in node.all_input_nodes if n in of], default=0)
        assert part.order >= latest, (
            f"Component {part.name} order must be >= max of its upstream components, order={part.order} and max={latest}"
        )

        def remap(x: Node, part: Component = part) -> Node:
            if x.op == "get_attr":
                if x not in part.getattr_maps:
                    part.getattr_maps[x] = part.graph.get_attr(x.target, type_expr=x.type)
                    part.getattr_maps[x].meta = copy.copy(x.meta)
                return part.getattr_maps[x]
            if of.get(x) is part:
                return copies[x]
            if x not in part.orig_inputs:
                part.orig_inputs.append(x)
                made = part.graph.placeholder(x.name, type_expr=x.type)
                made.meta = copy.copy(x.meta)
                part.input_placeholders.append(made)
                wanted[x] = None
            return part.input_placeholders[part.orig_inputs.index(x)]

        copies[node] = part.graph.node_copy(node, remap)
        copies[node].tag = node.tag
    for x in output.all_input_nodes:
        if x.op == "get_attr":
            outer[x] = main.get_attr(x.name, type_expr=x.type)
        else:
            wanted[x] = None
    for n in wanted:
        if n in of:
            of[n].orig_outputs.append(n)
    where: dict[str, str] = {}
    for part in parts.values():
        outs = tuple([copies[n] for n in part.orig_outputs])
        single = len(outs) == 1 and not return_tuple
        part.graph.output(outs[0] if single else outs)
        part.gm, paths = lift_subgraph_as_module(gm, subgraph=part.graph, comp_name=part.name)
        where.update(paths)
        call = main.call_module(part.name, args=tuple([outer[n] for n in part.orig_inputs]))
        for i, n in enumerate(part.orig_outputs):
            outer[n] = call if single else Proxy(call)[i].node
    main.output(map_arg(output.args[0], lambda n: outer[n]))
    root = HolderModule({part.name: part.gm for part in parts.values()})
    main._codegen = gm.graph._codegen
    for x in output.all_input_nodes:
        if x.op == "get_attr":
            setattr(root, x.name, getattr_recursive(gm, x.target))
    made = GraphModuleCls(root, main)
    return (made, where) if return_fqn_mapping else made
