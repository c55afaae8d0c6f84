"""The pictures of the page in README: `make screenshots` runs a script in the page, and takes them.

They are as small as they get at what a reader sees: WebP by the browser itself, but for the one that other sites show
with a link, which is to be PNG.
"""

from __future__ import annotations

import base64
import contextlib
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy

from browser.pages import Editor, wait_for_function
from browser.test_hostile import link
from tabtorch.cli import browsers
from tabtorch.cli.site import find_site, serving

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
PREVIEW = ROOT / "web" / "public" / "page.png"

DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
FRAME = {"width": 600, "height": 400}

SCRIPT = """# A network learns to read 8x8 digits
import torch, torch.nn as nn, torch.nn.functional as F
import tabtorch

device = "cuda" if torch.cuda.is_available() else "cpu"
rows = [line.split() for line in open("data/digits.txt")]
labels = torch.tensor([int(label) for label, _ in rows])
images = torch.tensor([[int(c, 17) / 16 for c in pixels]
                       for _, pixels in rows])
images = images.view(-1, 1, 8, 8).to(device)
labels = labels.to(device)
tabtorch.show(images[:24, 0], cmap="gray",
              scale=4, columns=12)

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(128, 10),
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(100):
    batch = torch.randint(1500, (64,), device=device)
    guess = model(images[batch])
    loss = F.cross_entropy(guess, labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tabtorch.plot("loss", loss)

guess = model(images[1500:]).argmax(1)
right = (guess == labels[1500:]).float().mean()
print(f"{right:.1%} of digits it has not seen")
"""
SHORT = """import torch

w = torch.zeros(2, requires_grad=True)
x = torch.tensor([[1., 2.], [3., 4.]])
loss = (x @ w - torch.tensor([5., 6.])).square().sum()
loss.backward()
print(loss, w.grad)"""

ENCODE = """async (bytes) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${bytes}`)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const text = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  const webp = await canvas.convertToBlob({ type: "image/webp", quality: 0.85 });
  const { data } = context.getImageData(0, 0, image.width, image.height);
  return [text(new Uint8Array(await webp.arrayBuffer())), text(data), image.width, image.height];
}"""


def png(rgba: bytes, width: int, height: int) -> bytes:
    """A PNG of the 256 colours that are there most, or nearly so: others are drawn in the nearest of them."""
    colours = numpy.frombuffer(rgba, numpy.uint8).reshape(-1, 4)[:, :3]
    found, each, counts = numpy.unique(colours, axis=0, return_inverse=True, return_counts=True)
    palette = found[numpy.argsort(-counts)[:256]]
    nearest = [((palette.astype(int) - colour) ** 2).sum(1).argmin() for colour in found]
    rows = numpy.array(nearest, numpy.uint8)[each].reshape(height, width)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    parts = {b"IHDR": header, b"PLTE": palette.tobytes(), b"IDAT": zlib.compress(lines, 9), b"IEND": b""}
    framed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


class Camera:
    def __init__(self, browser: Any) -> None:
        self._blank = browser.new_page()
        self._blank.goto("about:blank")

    def take(self, page: Any, path: Path) -> None:
        """A picture of what is in sight."""
        page.evaluate("document.activeElement?.blur()")  # no cursor that is there in one picture and not in the next
        shot = page.screenshot(animations="disabled")
        webp, rgba, width, height = self._blank.evaluate(ENCODE, base64.b64encode(shot).decode())
        made = base64.b64decode(webp) if path.suffix == ".webp" else png(base64.b64decode(rgba), width, height)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made)
        print(f"{path.relative_to(ROOT)}  {len(made) / 1000:.1f} kB")


@contextlib.contextmanager
def opened(browser: Any, url: str, size: dict[str, int], **options: Any) -> Iterator[Editor]:
    """The page with the editor, in which the script has run."""
    context = browser.new_context(viewport=size, **options)
    editor = Editor(context.new_page(), url)
    editor.load(link(SCRIPT.encode()))
    editor.run(seconds=300)
    yield editor
    context.close()


def the_page(browser: Any, url: str, camera: Camera) -> None:
    with opened(browser, url, DESKTOP) as editor:
        editor.enter("model(images[:8]).argmax(1)")
        camera.take(editor.page, PREVIEW)
        editor.page.emulate_media(color_scheme="dark")
        camera.take(editor.page, IMAGES / "dark.webp")
        editor.page.emulate_media(color_scheme="light")
        editor.page.click("#inspect")
        editor.page.get_by_role("tab", name="Profile").click()
        editor.page.get_by_role("button", name="Run with profile").click()
        editor.page.wait_for_selector(".kernels", timeout=300_000)
        camera.take(editor.page, IMAGES / "inspector.webp")


def on_a_phone(browser: Any, url: str, camera: Camera) -> None:
    with opened(browser, url, PHONE, has_touch=True, device_scale_factor=2) as editor:
        editor.page.evaluate("document.querySelector('.edit').scrollIntoView()")
        camera.take(editor.page, IMAGES / "phone.webp")


def in_a_frame(browser: Any, url: str, camera: Camera) -> None:
    context = browser.new_context(viewport=FRAME, device_scale_factor=2)
    page = context.new_page()
    page.goto(f"{url}embed.html{link(SHORT.encode())}")
    for _ in range(2):  # the first loads Python
        page.evaluate("document.getElementById('state').textContent = ''")
        page.click("#run")
        page.locator("#state", has_text="Done in").wait_for(timeout=120_000)
    camera.take(page, IMAGES / "embed.webp")
    context.close()


def main() -> None:
    from playwright.sync_api import Page, sync_playwright

    with (
        sync_playwright() as playwright,
        serving(find_site()) as url,
        browsers.launch(playwright, "chromium") as browser,
    ):
        Page.wait_for_function = wait_for_function  # type: ignore[method-assign,assignment]  # the page's policy forbids its own
        camera = Camera(browser)
        for taken in (the_page, on_a_phone, in_a_frame):
            taken(browser, f"{url}/", camera)


if __name__ == "__main__":
    main()
