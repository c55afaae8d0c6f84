"""`tabtorch.webcam` and `tabtorch.microphone`."""

from __future__ import annotations

from typing import Any

from tabtorch.display import host
from tabtorch.display.controls import Control, same, size


class Webcam(Control):
    """See `webcam`."""

    kind = "webcam"

    def __init__(self, height: int, width: int) -> None:
        self._shape = size("webcam", height, width)
        super().__init__("Camera", [], "gives black pictures", height=height, width=width)

    def frame(self) -> Any:
        """What it sees now: a uint8 tensor (3, height, width). Waits for it.

        Raises PermissionError where the reader, or the page around this one, has refused the camera, OSError where there is none.
        """
        if self._link is None:
            torch = host.library(None)
            return torch.zeros(3, *self._shape, dtype=torch.uint8)
        pixels = host.from_bytes(self._link.ask(), "uint8", (*self._shape, 4))
        return pixels[..., :3].permute(2, 0, 1).contiguous()


def webcam(height: int = 240, width: int = 320) -> Webcam:
    """The camera, once the reader has allowed it: `.frame()` is what it sees, a uint8 tensor (3, height, width).

    height, width: of the pictures, in pixels; what the camera sees is made smaller, and cut at two sides where its own
    picture has another form. The camera is on from the first `.frame()` to the end of the script, and what it sees is shown.

    A second call with the same size in one run gives the same one. Outside of the page its pictures are black, which is said
    once. Raises ValueError for sizes below 1.
    """
    return same(("webcam", height, width), lambda: Webcam(height, width))


class Microphone(Control):
    """See `microphone`."""

    kind = "microphone"

    def __init__(self, seconds: float, rate: int) -> None:
        self.seconds, self.rate = seconds, rate
        self._count = round(seconds * rate)
        if self._count < 1 or not 8_000 <= rate <= 96_000:
            raise ValueError(
                f"microphone() takes seconds above 0 and a rate from 8000 to 96000, not {seconds} and {rate}"
            )
        super().__init__("Microphone", [], "gives silence", seconds=seconds, rate=rate)

    def record(self) -> Any:
        """What it hears from now on: a float32 tensor (seconds * rate,), from -1 to 1. Waits until it is over.

        Raises PermissionError where the reader, or the page around this one, has refused it, OSError where there is none.
        """
        if self._link is None:
            return host.library(None).zeros(self._count)
        return host.from_bytes(self._link.ask(), "float32", (self._count,))


def microphone(seconds: float = 1.0, rate: int = 16_000) -> Microphone:
    """The microphone, once the reader has allowed it: `.record()` is what it hears, a float32 tensor (seconds * rate,).

    seconds: how long one record is. rate: samples a second, from 8000 to 96000. It listens while `.record()` waits, and at
    no other time.

    A second call with the same arguments in one run gives the same one. Outside of the page it hears nothing, which is said
    once. Raises ValueError for a length of nothing and for other rates.
    """
    return same(("microphone", seconds, rate), lambda: Microphone(seconds, rate))
