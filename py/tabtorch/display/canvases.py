"""`tabtorch.canvas`: tensors drawn one after another, in the page straight from the GPU's memory."""

from __future__ import annotations

import math
import time
from typing import Any

from tabtorch.display import host, images, windows
from tabtorch.display.controls import Control, size

#: numbers of the pointer: whether it is there, its column and row, whether it is down, and how many clicks there were;
#: then the places of the last of them
_POINTER, _KEPT = 5, 32
#: seconds from one drawing to the next, where each is an image
_INTERVAL = 0.1


class Canvas(Control):
    """See `canvas`."""

    kind = "canvas"

    def __init__(self, height: int, width: int, scale: float | None, alt: str) -> None:
        self.height, self.width = size("canvas", height, width)
        self.scale = images.comfortable(height, width) if scale is None else scale
        if not self.scale > 0:
            raise ValueError(f"canvas() takes a scale above 0, not {scale}")
        self._told = 0
        self._last: Any = None
        self._drawn = -math.inf
        super().__init__(alt, [0.0] * (_POINTER + 2 * _KEPT), "", height=height, width=width, scale=self.scale)

    def draw(self, tensor: Any) -> None:
        """Draws a tensor, and waits for the next frame of the screen.

        tensor: (height, width) for gray, or with 1, 3 or 4 channels (gray; red, green, blue; and opacity), which come
        first or last. Floating values go from 0 to 1, uint8 from 0 to 255, bool is black and white; what is beyond is cut
        off, and NaN is magenta.

        Raises ValueError for other shapes, TypeError for other types.
        """
        t = _as_picture(host.as_tensor(tensor, "draw()"), self.height, self.width)
        if self._link is not None:
            self._link.draw(t)
            return
        self._last = t.clone()  # it may be written to before it is shown
        host.at_end(finish)
        _waiting[id(self)] = self
        often = host.notebook() is not None or windows.pyplot() is not None
        if often and time.monotonic() - self._drawn >= _INTERVAL:
            self.show()

    def show(self) -> None:
        """As an image, where there is no page."""
        del _waiting[id(self)]
        self._drawn = time.monotonic()
        rgba = host.to_bytes(_coloured(self._last).contiguous())
        picture = images.Picture(self.width, self.height, rgba, f"{self.label}, {self.height} by {self.width}")
        images.put(picture, self.scale, None, f"{self.label} {id(self)}")

    @property
    def pointer(self) -> tuple[int, int, bool] | None:
        """(x, y, whether it is down) of the pointer: the column and the row of the pixel below it. None if it is elsewhere."""
        if self._link is None or not self._listen()(0):
            return None
        return int(self._read(1)), int(self._read(2)), bool(self._read(3))

    @property
    def clicks(self) -> list[tuple[int, int]]:
        """(x, y), the column and the row of the pixel, of each click since this was last asked; of many, the last 32."""
        if self._link is None:
            return []
        read = self._listen()
        count = int(read(4))
        places = [_POINTER + 2 * (k % _KEPT) for k in range(max(self._told, count - _KEPT), count)]
        self._told = count
        return [(int(read(at)), int(read(at + 1))) for at in places]

    def _listen(self) -> Any:
        """From now on a finger on it does not scroll the page."""
        self._link.listen()
        return self._read


_waiting: dict[int, Canvas] = {}  # what was drawn, and is not shown yet


def canvas(height: int, width: int, scale: float | None = None, *, alt: str = "Canvas") -> Canvas:
    """A picture that is drawn again and again: `c.draw(tensor)` in a loop is an animation, at the screen's rate at most.

        c = tabtorch.canvas(256, 256)
        while True:
            x = step(x)          # (256, 256), from 0 to 1
            c.draw(x)
            if c.pointer: ...    # (x, y, down), in pixels

    height, width: of what is drawn, in pixels. scale: CSS pixels to one of these; left out, what makes it large enough to
    see. alt: what it shows, for those who cannot see it.

    A tensor on the GPU is drawn straight from its memory, and nothing is read back. `c.draw` tells which shapes it takes.
    `c.pointer` is where the pointer is, or None; `c.clicks` lists the clicks since it was last asked. Each call makes
    another canvas, so it stands before the loop. Outside of the page the last picture is shown as `show` does, in a
    notebook in place as the loop goes, else at the end.

    Raises ValueError for sizes below 1, and for a scale that is not above 0.
    """
    return Canvas(height, width, scale, alt)


def finish() -> None:
    """The end of a script or a cell: the last pictures are shown."""
    for each in list(_waiting.values()):
        each.show()


def _as_picture(t: Any, height: int, width: int) -> Any:
    """(height, width, channels), of float32, uint8 or bool."""
    torch = host.library(t)
    shape = tuple(t.shape)
    if shape == (height, width):
        t = t.unsqueeze(-1)
    elif shape in [(channels, height, width) for channels in (1, 3, 4)]:
        t = t.movedim(0, -1)
    elif shape not in [(height, width, channels) for channels in (1, 3, 4)]:
        raise ValueError(
            f"draw() takes ({height}, {width}), ({height}, {width}, C) or (C, {height}, {width}) with C of 1, 3 or 4 "
            f"on this canvas; this has shape {shape}"
        )
    if t.is_floating_point():
        return t.to(torch.float32)
    if t.dtype not in (torch.uint8, torch.bool):
        raise TypeError(f"draw() takes floating values from 0 to 1, uint8 or bool, not {t.dtype}")
    return t


def _coloured(t: Any) -> Any:
    """What `_as_picture` gives -> red, green, blue and opacity of uint8."""
    torch = host.library(t)
    high = 255.0 if t.dtype is torch.uint8 else 1.0
    found = images.coloured(torch, t[None, ..., :3], "gray", 0.0, high)[0]
    if t.shape[-1] < 4:
        return found
    opacity = images.coloured(torch, t[None, ..., 3:], "gray", 0.0, high)[0]
    return torch.cat([found[..., :3], opacity[..., :1]], -1)
