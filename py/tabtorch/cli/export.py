"""`tabtorch export`: a script, or a model of PyTorch's or ONNX's, to a file of plans that runs without Python."""

from __future__ import annotations

import inspect
import os
import re
import runpy
import sys
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

from tabtorch.cli.browsers import Missing

_INPUT = re.compile(r"(?P<name>\w+)=(?P<dtype>\w+)\[(?P<shape>[\w, ]*)\]")
_DYNAMIC = re.compile(r"(?P<name>[\w.]+):(?P<at>\d+)=(?P<dim>[A-Za-z_]\w*)")


def kind_of(path: str) -> str:
    """ "script", "pt2", "torchscript" or "onnx", by what is in the file. Missing for another."""
    if path.endswith(".py"):
        return "script"
    with open(path, "rb") as file:
        head = file.read(4)
    if head[:2] == b"PK":
        try:
            with zipfile.ZipFile(path) as z:
                names = [name.partition("/")[2] for name in z.namelist()]
        except zipfile.BadZipFile as e:
            raise Missing(f"{path} is damaged: {e}") from None
        if any(name.startswith("models/") and name.endswith(".json") for name in names):
            return "pt2"
        if any(name.startswith("code/") for name in names):
            return "torchscript"
        raise Missing(f"{path} has weights, and no program: export it from the script that makes the model")
    if head[:1] == b"\x08":
        return "onnx"
    raise Missing(f"{path} is no script, .pt2, TorchScript or ONNX file")


def export(
    path: str, output: str, inputs: Sequence[str], dynamic: Sequence[str], devices: Sequence[str], method: str
) -> int:
    """Writes `output`; the exit status."""
    if not os.path.exists(path):
        raise Missing(f"there is no file {path}")
    kind = kind_of(path)
    import tabtorch

    if "torch" not in sys.modules:
        tabtorch.install()
    from tabtorch import plan_files

    options: dict[str, Any]
    with tabtorch.device("cpu"):
        if kind == "script":
            options = _of_script(path)
        else:
            options = _of_model(kind, path, inputs, method)
        sizes = dict(options.pop("dynamic", None) or {})
        for text in dynamic:
            found = _DYNAMIC.fullmatch(text)
            if found is None:
                raise Missing(f"--dynamic {text}: say INPUT:DIMENSION=NAME, such as x:0=batch")
            sizes[found["name"]] = {**dict(sizes.get(found["name"], {})), int(found["at"]): found["dim"]}
        if devices:
            options["devices"] = tuple(devices)
        try:
            plan_files.save(output, options.pop("methods"), dynamic=sizes, **options)
        except (TypeError, ValueError) as e:
            raise Missing(str(e)) from None
    print(f"{output}: {os.path.getsize(output):,} bytes")
    return 0


def _of_script(path: str) -> dict[str, Any]:
    """What `exports` of the script says: the arguments of `plan_files.save`, or its methods alone."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    space = runpy.run_path(path, run_name="__main__")
    exports = space.get("exports")
    if not isinstance(exports, dict) or not exports:
        raise Missing(
            f"{path} does not say what to export: exports = {{'predict': (predict, (x,))}}, or "
            "exports = {'methods': {...}, 'model': model, 'optimizer': optimizer, 'dynamic': {'x': {0: 'batch'}}}"
        )
    return dict(exports) if isinstance(exports.get("methods"), dict) else {"methods": exports}


def _of_model(kind: str, path: str, inputs: Sequence[str], method: str) -> dict[str, Any]:
    import importlib

    names: list[str] = []
    args: list[Any] = []
    sizes: dict[str, dict[int, Any]] = {}
    for text in inputs:
        name, tensor, varying = _input(text)
        names.append(name)
        args.append(tensor)
        if varying:
            sizes[name] = varying
    where = {"pt2": "tabtorch.export", "torchscript": "tabtorch.jit", "onnx": "tabtorch.onnx"}[kind]
    load = getattr(importlib.import_module(where), "load", None)
    if load is None:
        raise Missing(f"this tabtorch does not read {kind} files")
    model = load(path)
    if kind == "pt2":
        if not inputs:
            names, args, sizes = _signature(model)
        model = model.module(check_guards=False)  # a plan has the bounds itself
    if not args:
        raise Missing(f"say what {path} takes: --input x=float32[batch,3,8,8], once for each input")
    if not names:
        names = [f"x{k}" if len(args) > 1 else "x" for k in range(len(args))]
    return {"methods": {method: (_named(model, names), tuple(args))}, "model": model, "dynamic": sizes}


class _Dim:
    """A size of a program, with its bounds."""

    def __init__(self, name: str, low: float, high: float) -> None:
        self.__name__ = name
        self.min = max(1, int(low)) if low > 0 else 1
        self.max = int(high) if high < 2**31 else None


def _signature(program: Any) -> tuple[list[str], list[Any], dict[str, dict[int, Any]]]:
    """Names and examples of the inputs of an ExportedProgram, and which sizes vary. Missing where they are no plain tensors."""
    import tabtorch
    from tabtorch.export.graphs import TensorMeta
    from tabtorch.export.input_checks import meta_of

    names, args = [], []
    sizes: dict[str, dict[int, Any]] = {}
    dims: dict[str, _Dim] = {}
    specs = zip(program.graph_signature.input_specs, program.graph.inputs, strict=True)
    for spec, x in specs:
        if spec.kind.name != "USER_INPUT":
            continue
        meta = meta_of(x, program.graph.metas)
        if not isinstance(meta, TensorMeta):
            raise Missing("the program takes what is no tensor: say its inputs in a script, with exports = {...}")
        name = spec.arg.name
        shape = []
        for d, n in enumerate(meta.sizes):
            if isinstance(n, int):
                shape.append(n)
                continue
            symbol = n.symbol
            if symbol is None:
                raise Missing(f"size {d} of {name} is {n}: say its inputs in a script, with exports = {{...}}")
            if symbol not in dims:
                r = program.range_constraints.get(symbol)
                dims[symbol] = _Dim(symbol, 1 if r is None else r.lower, float("inf") if r is None else r.upper)
            sizes.setdefault(name, {})[d] = dims[symbol]
            shape.append(max(4, dims[symbol].min))
        names.append(name)
        args.append(tabtorch.zeros(shape, dtype=meta.dtype))
    return names, args, sizes


def _named(model: Any, names: Sequence[str]) -> Callable[..., Any]:
    """The model as a function of these parameters."""

    def run(*args: Any) -> Any:
        return model(*args)

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    )
    return run


def _input(text: str) -> tuple[str, Any, dict[int, str]]:
    """`x=float32[batch,8]`: the name, a tensor, and which sizes vary."""
    import tabtorch

    found = _INPUT.fullmatch(text)
    dtype = getattr(tabtorch, found["dtype"], None) if found else None
    if found is None or not isinstance(dtype, tabtorch.dtype):
        raise Missing(f"--input {text}: say NAME=DTYPE[SIZES], such as x=float32[batch,3,8,8]")
    sizes = [s.strip() for s in found["shape"].split(",") if s.strip()]
    varying = {d: s for d, s in enumerate(sizes) if not s.isdecimal()}
    return (
        found["name"],
        tabtorch.zeros([4 if d in varying else int(s) for d, s in enumerate(sizes)], dtype=dtype),
        varying,
    )
