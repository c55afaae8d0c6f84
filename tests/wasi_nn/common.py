"""Guests of wasi-nn, and the package that runs them in Node."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import tabtorch as torch
from tabtorch import nn, plan_files
from tabtorch.bridge.node import environment

ROOT = Path(__file__).parents[2]
GUESTS = Path(__file__).parent / "guests"
RUNNER = Path(__file__).parent / "run.mjs"


def build_guest(name: str, folder: Path, *options: str, out: str | None = None) -> Path:
    """A guest of guests/NAME.c, for wasm32-wasi."""
    wasm = folder / (out or f"{name}.wasm")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi", "-Os", "-s", *options]
    subprocess.run([*command, "-o", str(wasm), str(GUESTS / f"{name}.c")], check=True, cwd=folder)
    return wasm


def build_package(out: Path) -> Path:
    """The npm package, with what it takes where it finds it beside it."""
    subprocess.run(["node", "js/package/build.mjs", str(out)], cwd=ROOT, check=True)
    (out.parent / "webgpu").symlink_to(ROOT / "node_modules" / "webgpu")
    return out


def run_guest(wasm: Path, package: Path, *args: str, timeout: float = 300, **spec: Any) -> dict[str, Any]:
    """What a guest said and how it ended: `exit`, `stdout`, `stderr`, `errors`; `failed`, where it trapped."""
    spec = {"wasm": str(wasm), "package": str(package), "args": args, **spec}
    command = ["node", str(RUNNER), json.dumps(spec, default=str)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=timeout)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def build_wheel(folder: Path) -> Path:
    """The wheel for a tab, with which Pyodide makes plans."""
    spec = importlib.util.spec_from_file_location("build_wheel", ROOT / "build_wheel.py")
    assert spec is not None and spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    return folder / str(builder.build_tab_wheel(str(folder)))


def oracle(model: Any) -> Any:
    """The same model in PyTorch."""
    import torch as real

    def copy(module: Any) -> Any:
        kind = getattr(real.nn, type(module).__name__)
        if isinstance(module, nn.Sequential):
            return kind(*(copy(m) for m in module))
        if isinstance(module, nn.Linear):
            return kind(module.in_features, module.out_features)
        return kind()

    made = copy(model)
    made.load_state_dict({name: real.tensor(x.tolist()) for name, x in model.state_dict().items()})
    return made


def write_foreign(folder: Path) -> list[str]:
    """One model as script.pt, trace.pt, net.pt2 and net.onnx, and x.tensor; what guests/classify.c is to say of them."""
    from onnx import TensorProto, helper, numpy_helper, save
    from torch import export, jit, linspace, manual_seed, zeros
    from torch import nn as real

    manual_seed(0)
    body = [
        real.Conv2d(3, 8, 3, padding=1),
        real.BatchNorm2d(8),
        real.ReLU(),
        real.AdaptiveAvgPool2d(1),
        real.Flatten(),
    ]
    net = real.Sequential(*body, real.Linear(8, 10)).eval()
    x = linspace(-1, 1, 3 * 8 * 8).reshape(1, 3, 8, 8)
    (folder / "x.tensor").write_bytes(x.numpy().tobytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # what is deprecated is what others have files of
        jit.script(net).save(str(folder / "script.pt"))
        jit.trace(net, x).save(str(folder / "trace.pt"))
    batch = export.Dim("batch", max=16)
    export.save(export.export(net, (zeros(3, 3, 8, 8),), dynamic_shapes=({0: batch},)), folder / "net.pt2")
    names = ("weight", "bias", "running_mean", "running_var")
    weights = [
        numpy_helper.from_array(w.numpy(), f"{k}.{n}")
        for k in (0, 1, 5)
        for n in names
        if (w := dict(net[k].state_dict()).get(n)) is not None
    ]
    nodes = [
        helper.make_node("Conv", ["x", "0.weight", "0.bias"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", *(f"1.{n}" for n in names)], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("Gemm", ["e", "5.weight", "5.bias"], ["y"], transB=1),
    ]
    shapes = {"x": ["batch", 3, 8, 8], "y": ["batch", 10]}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "net.onnx")
    y = net(x)[0]
    order = y.argsort(descending=True)[:5].tolist()
    return [f"{place}. class {k}: {y[k].item():.6f}" for place, k in enumerate(order, 1)]


class Models:
    """Models for the guests as files, and as what computes the same here."""

    def __init__(self, folder: Path) -> None:
        self.plan, self.other = folder / "plan.safetensors", folder / "other.safetensors"
        self.lookup, self.types = folder / "lookup.safetensors", folder / "types.safetensors"
        with torch.device("cpu"):
            torch.manual_seed(0)
            self.first = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
            self.second = nn.Sequential(nn.Linear(8, 5), nn.Tanh())
            self.table = nn.Embedding(10, 4)
            x = torch.zeros(4, 8)
            rows = {"x": {0: "batch"}}
            plan_files.save(self.plan, {"forward": (self._call(self.first), (x,))}, model=self.first, dynamic=rows)
            plan_files.save(self.other, {"forward": (self._call(self.second), (x,))}, model=self.second, dynamic=rows)
            index = torch.zeros(1, dtype=torch.int64)
            plan_files.save(self.lookup, {"forward": (self._call(self.table), (index,))}, model=self.table)
            kinds = [torch.float16, torch.float32, torch.uint8, torch.int32, torch.int64]
            plan_files.save(self.types, {"forward": (self.twice, tuple(torch.zeros(2, dtype=k) for k in kinds))})

    @staticmethod
    def _call(model: Any) -> Any:
        return lambda x: model(x)

    @staticmethod
    def twice(a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        return {"half": a + a, "parts": [b * 0.5, c + 1], "whole": (d - 1, e + e)}

    @property
    def names(self) -> dict[str, Path]:
        return {"plan": self.plan, "other": self.other, "lookup": self.lookup, "types": self.types}
