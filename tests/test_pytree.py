"""torch.utils._pytree beside PyTorch's."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.utils._pytree

import tabtorch
import tabtorch.utils._pytree

THEIRS, OURS = torch.utils._pytree, tabtorch.utils._pytree

Point = namedtuple("Point", "x y")

TREES: dict[str, Any] = {
    "leaf": 3,
    "none": None,
    "empty": [(), {}],
    "nested": {"b": [1, (2, None)], "a": {"c": 4}},
    "named": Point([1, 2], {"k": 3}),
    "ordered": OrderedDict([("z", 1), ("a", (2, 3))]),
    "default": defaultdict(list, {"q": 1, "p": [2]}),
    "deque": deque([1, [2, 3]], maxlen=5),
}


def text(spec: Any) -> str:
    return repr(spec)


@pytest.mark.parametrize("name", TREES)
def test_flattening_and_back(name: str) -> None:
    tree = TREES[name]
    want, spec = THEIRS.tree_flatten(tree)
    got, mine = OURS.tree_flatten(tree)
    assert got == want
    assert text(mine) == text(spec)
    assert (mine.num_nodes, mine.num_leaves, mine.num_children) == (spec.num_nodes, spec.num_leaves, spec.num_children)
    back = OURS.tree_unflatten(got, mine)
    assert back == tree and type(back) is type(tree)
    assert mine == OURS.tree_structure(tree) and hash(mine) == hash(OURS.tree_structure(tree))
    assert mine != OURS.tree_structure([tree])
    assert OURS.tree_map(lambda x: (x, x), tree) == THEIRS.tree_map(lambda x: (x, x), tree)
    assert list(OURS.tree_iter(tree)) == OURS.tree_leaves(tree) == THEIRS.tree_leaves(tree)
    want_paths = [(THEIRS.keystr(p), x) for p, x in THEIRS.tree_leaves_with_path(tree)]
    paths = OURS.tree_leaves_with_path(tree)
    assert [(OURS.keystr(p), x) for p, x in paths] == want_paths
    assert all(OURS.key_get(tree, p) is x for p, x in paths)
    assert OURS.tree_map_with_path(lambda p, x: OURS.keystr(p), tree) == THEIRS.tree_map_with_path(
        lambda p, x: THEIRS.keystr(p), tree
    )
    assert OURS.treespec_pprint(mine) == THEIRS.treespec_pprint(spec)


def outcome(call: Any, t: Any) -> Any:
    try:
        return call(t)
    except Exception as e:
        return type(e), str(e)


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.tree_map(lambda x, y: [x, *y], [5, 6], [[7, 9], [1, 2]]),
        lambda p: p.tree_map(lambda x, y: x + y, {"a": 1, "b": 2}, OrderedDict(b=3, a=4)),
        lambda p: p.tree_map(lambda x, y: x + y, [1, 2], (1, 2)),
        lambda p: p.tree_map(lambda x, y: x + y, [1, 2], [1]),
        lambda p: p.tree_map(lambda x, y: x + y, {"a": 1}, {"b": 1}),
        lambda p: p.tree_map(lambda x, y: x + y, {"a": 1}, [1]),
        lambda p: p.tree_map(lambda x, y: x + y, deque([1], maxlen=2), deque([1])),
        lambda p: p.tree_map_only(int, lambda x: x + 1, [1, "a", 2.0]),
        lambda p: p.tree_map_only((int, float), lambda x: x + 1, [1, "a", 2.0]),
        lambda p: p.tree_map_only(lambda x: x == 1, lambda x: x + 1, [1, "a", 2.0]),
        lambda p: p.tree_map_only(3, lambda x: x + 1, [1]),
        lambda p: p.tree_map(str, [(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple)),
        lambda p: p.tree_any(lambda x: x > 2, [1, (2, 3)]),
        lambda p: p.tree_all(lambda x: x > 2, [1, (2, 3)]),
        lambda p: p.tree_any_only(int, lambda x: x > 2, [1, ("a", 3)]),
        lambda p: p.tree_all_only(int, lambda x: x > 0, [1, ("a", 3)]),
        lambda p: p.tree_unflatten([1], p.tree_structure([1, 2])),
        lambda p: p.tree_unflatten([1], 3),
        lambda p: p.tree_unflatten(p.tree_structure([1, 2]), [1, 2]),
        lambda p: p._broadcast_to_and_flatten((0, [1, 2]), p.tree_structure(((1, 1), [1, (1, 1)]))),
        lambda p: p._broadcast_to_and_flatten((0, 1), p.tree_structure((1, 1, 1))),
        lambda p: p.arg_tree_leaves(1, (2, 3), k=[4]),
        lambda p: repr(p.treespec_dict(a=p.treespec_leaf(), b=p.treespec_tuple([p.treespec_leaf()]))),
        lambda p: p.treespec_tuple([3]),
        lambda p: p.register_pytree_node(list, None, None),
        lambda p: p.tree_is_leaf(None) and not p.tree_is_leaf([]),
    ],
)
def test_calls_and_errors(call: Any) -> None:
    assert outcome(call, OURS) == outcome(call, THEIRS)


def test_own_containers() -> None:
    @dataclass
    class Pair:
        a: Any
        b: Any = None

    class Box:
        def __init__(self, *items: Any) -> None:
            self.items = items

    for p in (THEIRS, OURS):
        p.register_dataclass(Pair)
        p.register_pytree_node(Box, lambda b: (list(b.items), "box"), lambda v, c: Box(*v))
        with pytest.raises(ValueError, match="already registered"):
            p.register_pytree_node(Box, None, None)
        with pytest.raises(ValueError, match="flatten_with_keys_fn"):
            p.tree_leaves_with_path(Box(1))
    want, got = ((p.tree_flatten([Pair(1), Box(2, 3)])) for p in (THEIRS, OURS))
    assert got[0] == want[0] and text(got[1]) == text(want[1])
    assert got[1].unflatten([5, 6, 7])[0] == Pair(5)


def test_results_with_names_are_containers() -> None:
    t = tabtorch.tensor([[1.0, 2.0]], device="cpu")
    doubled = OURS.tree_map_only(tabtorch.Tensor, lambda x: x * 2, t.max(1))
    assert type(doubled) is type(t.max(1)) and doubled.values.tolist() == [4.0]
    assert text(OURS.tree_structure(t.max(1))) == text(THEIRS.tree_structure(torch.ones(1, 1).max(1)))
