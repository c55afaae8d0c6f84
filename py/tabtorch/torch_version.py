"""`torch.torch_version`: a version that is a str, and is compared as one of a package, with strings and tuples of numbers too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tabtorch.version import __version__ as _written

__all__ = ["TorchVersion"]

_STAGES = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}


def _key(version: str) -> tuple[Any, ...] | None:
    """What PEP 440 orders versions by, or None for a text that is none."""
    import re

    found = re.fullmatch(
        r"\s*v?(\d+(?:\.\d+)*)(?:[-_.]?(alpha|a|beta|b|preview|pre|rc|c)[-_.]?(\d*))?(?:[-_.]?(post)[-_.]?(\d*))?"
        r"(?:[-_.]?(dev)[-_.]?(\d*))?(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*",
        version.lower(),
    )
    if found is None:
        return None
    numbers, stage, nth, post, after, dev, before, local = found.groups()
    release = [int(n) for n in numbers.split(".")]
    while release and release[-1] == 0:
        release.pop()
    parts = re.split("[-_.]", local) if local else []
    return (
        release,
        (_STAGES[stage], int(nth or 0)) if stage else (-1, 0) if dev and not post else (3, 0),
        int(after or 0) if post else -1,
        (0, int(before or 0)) if dev else (1, 0),
        [(1, int(p), "") if p.isdigit() else (0, 0, p) for p in parts],
    )


class TorchVersion(str):
    """A version, e.g. `torch.__version__ >= (2, 6)` or `> "2.9"`; with what is no version it is compared as a str is."""

    __slots__ = ()
    __hash__ = str.__hash__

    def _compared(self, other: Any, method: str) -> Any:
        text = ".".join(map(str, other)) if isinstance(other, Iterable) and not isinstance(other, str) else str(other)
        ours, theirs = _key(self), None if isinstance(other, (int, float)) else _key(text)
        if ours is None or theirs is None:
            return getattr(str, method)(self, other)
        return getattr(ours, method)(theirs)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, "__gt__")

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, "__lt__")

    def __eq__(self, other: Any) -> Any:
        return self._compared(other, "__eq__")

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, "__ge__")

    def __le__(self, other: Any) -> Any:
        return self._compared(other, "__le__")

    __ne__ = str.__ne__  # as PyTorch's


__version__ = TorchVersion(_written)
