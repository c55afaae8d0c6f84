"""The two pages of the site, as a reader and as `tabtorch run` use them."""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tabtorch.cli import browsers

WANTED = os.environ.get("TABTORCH_BROWSERS", "chromium firefox").split()
READY = "html[data-state=ready]"

# Firefox gives a script's own ClipboardEvent no data.
PASTE = """(element, text) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", text);
  const event = new Event("paste", { bubbles: true, cancelable: true });
  element.dispatchEvent(Object.defineProperty(event, "clipboardData", { value: clipboardData }));
}"""


def wait_for_function(page: Any, expression: str, *, arg: Any = None, timeout: float = 30_000, **_: Any) -> None:
    """Instead of Playwright's own, which evaluates text inside of the page: the pages' policy forbids that."""
    end = time.monotonic() + timeout / 1000
    while not _evaluated(page, expression, arg):
        if time.monotonic() > end:
            from playwright.sync_api import TimeoutError

            raise TimeoutError(f"after {timeout} ms there is not: {expression}")
        page.wait_for_timeout(50)


def _evaluated(page: Any, expression: str, arg: Any) -> Any:
    from playwright.sync_api import Error

    try:
        return page.evaluate(expression, arg)
    except Error as error:
        if "context was destroyed" not in str(error) and "navigat" not in str(error):
            raise
        return None  # another page comes just now


class Editor:
    """The page with the editor: type, run, look at what comes."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.address = address

    def load(self, rest: str = "") -> None:
        """Open the page anew, at `rest` (a query or a `#` part), and wait until Python is there."""
        self.page.goto("about:blank")
        self.page.goto(self.address + rest)
        self.wait()

    def wait(self, seconds: float = 90) -> None:
        """Until Python waits for something to do."""
        self.page.wait_for_selector(READY, timeout=seconds * 1000)

    @property
    def code(self) -> str:
        """All of it: the editor draws only the lines in sight."""
        return str(self.page.locator(".cm-content").evaluate("e => e.cmTile.view.state.doc.toString()"))

    def write(self, code: str) -> None:
        """Put `code` in the editor, as pasting it would."""
        self.page.locator(".cm-content").focus()  # a click might hit what is shown between its lines
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.locator(".cm-content").evaluate(PASTE, code)

    def run(self, code: str | None = None, *, keys: str = "", seconds: float = 60) -> str:
        """Run `code`, or what is there, to its end: the output."""
        self.start(code, keys=keys)
        self.wait(seconds)
        return self.output

    def start(self, code: str | None = None, *, keys: str = "") -> None:
        if code is not None:
            self.write(code)
        if keys:
            self.page.locator(".cm-content").focus()
            self.page.keyboard.press(keys)
        else:
            self.page.click("#run")
        self.page.wait_for_function("!['Ready', 'Loading'].includes(document.getElementById('state').textContent)")

    def stop(self) -> None:
        self.page.click("#stop")
        self.wait()

    def enter(self, *lines: str) -> str:
        """Type lines at the prompt, each ended with Enter: what is printed below them."""
        before = self.output
        prompt = self.page.locator("#repl")
        prompt.click()
        prompt.press("Escape")  # nothing is left of what was typed before
        for line in lines:
            self.wait()
            self.page.keyboard.insert_text(line)
            rows = prompt.evaluate("e => e.rows")
            prompt.press("Enter")
            self.page.wait_for_function(
                "([rows]) => { const e = document.getElementById('repl'); return e.rows > rows || !e.value; }",
                arg=[rows],
            )
        self.wait()
        after = self.output
        # older lines may have gone to make room
        return after[len(before) if after.startswith(before) else after.rindex(f">>> {lines[0]}") :]

    @property
    def output(self) -> str:
        # drawn once a frame: two frames on, all that was sent is there
        self.page.evaluate("() => new Promise((done) => setTimeout(done, 120))")
        return str(self.page.locator("#output").evaluate("e => e.textContent"))

    @property
    def state(self) -> str:
        return str(self.page.locator("#state").inner_text())

    @property
    def device(self) -> str:
        return str(self.page.locator("#device").inner_text())


@dataclass
class Process:
    """How a script ended."""

    status: int
    stdout: str
    stderr: str
    files: dict[str, bytes] = field(default_factory=dict)


RUN = """async (request) => {
  const text = { stdout: "", stderr: "" };
  window.__tabtorchOutput = (stream, piece) => { text[stream] += piece; };
  return { ...(await tabtorchRun(request)), ...text };
}"""


def run_script(page: Any, source: str, *, files: dict[str, bytes] | None = None, **request: Any) -> Process:
    """Run `source` through the bare page, as `tabtorch run` does."""
    sent = [[name, base64.b64encode(data).decode()] for name, data in (files or {}).items()]
    reply = page.evaluate(RUN, {"source": source, "files": sent, **request})
    back = {name: base64.b64decode(text) for name, text in reply["files"]}
    return Process(reply["status"], reply["stdout"], reply["stderr"], back)


def plain(text: str) -> str:
    """Without ANSI colours."""
    return re.sub(r"\x1b\[[\d;]*m", "", text)


@contextmanager
def without_webgpu(playwright: Any, name: str) -> Iterator[Any]:
    """The browser `name`, as one that has no WebGPU."""
    if name == "firefox":
        with browsers.launch(playwright, name, prefs={"dom.webgpu.enabled": False}) as browser:
            yield browser
        return
    flags = [flag for flag in browsers.CHROMIUM_FLAGS if "webgpu" not in flag and "gpu-blocklist" not in flag]
    browser = playwright.chromium.launch(executable_path=browsers.find(name), args=[*flags, "--disable-gpu"])
    try:
        yield browser
    finally:
        browser.close()
