"""Controls: sliders, buttons and areas to draw in, whose values a loop reads without waiting.

In the page each is an element of the output, and its numbers lie in memory that the page writes to: see tabcontrols.py
there. Outside of the page a control keeps its first value, and says so once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from tabtorch.display import host

C = TypeVar("C", bound="Control")


class Control:
    """What all controls have in common: a label, and the numbers that the page keeps up to date."""

    kind = ""

    def __init__(self, label: str, first: Sequence[float], keeps: str, **about: Any) -> None:
        if not isinstance(label, str):
            raise TypeError(f"{self.kind}() takes its label as a string, not {type(label).__name__}")
        self.label = label
        self._first = first
        page = host.page()
        self._link: Any = None if page is None else page.control(self.kind, {"label": label, **about}, first)
        if page is None and keeps:
            print(f"tabtorch: the {self.kind} {label!r} {keeps}: it is live in tabtorch's page alone", file=sys.stderr)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.label!r}>"

    @property
    def there(self) -> bool:
        """Whether it is still in the output."""
        return self._link is None or self._link.there

    def _read(self, i: int) -> float:
        number: float = self._first[i] if self._link is None else self._link.read(i)
        return number


_made: dict[Hashable, Control] = {}


def same(key: Hashable, make: Callable[[], C]) -> C:
    """The control that this run has made under this key, so that a call may stand in a loop; else a new one."""
    found: Any = _made.get(key)
    if found is None or not found.there:
        found = _made[key] = make()
    return found


def forget() -> None:
    """Another run begins, and makes controls of its own."""
    _made.clear()


class Slider(Control):
    """See `slider`."""

    kind = "slider"

    def __init__(self, label: str, low: float, high: float, value: float | None, step: float | None) -> None:
        given = [each for each in (low, high, value, step) if each is not None]
        self._type = int if all(isinstance(each, int) for each in given) else float
        if not low < high:
            raise ValueError(f"slider() takes low below high, not {low} and {high}")
        if step is not None and not step > 0:
            raise ValueError(f"slider() takes a step above 0, not {step}")
        first = low if value is None else value
        if not low <= first <= high:
            raise ValueError(f"slider() takes a value from {low} to {high}, not {value}")
        if step is None:
            step = 1 if self._type is int else (high - low) / 100
        super().__init__(label, [first], f"stays at {first}", low=low, high=high, step=step)

    @property
    def value(self) -> float:
        """Where it stands now."""
        return self._type(self._read(0))


def slider(label: str, low: float, high: float, value: float | None = None, step: float | None = None) -> Slider:
    """A slider below what was printed so far. `.value` is where it stands now: a loop reads it without waiting.

        speed = tabtorch.slider("speed", 0.0, 2.0, value=1.0)
        while True:
            x = x + speed.value * v

    label: shown beside it, and read to those who cannot see it. low, high: its ends. value: where it stands at first; left
    out, at low. step: between two places; left out, a hundredth of the way. If all of these are whole numbers, so is its
    value, and the step is 1.

    A second call with the same label in one run gives the same slider, so that it may stand in a loop. It can be moved
    while a script runs. Outside of the page it stays at its first value, which is said once.

    Raises ValueError where low is not below high, value is not from low to high, or step is not above 0.
    """
    return same(("slider", label), lambda: Slider(label, low, high, value, step))


class Button(Control):
    """See `button`."""

    kind = "button"

    def __init__(self, label: str) -> None:
        super().__init__(label, [0], "is never pressed")
        self._told = 0

    @property
    def clicks(self) -> int:
        """How often it has been pressed so far."""
        return int(self._read(0))

    def pressed(self) -> bool:
        """True, once for each time that it was pressed."""
        if self._told >= self.clicks:
            return False
        self._told += 1
        return True


def button(label: str) -> Button:
    """A button below what was printed so far. A loop asks `if b.pressed():`, which is true once for each press.

    `.clicks` counts all of them. A second call with the same label in one run gives the same button. It can be pressed
    while a script runs. Outside of the page it is never pressed, which is said once.
    """
    return same(("button", label), lambda: Button(label))


class Pad(Control):
    """See `pad`."""

    kind = "pad"

    def __init__(self, label: str, height: int, width: int) -> None:
        self._shape = size("pad", height, width)
        super().__init__(label, [0.0] * (height * width), "stays empty", height=height, width=width)

    @property
    def value(self) -> Any:
        """What is drawn: a float32 tensor (height, width), from 0, where nothing is, to 1."""
        if self._link is None:
            return host.library(None).zeros(self._shape)
        return host.from_bytes(self._link.floats(), "float32", self._shape)

    def clear(self) -> None:
        """Take away what was drawn."""
        if self._link is not None:
            self._link.clear()


def pad(label: str, height: int = 28, width: int = 28) -> Pad:
    """An area to draw in with a pointer, a finger or the keyboard. `.value` is what is drawn there now.

    height, width: of the picture, in pixels. `.value` is a float32 tensor (height, width), 0 where nothing is drawn and 1
    in the middle of a line: as the digits of MNIST. `.clear()` empties it, as the button beside it does.

    A second call with the same label in one run gives the same area. It can be drawn in while a script runs. Outside of
    the page it stays empty, which is said once.

    Raises ValueError for sizes below 1.
    """
    return same(("pad", label), lambda: Pad(label, height, width))


def size(who: str, height: int, width: int) -> tuple[int, int]:
    """(height, width), if a picture can have it."""
    if height < 1 or width < 1:
        raise ValueError(f"{who}() takes a height and a width from 1, not {height} and {width}")
    return height, width
