"""Controls and canvases: what a reader moves reaches a loop that does not wait, and a tensor on the GPU is drawn from there."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from browser.pages import Editor
from browser.test_accessible import findings
from browser.test_cells import Cells
from tabtorch.cli import browsers


def printed(editor: Editor, text: str, seconds: float = 60) -> None:
    """Wait until this is in the output."""
    editor.page.wait_for_function(
        "(text) => document.getElementById('output').textContent.includes(text)", arg=text, timeout=seconds * 1000
    )


LOOP = """
import tabtorch
print("begins")
while True:
    speed = tabtorch.slider("Speed", 0, 10, value=3)
    go = tabtorch.button("Go")
    area = tabtorch.pad("Digit", 8, 12)
    if go.pressed():
        print("speed", speed.value, "clicks", go.clicks, "drawn", area.value.shape, bool(area.value.max() > 0.5))
    if go.clicks == 2:
        area.clear()
        print("cleared", area.value.sum().item())
        break
"""


def test_controls_in_a_loop(editor: Editor) -> None:
    """A loop that never waits sees what is moved; the controls end with the script."""
    page = editor.page
    editor.start(LOOP)
    speed = page.get_by_role("slider", name="Speed")
    speed.wait_for()
    assert speed.input_value() == "3" and speed.bounding_box()["height"] >= 44
    speed.press("ArrowRight")
    area = page.get_by_role("application", name="Digit")
    box = area.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    go = page.get_by_role("button", name="Go", exact=True)
    go.click()
    printed(editor, "speed 4 clicks 1 drawn torch.Size([8, 12]) True")
    go.click()
    editor.wait()
    assert "cleared 0.0\n" in editor.output
    assert page.locator("#output .control").count() == 3  # each of them once, however often it was asked for
    assert speed.is_disabled() and go.is_disabled() and area.get_attribute("aria-disabled") == "true"


PICTURES = """
import tabtorch, torch
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph

where = "cuda" if torch.cuda.is_available() else "cpu"
gray = torch.tensor([[0.0, 1.0, 0.5], [-3.0, 7.0, float("nan")]], device=where)
red = torch.zeros(3, 2, 3, device=where)
red[0] = 1
green = torch.tensor([0, 255, 0, 255], dtype=torch.uint8, device=where).expand(2, 3, 4)
clear = torch.tensor([0.0, 0.0, 1.0, 0.0], device=where).reshape(4, 1, 1) * torch.ones(1, 2, 3, device=where)
half = torch.ones(5, 7, dtype=torch.float16, device=where)
half[1:3] = 0
pictures = {
    "gray": gray, "turned": gray.flip(0), "red": red, "lying": red.permute(1, 2, 0), "green": green, "clear": clear,
    "half": half[2:4, 1:4], "bool": gray > 0.7, "host": gray.cpu(), "bytes": (gray.cpu() > 0.7).to(torch.uint8) * 255,
}
graph.flush()
get_bridge().reset_stats()
for name, picture in pictures.items():
    tabtorch.canvas(2, 3, 20, alt=name).draw(picture)
stats = get_bridge().stats()
print("reads", stats["reads"], "pictures", stats["pictures"])
"""

BLACK, WHITE, GRAY, MAGENTA = (0, 0, 0), (255, 255, 255), (128, 128, 128), (255, 0, 255)
RED, GREEN = (255, 0, 0), (0, 255, 0)
SHADES = [BLACK, WHITE, GRAY, BLACK, WHITE, MAGENTA]
MASK = [BLACK, WHITE, BLACK, BLACK, WHITE, BLACK]
DRAWN = {
    "gray": SHADES,
    "turned": SHADES[3:] + SHADES[:3],
    "red": [RED] * 6,
    "lying": [RED] * 6,
    "green": [GREEN] * 6,
    "half": [BLACK] * 3 + [WHITE] * 3,
    "bool": MASK,
    "host": SHADES,
    "bytes": MASK,
}

# the middle of each of 2 by 3 pixels, 20 by 20 CSS pixels each
MIDDLES = """async (png) => {
  const bytes = await (await fetch("data:image/png;base64," + png)).blob();
  const image = await createImageBitmap(bytes);
  const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
  context.drawImage(image, 0, 0);
  const places = [10, 30].flatMap((y) => [10, 30, 50].map((x) => [x, y]));
  return places.map(([x, y]) => [...context.getImageData(x, y, 1, 1).data].slice(0, 3));
}"""


def middles(editor: Editor, name: str) -> list[tuple[int, ...]]:
    """What is seen of a canvas: the colours of its pixels."""
    return colours(editor.page, editor.page.get_by_role("img", name=name, exact=True))


def colours(page: Any, canvas: Any) -> list[tuple[int, ...]]:
    """The same, of any canvas. `page` decodes the picture, so its policy has to allow that."""
    png = base64.b64encode(canvas.screenshot()).decode()
    return [tuple(colour) for colour in page.evaluate(MIDDLES, png)]


def alike(one: list[tuple[int, ...]], other: list[tuple[int, ...]]) -> bool:
    """To what rounding leaves."""
    return all(abs(a - b) <= 1 for p, q in zip(one, other, strict=True) for a, b in zip(p, q, strict=True))


def test_pictures(editor: Editor) -> None:
    """From the GPU's memory to the screen, of every type and however it lies, and nothing is read."""
    assert "reads 0 pictures 10\n" in editor.run(PICTURES)
    for name, wanted in DRAWN.items():
        found = middles(editor, name)
        assert alike(found, wanted), (name, found)
    back = middles(editor, "clear")  # what is below is seen
    assert len(set(back)) == 1 and not alike(back[:1], [(0, 0, 255)])


# as in a browser where a worker has no canvas for WebGPU, and on a page that is not isolated
LACKING = """
from pyodide.code import run_js
run_js('''
globalThis.getContext ??= OffscreenCanvas.prototype.getContext;
OffscreenCanvas.prototype.getContext = function (kind) { return kind === "webgpu" ? null : getContext.call(this, kind); };
Object.defineProperty(globalThis, "crossOriginIsolated", { value: false, configurable: true });
''')
"""
LACKING_NO_MORE = """
from pyodide.code import run_js
run_js('''
if (globalThis.getContext) OffscreenCanvas.prototype.getContext = getContext;
delete globalThis.crossOriginIsolated;
''')
"""


@pytest.fixture
def lacking(editor: Editor) -> Iterator[Editor]:
    editor.run(LACKING)
    yield editor
    editor.run(LACKING_NO_MORE)


def test_pictures_that_are_read(lacking: Editor) -> None:
    assert "reads 10 pictures 10\n" in lacking.run(PICTURES)
    for name, wanted in DRAWN.items():
        found = middles(lacking, name)
        assert alike(found, wanted), (name, found)


def test_controls_without_shared_memory(lacking: Editor) -> None:
    """A loop that does nothing but ask is told, too, and Stop keeps its variables."""
    page = lacking.page
    lacking.start(
        "import tabtorch\ns = tabtorch.slider('Speed', 0, 1.0)\nwhile s.value < 0.015: pass\nprint('over', s.value)"
    )
    slider = page.get_by_role("slider", name="Speed")
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    lacking.wait()
    assert "over 0.02\n" in lacking.output


ANIMATION = """
import tabtorch, torch
c = tabtorch.canvas(40, 80, 4, alt="Life")
x = torch.zeros(40, 80, device="cuda" if torch.cuda.is_available() else "cpu")
frames = 0
places, clicks = set(), []
while True:
    x = torch.roll(x, 1, 1)
    c.draw(x)
    frames += 1
    if c.pointer:
        places.add(c.pointer)
    clicks += c.clicks
    if frames == 3 or len(clicks) == 2:
        print("frames", frames >= 3, "clicks", clicks)
"""


def test_an_animation(editor: Editor) -> None:
    """It goes at the screen's rate, sees the pointer, and Stop ends it with its variables kept."""
    page = editor.page
    editor.start(ANIMATION)
    printed(editor, "frames True clicks []")
    canvas = page.get_by_role("img", name="Life")
    assert canvas.evaluate("e => [e.width, e.height, e.clientWidth]") == [80, 40, 320]
    canvas.click(position={"x": 42, "y": 82})
    canvas.click(position={"x": 2, "y": 2})
    printed(editor, "clicks [(10, 20), (0, 0)]")
    editor.stop()
    assert "KeyboardInterrupt" in editor.output
    said = editor.enter("frames > 3, tuple(x.shape), (0, 0, False) in places, c.pointer")
    assert said.endswith("(True, (40, 80), True, None)\n")


MEDIA = """
import tabtorch
w = tabtorch.webcam(24, 32)
one = w.frame()
print(one.shape, one.dtype, one.float().std().item() > 1)
m = tabtorch.microphone(seconds=0.5)
sound = m.record()
print(sound.shape, sound.dtype, sound.abs().max().item() <= 1)
"""

REFUSED = """
import tabtorch
for control in (tabtorch.webcam(), tabtorch.microphone()):
    try:
        (control.frame if control.kind == "webcam" else control.record)()
    except OSError as error:
        print(type(error).__name__, error)
"""

NO_DEVICES = """(name) => {
  navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException("the browser says no", name));
}"""


@pytest.fixture
def with_devices(playwright: Any, name: str, address: str) -> Iterator[Editor]:
    """A browser with a camera and a microphone that make pictures and sounds up, and a reader who allows everything."""
    flags = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    prefs = {"media.navigator.streams.fake": True, "media.navigator.permission.disabled": True}
    with browsers.launch(playwright, name, flags=flags, prefs=prefs) as browser:
        editor = Editor(browser.new_page(viewport={"width": 390, "height": 844}), address)
        editor.load()
        yield editor


def test_camera_and_microphone(with_devices: Editor) -> None:
    editor = with_devices
    said = editor.run(MEDIA)
    assert "torch.Size([3, 24, 32]) torch.uint8 True\n" in said
    assert said.endswith("torch.Size([8000]) torch.float32 True\n")
    off = "e => e.srcObject === null"
    assert editor.page.locator("#output video").evaluate(off)  # with the script the camera ends
    editor.page.evaluate(NO_DEVICES, "NotAllowedError")
    said = editor.run(REFUSED)
    for what in ("camera", "microphone"):
        assert f"PermissionError the {what} was refused: allow it beside the page's address" in said
    editor.page.evaluate(NO_DEVICES, "NotFoundError")
    assert "OSError there is no camera (the browser says no)\n" in editor.run(REFUSED)


CELLS = """# %%
import tabtorch
s = tabtorch.slider("Speed", 0, 5)

# %%
print("begins")
while s.value < 2: pass
print("over", s.value)
"""


def test_controls_of_a_cell(editor: Editor) -> None:
    """In the cell's output; live again while another cell runs."""
    page = editor.page
    editor.write(CELLS)
    cells = Cells(editor)
    cells.run(0)
    speed = page.locator(".cell-output").get_by_role("slider", name="Speed")
    assert speed.is_disabled()
    cells.press(1)
    page.locator(".cell-output", has_text="begins").wait_for()
    speed.press("ArrowRight")
    speed.press("ArrowRight")
    page.locator(".cell-output", has_text="over 2").wait_for()
    editor.wait()
    assert speed.is_disabled()


EVERYTHING = """
import tabtorch, time
tabtorch.slider("A slider with a label that is rather long for a narrow screen, and goes on", 0, 5)
tabtorch.button("Go")
p = tabtorch.pad("Digit", 8, 8)
c = tabtorch.canvas(30, 400, 2)
tabtorch.webcam(30, 40)
tabtorch.microphone()
while p.value.sum() == 0: time.sleep(0.01)
for i in range(30_000): print(i)
while c.pointer is None: time.sleep(0.01)
"""


def test_controls_for_everyone(editor: Editor) -> None:
    """axe, on a phone, by keyboard; they stay when what is printed makes the rest go; Stop ends them."""
    page = editor.page
    editor.start(EVERYTHING)
    page.locator("#output .microphone").wait_for()
    assert findings(page, "#output") == {}
    area = page.get_by_role("application", name="Digit")
    area.focus()
    for key in ("ArrowUp", "Shift+ArrowLeft", "Space"):
        area.press(key)
    printed(editor, "29999")
    assert "lines dropped" in editor.output
    assert page.locator("#output .control").count() == 6
    editor.stop()
    assert page.locator("#output .control:not([data-ended])").count() == 0
