"""How the inputs and the results of a program are nested: PyTorch's JSON of that, both ways.

Containers of the standard library are known by name, other classes where they have been registered
(`torch.export.register_dataclass`, `torch.utils._pytree.register_pytree_node(serialized_type_name=…)`). No class is imported
because a file names it: of a result whose class is not known here comes an `Unregistered`, a dict with that name.
"""

from __future__ import annotations

import json
import keyword
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterable, Mapping
from typing import Any

from tabtorch.export.fields import bad, field, items, parse_json, table, text
from tabtorch.utils import _pytree
from tabtorch.utils._pytree import MappingKey, TreeSpec, treespec_leaf

_DEEPEST = 200
_MOST = 1 << 20

_STANDARD = {
    "builtins.tuple": tuple,
    "builtins.list": list,
    "builtins.dict": dict,
    "collections.OrderedDict": OrderedDict,
    "collections.defaultdict": defaultdict,
    "collections.deque": deque,
    "collections.namedtuple": namedtuple,
}
_STANDARD_NAMES: dict[Any, str] = {cls: name for name, cls in _STANDARD.items()}
_FACTORIES: dict[str, Any] = {f"builtins:{f.__name__}": f for f in (list, dict, set, int, float, str, bool, tuple)}


class Unregistered(OrderedDict[str, Any]):
    """A container whose class is not registered here: its parts by name, as items and as attributes.

    `class_name`: what the file calls the class.
    """

    class_name = ""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"{self.class_name or type(self).__name__!r} object has no attribute {name!r}")


class _Unknown:
    """What stands in a TreeSpec for a class that is not registered."""

    __slots__ = ("context", "names", "type_name")

    def __init__(self, type_name: str, context: Any, count: int) -> None:
        self.type_name = type_name
        self.context = context
        self.names = _names_in(context, count)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Unknown) and (self.type_name, self.context) == (other.type_name, other.context)

    def __hash__(self) -> int:
        return hash(self.type_name)

    def __repr__(self) -> str:
        return f"{self.type_name}: {self.context}"


def _names_in(context: Any, count: int) -> list[str]:
    """What the parts are called, if the context lists just that; else their positions."""
    for found in (context, context[0] if isinstance(context, list) and context else None):
        if isinstance(found, list) and len(found) == count and all(type(n) is str for n in found):
            if len(set(found)) == count:
                return found
    return [str(i) for i in range(count)]


def _put(values: Iterable[Any], context: _Unknown) -> Unregistered:
    made = Unregistered(zip(context.names, values, strict=True))
    made.class_name = context.type_name
    return made


def _register_unknown() -> None:
    if Unregistered not in _pytree.SUPPORTED_NODES:
        _pytree.register_pytree_node(
            Unregistered,
            lambda x: (list(x.values()), _Unknown(x.class_name, list(x), len(x))),
            _put,
            flatten_with_keys_fn=lambda x: (
                [(MappingKey(k), v) for k, v in x.items()],
                _Unknown(x.class_name, list(x), len(x)),
            ),
        )


def loads(source: str, named: Mapping[str, list[str]]) -> TreeSpec:
    """The TreeSpec of a text. named: the fields of named tuples by the names that the file has for them. SerializeError."""
    found = items(parse_json(source, "a tree of inputs or results"), "a tree")
    if len(found) != 2 or found[0] != 1:
        raise bad("a tree's protocol is not 1")
    return _spec(found[1], named, 0, [0])


def _spec(node: Any, named: Mapping[str, list[str]], depth: int, count: list[int]) -> TreeSpec:
    count[0] += 1
    if depth > _DEEPEST or count[0] > _MOST:
        raise bad("a tree of inputs or results is too large")
    kind, context = field(node, "type"), field(node, "context")
    inner = items(field(node, "children_spec"))
    if kind is None:
        if context is not None or inner:
            raise bad("a leaf of a tree has parts")
        return treespec_leaf()
    children = [_spec(c, named, depth + 1, count) for c in inner]
    name = text(kind, "the name of a container")
    own = _pytree.SERIALIZED.get(name)
    if own is not None:
        cls, _, load = own
        read = parse_json(text(context), "a context") if load is None else load(text(context))
        return TreeSpec(cls, read, children)
    known = _STANDARD.get(name)
    if known is namedtuple:
        called = text(context)
        return TreeSpec(namedtuple, _named_class(called, named.get(called.strip('"')), len(children)), children)
    value = None if context is None else parse_json(text(context), "a context")
    if known is None:
        _register_unknown()
        return TreeSpec(Unregistered, _Unknown(name, value, len(children)), children)
    if known is defaultdict:
        factory = field(value, "default_factory_module"), field(value, "default_factory_name")
        keys = items(field(value, "dict_context"))
        value = [_FACTORIES.get(f"{factory[0]}:{factory[1]}"), keys]
        _check_keys(keys, len(children))
    elif known in (dict, OrderedDict):
        _check_keys(items(value), len(children))
    elif known is deque:
        if value is not None and (type(value) is not int or value < len(children)):
            raise bad("a deque that is longer than it may be")
    elif value is not None:
        raise bad(f"a {name} has the context {value!r}")
    return TreeSpec(known, value, children)


def _check_keys(keys: list[Any], count: int) -> None:
    if (
        len(keys) != count
        or not all(isinstance(k, (str, int, float, bool, type(None))) for k in keys)
        or len(set(keys)) != count
    ):
        raise bad("a dict has not as many keys as values")


def _named_class(name: str, fields: list[str] | None, count: int) -> Any:
    name = name.strip('"')
    known = _pytree.SERIALIZED.get(name)
    if known is not None and _pytree.is_namedtuple_class(known[0]) and len(known[0]._fields) == count:
        return known[0]
    if fields is None:
        fields = [f"field_{i}" for i in range(count)]
    plain = all(f.isidentifier() and f.isascii() and not keyword.iskeyword(f) and f[0] != "_" for f in fields)
    if len(fields) != count or len(set(fields)) != count or count > 1000 or not plain:
        raise bad(f"the fields of the named tuple {name!r} are no names")
    short = name.rpartition(".")[2]
    if not (short.isidentifier() and short.isascii()) or keyword.iskeyword(short):
        short = "NamedTuple"
    return namedtuple(short, fields)  # its fields are known now only


def dumps(spec: TreeSpec, named: dict[str, list[str]]) -> str:
    """The text of a TreeSpec, as PyTorch reads it; the fields of named tuples go to `named`. NotImplementedError for a class
    that has no name in files."""
    return json.dumps([1, _schema(spec, named)])


def _schema(spec: TreeSpec, named: dict[str, list[str]]) -> dict[str, Any]:
    if spec.type is None:
        return {"type": None, "context": None, "children_spec": []}
    inner = [_schema(c, named) for c in spec.children()]
    kind, context = spec.type, spec.context
    known = next((n for n, (cls, _, _) in _pytree.SERIALIZED.items() if cls is kind), None)
    if known is not None:
        dump = _pytree.SERIALIZED[known][1]
        name, shown = known, json.dumps(context) if dump is None else dump(context)
    elif kind is namedtuple:
        name = "collections.namedtuple"
        called = next((n for n, (cls, _, _) in _pytree.SERIALIZED.items() if cls is context), None)
        if called is None:
            raise NotImplementedError(
                f"Can't serialize TreeSpec of namedtuple class {context} because we didn't register a serializated_type_name. "
                "Please register using `_register_namedtuple`."
            )
        named[called] = list(context._fields)
        shown = json.dumps(called)
    elif kind is defaultdict:
        name = _STANDARD_NAMES[kind]
        factory = context[0]
        shown = json.dumps(
            {
                "default_factory_module": getattr(factory, "__module__", None),
                "default_factory_name": getattr(factory, "__qualname__", None),
                "dict_context": context[1],
            }
        )
    elif kind in _STANDARD_NAMES:
        name, shown = _STANDARD_NAMES[kind], json.dumps(context)
    else:
        raise NotImplementedError(
            f"No registered serialization name for {kind} found. Please update your _register_pytree_node call with a "
            "`serialized_type_name` kwarg."
        )
    return {"type": name, "context": shown, "children_spec": inner}


def reordered(kwargs: dict[str, Any], spec: TreeSpec) -> dict[str, Any]:
    """Keyword arguments in the order in which the program has them. ValueError where they are not those."""
    wanted = spec.child(1).context
    if set(kwargs) != set(wanted):
        raise ValueError(
            f"Ran into a kwarg keyword mismatch: Got the following keywords {list(kwargs)} but expected {wanted}"
        )
    return {k: kwargs[k] for k in wanted}


def same(a: TreeSpec, b: TreeSpec) -> bool:
    """Whether two are of the same containers; a named tuple is known by its fields."""
    if a.type is not b.type or a.num_children != b.num_children:
        return False
    if a.type is namedtuple:
        if a.context._fields != b.context._fields:
            return False
    elif a.type is Unregistered:
        if (a.context.type_name, a.context.names) != (b.context.type_name, b.context.names):
            return False
    elif a.context != b.context:
        return False
    return all(same(x, y) for x, y in zip(a.children(), b.children(), strict=True))


def dressed(x: Any, spec: TreeSpec) -> Any:
    """Inputs, with the dicts among them that stand for containers whose classes are not registered made those."""
    if spec.type is Unregistered and isinstance(x, dict) and list(x) == spec.context.names:
        return _put([dressed(x[k], c) for k, c in zip(spec.context.names, spec.children(), strict=True)], spec.context)
    if spec.type in (list, tuple) and type(x) is spec.type and len(x) == spec.num_children:
        return spec.type([dressed(y, c) for y, c in zip(x, spec.children(), strict=True)])
    if spec.type is dict and type(x) is dict and list(x) == spec.context:
        return {k: dressed(y, c) for (k, y), c in zip(x.items(), spec.children(), strict=True)}
    return x


def is_call(spec: TreeSpec) -> bool:
    """Whether it is of positional and keyword arguments."""
    if spec.type is not tuple or spec.num_children != 2:
        return False
    args, kwargs = spec.children()
    return args.type is tuple and kwargs.type is dict and all(type(k) is str for k in kwargs.context)


def table_of_names(x: Any) -> dict[str, list[str]]:
    """`treespec_namedtuple_fields` of a file."""
    return {name: [text(f) for f in items(field(entry, "field_names"))] for name, entry in table(x).items()}


__all__ = ["Unregistered", "dressed", "dumps", "is_call", "loads", "reordered", "same", "table_of_names"]
