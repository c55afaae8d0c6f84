"""`torch.fx._pytree`: what the code of a graph with trees as arguments flattens them by."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from tabtorch.utils._pytree import TreeSpec, is_namedtuple_class, tree_flatten

FlattenFuncSpec = Callable[[Any, TreeSpec], list[Any]]
FlattenFuncExactMatchSpec = Callable[[Any, TreeSpec], bool]

SUPPORTED_NODES: dict[Any, FlattenFuncSpec] = {}
SUPPORTED_NODES_EXACT_MATCH: dict[Any, FlattenFuncExactMatchSpec | None] = {}


def register_pytree_flatten_spec(
    cls: Any, flatten_fn_spec: FlattenFuncSpec, flatten_fn_exact_match_spec: FlattenFuncExactMatchSpec | None = None
) -> None:
    """How the children of a `cls` are found, given the spec of one."""
    SUPPORTED_NODES[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def _deregister_pytree_flatten_spec(cls: Any) -> None:
    del SUPPORTED_NODES[cls], SUPPORTED_NODES_EXACT_MATCH[cls]


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """The leaves of `pytree` as `spec` has them: what it has beyond them is left out. RuntimeError where it is of another kind."""
    if spec.is_leaf():
        return [pytree]
    children = SUPPORTED_NODES.get(spec.type)
    if children is None and is_namedtuple_class(spec.type):
        children = _by_position if spec.type.__module__ == "torch.return_types" else None
    if children is not None:
        return [x for child, s in zip(children(pytree, spec), spec.children()) for x in tree_flatten_spec(child, s)]
    flat, real_spec = tree_flatten(pytree)
    if spec != real_spec:
        raise RuntimeError(
            f"Real spec {real_spec} of object {pytree} is different from expected spec {spec}. "
            f"Please file an issue at https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml"
        )
    return flat


def _by_position(d: Any, spec: TreeSpec) -> list[Any]:
    return [d[i] for i in range(spec.num_children)]


def _same_length(d: Any, spec: TreeSpec) -> bool:
    return len(d) == spec.num_children


register_pytree_flatten_spec(dict, lambda d, spec: [d[k] for k in spec.context], _same_length)
for _cls in (list, tuple, namedtuple):
    register_pytree_flatten_spec(_cls, _by_position, _same_length)
