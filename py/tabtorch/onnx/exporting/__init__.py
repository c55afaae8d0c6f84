"""`torch.onnx.export`: a model, or a program of `torch.export`, as an ONNX file."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from tabtorch import export as torch_export
from tabtorch.export.exported_program import ExportedProgram
from tabtorch.nn.modules.module import Module
from tabtorch.onnx import model as onnx_model
from tabtorch.onnx.exporting.errors import OnnxExporterError, OnnxExporterWarning
from tabtorch.onnx.exporting.program import IR_VERSION, Translation
from tabtorch.onnx.proto import Message, write
from tabtorch.utils import _pytree

#: the operators' version that PyTorch's exporter writes if it is not told another
OPSET = 18


class ONNXProgram:
    """What `export` gives: a model in ONNX, which is saved, or run by `tabtorch.onnx`."""

    def __init__(self, message: Message, exported_program: ExportedProgram) -> None:
        self._message = message
        self.exported_program = exported_program
        self._loaded: Any = None

    def __repr__(self) -> str:
        graph = self._message.graph
        ends = [[x.name for x in xs] for xs in (graph.input, graph.output)]
        return f"ONNXProgram(inputs={ends[0]}, outputs={ends[1]}, {len(graph.node)} nodes, opset {self._message.opset_import[0].version})"

    def tobytes(self) -> bytes:
        """The model as the bytes of a file."""
        return write(self._message)

    @property
    def model_proto(self) -> Any:
        """The model as a message of the `onnx` package. ImportError without it."""
        import onnx

        return onnx.load_model_from_string(self.tobytes())

    def save(
        self,
        destination: Any,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        **options: Any,
    ) -> None:
        """Writes the model to a path or a file object. ValueError for options that are not here."""
        if not include_initializers or keep_initializers_as_inputs or any(options.values()):
            raise ValueError("save() here writes one file with all weights, which are no inputs")
        data = self.tobytes()
        if isinstance(destination, (str, os.PathLike)):
            with open(destination, "wb") as file:
                file.write(data)
        else:
            destination.write(data)

    def optimize(self) -> None:
        """Nothing is left to do: constants are shared and what is not used is left out when the model is made."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model by `tabtorch.onnx`: its results, as a tuple."""
        if self._loaded is None:
            self._loaded = onnx_model.load(self.tobytes())
        made = self._loaded(*args, **kwargs)
        return made if isinstance(made, tuple) else (made,)


def _shapes(model: Any, args: Sequence[Any], names: Sequence[str] | None, axes: Any) -> Any:
    """`dynamic_axes` ({"x": {0: "batch"}}, or {"x": [0]}) as dynamic shapes: one dictionary an argument, in order."""
    if names is None:
        raise ValueError("dynamic_axes wants input_names, whose names it uses")
    dims: dict[str, Any] = {}
    shapes = []
    for name in names[: len(args)]:
        given = axes.get(name, {})
        given = given if isinstance(given, Mapping) else {d: f"{name}_dim_{d}" for d in given}
        shapes.append({d: dims.setdefault(n, torch_export.Dim(n)) for d, n in given.items()} or None)
    return tuple(shapes)


def _named(message: Message, axes: Any) -> None:
    """Sizes under the names that were asked for: PyTorch's symbols (s0) become those of `dynamic_axes` and `Dim`s."""
    for x in (*message.graph.input, *message.graph.output):
        for d in x.type.tensor_type.shape.dim:
            if d.dim_param:
                d.dim_param = axes.get(d.dim_param, d.dim_param)


def _dims_of(program: ExportedProgram, shapes: Any) -> dict[str, str]:
    """The symbols of a program by the names of the dimensions that they came from."""
    found: dict[str, str] = {}
    if shapes is None:
        return found
    each = list(shapes.values()) if isinstance(shapes, Mapping) else list(shapes)
    users = [
        s for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT" and getattr(s.arg, "name", None)
    ]
    for spec, dims in zip(users, each, strict=False):
        meta = program.graph.metas.get(spec.arg.name)
        if meta is None or not isinstance(dims, (Mapping, list, tuple)):
            continue
        for d, dim in dims.items() if isinstance(dims, Mapping) else enumerate(dims):
            name = getattr(dim, "__name__", None)
            if isinstance(d, int) and name and not isinstance(meta.sizes[d], int):
                found.setdefault(str(meta.sizes[d]), name)
    return found


def export(
    model: Any,
    args: Any = (),
    f: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    export_params: bool = True,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool = True,
    dynamic_shapes: Any = None,
    dynamic_axes: Any = None,
    do_constant_folding: bool = True,
    verify: bool = False,
    optimize: bool = True,
    training: Any = None,
    **options: Any,
) -> ONNXProgram:
    """A model as ONNX: gives an `ONNXProgram`, and writes it to `f`, a path or a file object.

    model: a Module, or an ExportedProgram. args, kwargs: example inputs. dynamic_shapes: as of `torch.export.export`; dynamic_axes:
    {"x": {0: "batch"}} by input_names. opset_version: 18 to 23. verify: the model is run here on the example inputs, and must give
    the same. dynamo: whether or not, it is exported by `torch.export`. OnnxExporterError (a RuntimeError) for what is not exported;
    UnsupportedOperatorError lists the operators that have no translation. ValueError for names and versions that cannot be.

    Source: https://docs.pytorch.org/docs/stable/onnx_export.html
    """
    opset = OPSET if opset_version is None else opset_version
    if opset not in IR_VERSION:
        raise ValueError(f"opset_version {opset} is not supported: it can be one of {', '.join(map(str, IR_VERSION))}")
    wrong = {
        k
        for k, v in options.items()
        if v and k not in ("report", "dump_exported_program", "profile", "fallback", "artifacts_dir")
    }
    if wrong or not export_params:
        raise OnnxExporterError(
            f"torch.onnx.export() here has not the options {sorted(wrong | ({'export_params'} if not export_params else set()))}"
        )
    args = args if isinstance(args, tuple) else tuple(args) if isinstance(args, list) else (args,)
    if args and isinstance(args[-1], dict) and kwargs is None and not dynamo:
        args, kwargs = args[:-1], args[-1]
    if isinstance(model, ExportedProgram):
        program = model
    else:
        if not isinstance(model, Module):
            raise TypeError(f"model should be a torch.nn.Module or an ExportedProgram, not {type(model).__name__}")
        if dynamic_axes and dynamic_shapes is None:
            dynamic_shapes = _shapes(model, args, input_names, dynamic_axes)
        was = {m: m.training for m in model.modules()}
        if training is None and any(was.values()) and not dynamo:
            model.eval()  # as the older exporter does
        try:
            if model.training and dynamo:
                warnings.warn(
                    "the model is in training mode: call model.eval() for one that is used",
                    OnnxExporterWarning,
                    stacklevel=2,
                )
            program = torch_export.export(model, args, dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
        finally:
            for m, on in was.items():
                m.training = on
    message = Translation(program, opset).run(input_names, output_names)
    _named(message, _dims_of(program, dynamic_shapes))
    made = ONNXProgram(message, program)
    if verify:
        _verify(made, program, args, kwargs)
    if f is not None:
        made.save(f)
    return made


def _verify(made: ONNXProgram, program: ExportedProgram, args: Any, kwargs: Any) -> None:
    leaves = _pytree.tree_flatten((args, dict(kwargs or {})))[0]
    want = _pytree.tree_flatten(program.module()(*args, **(kwargs or {})))[0]
    for name, w, got in zip([o.name for o in made._message.graph.output], want, made(*leaves), strict=True):
        if w.shape != got.shape or not bool(((w - got).abs() <= 1e-4 + 1e-4 * w.abs()).all()):
            raise OnnxExporterError(f"result {name!r} of the ONNX model is not that of the model")
