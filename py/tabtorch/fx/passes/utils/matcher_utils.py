"""`torch.fx.passes.utils.matcher_utils`: where a graph is as a pattern."""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.fx.graph import Graph
from tabtorch.fx.graph_module import _get_attr
from tabtorch.fx.node import Node
from tabtorch.fx.operator_schemas import normalize_function
from tabtorch.fx.passes.utils.fuser_utils import validate_partition
from tabtorch.ops.aten import Packet

__all__ = ["InternalMatch", "SubgraphMatcher"]


@dataclass
class InternalMatch:
    """One place: the nodes at which it was found, those of the pattern's nodes, inputs and results."""

    anchors: list[Node]
    nodes_map: dict[Node, Node] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)

    def __copy__(self) -> InternalMatch:
        return InternalMatch(
            self.anchors, dict(self.nodes_map), list(self.placeholder_nodes), list(self.returning_nodes)
        )


class SubgraphMatcher:
    """Finds places that are as `pattern`."""

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        """match_output, match_placeholder: only outputs and inputs are as the pattern's. ignore_literals: numbers may differ."""
        self.pattern = pattern
        self.match_output = match_output
        self.match_placeholder = match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        if not len(pattern.nodes):
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in pattern.nodes:
            if node.op != "output" and not node.is_impure():
                assert node.users, "SubgraphMatcher cannot be initialized with an pattern with dead code"
        self.pattern_placeholder_nodes = [n for n in pattern.nodes if n.op == "placeholder"]
        output = next(iter(reversed(pattern.nodes)))
        self.pattern_returning_nodes = output.all_input_nodes
        self.pattern_anchors = [output] if match_output else [n for n in output.all_input_nodes if len(n.users) == 1]

    def _match_attributes(self, pn: Node, gn: Node) -> bool:
        assert pn.graph.owning_module is not None and gn.graph.owning_module is not None
        a, b = _get_attr(pn.graph.owning_module, pn.target), _get_attr(gn.graph.owning_module, gn.target)
        if type(a) is not type(b):
            return False
        if isinstance(a, Tensor):
            return True
        raise RuntimeError(f"Unsupported type {a} when matching attributes")

    def _nodes_are_equal(self, pn: Node, gn: Node, node_name_match: str = "") -> bool:
        if not self.match_placeholder and pn.op == "placeholder":
            return True
        if node_name_match and node_name_match in gn.name:
            return True
        if pn.op != gn.op:
            return False
        if pn.op in ("placeholder", "output"):
            return True
        return self._match_attributes(pn, gn) if pn.op == "get_attr" else bool(pn.target == gn.target)

    def _is_contained(self, nodes_map: dict[Node, Node]) -> bool:
        """Whether nothing outside uses what is inside, but the results."""
        inside = {gn: pn for pn, gn in nodes_map.items() if pn.op != "placeholder"}
        return all(
            user in inside for gn, pn in inside.items() if pn not in self.pattern_returning_nodes for user in gn.users
        )

    def _remove_overlapping_matches(self, matches: list[InternalMatch]) -> list[InternalMatch]:
        kept: list[InternalMatch] = []
        taken: set[Node] = set()
        for match in matches:
            mine = {gn for pn, gn in match.nodes_map.items() if pn.op not in ("placeholder", "output")}
            if not mine & taken:
                kept.append(match)
                taken |= mine
        return kept

    def _match_literals(self, pn: Any, gn: Any, match: InternalMatch) -> bool:
        assert not (isinstance(pn, Node) and isinstance(gn, Node)), "pn and gn cannot both be Node"
        if isinstance(pn, Node):
            if pn.op != "placeholder":
                return False
            return bool(match.nodes_map.setdefault(pn, gn) == gn)
        return not isinstance(gn, Node) and type(gn) is type(pn) and gn == pn

    def _match_args(self, args1: Any, args2: Any, match: InternalMatch) -> bool:
        if len(args1) != len(args2):
            return False
        for a, b in zip(args1, args2):
            if isinstance(a, Node) and isinstance(b, Node):
                same = self._match_nodes(a, b, match)
            elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
                same = self._match_args(a, b, match)
            else:
                same = self._match_literals(a, b, match) or self.ignore_literals
            if not same:
                return False
        return True

    def _match_nodes(self, pn: Node, gn: Node, match: InternalMatch, node_name_match: str = "") -> bool:
        if pn in match.nodes_map:
            return match.nodes_map[pn] == gn
        if gn in match.nodes_map.values() or not self._nodes_are_equal(pn, gn, node_name_match):
            return False
        match.nodes_map[pn] = gn
        if pn.op == "placeholder":
            return True
        if len(pn.args) == len(gn.args) and list(pn.kwargs) == list(gn.kwargs):
            a, b = [*pn.args, *pn.kwargs.values()], [*gn.args, *gn.kwargs.values()]
        elif isinstance(pn.target, Packet):
            both = [normalize_function(n.target, n.args, n.kwargs, normalize_to_only_use_kwargs=True) for n in (pn, gn)]
            if both[0] is None or both[1] is None or both[0].kwargs.keys() != both[1].kwargs.keys():
                return False
            a, b = list(both[0].kwargs.values()), [both[1].kwargs[k] for k in both[0].kwargs]
        else:
            return False
        return self._match_args(a, b, match)

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """The places, which do not overlap unless that was asked for."""
        candidates: dict[Node, list[Node]] = defaultdict(list)
        for anchor in self.pattern_anchors:
            for node in graph.nodes:
                if self._nodes_are_equal(anchor, node, node_name_match):
                    candidates[anchor].append(node)
        todo = list(candidates.items())
        found: list[InternalMatch] = []

        def backtrack(i: int, match: InternalMatch) -> None:
            if i == len(todo):
                match.placeholder_nodes = [match.nodes_map[pn] for pn in self.pattern_placeholder_nodes]
                match.returning_nodes = [match.nodes_map[pn] for pn in self.pattern_returning_nodes]
                found.append(match)
                return
            anchor, nodes = todo[i]
            for node in nodes:
                tried = copy.copy(match)
                if self._match_nodes(anchor, node, tried, node_name_match):
                    backtrack(i + 1, tried)

        if todo:
            backtrack(0, InternalMatch(self.pattern_anchors))
        found = [
            m
            for m in found
            if self._is_contained(m.nodes_map)
            and validate_partition([gn for pn, gn in m.nodes_map.items() if pn.op not in ("placeholder", "output")])
        ]
        return self._remove_overlapping_matches(found) if self.remove_overlapping_matches else found
