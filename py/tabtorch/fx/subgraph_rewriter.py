"""`torch.fx.subgraph_rewriter`: patterns in graphs, replaced."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tabtorch.fx._compatibility import compatibility
from tabtorch.fx._symbolic_trace import symbolic_trace
from tabtorch.fx.graph import Graph
from tabtorch.fx.graph_module import GraphModule
from tabtorch.fx.node import Node
from tabtorch.nn.modules.module import Module

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]


class Match(NamedTuple):
    """Where a pattern was: its last node, and the node of each of the pattern's."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """The same, and what is there instead."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def _replace_attributes(gm: GraphModule, replacement: Module) -> None:
    """Gives `gm` what the nodes of a replacement refer to."""
    gm.delete_all_unused_submodules()
    if isinstance(replacement, GraphModule):
        replacement.graph.lint()

    def find(m: Module, target: str) -> Any:
        path, _, name = target.rpartition(".")
        try:
            return getattr(m.get_submodule(path), name, None)
        except AttributeError:
            return None

    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr") or find(gm, node.target) is not None:
            continue
        found = find(replacement, node.target)
        if found is None:
            raise RuntimeError(
                'Attempted to create a "', node.op,
                f'" node during subgraph rewriting with target {node.target}, but the referenced attribute does not exist in the '
                "replacement GraphModule",
            )  # fmt: skip
        if isinstance(found, Module):
            gm.add_submodule(node.target, copy.deepcopy(found))
        else:
            setattr(gm, node.target, copy.deepcopy(found))
    gm.graph.lint()


@compatibility(is_backward_compatible=True)
def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replaces every place of the graph that is as `pattern` by `replacement`: functions or GraphModules with the same inputs.

    Places do not overlap; what is inside of one is used by nothing outside. The graph is changed; where it was is the result.
    """
    return [Match(m.anchor, m.nodes_map) for m in _replace_pattern(gm, pattern, replacement)]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[Callable[[Any, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[Any, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """`replace_pattern` where all filters (match, graph, pattern) say so. replacement_callback: makes the replacement of a match."""
    return _replace_pattern(
        gm, pattern, replacement, match_filters, ignore_literals, replacement_callback, node_name_match
    )


def _graph_of(x: Any) -> Graph:
    if isinstance(x, Graph):
        return x
    graph: Graph = (x if isinstance(x, GraphModule) else symbolic_trace(x)).graph
    return graph


def _replace_pattern(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: Any = None,
    ignore_literals: bool = False,
    replacement_callback: Any = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    matching: Any = importlib.import_module("tabtorch.fx.passes.utils.matcher_utils")
    graph = gm.graph
    # modules that were traced own the graphs, and are needed while these are looked at
    traced = pattern if isinstance(pattern, (Graph, GraphModule)) else symbolic_trace(pattern)
    pattern_graph = _graph_of(traced)
    matcher = matching.SubgraphMatcher(pattern_graph, ignore_literals=ignore_literals)
    matches = [
        m
        for m in matcher.match(graph, node_name_match=node_name_match)
        if all(f(m, graph, pattern_graph) for f in match_filters or ())
    ]
    common: Any = None
    if replacement is not None:
        common = _graph_of(replacement)
    else:
        assert replacement_callback is not None, (
            "Must provide either a replacement GraphModule or a replacement callback"
        )
    changed: dict[Node, Node] = {}
    done = []
    for match in matches:
        new = replacement_callback(match, graph, pattern_graph) if replacement_callback is not None else common
        inputs = [n for n in new.nodes if n.op == "placeholder"]
        given = match.placeholder_nodes
        assert len(given) == len(inputs), f"Placeholder count mismatch: {len(given)} vs {len(inputs)}"
        val_map: dict[Node, Any] = {}
        for i, (inner, outer) in enumerate(zip(inputs, list(given))):
            if isinstance(outer, Node) and outer in changed:  # the result of a place that is replaced already
                given[i] = changed[outer]
                key = next(k for k, v in match.nodes_map.items() if v == outer)
                match.nodes_map[key] = changed[outer]
                outer = changed[outer]
            val_map[inner] = outer
        with graph.inserting_before(_place(graph, match.returning_nodes)):
            results = graph.graph_copy(new, val_map)
        results = (results,) if isinstance(results, Node) else results
        made = [v for v in val_map.values() if v not in given]
        assert len(match.returning_nodes) == len(results), (
            f"Returning nodes count mismatch: {len(match.returning_nodes)} vs {len(results)}"
        )
        for old, result in zip(match.returning_nodes, results):
            old.replace_all_uses_with(result)
            changed[old] = result
        for node in reversed(pattern_graph.nodes):
            if node.op not in ("placeholder", "output"):
                graph.erase_node(match.nodes_map[node])
        done.append(ReplacedPatterns(match.anchors[0], match.nodes_map, made))
    gm.recompile()
    if isinstance(replacement, Module):
        _replace_attributes(gm, replacement)
    return done


def _place(graph: Graph, returning: list[Node]) -> Node:
    """Before which node what replaces these goes: the first that uses one of them, or after the last."""
    users = {user for n in returning for user in n.users}
    if users:
        return next(n for n in graph.nodes if n in users)
    after: Any = None
    for n in reversed(graph.nodes):
        if n in returning:
            break
        after = n
    assert after is not None, "The insert point can't be None"
    found: Node = after
    return found
