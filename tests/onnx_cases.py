"""ONNX's own cases, which its package brings: `python onnx_cases.py [--device cpu|webgpu] [--only WORD] [-v]`, in tests, runs all of
them. `--page ../COMPATIBILITY.md` runs them on both devices, and writes that page's section on ONNX.

The node cases are those of `onnx.backend.test` without their `_expanded` twins; the rest are its models with given results.
"""

from __future__ import annotations

import argparse
import functools
import os
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test import loader

import tabtorch as torch
from conformance import sections
from tabtorch.bridge import get_bridge
from tabtorch.onnx.values import DTYPES, STRING

DATA = Path(loader.DATA_DIR)


class Case(NamedTuple):
    """A model and what it gives. `here`: whether this package has all its types of inputs and outputs."""

    kind: str
    name: str
    model: bytes
    sets: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float
    here: bool


def _types(of: Any) -> set[int]:
    kind = of.WhichOneof("value")
    if kind == "tensor_type":
        return {of.tensor_type.elem_type}
    return _types(getattr(of, kind).elem_type) if kind else set()


def _has_types(model: Any) -> bool:
    found: set[int] = set()
    for v in (*model.graph.input, *model.graph.output):
        found |= _types(v.type)
    return found <= {*DTYPES, STRING}


@functools.cache
def nodes() -> list[Case]:
    """The cases of single operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = loader.load_model_tests(kind="node")
    return [
        Case("node", c.name, c.model.SerializeToString(), c.data_sets, c.rtol, c.atol, _has_types(c.model))
        for c in found
        if "_expanded" not in c.name
    ]


def _value(path: Path, of: Any) -> Any:
    data = path.read_bytes()
    if of.WhichOneof("value") == "sequence_type":
        return [_plain(t) for t in numpy_helper.to_list(onnx.SequenceProto.FromString(data))]
    if of.WhichOneof("value") == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _plain(t: Any) -> Any:
    return t


def folders(kind: str) -> Iterator[Case]:
    """The cases that are folders: pytorch-converted, pytorch-operator, simple."""
    for folder in sorted((DATA / kind).iterdir()):
        if not (folder / "model.onnx").exists():
            continue
        data = (folder / "model.onnx").read_bytes()
        model = onnx.load_from_string(data)
        held = {t.name for t in model.graph.initializer}
        inputs = [v for v in model.graph.input if v.name not in held]
        sets = []
        for given in sorted(folder.glob("test_data_set_*")):
            columns = []
            for what, values in (("input", inputs), ("output", list(model.graph.output))):
                paths = [given / f"{what}_{i}.pb" for i in range(len(values))]
                columns.append([_value(p, v.type) for p, v in zip(paths, values) if p.exists()])
            sets.append((columns[0], columns[1]))
        yield Case(kind, folder.name, data, sets, 1e-3, 1e-5, _has_types(model))


def light() -> Iterator[Case]:
    """Well-known networks whose weights are made by the model; the input is the numbers from 0 to 1, as ONNX's runner has it."""
    for path in sorted((DATA / "light").glob("*.onnx")):
        data = path.read_bytes()
        model = onnx.load_from_string(data)
        held = {t.name for t in model.graph.initializer}
        (x,) = [v for v in model.graph.input if v.name not in held]
        shape = [d.dim_value for d in x.type.tensor_type.shape.dim]
        n = int(np.prod(shape))
        given = (np.arange(n).astype(np.float32) / n).reshape(shape)
        want = numpy_helper.to_array(
            onnx.TensorProto.FromString(path.with_name(path.stem + "_output_0.pb").read_bytes())
        )
        yield Case("light", path.stem, data, [([given], [want])], 1e-3, 1e-5, True)


def fed(value: Any, device: str) -> Any:
    """An input as `load`'s models take it."""
    if value is None:
        return None
    if isinstance(value, list):
        return [fed(v, device) for v in value]
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    array = np.asarray(value)
    name = array.dtype.name
    if name == "bfloat16":
        return torch.tensor(array.astype(np.float32).tolist(), dtype=torch.bfloat16, device=device).reshape(array.shape)
    if array.dtype.kind in "OUS" or name in ("uint16", "uint32", "uint64"):
        return array
    return torch.tensor(array.tolist(), dtype=getattr(torch, name), device=device).reshape(array.shape)


def compare(got: Any, want: Any, rtol: float, atol: float) -> None:
    """AssertionError where types, shapes or numbers differ."""
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            compare(g, w, rtol, atol)
        return
    if want is None:
        assert got is None
        return
    if isinstance(want, onnx.TensorProto):
        want = numpy_helper.to_array(want)
    want = np.asarray(want)
    if isinstance(got, torch.Tensor):
        assert str(got.dtype) == f"torch.{want.dtype.name}"
        numbers = np.array(got.float().tolist() if got.dtype == torch.bfloat16 else got.tolist())
        numbers = numbers.reshape(tuple(got.shape))
    else:
        numbers = np.asarray(got)
        assert want.dtype.kind in "OUS" or numbers.dtype == want.dtype
    assert numbers.shape == want.shape
    if want.dtype.kind in "OUS":
        assert numbers.tolist() == want.tolist()
        return
    if want.dtype.name == "bfloat16":
        want, rtol = want.astype(np.float32), max(rtol, 2**-6)
    elif want.dtype.name == "float16":
        rtol = max(rtol, 2**-9)
    np.testing.assert_allclose(numbers.astype(want.dtype), want, rtol=rtol, atol=atol)


def run(case: Case, device: str) -> None:
    """Any exception: the case fails."""
    net = torch.onnx.load(case.model, device=device)
    with torch.no_grad():
        for given, want in case.sets:
            names = net.input_names
            compare(net.run(None, dict(zip(names, [fed(v, device) for v in given]))), want, case.rtol, case.atol)


def cases(only: str = "") -> Iterator[Case]:
    yield from (c for c in nodes() if only in c.name)
    for kind in ("pytorch-converted", "pytorch-operator", "simple"):
        yield from (c for c in folders(kind) if only in c.name)
    yield from (c for c in light() if only in c.name)


class Tally(NamedTuple):
    """How many cases of a kind there are, have only types that are here, and pass; and passing ones of those with such types."""

    every: int = 0
    here: int = 0
    passed: int = 0
    passed_here: int = 0


KINDS = {
    "node": "single operators",
    "pytorch-converted": "layers converted by PyTorch",
    "pytorch-operator": "operators exported by PyTorch",
    "simple": "small graphs",
    "light": "well-known networks",
}


def tallied(device: str, only: str = "", kind: str = "", tracebacks: bool = False) -> tuple[dict[str, Tally], set[str]]:
    """The counts by kind, and the names of cases that fail though their types are here."""
    found: dict[str, Tally] = {}
    failed: set[str] = set()
    for case in cases(only):
        if kind not in case.kind:
            continue
        passed, here = True, case.here
        try:
            run(case, device)
        except Exception as e:
            passed = False
            here = here and "float64 is not available on webgpu" not in str(e)
            told = [line for line in str(e).splitlines() if line.strip()]
            print(f"{case.name}: {type(e).__name__}: {' '.join(told)[:160]}", flush=True)
            if tracebacks:
                traceback.print_exc()
            if here:
                failed.add(case.name)
        t = found.get(case.kind, Tally())
        found[case.kind] = Tally(t.every + 1, t.here + here, t.passed + passed, t.passed_here + (passed and here))
    return found, failed


def section(devices: dict[str, tuple[dict[str, Tally], set[str]]]) -> str:
    """The section of the page, as Markdown, from the counts of each device."""
    known = (get_bridge().info.get("webgpu") or {}).get("adapter", {})
    adapter = f"{known.get('vendor')} {known.get('device')}"
    lines = [
        sections.ONNX,
        "",
        f"`tabtorch.onnx.load` on the cases of ONNX {onnx.__version__} itself, without those of single operators that are the same again "
        f"as a function's body (`_expanded`); webgpu was {adapter}. The last column is of the cases all of whose types tensors have on "
        "that device: a GPU has no float64. `python onnx_cases.py --page ../COMPATIBILITY.md` (in tests) makes this section.",
        "",
        "| cases | on | pass | of those with types that are here |",
        "|---|---|---|---|",
    ]
    for kind, title in KINDS.items():
        for device, (found, _) in devices.items():
            if kind in found:
                t = found[kind]
                lines.append(f"| {title} | {device} | {t.passed} of {t.every} | {t.passed_here} of {t.here} |")
    lines += ["", "With types that are here, these do not pass:", "", "| case | on |", "|---|---|"]
    names = sorted(set().union(*(failed for _, failed in devices.values())))
    lines += [f"| {n} | {', '.join(d for d, (_, failed) in devices.items() if n in failed)} |" for n in names]
    return "\n".join([*lines, "", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=os.environ.get("TABTORCH_DEVICE", "cpu"))
    parser.add_argument("--only", default="")
    parser.add_argument("--kind", default="")
    parser.add_argument("--page", type=Path)
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    if args.page:
        counts = {d: tallied(d) for d in ("cpu", "webgpu")}
        text = sections.put(args.page.read_text(encoding="utf-8"), sections.ONNX, section(counts))
        args.page.write_text(text, encoding="utf-8")
        return 0
    found, _ = tallied(args.device, args.only, args.kind, args.v)
    for kind, t in found.items():
        print(f"{kind}: {t.passed} of {t.every}; of those with types that are here {t.passed_here} of {t.here}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
