"""Models of other formats as plans, for hosts that have no Python: `.pt2`, ONNX, TorchScript.

js/src/wasi-nn/compiler.ts runs this in Pyodide. A model whose file says what it takes becomes a plan at once, with the sizes that vary
in it; of another one the plans are made when the shapes of its inputs are known.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from typing import Any

import tabtorch as torch
from tabtorch import export, onnx
from tabtorch.export.graphs import TensorMeta
from tabtorch.export.input_checks import meta_of
from tabtorch.jit import archive
from tabtorch.onnx.values import DTYPES
from tabtorch.plan_files.methods import ExportError
from tabtorch.plan_files.save import save

#: a name, the dtype, and a size or the name of one; None for what the file does not say
Spec = tuple[str, Any, "list[int | str] | None"]


class Foreign:
    """A model of a file. kind: "pt2", "onnx" or "torchscript". ValueError, RuntimeError and others, where it is none, or not to be run."""

    def __init__(self, path: str, kind: str) -> None:
        with torch.device("cpu"):
            self.bounds: dict[str, Any] = {}
            self.model, self.inputs = getattr(self, f"_{kind}")(path)

    def save(self, output: str, method: str, given: Sequence[tuple[str, Sequence[int]]] | None) -> bool:
        """Writes a plan. given: dtype and shape of each input; None: as the file says. False where that is not enough to go on."""
        sizes: dict[str, dict[int, Any]] = {}
        args = []
        names = [name for name, _, _ in self.inputs]
        if given is not None and len(given) != len(names):
            raise ValueError(f"the model takes {len(names)} inputs, and {len(given)} were given")
        with torch.device("cpu"):
            for k, (name, dtype, shape) in enumerate(self.inputs):
                if given is not None:
                    args.append(torch.zeros(tuple(given[k][1]), dtype=dtype or getattr(torch, given[k][0])))
                    continue
                if dtype is None or shape is None:
                    return False
                for d, n in enumerate(shape):
                    if isinstance(n, str):
                        sizes.setdefault(name, {})[d] = self.bounds.get(n, n)
                low = [n if isinstance(n, int) else max(2, getattr(self.bounds.get(n), "min", 1)) for n in shape]
                args.append(torch.zeros(low, dtype=dtype))
            try:
                save(output, {method: (self._call(names), tuple(args))}, model=self.model, dynamic=sizes)
            except Exception as e:
                # sizes that vary may not all be recorded; those of a guest may
                if given is None and sizes and isinstance(e, (ExportError, ValueError, RuntimeError, TypeError)):
                    return False
                raise
        return True

    def _call(self, names: Sequence[str]) -> Any:
        def run(*args: Any) -> Any:
            return self.model(*args)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        run.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
        return run

    def _pt2(self, path: str) -> tuple[Any, list[Spec]]:
        program = export.load(path)
        found: list[Spec] = []
        for spec, x in zip(program.graph_signature.input_specs, program.graph.inputs, strict=True):
            if spec.kind.name != "USER_INPUT":
                continue
            meta = meta_of(x, program.graph.metas)
            if not isinstance(meta, TensorMeta):
                raise ValueError("the program takes what is no tensor")
            shape: list[int | str] = []
            for n in meta.sizes:
                if isinstance(n, int):
                    shape.append(n)
                    continue
                name = n.symbol
                if name is None:
                    found.append((spec.arg.name, meta.dtype, None))
                    break
                r = program.range_constraints.get(name)
                if r is not None and name not in self.bounds:
                    high = int(r.upper) if r.upper < 2**31 else None
                    self.bounds[name] = torch.export.Dim(name, min=max(1, int(r.lower)), max=high)
                shape.append(name)
            else:
                found.append((spec.arg.name, meta.dtype, shape))
        return program.module(check_guards=False), found

    def _onnx(self, path: str) -> tuple[Any, list[Spec]]:
        model = onnx.load(path)
        found: list[Spec] = []
        for number, name in enumerate(model.input_names):
            of: Any = getattr(model._typed.get(name), "tensor_type", None)
            dtype = DTYPES.get(of.elem_type) if of is not None else None
            if dtype is None:
                raise ValueError(f"input {name!r} is no tensor of a type that is known")
            shape = None
            if of.shape is not None:
                unnamed = [f"size_{number}_{d}" for d in range(len(of.shape.dim))]
                shape = [n.dim_param or (n.dim_value if n.dim_value > 0 else u) for n, u in zip(of.shape.dim, unnamed)]
            found.append((_identifier(name, number), dtype, shape))
        return model, found

    def _torchscript(self, path: str) -> tuple[Any, list[Spec]]:
        model = archive.load(path)  # `jit.load` says that files of this kind are of the past
        forward = model._script.methods.get("forward")
        if forward is None:
            raise ValueError("the module has no forward")
        body = forward.__self__
        found: list[Spec] = []
        for number, (name, kind) in enumerate(zip(body.names, body.kinds, strict=True)):
            if number == 0 or name in body.defaults:
                continue
            if kind is None or not ast.unparse(kind).rpartition(".")[2].startswith("Tensor"):
                raise ValueError(f"forward takes {name}, which is no tensor")
            found.append((_identifier(name, number), None, None))
        return model, found


def _identifier(name: str, number: int) -> str:
    """The name of an input as that of a parameter."""
    return name if name.isidentifier() else f"input_{number}"
