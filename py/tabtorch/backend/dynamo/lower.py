"""A graph of ATen operations, as AOTAutograd makes it, written as the Python of a function over our tensors.

Each node is a line, which calls our function of that ATen name (`ops.aten`), and what is used no more is deleted on the line
after, so that the memory of it is free for others. Numbers that come of sizes are the operators of Python. The text is what
runs, and what `TORCH_LOGS="output_code"` shows.
"""

from __future__ import annotations

import math
import operator
import types
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.utils._sympy.printers import PythonPrinter

from tabtorch.backend.dynamo import adapters, control_flow
from tabtorch.backend.dynamo.edges import foreign, has_kernel
from tabtorch.backend.dynamo.nodes import (
    draws,
    is_node,
    is_result,
    is_tensor,
    is_token,
    memory_of,
    on_host,
    order_of,
    shows_each_once,
    type_of,
)
from tabtorch.backend.tensors import OURS

#: functions over sizes -> how they are written; {} are the arguments
_OPERATORS: dict[Any, str] = {
    operator.add: "{} + {}",
    operator.sub: "{} - {}",
    operator.mul: "{} * {}",
    operator.floordiv: "{} // {}",
    operator.truediv: "{} / {}",
    operator.mod: "{} % {}",
    operator.pow: "{} ** {}",
    operator.neg: "-{}",
    operator.eq: "{} == {}",
    operator.ne: "{} != {}",
    operator.lt: "{} < {}",
    operator.le: "{} <= {}",
    operator.gt: "{} > {}",
    operator.ge: "{} >= {}",
    operator.and_: "{} & {}",
    operator.or_: "{} | {}",
    torch.sym_float: "float({})",
    torch.sym_int: "int({})",
    torch.sym_not: "not {}",
    torch.sym_max: "max({}, {})",
    torch.sym_min: "min({}, {})",
    torch.sym_sum: "sum({})",
    torch.sym_ite: "{1} if {0} else {2}",
    math.floor: "math.floor({})",
    math.ceil: "math.ceil({})",
    math.trunc: "math.trunc({})",
    math.sqrt: "math.sqrt({})",
    round: "round({})",
}
_SIZES = {
    "sym_size": "{}.shape[{}]",
    "sym_numel": "{}.numel()",
    "sym_stride": "{}.stride({})",
    "sym_storage_offset": "0",
}

#: arguments that say where and how a result lies, which is settled here: all is on one device, and row by row
_SETTLED = frozenset(("layout", "pin_memory", "non_blocking", "memory_format", "generator"))
#: operations that look at strides, which may differ here from those that were traced
_STRIDED = frozenset(("as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter"))

#: of operators whose result, or its sizes, comes of a value that is read
_READ = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class Unsupported(NotImplementedError):
    """An operation that there is no function for."""

    def __init__(self, what: str, node: torch.fx.Node) -> None:
        where = _line_of(node)
        super().__init__(f"torch.compile(backend='webgpu'): {what}" + (f", which comes of {where}" if where else ""))


def _line_of(node: torch.fx.Node) -> str:
    """'FILE:LINE in FUNCTION: TEXT' of the script's line that a node comes of; "" where that is not known."""
    trace = node.stack_trace or ""
    frames = [line.strip() for line in trace.strip().splitlines()]
    for i in range(len(frames) - 1, -1, -1):
        if frames[i].startswith("File "):
            file, line, *rest = frames[i].removeprefix("File ").split(", ")
            text = frames[i + 1] if i + 1 < len(frames) else ""
            return f"{file.strip(chr(34))}:{line.removeprefix('line ')} {' '.join(rest)}: {text}"
    return ""


class Program:
    """The function, and what stands around it.

    function: takes a tensor for each of `inputs`, then `constants`, then the numbers `unbound`; returns a list.
    inputs: positions of the placeholders that are tensors. constants: PyTorch's tensors that the graph holds.
    numbers: positions of the placeholders that are sizes or other numbers, and whether the function is handed them.
    varying: whether sizes of inputs vary. orders: of an input, its dimensions from outermost to innermost, in which order the
    function takes them; only where sizes vary, and they lie in another order than that of the sizes.
    results: the nodes whose values the function returns. computed: numbers that it returns after those.
    written: inputs (by placeholder) that are written to.
    strided: inputs (by placeholder) of whose memory more may be read than they show.
    drawn: the nodes that draw random numbers, which are handed to the function after the constants.
    reads: whether values are read while it runs, so that there is no plan of the whole.
    bases: of an output that lies in the memory of another, as PyTorch has it: the node that is all of that memory.
    """

    def __init__(self, gm: torch.fx.GraphModule, sharing: int | None, saved_from: int | None = None) -> None:
        """sharing: how many outputs, the first, may share memory; None is all. saved_from: the outputs from there on go to the
        backward alone. RuntimeError's subclasses of PyTorch for what cannot be written."""
        self.gm = gm
        self.nodes = list(gm.graph.nodes)
        self.placeholders = [n for n in self.nodes if n.op == "placeholder"]
        (self.output,) = [n for n in self.nodes if n.op == "output"]
        self.outputs: list[Any] = list(self.output.args[0])
        ends = len(self.outputs) if saved_from is None else saved_from
        shown = set(filter(is_node, self.outputs[:ends]))
        self._saved = frozenset(o for o in self.outputs[ends:] if is_node(o) and o not in shown)
        self.inputs = [
            i
            for i, n in enumerate(self.placeholders)
            if isinstance(n.meta.get("val"), torch.Tensor) and not is_token(n)
        ]
        traced = {i: self.placeholders[i].meta["val"] for i in self.inputs}
        self.varying = any(isinstance(s, torch.SymInt) for val in traced.values() for s in val.shape)
        self.orders = {i: order for i, val in traced.items() if self.varying and (order := order_of(val)) is not None}
        self.constants: list[torch.Tensor] = []
        self.drawn: list[torch.fx.Node] = []
        self.unbound: list[int] = []
        self.written: list[int] = []
        self.strided: set[int] = set()
        self.reads = False
        self.space: dict[str, Any] = {
            "torch": _Names(),
            "aten": types.SimpleNamespace(),
            "math": math,
            "control_flow": types.SimpleNamespace(**control_flow.FUNCTIONS),
            "device": None,
            "__name__": __name__,
        }
        self.bases = self._shared(sharing)
        self._written_names: dict[torch.fx.Node, str] = {}
        self._constant_names: list[str] = []
        self.sizes: dict[str, str] = {}  # symbol of a size -> where the function has it from
        self.text = self._write()
        exec(compile(self.text, f"<torch.compile webgpu {id(self):x}>", "exec"), self.space)
        self.function: Callable[..., list[Any]] = self.space["compiled"]

    # ---- the text

    def _write(self) -> str:
        names = self._written_names
        lines: list[str] = []
        for n in self.placeholders:
            names[n] = n.name
        lines += [f"{n.name} = None" for n in self.placeholders if is_token(n)]
        for i, order in self.orders.items():
            name = self.placeholders[i].name
            lines.append(f"{name} = {name}.permute({[order.index(d) for d in range(len(order))]})")
        lines += self._bind_sizes()
        lines += self._body(self.gm, self.nodes, "")
        alone = [o for k, o in enumerate(self.outputs) if k not in self.bases]
        wanted = filter(is_result, [*alone, *self.bases.values()])
        self.results: list[torch.fx.Node] = list(dict.fromkeys(wanted))
        self.computed = [o for o in self.outputs if self._is_computed(o)]
        returned = [*map(self._result, self.results), *map(self._argument, self.computed)]
        lines.append(f"return [{', '.join(returned)}]")
        taken = [self.placeholders[i].name for i in self.inputs] + self._constant_names
        taken += [n.name for n in self.drawn]
        taken += [self.placeholders[i].name for i in self.unbound]
        return f"def compiled({', '.join(taken)}):\n" + "".join(f"    {line}\n" for line in lines)

    def _body(self, gm: torch.fx.GraphModule, nodes: list[torch.fx.Node], prefix: str) -> list[str]:
        """The lines of a graph, but its arguments and results. prefix: of the names of its constants."""
        names = self._written_names
        lines: list[str] = []
        last: dict[torch.fx.Node, Any] = {used: n for n in nodes for used in n.all_input_nodes}
        last |= dict.fromkeys(self.bases.values())  # which are returned, though no argument of the output
        seen = ""
        for n in nodes:
            if n.op == "get_attr":
                lines += self._attribute(gm, n, prefix)
                continue
            if n.op in ("placeholder", "output"):
                continue
            if n.op != "call_function":
                raise Unsupported(f"a node of kind {n.op}", n)
            where = _line_of(n)
            if where and where != seen:
                lines.append(f"# {where}")
                seen = where
            names[n] = n.name
            if not prefix and draws(n):
                self.drawn.append(n)
            else:
                lines.append(f"{n.name} = {self._call(n)}{type_of(n)}")
            dead = [m.name for m in dict.fromkeys(n.all_input_nodes) if last[m] is n and m.op == "call_function"]
            if n not in last:
                dead.append(n.name)
            if dead:
                lines.append(f"del {', '.join(dead)}")
        return lines

    def _inner(self, gm: torch.fx.GraphModule, name: str) -> list[str]:
        """A graph that is an argument of an operator, as a function in the function."""
        nodes = list(gm.graph.nodes)
        taken = [n.name for n in nodes if n.op == "placeholder"]
        self._written_names.update({n: n.name for n in nodes if n.op == "placeholder"})
        lines = self._body(gm, nodes, f"{name}_")
        given = nodes[-1].args[0]
        lines.append(f"return {self._argument(given if isinstance(given, (list, tuple)) else [given])}")
        return [f"def {name}({', '.join(taken)}):", *[f"    {line}" for line in lines]]

    def _is_computed(self, o: Any) -> bool:
        """Whether an output is a number that comes of values, and not of sizes."""
        val = o.meta.get("val") if isinstance(o, torch.fx.Node) and o.op == "call_function" else None
        if not isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return False
        return bool(torch.fx.experimental.symbolic_shapes.free_unbacked_symbols(val))

    def _result(self, n: torch.fx.Node) -> str:
        """A value that is returned, as PyTorch is to have it in memory: so nothing is left to be copied after the function."""
        name = self._argument(n)
        if n in self._saved and not self.varying:  # only the backward sees it, to which it may lie as it likes
            return name
        order = order_of(n.meta["val"])
        if order is None:
            return f"{name}.contiguous()"
        back = [order.index(d) for d in range(len(order))]
        return f"{name}.permute({order}).contiguous().permute({back})"

    def _shared(self, sharing: int | None) -> dict[int, torch.fx.Node]:
        """`bases`: the first `sharing` outputs, or all, share memory as they do in PyTorch."""
        groups: dict[int, list[int]] = {}
        for k, o in enumerate(self.outputs[:sharing]):
            if is_result(o):
                groups.setdefault(memory_of(o), []).append(k)
        given = {memory_of(self.placeholders[i]) for i in self.inputs}
        found: dict[int, torch.fx.Node] = {}
        for memory, group in groups.items():
            if len({self.outputs[k] for k in group}) == 1:
                continue
            if sharing is not None and memory in given:
                continue  # of views of an argument AOTAutograd looks at the sizes alone: it makes them of the argument
            arguments = (self.placeholders[i] for i in self.inputs)
            base = next((n for n in arguments if memory_of(n) == memory), None) or next(
                (n for n in self.nodes if is_result(n) and memory_of(n) == memory and shows_each_once(n.meta["val"])),
                None,
            )
            if base is None:
                raise Unsupported("results that share memory of which none is all", self.outputs[group[0]])
            found |= {k: base for k in group if self.outputs[k] is not base}
        return found

    def _bind_sizes(self) -> list[str]:
        """Sizes that are arguments are read off the tensors that have them: so they vary without another key of the plan."""
        found = self.sizes
        for i in self.inputs:
            n = self.placeholders[i]
            for d, size in enumerate(n.meta["val"].shape):
                if isinstance(size, torch.SymInt):
                    found.setdefault(str(size.node.expr), f"{n.name}.shape[{d}]")
        lines = []
        for i, n in enumerate(self.placeholders):
            v = n.meta.get("val")
            if isinstance(v, torch.Tensor) or not n.users:
                continue
            if isinstance(v, torch.SymInt) and (source := found.get(str(v.node.expr))) is not None:
                lines.append(f"{n.name} = {source}")
            else:
                self.unbound.append(i)
        return lines

    def _attribute(self, gm: torch.fx.GraphModule, n: torch.fx.Node, prefix: str) -> list[str]:
        """The lines that make what a graph holds: none for a constant, which is an argument of the function."""
        value: Any = gm
        for part in str(n.target).split("."):
            value = getattr(value, part)
        name = self._written_names[n] = prefix + n.name
        if isinstance(value, torch.fx.GraphModule):
            return self._inner(value, name)
        if not isinstance(value, torch.Tensor):
            raise Unsupported(f"a constant of type {type(value).__name__} is not supported", n)
        self._constant_names.append(name)
        self.constants.append(value)
        return []

    def _call(self, n: torch.fx.Node) -> str:
        target: Any = n.target
        if target is operator.getitem:
            return f"{self._argument(n.args[0])}[{n.args[1]}]"
        if isinstance(target, torch._ops.HigherOrderOperator):
            return self._higher(n, target.name())
        if isinstance(target, torch._ops.OpOverload):
            return self._operation(n, target, n.args, n.kwargs)
        form = _OPERATORS.get(target)
        if form is None:
            raise Unsupported(f"the function {target} is not supported", n)
        return form.format(*[self._enclosed(a) for a in n.args])

    def _enclosed(self, a: Any) -> str:
        text = self._argument(a)
        return text if isinstance(a, (torch.fx.Node, int)) and not text.startswith("-") else f"({text})"

    def _higher(self, n: torch.fx.Node, name: str) -> str:
        if name == "with_effects":  # which keeps the order of what reads a value, to print it or to raise an error
            token, op, *args = n.args
            if isinstance(op, torch._ops.OpOverload):
                self.reads = True
                call = self._operation(n, op, args, n.kwargs)
                return f"control_flow.with_effects({self._argument(token)}, {call})"
            name = op.name()
        elif name in control_flow.WRITING and has_kernel(n.args[0], on_host(n)):
            self.reads = True
            self.space[n.name + "_call"] = foreign(control_flow.writing(name, n.args[0]), on_host(n))
            return f"{n.name}_call({', '.join(f'{k}={self._argument(v)}' for k, v in n.kwargs.items())})"
        elif name in control_flow.FUNCTIONS and not n.kwargs:
            self.reads = True
            return f"control_flow.{name}({', '.join(map(self._argument, n.args))})"
        raise Unsupported(f"the higher-order operator {name} is not supported", n)

    def _operation(self, n: torch.fx.Node, op: torch._ops.OpOverload, args: Any, kwargs: Any) -> str:
        name, overload = op._schema.name, op._schema.overload_name
        space, _, plain = name.partition("::")
        if space == "aten" and plain in _SIZES:
            return _SIZES[plain].format(*map(self._argument, args))
        self.reads |= not _READ.isdisjoint(op.tags)
        if plain == "copy_" and isinstance(args[0], torch.fx.Node) and args[0].op == "placeholder":
            self.written.append(self.placeholders.index(args[0]))
        key = plain + (f"_{overload}" if overload else "")
        functions = self.space["aten"]
        if not hasattr(functions, key):
            f = adapters.lookup(name, overload)
            if f is None and has_kernel(op, on_host(n)):
                self.reads, f = True, foreign(op, on_host(n))
            if f is None:
                raise Unsupported(
                    f"the operator '{name}{'.' + overload if overload else ''}' has no function in tabtorch", n
                )
            setattr(functions, key, f)
        schema = op._schema.arguments
        given = [self._argument(a) for a in args]
        named = dict(kwargs)
        tensors = any(isinstance(a, torch.fx.Node) and is_tensor(a) for a in n.all_input_nodes)
        wanted = named.pop("device", None)
        placed = wanted is not None or any(a.name == "device" for a in schema)
        given_device = ["device=device"] if placed and not tensors else []
        for a in schema:
            if a.name in _SETTLED:
                named.pop(a.name, None)
        given += [f"{k}={self._argument(v)}" for k, v in named.items() if v is not None]
        if plain in _STRIDED:
            given[0] = self._laid_out(args[0])
            memory = memory_of(args[0])
            self.strided |= {i for i in self.inputs if memory_of(self.placeholders[i]) == memory}
        return f"aten.{key}({', '.join([*given, *given_device])})"

    def _laid_out(self, source: Any) -> str:
        """A tensor with the strides that were traced, for what asks where elements lie."""
        self.space["aten"].with_strides = adapters.with_strides
        val = source.meta["val"]
        return (
            f"aten.with_strides({self._argument(source)}, [{', '.join(self._number(s, source) for s in val.stride())}])"
        )

    def _number(self, number: Any, node: torch.fx.Node) -> str:
        """A number, which may be an expression of sizes, as Python. node: what asks for it."""
        if not isinstance(number, torch.SymInt):
            return repr(number)
        expr = number.node.expr
        if not all(str(s) in self.sizes for s in expr.free_symbols):
            raise Unsupported(f"the number {expr}, which is of no size of an input, is not supported", node)
        sources = {s: sympy.Symbol(self.sizes[str(s)], integer=True, positive=True) for s in expr.free_symbols}
        return str(PythonPrinter().doprint(expr.subs(sources)))

    def _argument(self, v: Any) -> str:
        if isinstance(v, torch.fx.Node):
            if v not in self._written_names:
                raise Unsupported(f"{v.op} {v.target} as an argument is not supported", v)
            return self._written_names[v]
        if isinstance(v, (list, tuple)):
            return "[" + ", ".join(map(self._argument, v)) + "]"
        if isinstance(v, torch.dtype):
            if v not in OURS:
                raise TypeError(f"{v} is not supported on device 'webgpu'")
            return f"torch.{str(v)[6:]}"
        if isinstance(v, float) and not math.isfinite(v):
            return f"float('{v}')"
        if isinstance(v, torch.device):
            return "device"
        if v is None or isinstance(v, (int, float, bool, str, complex)):
            return repr(v)
        if isinstance(v, (torch.layout, torch.memory_format)):
            return "None"
        raise NotImplementedError(f"torch.compile(backend='webgpu'): an argument of type {type(v).__name__}")


class _Names:
    """What `torch.NAME` is in a program: our types."""

    def __getattr__(self, name: str) -> Any:
        return OURS[getattr(torch, name)]


def known(op: Any) -> bool:
    """Whether there is a function for an operator, so that it need not be decomposed."""
    return (
        isinstance(op, torch._ops.OpOverload) and adapters.lookup(op._schema.name, op._schema.overload_name) is not None
    )


__all__ = ["Program", "Unsupported", "known"]
