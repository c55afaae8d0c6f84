"""The graph of a program, as an archive has it: nodes in order, each the call of an operator, and the names of values.

What is made of the JSON here is checked: a value is used after it is made, and made once; kinds of arguments are those of the
schema (torch/_export/serde/schema.py, version 8). Whether an operator is there is asked when the program is to run (operators.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tabtorch.base import dtypes
from tabtorch.core import layout
from tabtorch.export.expressions import Expression
from tabtorch.export.fields import bad, boolean, field, integer, items, number, shown, table, text, union

#: graphs in graphs
_DEEPEST = 24
_MOST_NODES = 1 << 20
_MOST_DIMENSIONS = 64

#: PyTorch's numbers of types -> ours
DTYPES: dict[int, dtypes.dtype] = {
    1: dtypes.uint8, 2: dtypes.int8, 3: dtypes.int16, 4: dtypes.int32, 5: dtypes.int64, 6: dtypes.float16,
    7: dtypes.float32, 8: dtypes.float64, 10: dtypes.complex64, 11: dtypes.complex128, 12: dtypes.bool_, 13: dtypes.bfloat16,
}  # fmt: skip
_OTHER_DTYPES = {
    9: "complex32", 28: "uint16", 29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}  # fmt: skip
MEMORY_FORMATS = {
    1: layout.contiguous_format,
    2: layout.channels_last,
    3: layout.channels_last_3d,
    4: layout.preserve_format,
}
STRIDED = 7


class Ref:
    """The value of that name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class _Device:
    """Where the program runs: that of its parameters and inputs, whatever device the file names."""

    def __repr__(self) -> str:
        return "device"


DEVICE = _Device()


class OperatorName:
    """An operator as an argument."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class TensorMeta:
    """Of a value of the graph: its type, and its sizes as numbers or expressions."""

    __slots__ = ("dtype", "requires_grad", "sizes", "strides")

    def __init__(self, x: Any) -> None:
        self.dtype = dtype_of(field(x, "dtype"))
        self.requires_grad = boolean(field(x, "requires_grad"))
        self.sizes = tuple(map(sym_int, _dimensions(field(x, "sizes"))))
        self.strides = tuple(map(sym_int, _dimensions(field(x, "strides"))))
        if len(self.sizes) != len(self.strides):
            raise bad("a tensor has not as many strides as sizes")
        if field(x, "layout") != STRIDED:
            raise NotImplementedError(
                "tabtorch reads dense (strided) tensors only; the program has one of another layout"
            )

    def __repr__(self) -> str:
        short = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c", "bool": "b8"}
        name = str(self.dtype).removeprefix("torch.")
        word = name.rstrip("0123456789")
        return f"{short[word]}{name[len(word) :]}[{', '.join(map(str, self.sizes))}]"


def _dimensions(x: Any) -> list[Any]:
    found = items(x, "sizes")
    if len(found) > _MOST_DIMENSIONS:
        raise bad(f"a tensor of {len(found)} dimensions")
    return found


def dtype_of(x: Any) -> dtypes.dtype:
    """The type that a number stands for. TypeError for one that is not here."""
    n = integer(x, "a type")
    if n in _OTHER_DTYPES:
        raise TypeError(f"the program has the type {_OTHER_DTYPES[n]}, which is not supported by tabtorch")
    if n not in DTYPES:
        raise bad(f"there is no type {n}")
    return DTYPES[n]


def sym_int(x: Any) -> int | Expression:
    """A size: a number, or an expression."""
    kind, value = union(x, "a size")
    if kind == "as_int":
        return integer(value, "a size")
    if kind != "as_expr":
        raise bad(f"a size cannot be {kind}")
    found = Expression(text(field(value, "expr_str"), "an expression"))
    return found if found.names else int(found({}))


class Node:
    """A call: target(*args, **kwargs) -> outputs, a tree of names (None for what nobody wants).

    op: "placeholder", "call_function" or "output", as in `torch.fx`.
    """

    __slots__ = ("args", "kwargs", "name", "op", "outputs", "stack_trace", "target")

    def __init__(
        self, op: str, name: str, target: str, args: Any, kwargs: dict[str, Any], outputs: Any, trace: str = ""
    ) -> None:
        self.op = op
        self.name = name
        self.target = target
        self.args = args
        self.kwargs = kwargs
        self.outputs = outputs
        self.stack_trace = trace

    def __repr__(self) -> str:
        return self.name

    def text(self, graph: Graph) -> str:
        """The node as a line."""
        given = ", ".join([*map(_shown, self.args), *(f"{k} = {_shown(v)}" for k, v in self.kwargs.items())])
        short = self.target.removeprefix("_operator.")
        if short in _SIGNS and len(self.args) == 2 and self.target != short:
            call = f"{_shown(self.args[0])} {_SIGNS[short]} {_shown(self.args[1])}"
        else:
            call = f"{self.target}({given})"
        if isinstance(self.outputs, str):
            meta = graph.metas.get(self.outputs)
            kind = "" if meta is None else f': "{shown_meta(meta)}"'
            return f"{self.outputs}{kind} = {call}"
        if not self.outputs:
            return f"{self.name or '_'} = {call}"
        return f"{_names(self.outputs)} = {call}"


def shown_meta(meta: Any) -> str:
    """Of a value of the graph, as it is printed: "f32[s0, 4]", "Sym(s0)"."""
    return f"Sym({meta})" if isinstance(meta, Expression) else str(meta)


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**", "eq": "==", "ne": "!=",
          "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and_": "&", "or_": "|"}  # fmt: skip


def _names(x: Any) -> str:
    if isinstance(x, list):
        return "(" + ", ".join(map(_names, x)) + ")"
    return "_" if x is None else str(x)


def _shown(x: Any) -> str:
    if isinstance(x, Graph):
        return x.name or "graph"
    if isinstance(x, list):
        return "[" + ", ".join(map(_shown, x)) + "]"
    return repr(x)


class Graph:
    """A graph. inputs: names, or the constants that stand in their place. outputs: values, `Ref`s among them.

    metas: of values by name, a TensorMeta or the Expression that a number is. single: whether it gives one tensor and no list.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.inputs: list[Any] = []
        self.calls: list[Node] = []
        self.outputs: list[Any] = []
        self.metas: dict[str, Any] = {}
        self.single = False
        #: of numbers: what kind, and (as sympy writes it, in the example), where the program was exported here
        self.sorts: dict[str, tuple[str, tuple[str, Any]]] = {}

    @property
    def nodes(self) -> list[Node]:
        """All nodes: a placeholder for each input, the calls, the output."""
        held = [Node("placeholder", str(x), str(x), (), {}, str(x)) for x in self.inputs if isinstance(x, Ref)]
        return [*held, *self.calls, Node("output", "output", "output", (self.outputs,), {}, None)]

    def graphs(self) -> Iterator[Graph]:
        """The graphs in it, not those in those."""
        for node in self.calls:
            for x in (*node.args, *node.kwargs.values()):
                yield from _graphs_in(x)

    def all_calls(self) -> Iterator[Node]:
        yield from self.calls
        for g in self.graphs():
            yield from g.all_calls()

    def text(self, indent: str = "") -> str:
        """As Python that nobody runs."""
        head = ", ".join(
            f'{x}: "{shown_meta(self.metas[x.name])}"' if x.name in self.metas else str(x)
            for x in self.inputs
            if isinstance(x, Ref)
        )
        lines = [f"def forward(self, {head}):" if head else "def forward(self):"]
        lines += ["    " + node.text(self) for node in self.calls]
        lines.append(
            f"    return {_shown(self.outputs[0]) if self.single else '(' + ', '.join(map(_shown, self.outputs)) + ')'}"
        )
        lines += [""]
        for g in self.graphs():
            lines += [f"class {g.name}(torch.nn.Module):", g.text("    ")]
        return "\n".join(indent + line if line else line for line in "\n".join(lines).split("\n"))

    def __str__(self) -> str:
        return self.text()


def _graphs_in(x: Any) -> Iterator[Graph]:
    if isinstance(x, Graph):
        yield x
    elif isinstance(x, (list, tuple)):
        for y in x:
            yield from _graphs_in(y)
    elif isinstance(x, dict):
        for y in x.values():
            yield from _graphs_in(y)


class _Reader:
    """Reads one graph, with the names that are known in it so far."""

    def __init__(self, depth: int, budget: list[int]) -> None:
        if depth > _DEEPEST:
            raise bad("graphs in graphs, too deep")
        self.depth = depth
        self.budget = budget  # nodes that may still come, in all graphs together
        self.known: set[str] = set()

    def define(self, x: Any) -> str:
        name = text(x)
        if name in self.known:
            raise bad(f"the value {name!r} is made twice")
        self.known.add(name)
        return name

    def ref(self, x: Any) -> Ref:
        name = text(x)
        if name not in self.known:
            raise bad(f"the value {name!r} is used before it is made")
        return Ref(name)

    def graph(self, x: Any, name: str = "") -> Graph:
        g = Graph(name)
        metas = table(field(x, "tensor_values"))
        for arg in items(field(x, "inputs")):
            kind, value = union(arg, "an input")
            if kind in ("as_tensor", "as_custom_obj"):
                g.inputs.append(Ref(self.define(field(value, "name"))))
            elif kind in ("as_sym_int", "as_sym_float", "as_sym_bool") and "as_name" in table(value):
                g.inputs.append(Ref(self.define(value["as_name"])))
            else:
                g.inputs.append(self.argument(arg))
        for node in items(field(x, "nodes")):
            self.budget[0] -= 1
            if self.budget[0] < 0:
                raise bad("too many nodes")
            g.calls.append(self.node(node))
        g.outputs = [self.argument(a) for a in items(field(x, "outputs"))]
        g.single = boolean(table(x).get("is_single_tensor_return", False))
        if g.single and len(g.outputs) != 1:
            raise bad("a graph that gives one tensor has several results")
        g.metas = {n: TensorMeta(m) for n, m in metas.items() if n in self.known}
        for kind in ("sym_int_values", "sym_bool_values", "sym_float_values"):
            for n, value in table(table(x).get(kind, {})).items():
                sort, held = union(value, "a symbol")
                if n in self.known and sort == "as_expr":
                    g.metas[n] = Expression(text(field(held, "expr_str"), "an expression"))
        return g

    def node(self, x: Any) -> Node:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        target = text(field(x, "target"), "an operator")
        for given in items(field(x, "inputs")):
            name = text(field(given, "name"))
            value = self.argument(field(given, "arg"))
            kind = table(given).get("kind")
            # files of before there were kinds have all by name
            if (
                kind == 1
                or not name
                or (kind is None and not kwargs and target.startswith(("_operator", "math", "torch.sym")))
            ):
                if kwargs:
                    raise bad(f"{target} has a positional argument after one by name")
                args.append(value)
            elif name in kwargs:
                raise bad(f"{target} has {name!r} twice")
            else:
                kwargs[name] = value
        outputs = [self.output(o) for o in items(field(x, "outputs"))]
        found: Any = outputs
        if len(outputs) == 1:
            found = outputs[0]
        called = table(x).get("name")
        name = text(called) if called is not None else found if isinstance(found, str) else ""
        trace = table(table(x).get("metadata", {})).get("stack_trace", "")
        return Node("call_function", name, target, tuple(args), kwargs, found, trace if type(trace) is str else "")

    def output(self, x: Any) -> Any:
        """A tree of names."""
        kind, value = union(x, "a result")
        if kind in ("as_tensor", "as_custom_obj"):
            return self.define(field(value, "name"))
        if kind == "as_tensors":
            return [self.define(field(v, "name")) for v in items(value)]
        if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
            sort, name = union(value, "a result")
            return self.define(name) if sort == "as_name" else None
        if kind in ("as_sym_ints", "as_sym_floats", "as_sym_bools"):
            return [self.output({kind[:-1]: v}) for v in items(value)]
        if kind == "as_optional_tensor":
            return self.output(value)
        if kind == "as_optional_tensors":
            return [self.output(v) for v in items(value)]
        if kind in (
            "as_none",
            "as_int",
            "as_float",
            "as_bool",
            "as_string",
            "as_ints",
            "as_floats",
            "as_bools",
            "as_strings",
        ):
            return None
        raise bad(f"a result cannot be {kind}")

    def argument(self, x: Any) -> Any:
        kind, value = union(x, "an argument")
        read = _ARGUMENTS.get(kind)
        if read is None:
            raise bad(f"there is no kind of argument {shown(kind)}")
        return read(self, value)

    def symbolic(self, x: Any) -> Any:
        """A number, or the name of one."""
        kind, value = union(x, "a number")
        if kind == "as_name":
            return self.ref(value)
        return {"as_int": integer, "as_float": number, "as_bool": boolean}.get(kind, _no_number)(value)

    def optional(self, x: Any) -> Any:
        kind, value = union(x, "an argument")
        return None if kind == "as_none" else self.ref(field(value, "name"))

    def custom_object(self, x: Any) -> Any:
        name = text(field(x, "name"))
        if name in self.known:
            return Ref(name)
        raise NotImplementedError(
            f"the program has an object of the class {text(field(x, 'class_fqn'))} for an argument, which tabtorch does not read"
        )

    def subgraph(self, x: Any) -> Graph:
        return _Reader(self.depth + 1, self.budget).graph(field(x, "graph"), text(field(x, "name")))


def _no_number(x: Any) -> Any:
    raise bad("what should be a number is none")


def _layout(r: _Reader, x: Any) -> Any:
    if x != STRIDED:
        raise NotImplementedError("tabtorch has no layout but torch.strided; the program asks for another one")
    return None


def _memory_format(r: _Reader, x: Any) -> Any:
    if x not in MEMORY_FORMATS:
        raise bad(f"there is no memory format {shown(x)}")
    return MEMORY_FORMATS[x]


def _device(r: _Reader, x: Any) -> Any:
    text(field(x, "type"), "a device")
    return DEVICE


def _many(read: Callable[[_Reader, Any], Any]) -> Callable[[_Reader, Any], Any]:
    return lambda r, x: [read(r, y) for y in items(x)]


def _tensor(r: _Reader, x: Any) -> Ref:
    return r.ref(field(x, "name"))


#: the kinds of arguments of schema 8
_ARGUMENTS: dict[str, Callable[[_Reader, Any], Any]] = {
    "as_none": lambda r, x: None,
    "as_tensor": _tensor,
    "as_tensors": _many(_tensor),
    "as_int": lambda r, x: integer(x),
    "as_ints": _many(lambda r, x: integer(x)),
    "as_float": lambda r, x: number(x),
    "as_floats": _many(lambda r, x: number(x)),
    "as_string": lambda r, x: text(x),
    "as_strings": _many(lambda r, x: text(x)),
    "as_sym_int": _Reader.symbolic,
    "as_sym_ints": _many(_Reader.symbolic),
    "as_scalar_type": lambda r, x: dtype_of(x),
    "as_memory_format": _memory_format,
    "as_layout": _layout,
    "as_device": _device,
    "as_bool": lambda r, x: boolean(x),
    "as_bools": _many(lambda r, x: boolean(x)),
    "as_sym_bool": _Reader.symbolic,
    "as_sym_bools": _many(_Reader.symbolic),
    "as_graph": _Reader.subgraph,
    "as_optional_tensor": _Reader.optional,
    "as_optional_tensors": _many(_Reader.optional),
    "as_custom_obj": _Reader.custom_object,
    "as_operator": lambda r, x: OperatorName(text(x)),
    "as_sym_float": _Reader.symbolic,
    "as_sym_floats": _many(_Reader.symbolic),
    "as_complex": lambda r, x: complex(number(field(x, "real")), number(field(x, "imag"))),
    "as_nested_tensors": _many(_many(_tensor)),
    "as_int_lists": _many(_many(lambda r, x: integer(x))),
    "as_float_lists": _many(_many(lambda r, x: number(x))),
    "as_string_to_argument": lambda r, x: {text(k): r.argument(v) for k, v in table(x).items()},
}


def read_graph(x: Any) -> Graph:
    """The graph of a program's JSON. SerializeError for what is none, TypeError and NotImplementedError for what is not read here."""
    try:
        return _Reader(0, [_MOST_NODES]).graph(x)
    except RecursionError:
        raise bad("it is nested too deeply") from None
