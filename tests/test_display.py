"""`tabtorch.show` and `tabtorch.plot`: the pixels, the words, the charts, and what they ask of the device."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
import zlib
from array import array
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch as real

import tabtorch
from tabtorch.bridge import get_bridge
from tabtorch.display import charts, colours, images, svg, textual, windows
from tabtorch.engine import graph

RED, GREEN, BLACK, WHITE = (255, 0, 0, 255), (0, 255, 0, 255), (0, 0, 0, 255), (255, 255, 255, 255)
MAGENTA, NOTHING = (255, 0, 255, 255), (0, 0, 0, 0)


@pytest.fixture(params=["real", "cpu", "webgpu"])
def library(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Real PyTorch, and tabtorch on both devices."""
    if request.param == "real":
        yield real
        return
    with tabtorch.device(request.param):
        yield tabtorch


@pytest.fixture(autouse=True)
def no_charts() -> Iterator[None]:
    yield
    charts.forget()


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What a page that somebody looks at is given to show."""
    given: list[tuple[Any, ...]] = []
    module = ModuleType("tabdisplay")
    module.__dict__.update(looked_at=True, publish=lambda *args: given.append(args))
    monkeypatch.setitem(sys.modules, "tabdisplay", module)
    return given


def pixels(picture: images.Picture) -> list[list[tuple[int, ...]]]:
    """Rows of (red, green, blue, opacity)."""
    flat = [tuple(picture.rgba[at : at + 4]) for at in range(0, len(picture.rgba), 4)]
    assert len(flat) == picture.width * picture.height
    return [flat[at : at + picture.width] for at in range(0, len(flat), picture.width)]


# -- show


def test_gray(library: Any) -> None:
    t = library.tensor([[0.0, 1.0], [math.nan, math.inf], [-math.inf, 0.5]])
    picture = images.draw(t)
    assert pixels(picture) == [[BLACK, WHITE], [MAGENTA, WHITE], [BLACK, (128, 128, 128, 255)]]
    assert picture.alt == "1 image, 3 by 2, values 0 to 1, 1 not a number"


@pytest.mark.parametrize(
    ("value", "levels"),
    [
        ([[True, False]], [255, 0]),
        ([[0, 4]], [0, 255]),
        ([[0.0, 0.25]], [0, 64]),
        ([[-1.0, 0.0, 1.0]], [0, 128, 255]),
        ([[3.0, 3.0]], [0, 0]),
        ([[math.nan, 0.0]], [255, 0]),
    ],
)
def test_ranges(library: Any, value: list[Any], levels: list[int]) -> None:
    """bool and what lies from 0 to 1 are as in images; else the least value is black and the greatest white."""
    [row] = pixels(images.draw(library.tensor(value)))
    assert [red for red, *_ in row] == levels


def test_a_range_that_is_given(library: Any) -> None:
    t = library.tensor([[0.0, 1.0, 2.0]])
    assert [p[0] for p in pixels(images.draw(t, vmin=1, vmax=3))[0]] == [0, 0, 128]
    assert [p[0] for p in pixels(images.draw(t.to(library.uint8)))[0]] == [0, 1, 2]
    assert images.draw(t.to(library.uint8), cmap="gray").rgba == images.draw(t, cmap="gray").rgba
    with pytest.raises(ValueError, match="vmin below vmax, not 3 and 1"):
        images.draw(t, vmin=3, vmax=1)


def test_channels(library: Any) -> None:
    first = library.zeros(3, 5, 6)
    first[0] = 1.0
    assert {p for row in pixels(images.draw(first)) for p in row} == {RED}
    assert images.draw(first.permute(1, 2, 0)).rgba == images.draw(first).rgba
    assert images.draw(first[:1]).rgba == images.draw(first[0]).rgba
    many = library.zeros(2, 3, 5, 6)
    many[0, 0], many[1, 1] = 1.0, 1.0
    [row, *_] = pixels(images.draw(many))
    assert row == [RED] * 6 + [NOTHING] * 2 + [GREEN] * 6
    assert images.draw(many.permute(0, 2, 3, 1)).rgba == images.draw(many).rgba


def test_grids(library: Any) -> None:
    t = library.arange(5.0).reshape(5, 1, 1, 1)
    picture = images.draw(t, columns=2, padding=1, vmax=4)
    levels = [[p[0] if p[3] else None for p in row] for row in pixels(picture)]
    assert levels == [[0, None, 64], [None] * 3, [128, None, 191], [None] * 3, [255, None, None]]
    assert picture.alt == "5 images, 1 by 1 each, 2 in a row, values 0 to 4"
    assert images.draw(library.zeros(7, 4, 4)).alt.startswith("7 images, 4 by 4 each, 7 in a row")
    heads = images.draw(library.zeros(2, 4, 9, 9), cmap="viridis")  # a row for each of two
    assert heads.alt == "8 maps, 9 by 9 each, 4 in a row, in viridis, values 0 to 0"
    assert (heads.width, heads.height) == (4 * 9 + 3 * 2, 2 * 9 + 2)
    assert images.draw(library.zeros(3, 9, 9), cmap="gray").alt.startswith("3 maps")
    together = images.draw([library.zeros(2, 2), library.ones(2, 2)], padding=0)
    assert pixels(together)[0] == [BLACK, BLACK, WHITE, WHITE]


def test_colour_maps(library: Any) -> None:
    t = library.tensor([[-2.0, 2.0]])
    for name in colours.NAMES:
        table = colours.table(name)
        assert len(table) == 256
        assert [p[:3] for p in pixels(images.draw(t, cmap=name))[0]] == [table[0], table[-1]]
    assert colours.table("viridis")[0] == (68, 1, 84) and colours.table("viridis_r")[255] == (68, 1, 84)
    with pytest.raises(ValueError, match="no colour map 'jet': there are gray, viridis"):
        images.draw(t, cmap="jet")


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "int64", "int8", "uint8", "bool"])
def test_types(library: Any, kind: str) -> None:
    t = library.tensor([[0, 1]]).to(getattr(library, kind))
    assert [p[0] for p in pixels(images.draw(t, vmin=0, vmax=1))[0]] == [0, 255]


def test_lists_and_arrays() -> None:
    numpy = pytest.importorskip("numpy")
    wanted = pixels(images.draw(real.tensor([[0.0, 1.0]])))
    assert pixels(images.draw([[0.0, 1.0]])) == pixels(images.draw(numpy.array([[0.0, 1.0]]))) == wanted


@pytest.mark.parametrize("shape", [(), (4,), (0, 3), (2, 2, 2, 2, 2)])
def test_shapes_that_are_none(library: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"show\(\) takes \(H, W\), \(C, H, W\).* this has shape"):
        images.draw(library.zeros(shape))


def test_values_that_are_none(library: Any) -> None:
    with pytest.raises(TypeError, match="not str"):
        images.draw("picture")
    with pytest.raises(TypeError, match="complex"):
        images.draw(library.zeros(2, 2, dtype=library.complex64))
    with pytest.raises(ValueError, match="scale above 0"):
        tabtorch.show(library.zeros(2, 2), scale=0)
    with pytest.raises(ValueError, match="columns from 1"):
        images.draw(library.zeros(2, 2), columns=0)


def test_png() -> None:
    """Read back by the format's own rules."""
    picture = images.draw(real.rand(3, 5, 7))
    data = images.encode(picture)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    parts, at = {}, 8
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        parts[kind], at = body, at + 12 + length
    assert list(parts) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">2I5B", parts[b"IHDR"]) == (7, 5, 8, 6, 0, 0, 0)
    rows = zlib.decompress(parts[b"IDAT"])
    assert b"".join(rows[k * 29 + 1 : (k + 1) * 29] for k in range(5)) == picture.rgba


def test_show_in_the_page(page: list[Any]) -> None:
    tabtorch.show(real.eye(10), title="Identity", name="one")
    tabtorch.show(real.eye(10), scale=2, alt="A diagonal")
    (bundle, metadata, ident, mode), second = page
    about = metadata["image/png"]
    assert bundle["image/png"].startswith(b"\x89PNG") and (ident, mode) == ("tabtorch.show:one", "put")
    assert about == {
        "alt": "1 image, 10 by 10, values 0 to 1",
        "title": "Identity",
        "width": 320,
        "height": 320,
        "pixelated": True,
    }
    assert second[1]["image/png"]["width"] == 20 and second[1]["image/png"]["alt"] == "A diagonal"
    assert second[2:] == (None, "new")


def test_show_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    shell = SimpleNamespace(kernel=object(), execution_count=1)
    display = ModuleType("IPython.display")
    display.__dict__["publish_display_data"] = lambda bundle, **options: given.append((bundle, options))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    tabtorch.show(real.eye(3), alt='<a "quoted" text>')
    for _ in range(2):
        tabtorch.show(real.eye(3), name="same")
    shell.execution_count = 2
    tabtorch.show(real.eye(3), name="same")
    html = given[0][0]["text/html"]
    assert 'alt="&lt;a &quot;quoted&quot; text&gt;"' in html and "data:image/png;base64," in html
    assert [options.get("update") for _, options in given] == [None, False, True, False]


def test_show_as_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tabtorch.show(real.eye(3), title="Identity")
    assert capsys.readouterr().out == "Identity\n1 image, 3 by 3, values 0 to 1\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    tabtorch.show(real.tensor([[1.0, 0.0], [0.0, 1.0]]))
    upper, lower = "255;255;255", "0;0;0"
    line = f"\x1b[38;2;{upper};48;2;{lower}m▀\x1b[38;2;{lower};48;2;{upper}m▀\x1b[0m\n"
    assert capsys.readouterr().out == line


def test_a_wide_picture_fits_the_terminal() -> None:
    text = images.blocks(images.draw(real.zeros(31, 200)), 60)
    assert {line.count("▀") for line in text.splitlines()} == {50}


# -- plot


def points(name: str, line: str) -> tuple[list[float], list[float]]:
    charts.collect()
    found = charts._charts[name].lines[line]
    return found.xs.tolist(), found.ys.tolist()


def test_the_ways_to_plot(library: Any) -> None:
    for i in range(3):
        tabtorch.plot("one", library.tensor(i / 2))
        tabtorch.plot("two", 10 * i, i)
        tabtorch.plot("three", train=i, test=library.tensor([i + 1]))
        tabtorch.plot("four", library.tensor(i), train=i)
    assert points("one", "one") == ([0, 1, 2], [0, 0.5, 1])
    assert points("two", "two") == ([0, 10, 20], [0, 1, 2])
    assert points("three", "train") == ([0, 1, 2], [0, 1, 2])
    assert points("three", "test") == ([0, 1, 2], [1, 2, 3])
    assert points("four", "train") == ([0, 1, 2], [0, 1, 2])
    tabtorch.plot("one", library.tensor([5.0, 6.0]))
    tabtorch.plot("two", [1, 2], [3, 4])
    assert points("one", "one") == ([0, 1], [5, 6])
    assert points("two", "two") == ([1, 2], [3, 4])
    tabtorch.plot("one", 7)
    assert points("one", "one") == ([0, 1, 2], [5, 6, 7])


def test_mistakes(library: Any) -> None:
    with pytest.raises(TypeError, match="chart's name first"):
        tabtorch.plot(library.tensor(1.0))
    with pytest.raises(TypeError, match=r"plot\('loss', x, y\)"):
        tabtorch.plot("loss")
    with pytest.raises(TypeError, match=r"plot\('loss', x, y\)"):
        tabtorch.plot("loss", 1, 2, 3)
    with pytest.raises(ValueError, match=r"1-d line of them, not shape \(2, 2\)"):
        tabtorch.plot("loss", library.ones(2, 2))
    with pytest.raises(ValueError, match="complex"):
        tabtorch.plot("loss", library.tensor(1j))
    with pytest.raises(ValueError, match="as many x as y, not 1 and 2"):
        tabtorch.plot("loss", [1], [2, 3])
    assert not [chart for chart in charts._charts.values() if any(line.xs for line in chart.lines.values())]


def test_a_value_is_taken_as_it_is(library: Any) -> None:
    """What is written to it afterwards is another one's; what is plotted holds no graph."""
    total = library.zeros(())
    for _ in range(4):
        total += 1
        tabtorch.plot("total", total)
    assert points("total", "total")[1] == [1, 2, 3, 4]
    tabtorch.plot("grad", library.ones((), requires_grad=True) * 2)
    assert points("grad", "grad")[1] == [2]


def test_a_failure_is_raised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the device reports with a read is raised where that is; what comes later is drawn."""

    def fail(tensors: list[Any]) -> list[float]:
        raise RuntimeError("out of memory")

    tabtorch.plot("loss", 1)
    charts.collect()
    monkeypatch.setattr(charts, "_read", fail)
    tabtorch.plot("loss", 2)
    with pytest.raises(RuntimeError, match="out of memory"):
        charts.collect()
    monkeypatch.undo()
    tabtorch.plot("loss", 3)
    assert points("loss", "loss") == ([0, 2], [1, 3])


def test_points_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "MOST", 100)
    for i in range(1000):
        tabtorch.plot("loss", i)
    xs, ys = points("loss", "loss")
    assert xs == ys == list(range(0, 1000, 16)) and len(xs) <= 100
    assert "every 16th point" in textual.text_chart(charts._charts["loss"])
    tabtorch.plot("loss", list(range(250)))
    assert points("loss", "loss")[0] == list(range(0, 250, 3))


@pytest.mark.usefixtures("webgpu")
def test_a_loop_does_not_wait(page: list[Any]) -> None:
    """The device is asked some ten times a second, for all that came, and runs no more than without a chart."""
    w = tabtorch.zeros(16, 16, requires_grad=True)
    x = tabtorch.ones(16, 16)

    def train(steps: int, draws: bool) -> dict[str, Any]:
        graph.flush()
        get_bridge().reset_stats()
        for _ in range(steps):
            loss = ((x @ w - x) ** 2).mean()
            loss.backward()
            with tabtorch.no_grad():
                w.sub_(0.1 * w.grad)
            w.grad = None
            if draws:
                tabtorch.plot("loss", loss)
        graph.flush()
        return dict(get_bridge().stats())

    train(20, True)
    without = train(1000, False)
    page.clear()
    began = time.monotonic()
    with_chart = train(1000, True)
    most = (time.monotonic() - began) / charts._PAGE + 1
    assert with_chart["maps"] <= most and len(page) <= most
    assert with_chart["dispatches"] <= without["dispatches"] + most
    assert without["maps"] == 0
    charts.finish()
    bundle = page[-1][0]
    about = json.loads(bundle[charts.CHART])
    assert about["lines"] == [{"name": "loss", "count": 1020, "stride": 1}]
    values = array("d", bundle[charts.POINTS])
    assert values[:1020] == array("d", range(1020)) and values[1020] == 1.0 and values[-1] < 1.0


def test_a_chart_in_the_page(page: list[Any]) -> None:
    tabtorch.plot("loss", 2, train=1.0, log=True, xlabel="step")
    tabtorch.plot("loss", 3, train=math.nan)
    charts.finish()
    bundle, _, ident, mode = page[-1]
    assert mode == "put" and ident == page[0][2]
    assert bundle["text/plain"] == "loss: train nan at 3"
    assert textual.said(charts._charts["loss"]) == "loss: train nan at 3, 2 points, from 1 to 1, 1 not finite"
    assert json.loads(bundle[charts.CHART]) == {
        "name": "loss",
        "log": True,
        "xlabel": "step",
        "ylabel": "",
        "lines": [{"name": "train", "count": 2, "stride": 1}],
    }
    charts.forget()  # a script begins
    tabtorch.plot("loss", 5.0)
    assert page[-1][2] != ident and points("loss", "loss")[1] == [5]


def test_a_chart_as_an_image() -> None:
    for i in range(50):
        tabtorch.plot("a <b>", train=math.exp(-i) if i != 20 else math.nan, test=1 / (i + 1), log=True)
    charts.collect()
    root = xml.fromstring(svg.svg_chart(charts._charts["a <b>"]))
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}polyline")) == 3  # a gap where there is no number
    words = [each.text for each in root.findall(f"{space}text")]
    assert {"a <b>", "train", "test"} <= set(words)
    assert root.attrib["role"] == "img" and "train" in root.attrib["aria-label"]


def test_ticks() -> None:
    assert list(svg.ticks(0, 10)) == [0, 2, 4, 6, 8, 10]
    assert list(svg.ticks(-0.031, 0.05)) == pytest.approx([-0.02, 0, 0.02, 0.04])
    assert list(svg.ticks(1e6, 1e6 + 4)) == [1e6, 1e6 + 1, 1e6 + 2, 1e6 + 3, 1e6 + 4]


class Pyplot(ModuleType):
    """matplotlib's, as far as windows are drawn: what is called is noted."""

    def __init__(self, backend: str) -> None:
        super().__init__("matplotlib.pyplot")
        self.backend, self.calls = backend, []  # type: list[Any]

    def get_backend(self) -> str:
        return self.backend

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            return self

        return call


def test_in_windows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A script that uses matplotlib, where that has windows."""
    pytest.importorskip("numpy")
    atexit: list[Any] = []
    monkeypatch.setattr(windows.atexit, "register", atexit.append)
    monkeypatch.setattr(windows, "_stays", False)
    for backend in ("agg", "module://matplotlib_inline.backend_inline"):
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", Pyplot(backend))
        assert windows.pyplot() is None
    plt = Pyplot("QtAgg")
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plt)
    tabtorch.show(real.eye(3), title="Identity", name="one")
    calls = {name: (args, kwargs) for name, args, kwargs in plt.calls}
    assert calls["figure"] == ((), {"num": "one", "clear": True}) and calls["set_title"] == (("Identity",), {})
    assert calls["imshow"][0][0].shape == (3, 3, 4) and "pause" in calls
    plt.calls.clear()
    tabtorch.plot("loss", 2.0, train=1.0, log=True)
    calls = {name: (args, kwargs) for name, args, kwargs in plt.calls}
    assert calls["plot"] == ((array("d", [2.0]), array("d", [1.0])), {"label": "train"})
    assert calls["set"][1]["yscale"] == "log"
    charts.finish()
    assert not capsys.readouterr().out and len(atexit) == 1  # the windows stay at the end


def test_in_a_terminal() -> None:
    """A script with both runs in CPython with real PyTorch, and says in text what there is to see."""
    code = (
        "import torch, tabtorch\n"
        "for i in range(300):\n    tabtorch.plot('loss', train=torch.tensor(1 / (i + 1)))\n"
        "tabtorch.show(torch.eye(2))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    lines = done.stdout.splitlines()
    assert lines[0] == "loss: train 1 at 0" and "1 image, 2 by 2, values 0 to 1" in lines
    assert len(lines) < 10 + textual.HEIGHT
    chart = lines[lines.index("loss") :]
    assert len(chart) == textual.HEIGHT + 4 and chart[-1].strip() == "• train"
    assert sum("•" in line for line in chart) > 5 and not done.stderr
