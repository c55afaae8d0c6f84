"""`torch.fx.passes.operator_support`: which nodes a backend takes."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tabtorch.fx.node import Node
from tabtorch.fx.passes.tools_common import get_node_target

__all__ = [
    "OpSupports",
    "OperatorSupport",
    "OperatorSupportBase",
    "any_chain",
    "chain",
    "create_op_support",
]

IsNodeSupported = Callable[[Mapping[str, Any], Node], bool]


class OperatorSupportBase(abc.ABC):
    """Says of each node whether it is taken."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        """Whether a node is taken."""
        raise NotImplementedError


class OperatorSupport(OperatorSupportBase):
    """By a table: what a node calls -> None, or the types of its inputs."""

    def __init__(self, support_dict: Mapping[str, Any] | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        if node.op not in ("call_module", "call_function", "call_method"):
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        wanted = self._support_dict[target]
        if wanted is None:
            return True
        args, kwargs = wanted
        for i, types in enumerate(args):
            if len(node.args) > i and types is not None and _type(node.args[i]) not in types:
                return False
        return all(k not in node.kwargs or _type(node.kwargs[k]) in types for k, types in kwargs.items())


def _type(x: Any) -> Any:
    return getattr(x.meta.get("tensor_meta"), "dtype", None) if isinstance(x, Node) else None


class _Function(OperatorSupportBase):
    def __init__(self, f: IsNodeSupported) -> None:
        self.f = f

    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        return self.f(submodules, node)


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """One that asks a function."""
    return _Function(is_node_supported)


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """One that takes what all take."""
    return _Function(lambda subs, node: all(x.is_node_supported(subs, node) for x in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """One that takes what any takes."""
    return _Function(lambda subs, node: any(x.is_node_supported(subs, node) for x in op_support))


class OpSupports:
    """Some of them."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: Any) -> OperatorSupportBase:
        """Not nodes that read a tensor of that type."""
        return _Function(lambda subs, node: not any(_type(a) == dtype for a in node.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str] | Sequence[str]) -> OperatorSupportBase:
        """Not nodes of these names."""
        return _Function(lambda subs, node: node.name not in disallow_set)
