"""`torch.fx.passes.infra.partitioner`: which nodes a backend takes, in groups as large as can be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tabtorch.fx.graph_module import GraphModule
from tabtorch.fx.node import Node, _get_qualified_name
from tabtorch.fx.passes.operator_support import OperatorSupportBase
from tabtorch.fx.passes.utils.fuser_utils import fuse_by_partitions, validate_partition

__all__ = ["CapabilityBasedPartitioner", "Partition"]


class Partition:
    """Nodes that are to be one call."""

    def __init__(self, id: int | None = None, nodes: Iterable[Node] | None = None) -> None:
        self.id = id
        self.nodes: dict[Node, int | None] = dict.fromkeys(nodes or ())

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        """Takes a node in."""
        self.nodes[node] = node_order

    def remove_node(self, node: Node) -> None:
        """Gives a node up."""
        del self.nodes[node]

    def size(self) -> int:
        """How many nodes it has."""
        return len(self.nodes)


class CapabilityBasedPartitioner:
    """Groups the nodes that `operator_support` takes, such that each group can be one call."""

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Any = None,
        allowed_single_node_partition_ops: Any = None,
    ) -> None:
        self.graph_module = graph_module
        self.operator_support = operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = non_compute_ops or []
        self.allowed_single_node_partition_ops = allowed_single_node_partition_ops or []

    def _is_node_supported(self, node: Node) -> bool:
        return self.operator_support.is_node_supported(dict(self.graph_module.named_modules()), node)

    def propose_partitions(self) -> list[Partition]:
        """The groups, the last nodes' first."""
        nodes = list(self.graph_module.graph.nodes)
        place = {n: i for i, n in enumerate(nodes)}
        modules = dict(self.graph_module.named_modules())
        group: dict[Node, int] = {}
        members: dict[int, set[Node]] = {}
        for node in reversed(nodes):
            if node.op not in ("call_module", "call_function", "call_method"):
                continue
            if not self.operator_support.is_node_supported(modules, node):
                continue
            mine = group[node] = len(nodes) - 1 - place[node]
            members[mine] = {node}
            for other in dict.fromkeys(group[user] for user in node.users if user in group):
                if other != mine and _closed(members[mine] | members[other]):
                    for n in members[other]:
                        group[n] = mine
                    members[mine] |= members.pop(other)
            # groups that nothing connects are one too, where nothing stands between
            for other in [g for g in members if g != mine]:
                if _closed(members[mine] | members[other]):
                    for n in members[other]:
                        group[n] = mine
                    members[mine] |= members.pop(other)
        found = []
        for number, inside in members.items():
            calls = [n for n in inside if self._counts(n)]
            if len(calls) > 1 or (calls and self._alone(calls[0])):
                found.append(Partition(number, sorted(inside, key=place.__getitem__)))
        return found

    def _counts(self, node: Node) -> bool:
        name = _get_qualified_name(node.target) if callable(node.target) else node.target
        return name not in self.non_compute_ops and name not in ("_operator.getitem", "operator.getitem")

    def _alone(self, node: Node) -> bool:
        if self.allows_single_node_partition:
            return True
        name = _get_qualified_name(node.target) if callable(node.target) else node.target
        return name in self.allowed_single_node_partition_ops

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """Each group as one call of a module."""
        return fuse_by_partitions(self.graph_module, [p.nodes for p in partitions], prefix=prefix)

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """The groups, found and fused."""
        return self.fuse_partitions(self.propose_partitions(), prefix)


def _closed(inside: set[Node]) -> bool:
    """Whether nothing outside uses what is inside and is used by it."""
    return validate_partition(inside)
