"""`torch.fx.traceback`: what new nodes inherit of the nodes that are being interpreted."""

from __future__ import annotations

import copy
import functools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

__all__ = [
    "NodeSource",
    "NodeSourceAction",
    "annotate",
    "annotate_fn",
    "format_stack",
    "get_current_meta",
    "get_current_replay_node",
    "get_graph_provenance_json",
    "has_preserved_node_meta",
    "preserve_node_meta",
    "reset_grad_fn_seq_nr",
    "set_current_meta",
    "set_current_replay_node",
    "set_grad_fn_seq_nr",
    "set_stack_trace",
]

current_meta: dict[str, Any] = {}
current_replay_node: Any = None
should_preserve_node_meta = False


class NodeSourceAction(Enum):
    """What a pass did."""

    CREATE = "create"
    REPLACE = "replace"


class NodeSource:
    """Which node of another graph a node came of, in which pass."""

    class NodeInfo:
        def __init__(self, name: str, target: str, graph_id: int) -> None:
            self.name, self.target, self.graph_id = name, target, graph_id

    def __init__(self, node: Any, pass_name: str = "", action: Any = None) -> None:
        self.pass_name = pass_name
        self.action = [] if action is None else list(action) if isinstance(action, list) else [action]
        assert all(isinstance(a, NodeSourceAction) for a in self.action)
        self.node_info = None if node is None else self.NodeInfo(node.name, str(node.target), id(node.graph))
        self.from_node: list[NodeSource] = [] if node is None else copy.deepcopy(node.meta.get("from_node", []))

    @property
    def name(self) -> str:
        return self.node_info.name if self.node_info else ""

    @property
    def target(self) -> str:
        return self.node_info.target if self.node_info else ""

    @property
    def graph_id(self) -> int:
        return self.node_info.graph_id if self.node_info else -1

    def _get_action_string(self) -> str:
        return "+".join([a.name.lower() for a in self.action])

    def print_readable(self, indent: int = 0) -> str:
        """As text, sources of the source below it."""
        if indent > 9:
            return ""
        head = f"(name={self.name}, pass_name={self.pass_name}, action={self._get_action_string()}, graph_id={self.graph_id})"
        return " " * indent * 4 + head + "\n" + "".join(x.print_readable(indent + 1) for x in self.from_node)

    __repr__ = print_readable

    def to_dict(self) -> dict[str, Any]:
        """As what JSON can hold."""
        return {
            "name": self.name,
            "target": self.target,
            "graph_id": self.graph_id,
            "pass_name": self.pass_name,
            "action": self._get_action_string(),
            "from_node": [x.to_dict() for x in self.from_node],
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeSource) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(repr(self.to_dict()))


@contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Within it, nodes that a tracer makes inherit of the one that is interpreted."""
    global should_preserve_node_meta, current_meta
    before = should_preserve_node_meta, current_meta.copy()
    should_preserve_node_meta = enable
    try:
        yield
    finally:
        should_preserve_node_meta, current_meta = before


def has_preserved_node_meta() -> bool:
    """Whether `preserve_node_meta` is on."""
    return should_preserve_node_meta


def annotate_node(node: Any, fields: list[str]) -> None:
    """Gives a new node what it inherits."""
    if current_meta.get("stack_trace"):
        node.stack_trace = current_meta["stack_trace"]
    for field in fields:
        if field in current_meta:
            node.meta[field] = copy.copy(current_meta[field])
    if "grad_fn_seq_nr" in current_meta and current_meta.get("in_grad_fn", 0) > 0:
        node.meta["seq_nr"] = current_meta["grad_fn_seq_nr"][-1]
    if current_replay_node is not None:
        node.meta["is_functional_regenerated"] = True
        for key in ("custom", "stack_trace"):
            if key in current_replay_node.meta:
                node.meta[key] = current_replay_node.meta[key]


@contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """Within it, nodes have these items in `meta["custom"]`."""
    before = copy.copy(current_meta.get("custom"))
    current_meta["custom"] = {**(before or {}), **annotation_dict}
    try:
        yield
    finally:
        if before is None:
            del current_meta["custom"]
        else:
            current_meta["custom"] = before


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function runs within `annotate`."""

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with annotate(annotation_dict):
                return func(*args, **kwargs)

        return wrapper

    return decorate


def set_stack_trace(stack: list[str]) -> None:
    """The trace that new nodes get."""
    if should_preserve_node_meta:
        if stack:
            current_meta["stack_trace"] = "".join(stack)
        else:
            current_meta.pop("stack_trace", None)


def set_grad_fn_seq_nr(seq_nr: int) -> None:
    """The number of the function whose gradient is traced from now on."""
    if should_preserve_node_meta:
        current_meta["grad_fn_seq_nr"] = [*current_meta.get("grad_fn_seq_nr", []), seq_nr]
        current_meta["in_grad_fn"] = current_meta.get("in_grad_fn", 0) + 1


def reset_grad_fn_seq_nr() -> None:
    """Undoes the last `set_grad_fn_seq_nr`."""
    if should_preserve_node_meta:
        depth = current_meta.get("in_grad_fn", 0)
        assert depth > 0
        if depth == 1:
            del current_meta["in_grad_fn"], current_meta["grad_fn_seq_nr"]
        else:
            current_meta["in_grad_fn"] = depth - 1
            current_meta["grad_fn_seq_nr"] = current_meta["grad_fn_seq_nr"][:-1]


def format_stack() -> list[str]:
    """The present trace, as lines."""
    if should_preserve_node_meta:
        return [current_meta.get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])


@contextmanager
def set_current_meta(node: Any, pass_name: str = "") -> Iterator[None]:
    """Within it, new nodes inherit of `node`."""
    global current_meta
    if not should_preserve_node_meta or not node.meta:
        yield
        return
    before = current_meta
    current_meta = node.meta.copy()
    if "from_node" not in current_meta or current_meta["from_node"][-1].name != node.name:
        current_meta["from_node"] = [NodeSource(node, pass_name, NodeSourceAction.CREATE)]
    try:
        yield
    finally:
        current_meta = before


def get_current_meta() -> dict[str, Any]:
    """What new nodes inherit."""
    return current_meta


@contextmanager
def set_current_replay_node(node: Any) -> Iterator[None]:
    """Within it, new nodes are said to come of `node` again."""
    global current_replay_node
    before, current_replay_node = current_replay_node, node
    try:
        yield
    finally:
        current_replay_node = before


def get_current_replay_node() -> Any:
    """The node of `set_current_replay_node`."""
    return current_replay_node


def get_graph_provenance_json(graph: Any) -> dict[str, Any]:
    """Of each call, where it came from."""
    return {n.name: [x.to_dict() for x in n.meta.get("from_node", [])] for n in graph.nodes if n.op == "call_function"}
