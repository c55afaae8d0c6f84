"""Pages of other makers: PyScript, from npm, with the interpreter of npm and our wheel. Nothing comes from the network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tabtorch.cli.site import find_site, serving

ROOT = Path(__file__).resolve().parents[2]
NPM = ROOT / "node_modules"

PAGE = """<!doctype html>
<link rel="stylesheet" href="pyscript/core.css">
<script type="module" src="pyscript/core.js"></script>
<script type="py" WORKER config='CONFIG'>
import tabtorch; tabtorch.install()
import torch
from pyscript import document

layer = torch.nn.Linear(3, 1, bias=False)
x = torch.arange(6.0).reshape(2, 3)
loss = (x @ layer.weight.T).sum()
loss.backward()
from torch import fx  # of the second wheel, fetched from beside the first
traced = fx.symbolic_trace(torch.nn.Sequential(layer))
same = torch.allclose(loss, (x * layer.weight).sum()) and torch.equal(traced(x), layer(x))
document.body.dataset.said = f"{layer.weight.grad.tolist()} {same} {torch.accelerator.is_available()}"
</script>
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder with PyScript, Pyodide and the wheel of the site, and where it is served."""
    folder, site = tmp_path_factory.mktemp("host"), find_site()
    installer = next((site / "packages").glob("micropip-*.whl"), None)
    if installer is None:
        pytest.skip("the site has no micropip, with which PyScript installs")
    (wheel,) = (site / "wheel").glob("tabtorch-*.whl")
    for each in (site / "wheel").iterdir():
        (folder / each.name).symlink_to(each)
    (folder / "pyscript").symlink_to(NPM / "@pyscript" / "core" / "dist")
    (folder / "pyodide").mkdir()
    for file in (NPM / "pyodide").iterdir():
        (folder / "pyodide" / file.name).symlink_to(file)
    (folder / "pyodide" / installer.name).symlink_to(installer)
    lock = json.loads((NPM / "pyodide" / "pyodide-lock.json").read_text())
    digest = hashlib.sha256(installer.read_bytes()).hexdigest()
    lock["packages"]["micropip"] |= {"file_name": installer.name, "sha256": digest}
    (folder / "pyodide" / "pyodide-lock.json").unlink()
    (folder / "pyodide" / "pyodide-lock.json").write_text(json.dumps(lock))
    config = {"interpreter": "./pyodide/pyodide.mjs", "packages": [f"./{wheel.name}"]}
    for name, worker in (("main", ""), ("worker", "worker")):
        page = PAGE.replace("CONFIG", json.dumps(config)).replace("WORKER", worker)
        (folder / f"{name}.html").write_text(page)
    with serving(folder) as url:
        yield folder, url


@pytest.mark.parametrize("where", ["main", "worker"])
def test_pyscript(running: Any, host: tuple[Path, str], where: str) -> None:
    """`packages` names the wheel: `import torch`, a product and its gradient, on the GPU, read without `await`."""
    page = running.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        page.goto(f"{host[1]}/{where}.html")
        page.wait_for_selector("body[data-said], .py-error", state="attached", timeout=120_000)
        assert page.evaluate("document.body.dataset.said") == "[[3.0, 5.0, 7.0]] True True", said
    finally:
        page.close()
