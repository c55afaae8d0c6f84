"""`tabtorch run --screenshot`: a script in the page with the editor, and a picture of that page once the script has ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tabtorch.cli.bare import FAILED, BarePage, Output, Say, Until
from tabtorch.cli.browsers import alone
from tabtorch.cli.site import serving

__all__ = ["shown"]

WIDTH, HEIGHT = 1280, 800
TALLEST = 8000

# how much of the output is out of sight, once all that was drawn is there
HIDDEN = """async () => {
  await Promise.all([...document.images].map((image) => image.decode().catch(() => {})));
  const { scrollHeight, clientHeight } = document.getElementById("scroller");
  return scrollHeight - clientHeight;
}"""


class ShownPage(BarePage):
    """Takes the same requests. Python is started with the page, so that is opened for the device of the first."""

    def __init__(self, browser: Any, url: str, picture: Path) -> None:
        super().__init__(browser, url)
        self._picture = picture

    def run(self, request: dict[str, Any], output: Output, say: Say, until: Until) -> dict[str, Any]:
        """The page's reply; also of what was ended or interrupted, there is a picture."""
        device = request["device"] or os.environ.get("TABTORCH_DEVICE", "auto")
        self._address = f"index.html?device={device}"
        self._size = {"width": WIDTH, "height": HEIGHT}
        result = super().run(request, output, say, until)
        if result is not FAILED:
            self._take_picture()
        return result

    def _take_picture(self) -> None:
        """All of the output, in a window as high as that needs."""
        hidden = self._page.evaluate(HIDDEN)
        self._page.set_viewport_size({"width": WIDTH, "height": min(HEIGHT + hidden, TALLEST)})
        self._page.wait_for_timeout(300)  # what was out of sight is drawn
        self._page.screenshot(path=self._picture)


@contextmanager
def shown(site: Path, browser: str, say: Say, picture: Path) -> Iterator[ShownPage]:
    """The page, of `site`, in a fresh browser. Raises Missing."""
    say(f"starting {browser}…")
    with serving(site) as url, alone(browser) as started:
        yield ShownPage(started, url, picture)
