"""`tabtorch.slider`, `button`, `pad`, `canvas`, `webcam` and `microphone`: outside of the page, and what they ask of it."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch as real

import tabtorch
from tabtorch.display import canvases, controls, host, images


@pytest.fixture(params=["real", "cpu", "webgpu"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Real PyTorch, and tabtorch on both devices."""
    if request.param == "real":
        yield real
        return
    monkeypatch.delitem(sys.modules, "torch")
    with tabtorch.device(request.param):
        yield tabtorch


@pytest.fixture(autouse=True)
def nothing_made() -> Iterator[None]:
    yield
    controls.forget()
    canvases._waiting.clear()


class Link:
    """What the page would give: numbers that it may change."""

    def __init__(self, kind: str, about: dict[str, Any], first: list[float]) -> None:
        self.kind, self.about, self.numbers = kind, about, list(first)
        self.there = True
        self.drawn: list[Any] = []
        self.answer = b""
        self.listens = 0

    def read(self, i: int) -> float:
        return self.numbers[i]

    def floats(self) -> bytes:
        return struct.pack(f"{len(self.numbers)}f", *self.numbers)

    def clear(self) -> None:
        self.numbers = [0.0] * len(self.numbers)

    def listen(self) -> None:
        self.listens += 1

    def ask(self) -> bytes:
        return self.answer

    def draw(self, t: Any) -> None:
        self.drawn.append(t)


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> list[Link]:
    """Those that a page that somebody looks at is asked for."""
    made: list[Link] = []

    def control(*args: Any) -> Link:
        made.append(Link(*args))
        return made[-1]

    module = ModuleType("tabdisplay")
    module.__dict__.update(looked_at=True, control=control)
    monkeypatch.setitem(sys.modules, "tabdisplay", module)
    return made


def test_outside_of_the_page(library: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        assert tabtorch.slider("speed", 0.0, 2.0, value=0.5).value == 0.5
        assert not tabtorch.button("Go").pressed() and tabtorch.button("Go").clicks == 0
        drawing = tabtorch.pad("digit").value
        assert drawing.shape == (28, 28) and drawing.dtype is library.float32 and not drawing.any()
        tabtorch.pad("digit").clear()
        frame = tabtorch.webcam(4, 6).frame()
        assert frame.shape == (3, 4, 6) and frame.dtype is library.uint8 and not frame.any()
        assert tabtorch.microphone(0.5).record().shape == (8000,)
    live = ": it is live in tabtorch's page alone\n"
    assert capsys.readouterr().err == (
        f"tabtorch: the slider 'speed' stays at 0.5{live}tabtorch: the button 'Go' is never pressed{live}"
        f"tabtorch: the pad 'digit' stays empty{live}tabtorch: the webcam 'Camera' gives black pictures{live}"
        f"tabtorch: the microphone 'Microphone' gives silence{live}"
    )


def test_a_slider(links: list[Link]) -> None:
    whole = tabtorch.slider("n", 1, 9)
    part = tabtorch.slider("rate", 0.0, 1.0, value=0.25)
    assert [link.about for link in links] == [
        {"label": "n", "low": 1, "high": 9, "step": 1},
        {"label": "rate", "low": 0.0, "high": 1.0, "step": 0.01},
    ]
    assert (whole.value, part.value) == (1, 0.25)
    links[0].numbers[0] = 7.0
    assert repr(tabtorch.slider("n", 1, 9).value) == "7" and len(links) == 2
    links[0].there = False  # taken away with the output
    assert tabtorch.slider("n", 1, 9).value == 1 and len(links) == 3
    controls.forget()  # another run
    assert tabtorch.slider("rate", 0.0, 1.0) is not part


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        (("x", 1, 1), ValueError, "low below high, not 1 and 1"),
        (("x", 0, 1, 2), ValueError, "a value from 0 to 1, not 2"),
        (("x", 0, 1, None, 0), ValueError, "a step above 0, not 0"),
        ((5, 0, 1), TypeError, "label as a string, not int"),
    ],
)
def test_no_slider(args: tuple[Any, ...], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        tabtorch.slider(*args)


def test_a_button(links: list[Link]) -> None:
    b = tabtorch.button("Go")
    assert not b.pressed()
    links[0].numbers[0] = 2.0
    assert [b.pressed() for _ in range(3)] == [True, True, False] and b.clicks == 2


def test_a_pad(links: list[Link]) -> None:
    p = tabtorch.pad("digit", 2, 3)
    links[0].numbers[4] = 0.5
    assert p.value.tolist() == [[0, 0, 0], [0, 0.5, 0]]
    p.clear()
    assert not p.value.any()
    with pytest.raises(ValueError, match="a height and a width from 1, not 0 and 3"):
        tabtorch.pad("none", 0, 3)


def test_camera_and_microphone(links: list[Link]) -> None:
    w = tabtorch.webcam(1, 2)
    links[0].answer = bytes([1, 2, 3, 255, 4, 5, 6, 255])
    assert w.frame().tolist() == [[[1, 4]], [[2, 5]], [[3, 6]]]
    m = tabtorch.microphone(seconds=0.0005, rate=8000)
    links[1].answer = struct.pack("4f", 0, 0.5, -0.5, 1)
    assert m.record().tolist() == [0, 0.5, -0.5, 1]
    for arguments in ((0.0, 8000), (1.0, 100)):
        with pytest.raises(ValueError, match="seconds above 0 and a rate"):
            tabtorch.microphone(*arguments)


def test_the_pointer(links: list[Link]) -> None:
    c = tabtorch.canvas(10, 20)
    link = links[0]
    assert link.about == {"label": "Canvas", "height": 10, "width": 20, "scale": 16}
    assert c.pointer is None and c.clicks == [] and link.listens
    link.numbers[:5] = [1, 19, 3, 1, 2]
    link.numbers[5:9] = [1, 2, 3, 4]
    assert c.pointer == (19, 3, True)
    assert c.clicks == [(1, 2), (3, 4)] and c.clicks == []
    link.numbers[4] = 2 + 33  # more than are kept
    assert len(c.clicks) == 32


@pytest.mark.parametrize(
    "shape", [(4, 5), (1, 4, 5), (3, 4, 5), (4, 4, 5), (4, 5, 1), (4, 5, 3), (4, 5, 4)], ids=lambda shape: str(shape)
)
def test_shapes_of_a_canvas(links: list[Link], shape: tuple[int, ...]) -> None:
    """Drawn as they lie, with the channels last and no copy."""
    c = tabtorch.canvas(4, 5)
    x = tabtorch.rand(shape)
    c.draw(x)
    drawn = links[0].drawn[0]
    assert drawn.shape[:2] == (4, 5) and drawn.data_ptr() == x.data_ptr()
    channels = 1 if len(shape) == 2 else next(n for n in (shape[0], shape[2]) if n in (1, 3, 4) and x.numel() == 20 * n)
    assert drawn.shape[2] == channels


def test_no_picture(links: list[Link]) -> None:
    c = tabtorch.canvas(4, 5)
    with pytest.raises(ValueError, match=r"\(4, 5\), \(4, 5, C\) or \(C, 4, 5\).*has shape \(5, 4\)"):
        c.draw(tabtorch.rand(5, 4))
    with pytest.raises(TypeError, match="uint8 or bool, not torch.int64"):
        c.draw(tabtorch.zeros(4, 5, dtype=tabtorch.int64))
    for arguments in ((0, 4), (4, 0)):
        with pytest.raises(ValueError, match="from 1"):
            tabtorch.canvas(*arguments)
    with pytest.raises(ValueError, match="scale above 0"):
        tabtorch.canvas(4, 5, 0)


def test_colours_of_a_canvas(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of the page: as an image, of the values as they are."""
    shown: list[images.Picture] = []
    monkeypatch.setattr(images, "put", lambda picture, *_: shown.append(picture))
    c = tabtorch.canvas(1, 3)
    c.draw(library.tensor([[0.5, math.nan, 7.0]]))
    c.draw(library.tensor([[0.5, math.nan, 3.0]]))
    canvases.finish()
    c.draw(library.tensor([[[255, 0, 0, 128]] * 3], dtype=library.uint8))
    canvases.finish()
    canvases.finish()
    assert [picture.rgba for picture in shown] == [
        bytes([128, 128, 128, 255, 255, 0, 255, 255, 255, 255, 255, 255]),
        bytes([255, 0, 0, 128]) * 3,
    ]
    assert shown[0].alt == "Canvas, 1 by 3"


def test_a_script() -> None:
    """In CPython the last picture comes at the end, once."""
    code = (
        "import torch, tabtorch\nc = tabtorch.canvas(2, 2, alt='Rolling')\nx = torch.eye(2)\n"
        "for _ in range(3): c.draw(x); x = x.roll(1, 0)\nprint('drawn')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == ("drawn\nRolling, 2 by 2\n", "")


def test_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place, a few times a second."""
    given: list[Any] = []
    monkeypatch.setattr(host, "notebook", lambda: object())
    monkeypatch.setattr(host, "at_end", lambda work: None)
    monkeypatch.setattr(host, "put", lambda *args: given.append(args) or True)
    c = tabtorch.canvas(2, 2)
    for _ in range(20):
        c.draw(tabtorch.eye(2))
    canvases.finish()
    assert 2 <= len(given) < 20 and len({ident for *_, ident in given}) == 1
