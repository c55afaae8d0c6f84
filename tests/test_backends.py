"""Devices are one list: another one is a line in it, a renderer, and a device of the runtime."""

from __future__ import annotations

import re
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tabtorch as tt
from tabtorch.base import device as devices
from tabtorch.bridge import close, node
from tabtorch.engine import graph, memory
from tabtorch.engine.render import renderer_of

NUMBER = 3
ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "py" / "tabtorch"


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runtime, bundled with a third device."""
    folder = tmp_path_factory.mktemp("runtime")
    text = "const { bundle } = await import('./js/build.mjs'); await bundle(process.argv[1], [process.argv[2]])"
    command = [node.find_node(), "--input-type=module", "-e", text, str(folder), str(ROOT / "tests" / "toy_device.ts")]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


def end_runtime() -> None:
    graph.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that generators start again
        close()


@pytest.fixture
def sources(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The texts of the toy's kernels. What a device takes is here: its line, its renderer (toy_backend.py), and its device."""
    toy = devices.Backend("toy", NUMBER, "toy_backend.Toy", lacks=frozenset({"int64"}))
    end_runtime()
    monkeypatch.setattr(node, "HERE", str(runtime))
    monkeypatch.setitem(devices.BACKENDS, NUMBER, toy)
    for counts in (memory.memory.live, memory.memory.peak):
        counts += [0] * (NUMBER + 1 - len(counts))
    bridge, texts = graph.bridge(), []
    define = bridge.define_kernel

    def defined(spec: dict[str, Any]) -> int:
        if spec["device"] == NUMBER:
            texts.append(spec["source"])
        return define(spec)

    monkeypatch.setattr(bridge, "define_kernel", defined)
    yield texts
    end_runtime()
    for each in [k for k in devices.device._known if k[0] == "toy"]:
        del devices.device._known[each]


def test_a_third_device(sources: list[str]) -> None:
    x = tt.arange(6.0, device="toy").reshape(2, 3)
    assert str(x.device) == "toy" and x.device.number == NUMBER
    w = tt.ones(3, 4, device="toy", requires_grad=True)
    y = (x @ w).sqrt().sum()
    y.backward()
    rows = [3.0**0.5, 12.0**0.5]
    assert abs(y.item() - 4 * sum(rows)) < 1e-5
    want = [sum(0.5 / r * x0 for r, x0 in zip(rows, column, strict=True)) for column in ((0, 3), (1, 4), (2, 5))]
    assert w.grad is not None and str(w.grad.device) == "toy"
    assert [[round(v, 4) for v in row] for row in w.grad.tolist()] == [[round(v, 4)] * 4 for v in want]
    assert sources and all("// toy" in text for text in sources)
    stats = graph.bridge().stats()
    assert stats["toyDispatches"] > 3 and stats["cpuDispatches"] == 0
    y = (x + 1).to("cpu", non_blocking=True)
    assert y.is_cpu and y.tolist() == [[1, 2, 3], [4, 5, 6]]
    if graph.bridge().info.get("webgpu"):
        z = y.to("webgpu").mul(2).to("toy", non_blocking=True)
        assert str(z.device) == "toy" and (z + x).tolist() == [[2, 5, 8], [11, 14, 17]]
    assert any("** 0.5" in text for text in sources) and not any("Math.sqrt" in text for text in sources)


def test_it_is_another_device(sources: list[str]) -> None:
    x = tt.ones(2, device="toy")
    with pytest.raises(RuntimeError, match="found at least two devices"):
        x + tt.ones(2, device="cpu")
    assert (x + tt.tensor(2.0, device="cpu")).tolist() == [3.0, 3.0]  # a number on the host goes along
    assert x.to("cpu").tolist() == [1.0, 1.0] and tt.ones(2, device="cpu").to("toy").tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="int64 is not available on toy"):
        tt.ones(2, device="toy", dtype=tt.int64)


def test_every_device_has_a_renderer() -> None:
    languages = {b.name: renderer_of(n).language for n, b in devices.BACKENDS.items()}
    assert languages == {"webgpu": "wgsl", "cpu": "js"}


def test_nobody_asks_which_device_it_is() -> None:
    """What differs between devices is said by their line, their renderer, or their Target; what kinds of operations are, by
    their classes."""
    asks = re.compile(
        r"\bk\.js\b|op\.kind\b|device\.number (==|!=|<|>) ?\d|low\.device (==|!=)|if (not )?\w+\.number\b(?! (==|!=))"
    )
    found = {
        f"{path.relative_to(PACKAGE)}:{n}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).as_posix() != "base/device.py"
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if asks.search(line)
    }
    assert not found, sorted(found)


def test_the_runtime_names_no_device() -> None:
    """A device is three files: ARCHITECTURE.md says so."""
    source = ROOT / "js" / "src"
    named = re.compile(r"""from "[^"]*(webgpu|devices/)|\b(Gpu|Cpu)\w+|\b(gpu|cpu)\.""")
    for file in ("runtime.ts", "device.ts", "protocol.ts", "binding.ts", "params.ts"):
        found = named.search((source / file).read_text())
        assert not found, (file, found)
    numbers = [re.search(r"  number: (\d+),\n  name: \"(\w+)\"", p.read_text()) for p in (source / "devices").iterdir()]
    assert {(int(n[1]), n[2]) for n in numbers if n} == {(b.number, b.name) for b in devices.BACKENDS.values()}
    assert "| a device | 3 |" in (ROOT / "ARCHITECTURE.md").read_text()
