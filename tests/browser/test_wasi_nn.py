"""Guests of wasi-nn in pages: the same programs as in tests/test_wasi_nn.py, on WebGPU, suspended or on a thread of their own."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tabtorch.cli.site import serving
from wasi_nn.common import ROOT, Models, build_guest, build_package, build_wheel, oracle, write_foreign

if importlib.util.find_spec("ziglang") is None:
    pytest.skip("builds C guests with PyPI's ziglang", allow_module_level=True)

#: where it is served, the models, and what the classifier says of the foreign one
Host = tuple[str, Models, list[str]]

PAGE = """<!doctype html>
<script type="module">
import { wasiNN, run, compileWithPyodide } from "./npm/tabtorch/wasi-nn.js";
window.guest = async ({ wasm, args, files, models, mode, device, compile }) => {
  const said = { stdout: [], stderr: [], errors: [] };
  const bytes = async (path) => new Uint8Array(await (await fetch(path)).arrayBuffer());
  const folder = {};
  for (const path of files) folder[path] = await bytes(path);
  const nn = await wasiNN({
    models,
    device,
    ...(mode && { mode }),
    ...(compile && { compile: compileWithPyodide(compile) }),
    onError: (call, { code, message }) => said.errors.push(`${call}: ${code}: ${message}`),
  });
  said.exit = await run(fetch(wasm), {
    nn, args: ["guest", ...args], preopens: { ".": folder },
    stdout: (line) => said.stdout.push(line), stderr: (line) => said.stderr.push(line),
  });
  said.mode = nn.mode;
  nn.dispose();
  return said;
};
window.ready = true;
</script>
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A folder with the package, guests and models, served; no site, and no Python but for models that have no plan."""
    folder = tmp_path_factory.mktemp("wasi_nn")
    build_package(folder / "npm" / "tabtorch")
    for name in ("contexts", "types", "classify"):
        build_guest(name, folder)
    models = Models(folder)
    best = write_foreign(folder)
    (folder / "pyodide").symlink_to(ROOT / "node_modules" / "pyodide", target_is_directory=True)
    build_wheel(folder)
    (folder / "page.html").write_text(PAGE)
    with serving(folder) as url:
        yield url, models, best


@pytest.fixture
def page(running: Any, host: Host) -> Iterator[Any]:
    page = running.new_page()
    page.goto(f"{host[0]}/page.html")
    page.wait_for_function("window.ready === true")
    yield page
    page.close()


NAMES = {name: f"{name}.safetensors" for name in ("plan", "other", "lookup", "types")}


def run(page: Any, **spec: Any) -> Any:
    usual = {"args": [], "files": [], "models": NAMES, "mode": "", "device": "webgpu", "compile": None}
    return page.evaluate(f"guest({json.dumps(usual | spec)})")


def close_to(said: str, wanted: Any) -> None:
    torch = pytest.importorskip("torch")
    got = torch.tensor([float(n) for n in said.split()[1:]])
    torch.testing.assert_close(got, wanted.detach().flatten(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["suspend", "thread"])
def test_contexts_side_by_side(page: Any, host: Host, mode: str) -> None:
    import torch as real

    if mode == "suspend" and not page.evaluate("'Suspending' in WebAssembly"):
        pytest.skip("this browser cannot suspend a guest")
    got = run(page, wasm="contexts.wasm", args=["plan.safetensors"], files=["plan.safetensors"], mode=mode)
    assert got["exit"] == 0 and not got["errors"] and got["mode"] == mode, got
    x = (real.arange(24) / 8 - 1).reshape(3, 8)
    first, second = oracle(host[1].first), oracle(host[1].second)
    wanted = [second(x[1:2]), first(x[:1]), second(x[:2]), first(x[1:]), first(x[1:]), second(x[1:2])]
    for line, y in zip(got["stdout"], wanted, strict=True):
        close_to(line, y)


def test_every_type_goes_in_and_out(page: Any, host: Host) -> None:
    got = run(page, wasm="types.wasm")
    assert got["stdout"][1:] == ["3.5 4, 14 16, 3c00 e800", "inexact: 1"]
    assert got["stdout"][0].endswith("1 201, -6 1999999999, -10 18014398509481986")


def test_python_is_loaded_once_for_a_model(page: Any, host: Host) -> None:
    """The second load of the same bytes finds the plan in the origin's file system, and asks for nothing of Pyodide."""
    asked: list[str] = []
    page.context.on("request", lambda request: asked.append(request.url))
    spec: Any = {
        "wasm": "classify.wasm",
        "args": ["script.pt", "3", "x.tensor", "1", "3", "8", "8"],
        "files": ["script.pt", "x.tensor"],
        "compile": {"pyodide": "pyodide/pyodide.mjs", "wheel": "tabtorch-0.1.0-py3-none-any.whl"},
    }
    first = run(page, **spec)
    assert first["stdout"] == ["40 bytes", *host[2]], first
    assert any("pyodide.asm" in url for url in asked)
    asked.clear()
    page.reload()
    page.wait_for_function("window.ready === true")
    second = run(page, **spec)
    assert second["stdout"] == first["stdout"]
    assert not [url for url in asked if "pyodide" in url or ".whl" in url]
