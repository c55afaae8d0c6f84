"""`torch.fx.passes.split_module`: a graph cut into modules that call one another's results."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tabtorch.fx._lazy_graph_module import _make_graph_module
from tabtorch.fx.graph import Graph
from tabtorch.fx.graph_module import GraphModule
from tabtorch.fx.node import Node, map_arg
from tabtorch.fx.proxy import Proxy
from tabtorch.nn.modules.module import Module

__all__ = ["Partition", "split_module"]


class Partition:
    """The nodes of one number."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.submod_name = f"submod_{name}"
        self.node_names: list[str] = []
        self.inputs: dict[str, None] = {}
        self.outputs: dict[str, None] = {}
        self.dependencies: dict[str, None] = {}
        self.dependents: dict[str, None] = {}
        self.graph = Graph()
        self.environment: dict[Node, Node] = {}
        self.targets: dict[str, Any] = {}

    def __repr__(self) -> str:
        return (
            f"name: {self.name},\n nodes: {self.node_names},\n inputs: {self.inputs},\n outputs: {self.outputs},\n partitions "
            f"depended on: {self.dependencies},\n partition dependents: {self.dependents}"
        )


def _attribute(mod: Any, path: str) -> Any:
    for atom in path.split("."):
        if not hasattr(mod, atom):
            raise AttributeError(f"Node target {path} not found!")
        mod = getattr(mod, atom)
    return mod


class _Splitter:
    def __init__(self, m: GraphModule, split_callback: Callable[[Node], Any], affix: str | None) -> None:
        self.m = m
        self.nodes = {node.name: node for node in m.graph.nodes}
        self.partitions: dict[str, Partition] = {}
        self.of: dict[Node, Partition] = {}
        for node in m.graph.nodes:
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            name = str(split_callback(node))
            name = name if affix is None else f"{affix}_{name}"
            partition = self.of[node] = self.partitions.setdefault(name, Partition(name))
            partition.node_names.append(node.name)
        for node in m.graph.nodes:
            if node.op == "output":
                map_arg(node.args[0], lambda used: self._use(used, None))
            elif node in self.of:
                for used in node.all_input_nodes:
                    self._use(used, self.of[node])

    def _use(self, used: Node, by: Partition | None) -> None:
        made = self.of.get(used)
        if made is by:
            return
        if made is not None:
            made.outputs.setdefault(used.name)
            if by is not None:
                made.dependents.setdefault(by.name)
                by.dependencies.setdefault(made.name)
        if by is not None:
            by.inputs.setdefault(used.name)

    def ordered(self) -> list[str]:
        """The partitions, each after those whose results it uses. RuntimeError if there is no such order."""
        waits = {name: set(p.dependencies) for name, p in self.partitions.items()}
        ready = [name for name in self.partitions if not waits[name]]
        done = []
        while ready:
            name = ready.pop()
            done.append(name)
            for dependent in self.partitions[name].dependents:
                waits[dependent].remove(name)
                if not waits[dependent]:
                    ready.append(dependent)
        if len(done) != len(self.partitions):
            raise RuntimeError("cycle exists between partitions!")
        return done

    def inputs(self, partition: Partition, keep_names: bool) -> None:
        """Makes the placeholders of a partition; modules are attributes of it."""
        plain: list[Node] = []
        modules: list[Node] = []
        for name in partition.inputs:
            node = self.nodes[name]
            is_module = node.op == "get_attr" and isinstance(_attribute(self.m, node.target), Module)
            (modules if is_module else plain).append(node)
        for i, node in enumerate(plain):
            made = partition.graph.placeholder(node.name if keep_names else f"arg_{i}", type_expr=node.type)
            made.meta = node.meta.copy()
            partition.environment[node] = made
        for node in modules:
            made = partition.graph.get_attr(node.target)
            partition.targets[node.target] = _attribute(self.m, node.target)
            made.meta = node.meta.copy()
            partition.environment[node] = made
        partition.inputs = {node.name: None for node in plain}

    def copy(self, node: Node, qualname_map: dict[str, str] | None, keep_name: bool) -> None:
        """Puts a node into its partition."""
        partition = self.of[node]
        args, kwargs = [map_arg(x, lambda n: partition.environment[n]) for x in (node.args, node.kwargs)]
        target = node.target
        if node.op == "call_module":
            target = node.target.replace(".", "_")
            partition.targets[target] = _attribute(self.m, node.target)
            if qualname_map is not None:
                qualname_map[f"{partition.submod_name}.{target}"] = node.target
        made = partition.graph.create_node(
            node.op, target, args, kwargs, type_expr=node.type, name=node.name if keep_name else None
        )
        made.meta = node.meta.copy()
        partition.environment[node] = made


def split_module(
    m: GraphModule,
    root_m: Any,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """A module of submodules `submod_N`: each has the nodes to which `split_callback` gives N.

    qualname_map: gets the path that a submodule of a part has in `m`. keep_original_order: parts come in the order in which they
    are met. tuple_return: every part gives a tuple.
    """
    s = _Splitter(m, split_callback, partition_affix)
    met = list(s.partitions)
    order = s.ordered()
    for name in order:
        s.inputs(s.partitions[name], keep_original_input_name)
    for node in m.graph.nodes:
        if node in s.of:
            s.copy(node, qualname_map, bool(keep_original_node_name))
    graph = Graph()
    env: dict[str, Node] = {}
    attrs: dict[str, Any] = {}

    def outer(node: Node) -> None:
        """An input or attribute of the whole."""
        if node.name in env:
            return
        if node.op == "placeholder":
            default = node.args[0] if node.args else inspect.Signature.empty
            name = node.name if keep_original_node_name else node.target
            env[node.name] = graph.placeholder(name, type_expr=node.type, default_value=default)
            env[node.name].meta = node.meta.copy()
        elif node.op == "get_attr":
            env[node.name] = graph.get_attr(node.target)
            env[node.name].meta = node.meta.copy()
            attrs[node.target] = _attribute(m, node.target)

    for node in m.graph.nodes:
        if not keep_original_order or node.op == "placeholder":
            outer(node)
    for name in met if keep_original_order else order:
        partition = s.partitions[name]
        results = tuple([partition.environment[s.nodes[x]] for x in partition.outputs])
        single = len(results) == 1 and not tuple_return
        partition.graph.output(results[0] if single else results)
        for used in partition.inputs:
            outer(s.nodes[used])
        attrs[partition.submod_name] = _make_graph_module(partition.targets, partition.graph)
        call = graph.call_module(partition.submod_name, tuple([env[x] for x in partition.inputs]))
        if single:
            env[next(iter(partition.outputs))] = call
        else:
            for i, x in enumerate(partition.outputs):
                env[x] = Proxy(call)[i].node
    for node in m.graph.nodes:
        outer(node)
        if node.op == "output":
            graph.output(map_arg(node.args[0], lambda n: env[n.name]))
    made = _make_graph_module(attrs, graph)
    made.meta["partition_names"] = {p.submod_name for p in s.partitions.values()}
    return made
