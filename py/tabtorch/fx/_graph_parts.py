"""What a graph is made with: names, the list of nodes, where new ones go."""

from __future__ import annotations

import builtins
import keyword
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tabtorch.fx._code import _CustomBuiltin
from tabtorch.fx.node import Node

if TYPE_CHECKING:
    from tabtorch.fx.graph import Graph

_illegal_names: dict[str, Any] = {**{k: object() for k in keyword.kwlist}, **vars(builtins)}
_custom_builtins: dict[str, _CustomBuiltin] = {}


def _register_custom_builtin(name: str, import_str: str, obj: Any) -> None:
    """A name that the code of every graph can use."""
    _custom_builtins[name] = _CustomBuiltin(import_str, obj)
    _illegal_names[name] = obj


def _is_magic(x: str) -> bool:
    return x.startswith("__") and x.endswith("__")


def _snake_case(s: str) -> str:
    """`Conv2d` -> `conv2d`, `MaxPool` -> `max_pool`."""
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", s).lower()


class _Namespace:
    """Names that are taken, and of which objects."""

    def __init__(self) -> None:
        self._obj_to_name: dict[Any, str] = {}
        self._used_names: set[str] = set()
        self._base_count: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any) -> str:
        """A name like `candidate` that nothing has yet; for an `obj` that has one already, that."""
        if obj is not None and obj in self._obj_to_name:
            return self._obj_to_name[obj]
        pattern = r"^([a-zA-Z_][0-9a-zA-Z_]*?)(?:_(\d+))?$"
        found = re.match(pattern, candidate)
        if found is None:
            candidate = re.sub("[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
            candidate = "_" + candidate if candidate[0].isdigit() else candidate
            found = re.match(pattern, candidate)
            assert found is not None
        base, digits = found.groups()
        if digits is None or candidate in self._used_names:
            number = self._base_count.get(base, 0)
            if _illegal_names.get(candidate, obj) is not obj:
                number += 1
                candidate = f"{base}_{number}"
        else:
            number = int(digits)
        while candidate in self._used_names:
            number += 1
            candidate = f"{base}_{number}"
        self._used_names.add(candidate)
        self._base_count[base] = number
        if obj is not None:
            self._obj_to_name[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Says whose name it is."""
        assert self._obj_to_name.setdefault(obj, name) is name, "obj is already associated"

    def _rename_object(self, obj: Any, name: str) -> None:
        assert obj in self._obj_to_name, f"Object {obj} is not in _obj_to_name"
        self._obj_to_name[obj] = name
        self._used_names.add(name)


class _InsertPoint:
    """Where new nodes go, until it is left."""

    def __init__(self, graph: Graph, new_insert: Callable[[Node], None]) -> None:
        self.graph = graph
        self.orig_insert, graph._insert = graph._insert, new_insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        self.graph._insert = self.orig_insert


class _node_list:
    """The nodes of a graph, in order; what is changed while it is gone through is seen."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        assert direction in ("_next", "_prev"), f"direction must be '_next' or '_prev', got {direction}"
        self.graph = graph
        self.direction = direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        node: Node = getattr(root, self.direction)
        while node is not root:
            if not node._erased:
                yield node
            node = getattr(node, self.direction)

    def __reversed__(self) -> Iterator[Node]:
        return iter(_node_list(self.graph, "_next" if self.direction == "_prev" else "_prev"))


class _FindNodesLookupTable:
    """Nodes by what they do."""

    def __init__(self) -> None:
        self.table: dict[Any, dict[Node, None]] = defaultdict(dict)

    def _key(self, node: Node) -> Any:
        return node.op, node.target if node.op == "call_function" else None

    def __contains__(self, node: Node) -> bool:
        return node in self.table[self._key(node)]

    def insert(self, node: Node) -> None:
        self.table[self._key(node)][node] = None

    def remove(self, node: Node) -> None:
        self.table[self._key(node)].pop(node)

    def find_nodes(self, *, op: str, target: Any = None) -> list[Node]:
        if op == "call_function":
            assert target is not None, "target must not be None for call_function op"
            return [*self.table[op, target]]
        return [n for n in self.table[op, None] if target is None or n.target == target]
