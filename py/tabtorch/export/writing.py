"""`torch.export.save` of a program: its JSON, as PyTorch 2.13's schema 8 has it, and the archive."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.core import layout
from tabtorch.core.tensor import Tensor
from tabtorch.export.expressions import Expression
from tabtorch.export.graphs import DEVICE, DTYPES, MEMORY_FORMATS, STRIDED, Graph, Node, OperatorName, Ref, TensorMeta
from tabtorch.export.schemas import schema
from tabtorch.export.signature import ConstantArgument, InputKind, OutputKind
from tabtorch.export.treespecs import dumps
from tabtorch.nn.parameter import Parameter
from tabtorch.serialization import zip_archive
from tabtorch.serialization.transfer import read_back

_DTYPES = {d: n for n, d in DTYPES.items()}
_FORMATS = {f: n for n, f in MEMORY_FORMATS.items()}
_CPU = {"type": "cpu", "index": None}


class _Writer:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def value(self, x: Any, many: str = "") -> dict[str, Any]:
        """An argument. many: the kind of elements of an empty list."""
        if x is None:
            return {"as_none": True}
        if isinstance(x, Ref):
            return self.reference(x.name)
        if x is DEVICE:
            return {"as_device": _CPU}
        if isinstance(x, bool):
            return {"as_bool": x}
        if isinstance(x, int):
            return {"as_int": x}
        if isinstance(x, float):
            return {"as_float": _float(x)}
        if isinstance(x, complex):
            return {"as_complex": {"real": x.real, "imag": x.imag}}
        if isinstance(x, str):
            return {"as_string": x}
        if isinstance(x, dtypes.dtype):
            return {"as_scalar_type": _DTYPES[x]}
        if isinstance(x, layout.memory_format):
            return {"as_memory_format": _FORMATS[x]}
        if isinstance(x, (list, tuple)):
            return self.listed(list(x), many)
        if isinstance(x, (Graph, OperatorName, dict)):
            raise NotImplementedError("torch.export.save: programs with higher-order operators are not written")
        raise NotImplementedError(f"torch.export.save: an argument of {type(x)}")

    def sort(self, name: str) -> str:
        return (
            "as_tensor"
            if isinstance(self.graph.metas.get(name), TensorMeta)
            else "as_sym_" + self.graph.sorts.get(name, ("int",))[0]
        )

    def reference(self, name: str) -> dict[str, Any]:
        kind = self.sort(name)
        return {kind: {"name": name} if kind == "as_tensor" else {"as_name": name}}

    def listed(self, x: list[Any], many: str) -> dict[str, Any]:
        if not x:
            return {{"T": "as_tensors", "f": "as_floats", "b": "as_bools", "s": "as_strings"}.get(many, "as_ints"): []}
        each = [self.value(y) for y in x]
        kinds = {k for y in each for k in y}
        if kinds == {"as_none", "as_tensor"} or (kinds == {"as_none"} and many == "T"):
            return {"as_optional_tensors": each}
        if len(kinds) == 1 and "as_none" not in kinds:
            (kind,) = kinds
            if kind in (
                "as_tensor",
                "as_int",
                "as_float",
                "as_bool",
                "as_string",
                "as_sym_int",
                "as_sym_float",
                "as_sym_bool",
            ):
                return {kind + "s": [y[kind] for y in each]}
        if kinds == {"as_int", "as_sym_int"}:
            return {"as_sym_ints": [y.get("as_sym_int", y) for y in each]}
        raise NotImplementedError(f"torch.export.save: a list of {', '.join(sorted(kinds))}")

    def node(self, n: Node) -> dict[str, Any]:
        known = schema(n.target) if n.target.startswith("torch.ops.aten.") else None
        positional = [p for p in known.parameters if not p.keyword] if known else []
        inputs = []
        for i, x in enumerate(n.args):
            p = positional[i] if i < len(positional) else None
            name = p.name if p else {0: "a", 1: "b"}.get(i, "") if n.target.startswith("_operator") else ""
            if n.target.endswith("sym_size.int"):
                name = ("self", "dim")[i]
            if not name:
                raise NotImplementedError(f"torch.export.save: {n.target}, whose schema is not here")
            inputs.append({"name": name, "arg": self.value(x, p.kind if p else ""), "kind": 1})
        kinds = {p.name: p.kind for p in known.parameters} if known else {}
        for key, x in n.kwargs.items():
            inputs.append({"name": key, "arg": self.value(x, kinds.get(key, "")), "kind": 2})
        if isinstance(n.outputs, str):
            outputs = [self.reference(n.outputs)]
        elif any(not isinstance(o, str) for o in n.outputs):
            raise NotImplementedError(f"torch.export.save: the results of {n.target}")
        elif known is not None and known.results == 0:
            outputs = [{"as_tensors": [{"name": o} for o in n.outputs]}]
        else:
            outputs = [self.reference(o) for o in n.outputs]
        metadata = {"stack_trace": n.stack_trace} if n.stack_trace else {}
        return {
            "target": n.target,
            "inputs": inputs,
            "outputs": outputs,
            "metadata": metadata,
            "is_hop_single_tensor_return": None,
            "name": n.name,
        }

    def whole(self) -> dict[str, Any]:
        g = self.graph
        tensors = {n: _meta(m) for n, m in g.metas.items() if isinstance(m, TensorMeta)}
        numbers: dict[str, dict[str, Any]] = {"int": {}, "float": {}, "bool": {}}
        for n, m in g.metas.items():
            if not isinstance(m, Expression):
                continue
            kind, (source, hint) = g.sorts.get(n, ("int", ("", None)))
            if kind == "float":
                numbers[kind][n] = {"as_float": _float(float(hint))}
            else:
                numbers[kind][n] = {
                    "as_expr": {"expr_str": source or str(m), "hint": None if hint is None else {"as_int": hint}}
                }
        return {
            "inputs": [self.value(x) for x in g.inputs], "outputs": [self.value(x) for x in g.outputs],
            "nodes": [self.node(n) for n in g.calls], "tensor_values": tensors, "sym_int_values": numbers["int"],
            "sym_bool_values": numbers["bool"], "is_single_tensor_return": g.single, "custom_obj_values": {},
            "sym_float_values": numbers["float"],
        }  # fmt: skip

    def input(self, s: Any) -> dict[str, Any]:
        if s.kind is InputKind.USER_INPUT:
            if isinstance(s.arg, ConstantArgument):
                return {"constant_input": {"name": s.arg.name, "value": self.value(s.arg.value)}}
            return {"user_input": {"arg": self.reference(s.arg.name)}}
        arg = {"name": s.arg.name}
        if s.kind is InputKind.PARAMETER:
            return {"parameter": {"arg": arg, "parameter_name": s.target}}
        if s.kind is InputKind.BUFFER:
            return {"buffer": {"arg": arg, "buffer_name": s.target, "persistent": s.persistent is not False}}
        if s.kind is InputKind.CONSTANT_TENSOR:
            return {"tensor_constant": {"arg": arg, "tensor_constant_name": s.target}}
        raise NotImplementedError(f"torch.export.save: an input that is a {s.kind.name}")

    def output(self, s: Any) -> dict[str, Any]:
        if s.kind is OutputKind.USER_OUTPUT:
            arg = self.value(s.arg.value) if isinstance(s.arg, ConstantArgument) else self.reference(s.arg.name)
            return {"user_output": {"arg": arg}}
        names = {OutputKind.BUFFER_MUTATION: "buffer_name", OutputKind.PARAMETER_MUTATION: "parameter_name",
                 OutputKind.USER_INPUT_MUTATION: "user_input_name"}  # fmt: skip
        if s.kind not in names:
            raise NotImplementedError(f"torch.export.save: a result that is a {s.kind.name}")
        return {s.kind.name.lower(): {"arg": {"name": s.arg.name}, names[s.kind]: s.target}}


def _float(x: float) -> Any:
    return x if math.isfinite(x) else "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"


def _size(n: Any) -> dict[str, Any]:
    if isinstance(n, Expression):
        return {"as_expr": {"expr_str": n.source, "hint": None}}
    return {"as_int": n}


def _meta(m: TensorMeta) -> dict[str, Any]:
    return {
        "dtype": _DTYPES[m.dtype], "sizes": [_size(n) for n in m.sizes], "requires_grad": m.requires_grad, "device": _CPU,
        "strides": [_size(n) for n in m.strides], "storage_offset": {"as_int": 0}, "layout": STRIDED,
    }  # fmt: skip


def program(ep: Any) -> dict[str, Any]:
    """The JSON of a program."""
    writer = _Writer(ep.graph)
    named: dict[str, list[str]] = {}
    call = ep.module_call_graph[0].signature
    calls = {
        "inputs": [], "outputs": [], "in_spec": dumps(call.in_spec, named), "out_spec": dumps(call.out_spec, named),
        "forward_arg_names": call.forward_arg_names,
    }  # fmt: skip
    if ep._guards:
        raise NotImplementedError("torch.export.save: a program with guards; it was loaded, and its file is there")
    signature = ep.graph_signature
    body = {
        "graph": writer.whole(),
        "signature": {
            "input_specs": [writer.input(s) for s in signature.input_specs],
            "output_specs": [writer.output(s) for s in signature.output_specs],
        },
        "module_call_graph": [{"fqn": "", "signature": calls}],
        "metadata": {},
        "treespec_namedtuple_fields": {n: {"field_names": f} for n, f in named.items()},
    }
    ranges = {
        s: {"min_val": None if math.isinf(r.lower) else r.lower, "max_val": None if math.isinf(r.upper) else r.upper}
        for s, r in ep.range_constraints.items()
    }
    return {
        "graph_module": body, "opset_version": {"aten": 10}, "range_constraints": ranges, "schema_version": {"major": 8, "minor": 20},
        "verifiers": [ep.dialect], "torch_version": "2.13.0", "guards_code": [],
    }  # fmt: skip


def _tensors(kind: str, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], list[tuple[str, Tensor]]]:
    """The table of tensors, and what records have. Tensors that are one are one record."""
    config, records = {}, []
    seen: dict[Any, str] = {}
    for name, t in tensors.items():
        dense = t.detach().contiguous()
        key = (id(t._tab_storage.root), t._tab_meta.offset, tuple(t.shape), tuple(t.stride()), t.dtype)
        path = seen.get(key)
        if path is None:
            path = seen[key] = f"{kind}_{len(seen)}"
            records.append(
                (
                    path,
                    dense
                    if dense is not t and dense.numel() * dense.element_size() == dense.untyped_storage().nbytes()
                    else dense.clone(),
                )
            )
        strides: list[dict[str, int]] = []
        step = 1
        for n in reversed(t.shape):
            strides.insert(0, {"as_int": step})
            step *= max(int(n), 1)
        meta = {
            "dtype": _DTYPES[t.dtype], "sizes": [{"as_int": int(n)} for n in t.shape], "requires_grad": bool(t.requires_grad),
            "device": _CPU, "strides": strides, "storage_offset": {"as_int": 0}, "layout": STRIDED,
        }  # fmt: skip
        config[name] = {
            "path_name": path,
            "is_param": isinstance(t, Parameter),
            "use_pickle": False,
            "tensor_meta": meta,
        }
    return {"config": config}, records


def save(ep: Any, f: Any, extra_files: Mapping[str, Any] | None = None) -> None:
    """Writes a program to a path or to an object with `write`."""
    text = json.dumps(program(ep), allow_nan=False).encode()
    sample = io.BytesIO()
    if ep.example_inputs is not None:
        _lazy.serialization.save(ep.example_inputs, sample)
    if isinstance(f, (str, os.PathLike)):
        with open(f, "wb") as file:
            _write(ep, file.write, text, sample.getvalue(), extra_files or {})
    else:
        _write(ep, f.write, text, sample.getvalue(), extra_files or {})


def _write(ep: Any, write: Any, text: bytes, sample: bytes, extra: Mapping[str, Any]) -> None:
    archive = zip_archive.Writer(write, "archive")
    for kind, stem, tensors in (("weights", "weight", ep.state_dict), ("constants", "tensor", ep.constants)):
        config, records = _tensors(stem, tensors)
        wholes = [(t._tab_storage.node, 0, t.untyped_storage().nbytes()) for _, t in records]
        for (path, _), data in zip(records, read_back(wholes)):
            archive.record(f"data/{kind}/{path}", data)
        archive.record(f"data/{kind}/model_{kind}_config.json", json.dumps(config).encode())
    archive.record("models/model.json", text)
    archive.record("data/sample_inputs/model.pt", sample)
    for name, value in extra.items():
        archive.record(f"extra/{name}", value.encode() if isinstance(value, str) else value)
    archive.record("archive_format", b"pt2")
    archive.record("archive_version", b"0")
    archive.record("byteorder", b"little")
    archive.record(".data/version", b"6\n")
    archive.record(".data/serialization_id", b"%040d" % crc32(text))
    archive.close()
