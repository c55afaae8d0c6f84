"""``torch.utils._pytree``: nested containers taken apart into their leaves, and put together again.

Which containers those are says `SUPPORTED_NODES`; everything else, None included, is a leaf. All named tuples share the
entry `namedtuple`, their own class being the context.
"""

from __future__ import annotations

import threading
import types
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from typing import Any, NamedTuple

PyTree = Any
Context = Any
KeyPath = tuple[Any, ...]
IsLeaf = Callable[[Any], bool] | None


@dataclass(frozen=True, slots=True)
class SequenceKey:
    """Position `idx` of a sequence, in a key path."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, parent: Any) -> Any:
        return parent[self.idx]


@dataclass(frozen=True, slots=True)
class MappingKey:
    """Key `key` of a mapping, in a key path."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, parent: Any) -> Any:
        return parent[self.key]


@dataclass(frozen=True, slots=True)
class GetAttrKey:
    """Attribute `name` of an object, in a key path."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, parent: Any) -> Any:
        return getattr(parent, self.name)


class NodeDef(NamedTuple):
    """How a container type is taken apart and put together."""

    type: Any
    flatten_fn: Callable[[Any], tuple[Any, Context]]
    unflatten_fn: Callable[[Iterable[Any], Context], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[Any, Context]] | None


#: container type -> NodeDef
SUPPORTED_NODES: dict[Any, NodeDef] = {}
CONSTANT_NODES: set[type] = set()
#: name in files of `torch.export` -> (container type, context -> text, text -> context); None: as JSON
SERIALIZED: dict[str, tuple[Any, Any, Any]] = {}
_LOCK = threading.RLock()


def register_pytree_node(
    cls: type[Any],
    flatten_fn: Callable[[Any], tuple[Any, Context]],
    unflatten_fn: Callable[[Iterable[Any], Context], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Context], Any] | None = None,
    from_dumpable_context: Callable[[Any], Context] | None = None,
    flatten_with_keys_fn: Callable[[Any], tuple[Any, Context]] | None = None,
) -> None:
    """Makes `cls` a container: `flatten_fn(x)` -> (children, context), `unflatten_fn(children, context)` -> x.

    flatten_with_keys_fn: gives (key, child) pairs in place of children, for the functions with paths.
    serialized_type_name: what files of `torch.export` call the class. to_dumpable_context, from_dumpable_context: its context
    as text and back, where that is not its JSON.
    ValueError where `cls` is registered already.
    """
    if (to_dumpable_context is None) ^ (from_dumpable_context is None):
        raise ValueError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered.")
    with _LOCK:
        if cls in SUPPORTED_NODES:
            raise ValueError(f"{cls} is already registered as pytree node.")
        SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
        if serialized_type_name is not None:
            SERIALIZED[serialized_type_name] = cls, to_dumpable_context, from_dumpable_context


_register_pytree_node = register_pytree_node


def register_dataclass(
    cls: type[Any],
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Makes a class built from its fields, as a dataclass is, a container of those that are not None."""
    dropped = drop_field_names or []
    if not is_dataclass(cls):
        if field_names is None:
            raise ValueError(
                f"field_names must be specified with a list of all fields used to initialize {cls}, as it is not a "
                "dataclass."
            )
    elif field_names is None:
        field_names = [f.name for f in fields(cls) if f.init]
    else:
        known = {f.name for f in fields(cls) if f.init}.difference(dropped)
        message = ""
        if missing := known.difference(field_names):
            message += (
                f"Missing fields in `field_names`: {missing}. If you want to include these fields in the pytree, please "
                "add them to `field_names`, otherwise please add them to `drop_field_names`.\n"
            )
        if extra := set(field_names) - known:
            message += (
                f"Unexpected fields in `field_names`: {extra}. Please remove these fields, or add them to "
                "`drop_field_names`.\n"
            )
        if message:
            raise ValueError("field_names does not include all dataclass fields.\n" + message)
    names = field_names

    def flatten(x: Any) -> tuple[list[Any], Context]:
        present = [n for n in names if getattr(x, n) is not None]
        return [getattr(x, n) for n in present], [present, [n for n in names if n not in present]]

    def unflatten(values: Iterable[Any], context: Context) -> Any:
        return cls(**dict(zip(context[0], values, strict=True)), **dict.fromkeys(context[1]))

    def with_keys(x: Any) -> tuple[list[Any], Context]:
        values, context = flatten(x)
        return [(GetAttrKey(n), v) for n, v in zip(context[0], values, strict=True)], context[0]

    register_pytree_node(
        cls, flatten, unflatten, flatten_with_keys_fn=with_keys, serialized_type_name=serialized_type_name
    )


@dataclass(frozen=True, slots=True)
class ConstantNode:
    """The context of a value of a type registered with `register_constant`."""

    value: Any


def register_constant(cls: type[Any]) -> None:
    """Makes `cls` a container without leaves: its value is part of the structure. Needs `__eq__` and `__hash__`."""
    for method, wanted in (("__eq__", object.__eq__), ("__hash__", None)):
        if getattr(cls, method) is wanted:
            raise TypeError(f"register_constant(cls) expects `cls` to have a non-default `{method}` implementation.")

    def flatten(x: Any) -> tuple[list[Any], Context]:
        return [], ConstantNode(x)

    register_pytree_node(cls, flatten, lambda _, context: context.value, flatten_with_keys_fn=flatten)
    CONSTANT_NODES.add(cls)


def is_constant_class(cls: Any) -> bool:
    """Whether `cls` was given to `register_constant`."""
    return isinstance(cls, type) and cls in CONSTANT_NODES


def is_namedtuple_class(cls: Any) -> bool:
    """Whether `cls` is a named tuple's class."""
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and isinstance(names := getattr(cls, "_fields", None), tuple)
        and all(type(n) is str for n in names)
        and callable(getattr(cls, "_make", None))
        and callable(getattr(cls, "_asdict", None))
    )


def is_namedtuple(obj: Any) -> bool:
    """Whether `obj` is a named tuple, or the class of one."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether `obj` is a named tuple."""
    return is_namedtuple_class(type(obj))


# ---- the containers there are from the start


def _builtin(cls: Any, take: Callable[[Any], Any], put: Any, key: Any, names: Any = None) -> None:
    """`take(x)` is the context of x, `names(x, context)` what its children are called (default: their positions)."""

    def children(x: Any) -> list[Any]:
        return list(x.values() if key is MappingKey else x)

    def with_keys(x: Any) -> tuple[list[Any], Context]:
        context = take(x)
        values = children(x)
        called = range(len(values)) if names is None else names(context)
        return [(key(n), v) for n, v in zip(called, values, strict=True)], context

    SUPPORTED_NODES[cls] = NodeDef(cls, lambda x: (children(x), take(x)), put, with_keys)


def _pairs(values: Iterable[Any], keys: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(keys, values, strict=True)


_builtin(tuple, lambda x: None, lambda v, c: tuple(v), SequenceKey)
_builtin(list, lambda x: None, lambda v, c: list(v), SequenceKey)
_builtin(dict, list, lambda v, c: dict(_pairs(v, c)), MappingKey, lambda c: c)
_builtin(namedtuple, type, lambda v, c: c(*v), GetAttrKey, lambda c: c._fields)
_builtin(OrderedDict, list, lambda v, c: OrderedDict(_pairs(v, c)), MappingKey, lambda c: c)
_builtin(
    defaultdict,
    lambda x: [x.default_factory, list(x)],
    lambda v, c: defaultdict(c[0], _pairs(v, c[1])),
    MappingKey,
    lambda c: c[1],
)
_builtin(deque, lambda x: x.maxlen, lambda v, c: deque(v, maxlen=c), SequenceKey)

# by PyTorch's names, which people give to `register_pytree_node` for classes of their own: `_dict_flatten_with_keys`
for _cls, _node in SUPPORTED_NODES.items():
    globals()[f"_{_cls.__name__.lower()}_flatten"] = _node.flatten_fn
    globals()[f"_{_cls.__name__.lower()}_flatten_with_keys"] = _node.flatten_with_keys_fn
    globals()[f"_{_cls.__name__.lower()}_unflatten"] = _node.unflatten_fn

STANDARD_DICT_TYPES: frozenset[Any] = frozenset({dict, OrderedDict, defaultdict})
BUILTIN_TYPES: frozenset[Any] = frozenset(SUPPORTED_NODES)


def _get_node_type(tree: Any) -> Any:
    cls = type(tree)
    if not hasattr(cls, "_fields"):  # as named tuples and `torch.return_types` have: one question for everything else
        return cls
    if is_namedtuple_class(cls):
        return namedtuple
    if cls.__module__ == "torch.return_types" and cls not in SUPPORTED_NODES:
        _builtin(cls, lambda x: None, lambda v, c: cls(v), SequenceKey)
    return cls


def tree_is_leaf(tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `tree` is no container (or `is_leaf` says that it is a leaf)."""
    return (is_leaf is not None and is_leaf(tree)) or _get_node_type(tree) not in SUPPORTED_NODES


class TreeSpec:
    """The structure of a tree: the type of its root, that one's context, and the specs of its children."""

    __slots__ = ("_children", "_context", "num_children", "num_leaves", "num_nodes", "type")

    type: Any
    _context: Context
    _children: list[Any]
    num_nodes: int
    num_leaves: int
    num_children: int

    def __init__(self, type: Any, context: Context, children_specs: list[Any]) -> None:
        if type is None:
            assert context is None, "leaf node should not have a context"
            assert not children_specs, "leaf node should not have children"
        put = object.__setattr__
        put(self, "type", type)
        put(self, "_context", context)
        put(self, "_children", children_specs)
        put(self, "num_nodes", 1 + sum([c.num_nodes for c in children_specs]))
        put(self, "num_leaves", sum([c.num_leaves for c in children_specs]) if type is not None else 1)
        put(self, "num_children", len(children_specs))

    def __setattr__(self, name: str, value: Any) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __reduce__(self) -> Any:
        return (treespec_leaf, ()) if self.type is None else (TreeSpec, (self.type, self._context, self._children))

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        inner = (",\n" + " " * (indent + 2)).join([c.__repr__(indent + 2) for c in self._children])
        return f"TreeSpec({self.type.__name__}, {self._context}, [{inner}])"

    def __eq__(self, other: Any) -> bool:
        if self is other:
            return True
        if other.__class__ is not self.__class__:
            return NotImplemented
        return (
            str(self.type) == str(other.type) and self._context == other._context and self._children == other._children
        )

    def __hash__(self) -> int:
        context = self._context
        if self.type is defaultdict:
            context = (context[0], tuple(context[1]))
        elif self.type in STANDARD_DICT_TYPES:
            context = tuple(context)
        elif isinstance(context, ConstantNode):
            context = context.value
        elif self.type is not None and self.type not in BUILTIN_TYPES:
            context = None  # a stranger's context may not be hashable
        return hash((self.type, context, tuple(self._children)))

    @property
    def context(self) -> Context:
        return self._context

    @property
    def children_specs(self) -> list[Any]:
        warnings.warn(
            "`treespec.children_specs` is deprecated. Use `treespec.child(index)` to access a single child, or "
            "`treespec.children()` to get all children.",
            FutureWarning,
            stacklevel=2,
        )
        return self._children

    def is_leaf(self) -> bool:
        return self.num_nodes == 1 and self.num_leaves == 1

    def children(self) -> list[Any]:
        """The specs of the children."""
        return self._children.copy()

    def child(self, index: int) -> Any:
        return self._children[index]

    def flatten_up_to(self, tree: PyTree) -> list[Any]:
        """The subtrees of `tree` at the leaves of this structure. ValueError where `tree` does not begin with it."""
        subtrees: list[Any] = []
        _subtrees(self, tree, subtrees)
        return subtrees

    def unflatten(self, leaves: Iterable[Any]) -> PyTree:
        """The tree of this structure that has these leaves."""
        if not isinstance(leaves, (list, tuple)):
            leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a pytree that "
                f"holds {self.num_leaves} items ({self})."
            )
        return _build(self, iter(leaves))


def _build(spec: TreeSpec, leaves: Iterator[Any]) -> PyTree:
    if spec.type is None:
        return next(leaves)
    children = [next(leaves) if c.type is None else _build(c, leaves) for c in spec._children]
    return SUPPORTED_NODES[spec.type].unflatten_fn(children, spec._context)


def _subtrees(spec: TreeSpec, node: Any, subtrees: list[Any]) -> None:
    if spec.type is None:
        subtrees.append(node)
        return
    kind, wanted = _get_node_type(node), spec.type
    own = wanted not in BUILTIN_TYPES
    dicts = wanted in STANDARD_DICT_TYPES and kind in STANDARD_DICT_TYPES
    if not dicts and kind != wanted:
        raise ValueError(f"{'Type' if own else 'Node type'} mismatch; expected {wanted!r}, but got {kind!r}.")
    children, context = SUPPORTED_NODES[kind].flatten_fn(node)
    if len(children) != spec.num_children:
        raise ValueError(f"Node arity mismatch; expected {spec.num_children}, but got {len(children)}.")
    if dicts:  # of whatever type, in whatever order
        keys = spec._context[1] if wanted is defaultdict else spec._context
        missing, extra = set(keys).difference(node), set(node).difference(keys)
        if missing or extra:
            message = f"; missing key(s): {missing}" * bool(missing) + f"; extra key(s): {extra}" * bool(extra)
            raise ValueError(f"Node keys mismatch{message}.")
        children = [node[k] for k in keys]
    elif context != spec._context and kind is not deque:  # `maxlen` may differ
        raise ValueError(
            f"Node context mismatch for custom node type {wanted!r}."
            if own
            else f"Node context mismatch for node type {wanted!r}; expected {spec._context!r}, but got {context!r}."
        )
    for c, child in zip(spec._children, children, strict=True):
        _subtrees(c, child, subtrees)


PyTreeSpec = TreeSpec


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None, [])


_LEAF_SPEC = LeafSpec()


def treespec_leaf() -> LeafSpec:
    """The structure of a leaf."""
    return _LEAF_SPEC


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The structure of a tuple with these children."""
    children = list(iterable)
    if not all(isinstance(c, TreeSpec) for c in children):
        raise ValueError(f"Expected a tuple of TreeSpec values, got: {children!r}.")
    return TreeSpec(tuple, None, children)


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """The structure of a dict with these children."""
    d: Mapping[Any, Any] = dict(mapping, **kwargs)
    if not all(isinstance(c, TreeSpec) for c in d.values()):
        raise ValueError(f"Expected a dictionary of TreeSpec values, got: {d!r}.")
    return TreeSpec(dict, list(d), list(d.values()))


# ---- the functions


def _flatten(node: Any, leaves: list[Any], is_leaf: IsLeaf) -> TreeSpec:
    kind = _get_node_type(node)
    known = SUPPORTED_NODES.get(kind)
    if known is None or (is_leaf is not None and is_leaf(node)):
        leaves.append(node)
        return _LEAF_SPEC
    children, context = known.flatten_fn(node)
    return TreeSpec(kind, context, [_flatten(c, leaves, is_leaf) for c in children])


def tree_flatten(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of `tree` in order, and its structure."""
    leaves: list[Any] = []
    spec = _flatten(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves: Any, treespec: Any) -> PyTree:
    """The tree of that structure with these leaves (the arguments may come the other way round)."""
    if not isinstance(treespec, TreeSpec):
        if not isinstance(leaves, TreeSpec):
            raise TypeError(
                f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}."
            )
        leaves, treespec = treespec, leaves
    return treespec.unflatten(leaves)


def tree_iter(tree: PyTree, is_leaf: IsLeaf = None) -> Iterator[Any]:
    """The leaves of `tree`, one after the other."""
    if tree_is_leaf(tree, is_leaf):
        yield tree
    else:
        for child in SUPPORTED_NODES[_get_node_type(tree)].flatten_fn(tree)[0]:
            yield from tree_iter(child, is_leaf)


def tree_leaves(tree: PyTree, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of `tree`, in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: PyTree, is_leaf: IsLeaf = None) -> TreeSpec:
    """The structure of `tree`."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """The tree of `func(leaf, *subtrees)`, those being what `rests` have where `tree` has that leaf."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(list(map(func, leaves, *[spec.flatten_up_to(r) for r in rests])))


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Calls `func` as `tree_map` does, for what it does to the leaves; returns `tree`."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def map_only(kind: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A decorator: the function is called only with what is of that type (or types, or satisfies that predicate)."""
    if isinstance(kind, (type, tuple, types.UnionType)):

        def pred(x: Any) -> bool:
            return isinstance(x, kind)

    elif callable(kind):
        pred = kind
    else:
        raise TypeError("Argument must be a type, a tuple of types, or a callable.")

    def wrapper(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return wraps(func)(lambda x: func(x) if pred(x) else x)

    return wrapper


def tree_map_only(kind: Any, /, func: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """`tree_map` that leaves alone what is not of that type (or types, or fails that predicate)."""
    return tree_map(map_only(kind)(func), tree, is_leaf=is_leaf)


def tree_map_only_(kind: Any, /, func: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """`tree_map_` that leaves alone what is not of that type (or types, or fails that predicate)."""
    return tree_map_(map_only(kind)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` holds for every leaf."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` holds for some leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(kind: Any, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` holds for every leaf of that type."""
    return all(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, kind))


def tree_any_only(kind: Any, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` holds for some leaf of that type."""
    return any(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, kind))


def arg_tree_leaves(*args: PyTree, **kwargs: PyTree) -> list[Any]:
    """The leaves of all the arguments."""
    return tree_leaves((args, kwargs))


def _broadcast_to_and_flatten(tree: PyTree, treespec: TreeSpec, is_leaf: IsLeaf = None) -> list[Any] | None:
    """The leaves of `tree`, each as often as the structure that it begins has leaves there; None if it does not fit."""
    result: list[Any] = []
    full = treespec.unflatten([0] * treespec.num_leaves)
    try:
        tree_map(
            lambda x, sub: result.extend([x] * tree_structure(sub, is_leaf).num_leaves), tree, full, is_leaf=is_leaf
        )
    except ValueError:
        return None
    return result


def treespec_pprint(treespec: TreeSpec) -> str:
    """A tree of that structure as Python shows it, with `*` for leaves."""
    star = type("_Asterisk", (), {"__repr__": lambda self: "*"})()
    return repr(treespec.unflatten([star] * treespec.num_leaves))


# ---- with paths


def _key_paths(path: KeyPath, tree: PyTree, is_leaf: IsLeaf) -> Iterator[tuple[KeyPath, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    kind = _get_node_type(tree)
    flatten = SUPPORTED_NODES[kind].flatten_with_keys_fn
    if flatten is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {kind}. Please pass a flatten_with_keys_fn argument to "
            "register_pytree_node."
        )
    for k, child in flatten(tree)[0]:
        yield from _key_paths((*path, k), child, is_leaf)


def tree_leaves_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """The leaves of `tree`, each as (key path, leaf)."""
    return list(_key_paths((), tree, is_leaf))


def tree_flatten_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """The (key path, leaf) pairs of `tree`, and its structure."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """`tree_map` of `func(key path, leaf, *subtrees)`."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [[p for p, _ in pairs], [x for _, x in pairs], *[spec.flatten_up_to(r) for r in rests]]
    return spec.unflatten([func(*xs) for xs in zip(*columns, strict=True)])


def keystr(kp: KeyPath) -> str:
    """A key path as Python would write it: `['a'][0].b`."""
    return "".join([str(k) for k in kp])


def key_get(obj: Any, kp: KeyPath) -> Any:
    """What lies at that key path in `obj`."""
    for k in kp:
        obj = k.get(obj)
    return obj
