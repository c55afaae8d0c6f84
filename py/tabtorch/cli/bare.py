"""The bare page of the site (run.html) in a headless tab: it runs one script after another, each in a Python of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tabtorch.cli.browsers import alone
from tabtorch.cli.site import serving

__all__ = ["FAILED", "BarePage", "Output", "Say", "Until", "opened"]

Output = Callable[[str, str], None]  # "stdout" or "stderr", and a piece of text
Say = Callable[[str], None]
Until = Callable[[], "int | None"]  # asked again and again: the status to end a script with, or None

FAILED: dict[str, Any] = {"status": 2, "files": []}  # the page or the tab, not the script

START = """(request) => {
  const done = (result) => __tabtorchDone(result);
  tabtorchRun(request).then(done, (error) => {
    __tabtorchOutput("stderr", `tabtorch: the page failed: ${error?.stack ?? error}\\n`);
    done({ status: 2, files: [] });
  });
}"""

# the parts of the page's start, in the order in which they end: once one has, what follows is under way
DOING = {"runtime": "loading Python…", "python": "loading tabtorch…", "tabtorch": "starting the device…"}


class BarePage:
    """Takes requests as `web/src/request.ts` defines them. The first opens the page, if `open` has not."""

    def __init__(self, browser: Any, url: str) -> None:
        self._browser = browser
        self._page: Any = None
        self._url = url
        self._results: list[Any] = []
        self._output: Output = _drop
        self._say: Say = lambda text: None
        self._usable = False
        self._address = "run.html"
        self._size: dict[str, int] | None = None

    def run(self, request: dict[str, Any], output: Output, say: Say, until: Until) -> dict[str, Any]:
        """The page's reply: `status`, and `files` that are new or changed. What `until` ends, is ended there too."""
        if not self._usable:
            self.open()
        self._results.clear()
        self._output, self._say = output, say
        self._usable = False
        say("loading Python…")
        self._page.evaluate(START, request)
        try:
            while not self._results:
                self._page.wait_for_timeout(20)
                status = until()
                if status is not None:
                    return {"status": status, "files": []}
        finally:
            self._output = _drop
        result: dict[str, Any] = self._results[0]
        self._usable = result is not FAILED
        return result

    def prepare(self, request: dict[str, Any]) -> None:
        """Start the Python that the next script will run in, if it wants the same device and environment."""
        if not self._usable:
            self.open()
        self._page.evaluate("(request) => tabtorchPrepare(request)", request)

    def check(self) -> None:
        """Raises Playwright's error if the browser has gone."""
        self._page.evaluate("0")

    def open(self) -> None:
        """A new tab: whatever ran in the last one is gone with it."""
        if self._page is not None:
            self._page.close()
        self._page = self._browser.new_page(viewport=self._size)
        self._page.expose_function("__tabtorchOutput", lambda stream, text: self._output(stream, text))
        self._page.expose_function("__tabtorchStage", self._staged)
        self._page.expose_function("__tabtorchCompiling", self._compiling)
        self._page.expose_function("__tabtorchDone", lambda result: self._results.append(result))
        self._page.on("crash", self._crashed)
        self._page.goto(f"{self._url}/{self._address}")
        self._page.wait_for_function("'tabtorchRun' in window")
        self._usable = True

    def _staged(self, stage: str) -> None:
        self._say(DOING.get(stage, "running"))

    def _compiling(self, counts: dict[str, int] | None) -> None:
        self._say("compiling {ready} of {asked} kernels…".format_map(counts) if counts else "running")

    def _crashed(self, *_: Any) -> None:
        self._output("stderr", "tabtorch: the tab crashed\n")
        self._results.append(FAILED)


def _drop(stream: str, text: str) -> None:
    """Of a script that has been ended, nothing more is heard."""


@contextmanager
def opened(site: Path, browser: str, say: Say) -> Iterator[BarePage]:
    """The page, of `site`, in a fresh browser. Raises Missing."""
    say(f"starting {browser}…")
    with serving(site) as url, alone(browser) as started:
        page = BarePage(started, url)
        page.open()
        yield page
