"""Runs the demos, and keeps a small picture of what each shows: `make thumbnails`.

    python web/thumbnails.py [NAME ...]

Chromium takes the pictures and makes them small; the site must be built. A demo that loops until Stop is stopped. Those that are
pages of their own are used a little.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import TimeoutError, sync_playwright

from tabtorch.cli import browsers
from tabtorch.cli.site import find_site, serving

DEMOS = Path(__file__).parent / "demos"
#: of a picture in the gallery, in pixels, and the most bytes that it may have
WIDTH, HEIGHT, MOST = 240, 150, 8_000
#: for a demo; then it is stopped: what it shows is good enough
SECONDS = 30

#: the element that is taken: the picture or canvas of the most pixels, the last of several; else a chart; else the text
CHOOSE = """() => {
  const pixels = (e) => (e.naturalWidth ?? e.width) * (e.naturalHeight ?? e.height);
  const pictures = [...document.querySelectorAll("#output img, #output .control.canvas canvas")];
  const most = Math.max(...pictures.map(pixels));
  return pictures.findLast((e) => pixels(e) === most)
    ?? document.querySelector("#output .chart") ?? document.getElementById("output");
}"""

#: an image -> a WebP of the size, cut from its middle, or from its top where it is too high, as base64
SHRINK = """async ([address, width, height, quality]) => {
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d");
  const scale = Math.max(width / image.width, height / image.height);
  const [w, h] = [image.width * scale, image.height * scale];
  context.imageSmoothingQuality = "high";
  context.drawImage(image, (width - w) / 2, (height - h) / 2, w, h);
  return canvas.toDataURL("image/webp", quality).split(",")[1];
}"""


def shrunk(page: Any, png: bytes) -> bytes:
    """In the size of the gallery, as good as there is room for."""
    address = "data:image/png;base64," + base64.b64encode(png).decode()
    for quality in (0.85, 0.7, 0.55, 0.4, 0.25, 0.1):
        small = base64.b64decode(page.evaluate(SHRINK, [address, WIDTH, HEIGHT, quality]))
        if len(small) <= MOST:
            break
    return small


def run(page: Any, address: str, name: str) -> None:
    """Open a demo and run it to its end, or as far as it comes."""
    page.goto(f"{address}#demo={name}")
    ready = "html[data-state=ready]"
    page.wait_for_selector(ready, timeout=120_000)
    page.click("#run")
    page.wait_for_selector("html[data-state=busy]")
    try:
        page.wait_for_selector(ready, timeout=SECONDS * 1000)
    except TimeoutError:
        page.evaluate("document.getElementById('stop').click()")  # nothing, if it has ended just now
        page.wait_for_selector(ready, timeout=60_000)


def draw(page: Any) -> str:
    box = page.locator("#pad canvas").bounding_box()
    corners = [
        (box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in ((0.3, 0.2), (0.7, 0.2), (0.4, 0.85))
    ]
    page.mouse.move(*corners[0])
    page.mouse.down()
    for corner in corners[1:]:
        page.mouse.move(*corner, steps=8)
    page.mouse.up()
    page.get_by_title("This is a 7").click()
    page.locator("#says", has_text="It has learnt").wait_for()
    return ".parts"


def write(page: Any) -> str:
    page.click("#write")
    page.locator("#stop:enabled").wait_for()
    page.locator("#write:enabled").wait_for(timeout=120_000)
    return ".parts > section"


def chat(page: Any) -> str:
    page.evaluate(TALK)
    return "main"


#: there is no model here that could talk
TALK = """() => {
  const said = ["What are you?", "A GGUF file, in a tab of yours.", "And who listens?", "Nobody."];
  for (const [k, words] of said.entries()) {
    const item = Object.assign(document.createElement("div"), { className: ["user", "assistant"][k % 2] });
    item.append(Object.assign(document.createElement("p"), { textContent: words }));
    document.getElementById("talk").append(item);
  }
  document.getElementById("source").remove();
  document.querySelector("main > p").remove();
}"""

#: what is done in a page of its own, before an element is taken
PAGES = {"draw": draw, "write": write, "chat": chat}


def main() -> None:
    names = sys.argv[1:] or [*sorted(path.stem for path in DEMOS.glob("*.py")), *PAGES]
    folder = DEMOS / "thumbnails"
    folder.mkdir(exist_ok=True)
    with (
        sync_playwright() as playwright,
        browsers.launch(playwright, "chromium") as browser,
        serving(find_site()) as url,
    ):
        page, plain = browser.new_page(viewport={"width": 1280, "height": 1600}), browser.new_page()
        for name in names:
            if name in PAGES:
                page.set_viewport_size({"width": 1280, "height": 800})
                page.goto(f"{url}/{name}.html")
                page.wait_for_selector("html[data-state=ready]", timeout=120_000)
                shot = page.locator(PAGES[name](page)).first.screenshot()
            else:
                page.set_viewport_size({"width": 1280, "height": 1600})
                run(page, f"{url}/", name)
                shot = page.evaluate_handle(CHOOSE).as_element().screenshot()
            small = shrunk(plain, shot)
            (folder / f"{name}.webp").write_bytes(small)
            print(f"{name}: {len(small):,} bytes", flush=True)


if __name__ == "__main__":
    main()
