"""wasi-nn: guests in C, built here, on the npm package in Node; what they print is what PyTorch computes, or an error's number."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch as real

import slices
from tabtorch.plan_files.foreign import Foreign
from wasi_nn.common import (
    GUESTS,
    ROOT,
    Models,
    build_guest,
    build_package,
    build_wheel,
    oracle,
    run_guest,
    write_foreign,
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="builds C guests with PyPI's ziglang"
)

DEVICES = ["cpu", "webgpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wasi_nn")


@pytest.fixture(scope="module")
def package(folder: Path) -> Path:
    return build_package(folder / "node_modules" / "tabtorch")


@pytest.fixture(scope="module")
def models(folder: Path) -> Models:
    return Models(folder)


@pytest.fixture(scope="module")
def guests(folder: Path) -> dict[str, Path]:
    return {name: build_guest(name, folder) for name in ("errors", "contexts", "types", "classify")}


ERRORS = """
load: 0
load, no bytes: 2
load, nothing: 2
load, nonsense: 2
load, another encoding: 2
load, no compiler: 2
load, gguf: 2
load, encoding 9: 2
load, target 9: 1
load, tpu: 6
load, outside of memory: 1
load, too large: 7
load, result outside: 1
load_by_name, unknown: 8
load_by_name, no text: 1
load_by_name_with_config, no json: 1
init_execution_context, no graph: 1
init_execution_context: 0
compute, no inputs: 5
compute, no context: 1
get_output, not computed: 5
set_input, no context: 1
set_input, no such input: 1
set_input, shape: 1
set_input, rank: 1
set_input, length: 1
set_input, type: 1
set_input, not enough data: 1
set_input, overflow: 1
set_input, rank overflow: 1
set_input, not exact: 1
set_input, address: 1
set_input: 0
compute: 0
get_output, no such output: 1
get_output, address: 1
get_output, too small: 7
kept 123, needs 24
get_output: 0
written 24
compute_single: 6
get_output_single: 6
fini_single: 6
what no host knows: 6
set_input, an index: 0
compute, an index: 0
get_output, an index: 5
set_input, a good index: 0
compute, a good index: 0
get_output, a good index: 0
unload: 0
unload, again: 1
init_execution_context, unloaded: 1
compute, unloaded: 0
finalize_execution_context: 0
finalize_execution_context, again: 1
too many contexts: 4
"""


@pytest.mark.parametrize("device", DEVICES)
def test_every_error_has_its_number(package: Path, guests: Any, models: Models, device: str) -> None:
    got = run_guest(
        guests["errors"], package, "plan.bin", models=models.names, files={"plan.bin": models.plan}, device=device
    )
    assert got["stdout"] == ERRORS.strip().splitlines()
    assert got["exit"] == 0
    refused = [line for line in got["stdout"] if line.startswith(("load", "get_output", "set_input", "compute"))]
    assert len(got["errors"]) >= sum(not line.endswith(": 0") for line in refused)
    assert any("index out of range in self" in line for line in got["errors"])


def write_exiting(path: Path, begin: dict[int, bytes]) -> Path:
    """A guest, `proc_exit(load_by_name("", 0, 0))`, with these sections besides."""
    # (module (import "wasi_ephemeral_nn" "compute" (func (param i32) (result i32))) …)
    imported = b"\x11wasi_ephemeral_nn\x07compute\x00\x00"
    load = b"\x11wasi_ephemeral_nn\x0cload_by_name\x00\x01"
    exiting = b"\x16wasi_snapshot_preview1\x09proc_exit\x00\x02"
    kinds = b"\x04\x60\x01\x7f\x01\x7f\x60\x03\x7f\x7f\x7f\x01\x7f\x60\x01\x7f\x00\x60\x00\x00"
    body = b"\x00\x41\x00\x41\x00\x41\x00\x10\x01\x10\x02\x0b"
    sections = {
        1: kinds,
        2: b"\x03" + imported + load + exiting,
        3: b"\x01\x03",
        10: b"\x01" + bytes([len(body)]) + body,
        **begin,
    }
    parts = [bytes([number, len(data)]) + data for number, data in sorted(sections.items())]
    path.write_bytes(b"\0asm\x01\0\0\0" + b"".join(parts))
    return path


def test_a_guest_without_memory_is_told_so(package: Path, folder: Path, models: Models) -> None:
    guest = write_exiting(folder / "bare.wasm", {7: b"\x01\x06_start\x00\x03"})
    got = run_guest(guest, package)
    assert got["exit"] == 3, got


@pytest.mark.parametrize("exports", [b"\x01\x06memory\x02\x00", b"\x02\x01m\x00\x03\x06memory\x02\x00", None])
def test_a_guest_that_runs_while_it_is_instantiated(package: Path, folder: Path, exports: bytes | None) -> None:
    """As AssemblyScript makes them: with a start section and no `_start`. It has its memory all the same."""
    sections = {5: b"\x01\x00\x01", 8: b"\x03"} | ({} if exports is None else {7: exports})
    got = run_guest(write_exiting(folder / "started.wasm", sections), package)
    assert got["exit"] == (3 if exports is None else 8), got


@pytest.mark.parametrize("device", DEVICES)
def test_graphs_and_contexts_side_by_side(package: Path, guests: Any, models: Models, device: str) -> None:
    got = run_guest(
        guests["contexts"], package, "plan.bin", models=models.names, files={"plan.bin": models.plan}, device=device
    )
    assert got["exit"] == 0 and not got["errors"], got
    x = (real.arange(24) / 8 - 1).reshape(3, 8)
    first, second = oracle(models.first), oracle(models.second)
    wanted = [
        ("3", second(x[1:2])),
        ("0", first(x[:1])),
        ("2", second(x[:2])),
        ("1", first(x[1:])),
        ("1", first(x[1:])),
        ("3", second(x[1:2])),
    ]
    for line, (name, y) in zip(got["stdout"], wanted, strict=True):
        said, *numbers = line.split()
        assert said == name
        real.testing.assert_close(real.tensor([float(n) for n in numbers]), y.detach().flatten(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_every_type_goes_in_and_out(package: Path, guests: Any, models: Models, device: str) -> None:
    got = run_guest(guests["types"], package, models=models.names, device=device)
    assert got["stdout"] == [
        "4200 c400, 0.0500000007 -1.5e+38, 1 201, -6 1999999999, -10 18014398509481986",
        "3.5 4, 14 16, 3c00 e800",
        "inexact: 1",
    ]


def test_a_guest_in_assemblyscript(package: Path, models: Models, folder: Path) -> None:
    wasm = folder / "assembly.wasm"
    command = ["node_modules/.bin/asc", str(GUESTS / "classify.ts"), "-o", str(wasm), "-O"]
    subprocess.run([*command, "--runtime", "stub", "--use", "abort="], cwd=ROOT, check=True)
    got = run_guest(wasm, package, models=models.names)
    y = oracle(models.first)(real.arange(8)[None] / 4 - 1)[0]
    words = re.fullmatch(r"class (\d+) of 3, (\d+)", got["stdout"][0])
    assert words is not None and got["exit"] == 0, got
    assert int(words[1]) == int(y.argmax())
    assert struct.unpack("f", struct.pack("I", int(words[2])))[0] == pytest.approx(y.max().item(), rel=1e-5)


def test_the_other_name_of_the_module(package: Path, models: Models, folder: Path) -> None:
    """`wasi_nn`, with the records of wasi-nn.witx: by name, too, where no call before `set_input` tells which they are."""
    wasm = build_guest("classify", folder, '-DNN_MODULE="wasi_nn"', out="named.wasm")
    (folder / "y.tensor").write_bytes(real.linspace(-1, 1, 8).numpy().tobytes())
    files = {"m.bin": models.plan, "y.tensor": folder / "y.tensor"}
    said = [
        run_guest(wasm, package, model, "3", "y.tensor", "1", "8", files=files, models=models.names)["stdout"]
        for model in ("m.bin", "name:plan")
    ]
    assert said[0] == said[1] and said[0][0] == "12 bytes"


@pytest.mark.parametrize("shim", [False, True])
def test_a_classifier_of_a_file_and_of_a_name(
    package: Path, guests: Any, models: Models, folder: Path, shim: bool
) -> None:
    x = real.linspace(-1, 1, 8)
    (folder / "x.tensor").write_bytes(x.numpy().tobytes())
    files = {"m.bin": models.plan, "x.tensor": folder / "x.tensor"}
    y = oracle(models.first)(x[None])[0]
    best = [f"{n}. class {k}: {y[k].item():.6f}" for n, k in enumerate(y.argsort(descending=True).tolist(), 1)]
    for model in ("m.bin", "name:plan"):
        spec: Any = {"files": files, "models": models.names, "shim": shim}
        got = run_guest(guests["classify"], package, model, "3", "x.tensor", "1", "8", **spec)
        assert got["stdout"] == ["12 bytes", *best], got


ENDED = """
const [entry, plan] = process.argv.slice(1);
const { wasiNN } = await import(entry);
const said = [];
for (const wrong of [{ mode: "hope" }, { device: "tpu" }]) said.push(await wasiNN(wrong).catch((error) => error.message));
const nn = await wasiNN({ device: "cpu", models: { plan }, onError: (call, error) => said.push(error.message) });
const memory = new WebAssembly.Memory({ initial: 1 });
new Uint8Array(memory.buffer).set(new TextEncoder().encode("plan"), 16);
const guest = nn.guest();
guest.attach(memory);
const { load_by_name } = guest.imports.wasi_ephemeral_nn;
const before = load_by_name(16, 4, 0);
nn.dispose();
nn.dispose();
const after = load_by_name(16, 4, 0);
guest.dispose();
console.log(JSON.stringify([before, after, ...said]));
"""


def test_a_host_that_has_ended_keeps_no_guest_waiting(package: Path, models: Models) -> None:
    """In mode "block", which Node's is here: the guest's graphs end with their thread. And settings that are none are said."""
    command = ["node", "--input-type=module", "-e", ENDED, str(package / "wasi-nn.js"), str(models.plan)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    before, after, mode, device, *errors = json.loads(done.stdout)
    assert (before, mode) == (0, "mode is suspend, block, thread, not hope")
    assert device == "device is auto, webgpu, cpu, guest, not tpu"
    assert (after, errors) in [(0, []), (5, ["the thread of the models has ended"])]


# ---- models that have no plan


@pytest.fixture(scope="module")
def foreign(folder: Path) -> list[str]:
    return write_foreign(folder)


FOREIGN = {"script.pt": "torchscript", "trace.pt": "torchscript", "net.pt2": "pt2", "net.onnx": "onnx"}


@pytest.mark.parametrize(("name", "kind"), FOREIGN.items())
def test_plans_of_other_formats(
    package: Path, guests: Any, folder: Path, foreign: list[str], name: str, kind: str
) -> None:
    """What runs in Pyodide, here. Formats that say what they take become a plan for every size at once."""
    model = Foreign(str(folder / name), kind)
    plan = folder / f"{name}.safetensors"
    made = model.save(str(plan), "forward", None)
    assert made == (kind != "torchscript")
    if not made:
        assert model.save(str(plan), "forward", [("float32", (1, 3, 8, 8))])
    files = {"m": plan, "x.tensor": folder / "x.tensor"}
    got = run_guest(guests["classify"], package, "m", "5", "x.tensor", "1", "3", "8", "8", files=files)
    assert got["stdout"] == ["40 bytes", *foreign], got


def test_python_makes_a_plan_once(package: Path, guests: Any, folder: Path, foreign: list[str]) -> None:
    """In Pyodide: the shapes of a TorchScript archive are known when it computes. The second time there is no Python to be started."""
    (package.parent / "pyodide").symlink_to(Path(__file__).parents[1] / "node_modules" / "pyodide")
    wheel = build_wheel(folder)
    files = {"m": folder / "script.pt", "x": folder / "x.tensor"}
    for place in (wheel, Path("/nowhere") / wheel.name):
        keep = {"wheel": place, "keep": folder / "kept"}
        got = run_guest(guests["classify"], package, "m", "3", "x", "1", "3", "8", "8", files=files, compile=keep)
        assert got["stdout"] == ["40 bytes", *foreign], got
    broken = folder / "broken.onnx"
    broken.write_bytes((folder / "net.onnx").read_bytes().replace(b"Relu", b"Rely"))
    files["m"] = broken
    got = run_guest(
        guests["classify"],
        package,
        "m",
        "1",
        "x",
        "1",
        "3",
        "8",
        "8",
        files=files,
        compile={"wheel": wheel, "keep": False},
    )
    assert got["exit"] == 1 and got["errors"][0].startswith("load: invalidEncoding: onnx: "), got
    got = run_guest(guests["classify"], package, "m", "1", "x", "1", "3", "8", "8", files=files, compile=keep)
    assert got["exit"] == 1 and got["errors"][0].startswith("load: runtimeError: Python could not be started: "), got


#: npm's `webgpu`, whose first device is lost after some commands
LOSING = """
import { create as make, globals } from "REAL";
export { globals };
export function create(options) {
  const gpu = make(options);
  let lost = false;
  return {
    async requestAdapter(...wishes) {
      const adapter = await gpu.requestAdapter(...wishes);
      const request = adapter.requestDevice.bind(adapter);
      adapter.requestDevice = async (...args) => {
        const device = await request(...args);
        if (lost) return device;
        lost = true;
        const submit = device.queue.submit.bind(device.queue);
        let count = 0;
        device.queue.submit = (buffers) => {
          submit(buffers);
          if (++count === 6) device.destroy();
        };
        return device;
      };
      return adapter;
    },
    getPreferredCanvasFormat: () => gpu.getPreferredCanvasFormat(),
  };
}
"""


def test_a_lost_device_is_taken_anew(package: Path, guests: Any, models: Models, folder: Path) -> None:
    """What ran on it is a runtime_error; then the model computes as before."""
    modules = folder / "losing" / "node_modules"
    shutil.copytree(package, modules / "tabtorch")
    (modules / "webgpu").mkdir()
    (modules / "webgpu" / "package.json").write_text('{"type": "module", "exports": "./index.js"}')
    real_one = (ROOT / "node_modules" / "webgpu" / "index.js").as_uri()
    (modules / "webgpu" / "index.js").write_text(LOSING.replace("REAL", real_one))
    got = run_guest(build_guest("lost", folder), modules / "tabtorch", models=models.names, device="webgpu")
    assert got["exit"] == 0, got
    results = [line for line in got["stdout"] if not line.startswith("error")]
    errors = [line for line in got["stdout"] if line.startswith("error")]
    assert errors and set(errors) == {"error 5"}, got
    assert results[0] == results[-1] and len(set(results)) == 1, got
    assert not got["stdout"][-1].startswith("error") or len(errors) < 20, got
    assert any("lost" in line for line in got["errors"]), got


def test_any_calls_give_a_number(package: Path, models: Models) -> None:
    """More of them: `node tests/wasi_nn/fuzz.mjs PACKAGE PLAN 1000000 SEED`."""
    command = ["node", str(GUESTS.parent / "fuzz.mjs"), str(package), str(models.plan), "20000", str(slices.number())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout)["answers"]
    assert {"0", "1", "2", "5", "6"} <= answers.keys() and answers["0"] > 1000, answers


CONSUMER = """
import { compileWithPyodide, type Graph, NNError, type Report, run, wasiNN } from "tabtorch/wasi-nn";
const echo: Graph = {
  inputs: [{ name: "x", dtype: "float32", shape: ["batch", 2] }],
  compute: ([x]) => ({ count: 1, read: () => { if (!x) throw new NNError("runtimeError", "none"); return x; }, dispose() {} }),
  dispose() {},
};
const onError: Report = (call, { code, message }) => console.log(call, code, message);
const nn = await wasiNN({
  models: { echo, plan: "plan.safetensors", bytes: new Uint8Array(3) },
  device: "guest",
  onError,
  compile: compileWithPyodide({ pyodide: "pyodide.mjs", wheel: new URL("https://example.com/tabtorch.whl") }),
});
const code: number = await run(fetch("guest.wasm"), { nn, args: ["a"], preopens: { ".": { a: "text", b: { c: new Uint8Array(1) } } } });
const { instance } = await WebAssembly.instantiate(new Uint8Array(), { ...nn.imports });
nn.attach(instance);
// @ts-expect-error there is no such mode
await wasiNN({ mode: "hope" });
export { code };
"""


def test_its_size_and_types(package: Path) -> None:
    """What a page loads of it, beside the device; and a strict TypeScript project takes it."""
    size = 0
    seen = {"wasi-nn.js"}
    for name in (todo := ["wasi-nn.js"]):
        text = (package / name).read_text()
        size += len(gzip.compress(text.encode()))
        found = set(re.findall(r'(?:from|import)\s*"\./([^"]+)"', text)) - seen
        seen |= found
        todo += sorted(found)
    assert size <= 40_000, f"{size} bytes gzipped"
    assert "wasi-nn-worker.js" not in seen and "wasi-nn-python.js" not in seen
    for name in ("wasi-nn-worker.js", "wasi-nn-python.js"):  # each whole by itself, wherever a bundler puts it
        assert not re.search(r'(?:from|import)\s*\(?"\./', (package / name).read_text()), name
    folder = package.parent.parent
    (folder / "consumer.mts").write_text(CONSUMER)
    options = "--strict --noEmit --target es2022 --module nodenext --moduleResolution nodenext --skipLibCheck false"
    command = [str(ROOT / "node_modules" / ".bin" / "tsc"), *options.split(), "--types", "", "consumer.mts"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
