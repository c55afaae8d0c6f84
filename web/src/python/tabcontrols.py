"""Controls in the page, for tabtorch.display: their numbers, what is drawn on a canvas, and what a camera or microphone gives.

The numbers lie in memory that the page writes to, where it can be shared. Where not they come as messages, which are seen
when Python yields: a loop that does nothing but ask yields a little, now and then.
"""

import json
import time

import pyodide.ffi
from pyodide.ffi import JsException, can_run_sync

_connect = None  # set by the page
_OFTEN = 1 / 30  # seconds
_yielded = 0.0

_KINDS = {"float32": 0, "uint8": 1, "bool": 2}


def start(connect):
    """connect(label, about, first): the link (links.ts) to a new element of the output."""
    global _connect
    _connect = connect


class Link:
    """What a control has of its element."""

    def __init__(self, kind, about, first):
        self._js = js = _connect(about["label"], json.dumps({"kind": kind, **about}), pyodide.ffi.to_js(first))
        self._read = js.read
        self._listens = False
        self.clear = js.clear
        self.read = js.read if js.shared else self._read_in_turn

    @property
    def there(self):
        return not self._js.gone

    def _read_in_turn(self, i):
        """The number `i`, of which messages tell."""
        if time.monotonic() - _yielded > _OFTEN:
            self._yield()
        return self._read(i)

    def floats(self):
        """All numbers as bytes of float32."""
        self.read(0)
        return self._js.floats().to_bytes()

    def listen(self):
        """The script uses the pointer."""
        if not self._listens:
            self._listens = True
            self._js.listen()

    def _yield(self):
        global _yielded
        if can_run_sync():
            pyodide.ffi.run_sync(self._js.turn())
        _yielded = time.monotonic()

    def ask(self):
        """The bytes that the element gives."""
        if not can_run_sync():
            raise RuntimeError(
                "this browser has no JSPI: Python cannot wait here for what a camera or a microphone gives"
            )
        try:
            return pyodide.ffi.run_sync(self._js.ask()).to_bytes()
        except JsException as error:
            kind = PermissionError if error.name == "NotAllowedError" else OSError
            raise kind(error.message) from None

    def draw(self, t):
        """Draw (height, width, channels) on the canvas, and wait for a frame."""
        global _yielded
        from tabtorch.bridge import get_bridge
        from tabtorch.core import to_host

        screen = self._screen()
        if screen is None:
            return
        b, first, strides = to_host.memory_of(t)
        height, width, channels = t.shape
        row, column, channel = strides
        last = first + (height - 1) * row + (width - 1) * column + (channels - 1) * channel
        picture = {
            "kind": _KINDS[str(t.dtype).removeprefix("torch.")],
            "height": height,
            "width": width,
            "channels": channels,
            "first": first,
            "row": row,
            "column": column,
            "channel": channel,
            "nbytes": (last + 1) * t.element_size(),
        }
        get_bridge().present(screen, b.id, picture, self._js.shown)
        _yielded = time.monotonic()

    def _screen(self):
        """What can be drawn on: None if it is not there, or not yet."""
        if self._js.screen is None and can_run_sync():
            pyodide.ffi.run_sync(self._js.coming())
        return self._js.screen
