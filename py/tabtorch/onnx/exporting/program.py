"""A program of `torch.export` as an ONNX model: its nodes one after another, each by the row of the table that translates it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from tabtorch.base import dtypes
from tabtorch.export.exported_program import ExportedProgram
from tabtorch.export.expressions import Expression
from tabtorch.export.graphs import Graph, Node, Ref
from tabtorch.onnx.exporting.builder import Builder, Size, Value, number_of
from tabtorch.onnx.exporting.errors import OnnxExporterError, UnsupportedOperatorError
from tabtorch.onnx.exporting.table import TABLE, Out
from tabtorch.onnx.proto import Message

#: the version of the format by the operators' version; both are those that PyTorch's exporter writes
IR_VERSION = {18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11}
_FAMILIES = ("elementwise", "shaping", "reductions", "layers")
#: what gives the same numbers, or some of them, seen otherwise
_SEEN = frozenset(
    "alias detach contiguous dropout view view_as reshape flatten unflatten t transpose swapaxes permute movedim unsqueeze squeeze "
    "expand expand_as narrow select slice split split_with_sizes chunk tensor_split unbind diagonal unfold".split()
)
#: of these, what may be a copy
_COPIES = ("contiguous", "reshape", "flatten")
#: arithmetic of sizes
_SIZES = {"add": "Add", "sub": "Sub", "mul": "Mul", "floordiv": "Div", "mod": "Mod"}


def table() -> dict[str, Any]:
    """The table, with all its rows."""
    for family in _FAMILIES:
        importlib.import_module(f"tabtorch.onnx.exporting.{family}")
    return TABLE


def name_of(target: str) -> str:
    """ATen's name of a target: "torch.ops.aten.add.Tensor" is "add"."""
    return target.removeprefix("torch.ops.").removeprefix("aten.").partition(".")[0]


def _writes(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _names(outputs: Any) -> list[str]:
    if isinstance(outputs, str):
        return [outputs]
    return [n for o in outputs or () for n in _names(o)]


def _sizes(meta: Any) -> list[int | None]:
    return [n if isinstance(n, int) else None for n in meta.sizes]


class Translation:
    """One program on its way."""

    def __init__(self, program: ExportedProgram, opset: int) -> None:
        self.program = program
        self.graph: Graph = program.graph
        self.b = Builder(opset)
        self.values: dict[str, Any] = {}
        self.inputs: list[Message] = []
        self.rows = table()
        #: a view's name -> (the name of what it sees, the node that made it, or None where it sees all)
        self.views: dict[str, tuple[str, Node | None]] = {}
        self.stale: set[str] = set()  # views of what was written to
        self.lost: set[str] = set()  # what nobody can tell the numbers of

    def declared(self, name: str, meta: Any) -> Message:
        """An input or result. A size that varies has the name of its symbol."""
        dims = [
            Message("Dimension", dim_value=n) if isinstance(n, int) else Message("Dimension", dim_param=str(n))
            for n in meta.sizes
        ]
        kind = Message("TensorType", elem_type=number_of(meta.dtype), shape=Message("Shape", dim=dims))
        return Message("ValueInfo", name=name, type=Message("Type", tensor_type=kind))

    def unsupported(self) -> list[str]:
        """The operators that no row translates."""
        known = {
            *self.rows,
            "sym_size",
            "_assert_scalar",
            "_assert_tensor_metadata",
            "sym_constrain_range_for_size",
            "sym_constrain_range",
        }
        return sorted(
            {
                n.target
                for n in self.graph.calls
                if not n.target.startswith("_operator.")
                and (name_of(n.target)[:-1] if _writes(name_of(n.target)) else name_of(n.target)) not in known
            }
        )

    def value(self, x: Any) -> Any:
        """An argument: values of the graph for their names."""
        if isinstance(x, Ref):
            if x.name in self.stale:
                base, node = self.views[x.name]
                if node is not None and name_of(node.target) in _COPIES:
                    self.lost.add(x.name)
                elif node is None:
                    self.stale.discard(x.name)
                    self.values[x.name] = self.value(Ref(base))
                else:
                    self.stale.difference_update(_names(node.outputs))
                    self.node(node)
            if x.name in self.lost:
                raise OnnxExporterError(f"{x.name} may share memory with what was written to in place")
            return self.values[x.name]
        if isinstance(x, (list, tuple)):
            return [self.value(v) for v in x]
        return x

    def put(self, outputs: Any, made: Any) -> None:
        if outputs is None or made is None:
            return
        if isinstance(outputs, str):
            if isinstance(made, (list, tuple)):
                made = made[0]
            meta = self.graph.metas.get(outputs)
            if (
                isinstance(made, Value)
                and not isinstance(made, Size)
                and meta is not None
                and not isinstance(meta, Expression)
            ):
                made = Value(self.b.cast(made, meta.dtype).name, meta.dtype, _sizes(meta))
            self.values[outputs] = made
            return
        if len(outputs) == 1 and not isinstance(made, (list, tuple)):
            made = [made]
        for name, each in zip(outputs, made, strict=False):
            self.put(name, each)

    def out(self, outputs: Any) -> Out:
        while isinstance(outputs, list):
            outputs = next((o for o in outputs if o is not None), None)
        meta = self.graph.metas.get(outputs)
        if meta is None or isinstance(meta, Expression):
            return Out(dtypes.float32, ())
        return Out(meta.dtype, _sizes(meta))

    def node(self, node: Node) -> None:
        args, name = [self.value(a) for a in node.args], name_of(node.target)
        if node.target.startswith("_operator."):
            self.put(node.outputs, self.arithmetic(node.target.removeprefix("_operator."), args))
        elif name == "sym_size":
            self.put(node.outputs, self.b.size(*args))
        elif name.startswith(("_assert", "sym_constrain")):
            return
        else:
            kwargs = {
                k: self.value(v)
                for k, v in node.kwargs.items()
                if k not in ("layout", "device", "pin_memory", "memory_format", "non_blocking", "copy")
            }
            kwargs.pop("dtype", None)
            writes = _writes(name)
            row = self.rows[name[:-1] if writes else name]
            self.put(node.outputs, row(self.b, self.out(node.outputs), *args, **kwargs))
            if writes or name in _SEEN:
                seen = node.args[0].name
                for out in _names(node.outputs):
                    self.views[out] = (seen, None if writes else node)
                    if writes:
                        self.update(seen, self.values[out])

    def update(self, name: str, value: Value) -> None:
        """After a write to `name`: what it is a part of is made anew, and other views of that when they are asked for."""
        self.values[name] = value
        self.stale.discard(name)
        base, node = self.views.get(name, ("", None))
        if node is not None and name_of(node.target) not in ("slice", "select", "alias", "detach", "dropout"):
            root = self.root(name)
            del self.views[name]  # and what it is a part of is not known any more
            self.lost.update(v for v in (root, *self.views) if self.root(v) == root)
            base = ""
        if not base:
            self.stale.update(v for v in self.views if self.root(v) == name)
            return
        if node is not None:
            row = self.rows.get(name_of(node.target) + "_scatter")
            if row is not None:
                whole = self.value(Ref(base))
                more = [self.value(a) for a in node.args[1:]]
                value = row(self.b, Out(whole.dtype, whole.sizes), whole, value, *more)
        self.update(base, value)

    def root(self, name: str) -> str:
        while name in self.views:
            name = self.views[name][0]
        return name

    def arithmetic(self, name: str, args: list[Any]) -> Any:
        if name == "neg":
            name, args = "mul", [args[0], -1]
        if name not in _SIZES:
            raise NotImplementedError(f"{name} of sizes")
        left, right = [self.b.sizes([a]) for a in args]
        return Size(self.b.op(_SIZES[name], left, right).name)

    def run(self, input_names: Sequence[str] | None, output_names: Sequence[str] | None) -> Message:
        missing = self.unsupported()
        if missing:
            raise UnsupportedOperatorError(
                f"No ONNX translation of {', '.join(missing)}: these operators are not supported by torch.onnx.export here"
            )
        self.take(list(input_names or []))
        for node in self.graph.calls:
            try:
                self.node(node)
            except (NotImplementedError, TypeError, KeyError) as error:
                line = node.text(self.graph)
                raise OnnxExporterError(f"Failed to translate `{line[:200]}`: {error}") from error
        results = self.give(list(output_names or []))
        used = {n for node in self.b.nodes for n in node.input} | {r.name for r in results}
        graph = Message(
            "Graph", name="main_graph", node=self.b.nodes, input=self.inputs, output=results,
            initializer=[t for t in self.b.initializers if t.name in used],
        )  # fmt: skip
        return Message(
            "Model", ir_version=IR_VERSION[self.b.opset], producer_name="tabtorch", graph=graph,
            opset_import=[Message("OperatorSetId", domain="", version=self.b.opset)],
        )  # fmt: skip

    def take(self, names: list[str]) -> None:
        """Parameters, buffers and constants as initializers under their names; inputs under those that are wanted."""
        tensors: Mapping[str, Any] = {**self.program.constants, **self.program.state_dict}
        specs = self.program.graph_signature.input_specs
        users = [s for s in specs if s.kind.name == "USER_INPUT" and getattr(s.arg, "name", None)]
        if len(names) > len(users):
            raise ValueError(f"{len(names)} input_names were given for {len(users)} inputs")
        for spec, wanted in zip(users, [*names, *[None] * len(users)], strict=False):
            name = self.b.name(wanted or spec.arg.name)
            meta = self.graph.metas.get(spec.arg.name)
            if meta is None or isinstance(meta, Expression):
                raise OnnxExporterError(f"input {name} is no tensor: ONNX's inputs are tensors")
            self.inputs.append(self.declared(name, meta))
            self.values[spec.arg.name] = Value(name, meta.dtype, _sizes(meta))
        for spec in specs:
            if spec in users:
                continue
            if spec.kind.name in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                target = str(spec.target)
                t = tensors[target].detach()
                name = self.b.name(target)
                self.b.initializers.append(
                    Message("Tensor", dims=list(t.shape), data_type=number_of(t.dtype), name=name, raw_data=_bytes(t))
                )
                self.values[spec.arg.name] = Value(name, t.dtype, list(t.shape))

    def give(self, names: list[str]) -> list[Message]:
        found: list[Message] = []
        for spec in self.program.graph_signature.output_specs:
            if spec.kind.name == "BUFFER_MUTATION":
                raise OnnxExporterError(
                    f"buffer {spec.target!r} is changed when the model runs, which an ONNX model cannot do: call eval() before the export"
                )
            if spec.kind.name != "USER_OUTPUT":
                raise OnnxExporterError(f"a result of kind {spec.kind.name} ({spec.target})")
            name = getattr(spec.arg, "name", None)
            if not name:
                continue
            value, meta = self.value(Ref(name)), self.graph.metas.get(name)
            wanted = self.b.name(names[len(found)] if len(found) < len(names) else name)
            self.b.nodes.append(
                Message("Node", input=[value.name], output=[wanted], op_type="Identity", name=f"node_{wanted}")
            )
            if meta is None or isinstance(meta, Expression):
                kind = Message(
                    "TensorType", elem_type=7, shape=Message("Shape", dim=[Message("Dimension", dim_value=1)])
                )
                found.append(Message("ValueInfo", name=wanted, type=Message("Type", tensor_type=kind)))
            else:
                found.append(self.declared(wanted, meta))
        if len(names) > len(found):
            raise ValueError(f"{len(names)} output_names were given for {len(found)} outputs")
        return found


def _bytes(t: Any) -> bytes:
    """The numbers of a tensor, in order, little end first."""
    return (
        bytes(importlib.import_module("tabtorch.safetensors").save({"t": t.contiguous()}))[
            -t.numel() * t.element_size() :
        ]
        if t.numel()
        else b""
    )
