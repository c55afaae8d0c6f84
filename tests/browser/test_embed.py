"""A script in a frame, and cells in pages of other people's making, on another origin than the site."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from browser.test_accessible import findings
from browser.test_controls import colours
from browser.test_hostile import link

SLOW = 90_000

STRANGER = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src {origin}; frame-src {origin}; style-src 'self'; img-src 'self'">
<title>A course</title>
<main>
<h1>A course</h1>
<script type="module" src="{site}tabtorch-cell.js"></script>
<p>Start here.</p>
<tabtorch-cell id="one">
    import torch
    x = torch.arange(3)
    if x.sum() > 2:
        print("first")
    x
</tabtorch-cell>
<p>Then this.</p>
<tabtorch-cell id="two"><script type="text/plain">
print(x.tolist(), 1 < 2)
</script></tabtorch-cell>
<p>And this, which goes on.</p>
<tabtorch-cell id="three" readonly height="300"><pre>
import time
for i in range(10**6):
    print(i)
    time.sleep(0.01)
</pre></tabtorch-cell>
<p>The end.</p>
</main>
</html>
"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def plain_server(folder: Path) -> Iterator[str]:
    """A server with no header of its own, on an origin of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def origin_of(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


class Requests(list[str]):
    """What a page asks of the site, and what its console says."""

    def __init__(self, page: Any, address: str) -> None:
        super().__init__()
        self.said: list[str] = []
        page.on("request", lambda request: request.url.startswith(address) and self.append(request.url))
        page.on("console", lambda message: message.type == "error" and self._hear(message))
        page.on("pageerror", lambda error: self.said.append(str(error)))

    def _hear(self, message: Any) -> None:
        if not message.location["url"].endswith("favicon.ico"):  # which the stranger's page has not
            self.said.append(message.text)


class Cell:
    """A cell that was run once: its frame. Playwright's Firefox sends neither clicks nor keys into frames of other origins."""

    def __init__(self, page: Any, where: str) -> None:
        self.frame = page.frame_locator(where)

    def press(self, button: str) -> None:
        self.frame.locator(f"{button}:enabled").evaluate("e => e.click()")

    def write(self, code: str) -> None:
        change = """(e, insert) => {
          const { view } = e.cmTile;
          view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert } });
        }"""
        self.frame.locator(".cm-content").evaluate(change, code)

    def ended(self, words: str = "Done") -> str:
        self.frame.locator("#state", has_text=words).wait_for(timeout=SLOW)
        self.frame.locator("#run:enabled").wait_for()
        return self.output

    def prints(self, text: str) -> None:
        self.frame.locator("#output", has_text=text).wait_for(timeout=SLOW)

    @property
    def output(self) -> str:
        self.frame.locator("#output").evaluate("() => new Promise((done) => setTimeout(done, 150))")
        return str(self.frame.locator("#output").text_content())


@pytest.fixture(scope="module")
def course(running: Any, address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Requests]]:
    folder = tmp_path_factory.mktemp("course")
    (folder / "index.html").write_text(STRANGER.format(site=address, origin=origin_of(address)))
    page = running.new_page(viewport={"width": 1000, "height": 900})
    requests = Requests(page, address)
    with plain_server(folder) as url:
        page.goto(url)
        page.locator("#one").get_by_role("button", name="Run").wait_for()
        yield page, requests
        page.close()


def test_cells_in_a_page_of_another_origin(course: tuple[Any, Requests], address: str) -> None:
    page, requests = course
    page.wait_for_timeout(300)
    assert requests == [f"{address}tabtorch-cell.js"]  # nothing else of ours, before somebody wants it
    field = page.locator("#one textarea")
    assert field.input_value() == 'import torch\nx = torch.arange(3)\nif x.sum() > 2:\n    print("first")\nx'
    assert page.locator("#three textarea").evaluate("e => e.readOnly")
    assert findings(page) == {}
    field.fill(field.input_value().replace("first", "edited"))
    field.press("Shift+Enter")
    one, two, three = (Cell(page, f"#{name} iframe") for name in ("one", "two", "three"))
    output = one.ended()
    assert output.startswith("edited\ntensor([0, 1, 2]"), output
    assert not [url for url in requests if "assets/index" in url]  # nothing of the site's own page
    # the other cells share its Python
    page.locator("#two button").click()
    assert two.ended() == "[0, 1, 2] True\n"
    assert sum("pyodide.asm.wasm" in url for url in requests) == 1
    # Stop, of one that waits for its turn, too
    page.locator("#three button").click()
    three.prints("5\n")
    two.press("#run")
    two.frame.locator("#state", has_text="Waiting").wait_for()
    two.press("#stop")
    two.ended("Stopped")
    three.press("#stop")
    assert "KeyboardInterrupt" in three.ended("Stopped")
    assert three.frame.locator(".cm-content").get_attribute("contenteditable") == "false"
    # what fails is shown as Python does, at the line
    two.write("y = 1\ny @ x")
    two.press("#run")
    output = two.ended("Failed")
    assert "line 2, in <module>" in output and "TypeError" in output, output
    assert two.frame.locator(".failed-line").inner_text() == "y @ x"
    assert not requests.said, requests.said


CONTROLS = """
import tabtorch, torch
part = tabtorch.slider("Part", 0.0, 1.0)
c = tabtorch.canvas(2, 3, 20, alt="All of it")
frames = 0
while part.value < 0.9:
    c.draw(torch.ones(2, 3))
    frames += 1
print("over", frames > 0)
"""


def test_controls_in_a_cell(course: tuple[Any, Requests], running: Any) -> None:
    """What the reader moves in one frame reaches the Python in another, and what that draws is seen here."""
    page, requests = course
    if page.locator("#one button").count():
        page.locator("#one button").click()
    one = Cell(page, "#one iframe")
    one.ended()
    one.write(CONTROLS)
    one.press("#run")
    one.frame.get_by_role("img", name="All of it").wait_for()
    move = "e => { e.value = 1; e.dispatchEvent(new Event('input')); }"
    one.frame.get_by_role("slider", name="Part").evaluate(move)
    assert one.ended().endswith("over True\n")
    assert one.frame.get_by_role("slider", name="Part").is_disabled()
    assert not requests.said, requests.said
    eyes = running.new_page()
    assert set(colours(eyes, one.frame.get_by_role("img", name="All of it"))) == {(255, 255, 255)}
    eyes.close()


def test_cells_that_run_by_themselves(running: Any, address: str, tmp_path: Path) -> None:
    """In their order, though the frame of another may be there before; and one that the page's policy refuses says so."""
    tag = f'<!doctype html><title>x</title><script type="module" src="{address}tabtorch-cell.js"></script>'
    first = '<tabtorch-cell id="one" run device="cpu">import torch; x = torch.zeros(2)</tabtorch-cell>'
    second = '<tabtorch-cell id="two" run>print(x.device, x)</tabtorch-cell>'
    (tmp_path / "index.html").write_text(tag + first + second)
    policy = (
        f"<meta http-equiv='Content-Security-Policy' content='script-src {origin_of(address)}; frame-src \"none\"'>"
    )
    (tmp_path / "strict.html").write_text(policy.replace('"', "&#39;") + tag + first)
    page = running.new_page()
    with plain_server(tmp_path) as url:
        page.goto(url)
        assert Cell(page, "#two iframe").ended() == "cpu tensor([0., 0.])\n"
        page.goto(f"{url}strict.html")
        page.get_by_role("status").get_by_text("frame-src").wait_for()
        page.close()


def test_a_script_in_a_frame(running: Any, address: str, tmp_path: Path) -> None:
    """At 600 by 400 all of it is in sight; `run=1` runs it, in a frame only."""
    part = f"embed=1&run=1{link(b'print(6 * 7)')}"
    (tmp_path / "index.html").write_text(
        f'<!doctype html><title>x</title><iframe src="{address}index.html?{part}" width="600" height="400"></iframe>'
    )
    page = running.new_page()
    requests = Requests(page, address)
    with plain_server(tmp_path) as url:
        page.goto(f"{address}?{part}")  # somebody else's link, in a tab of its own
        page.locator("#hint").wait_for()
        assert page.locator(".cm-content").inner_text() == "print(6 * 7)"
        page.wait_for_timeout(300)
        assert page.locator("#state").inner_text() == "" and not any("pyodide" in url for url in requests)
        page.goto(url)
        cell = Cell(page, "iframe")
        assert cell.ended() == "42\n"
        for which in ("#run", "#stop", ".cm-content", "#output", "#full"):
            box = cell.frame.locator(which).bounding_box()
            assert box["y"] + min(box["height"], 20) < page.locator("iframe").bounding_box()["y"] + 400, which
        assert cell.frame.locator("#full").get_attribute("href").startswith(f"{address}#code=")
        assert not cell.frame.locator("nav").count()
        assert not requests.said, requests.said
        page.close()
