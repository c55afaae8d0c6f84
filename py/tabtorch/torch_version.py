"""`torch.torch_version`: the version as a string that compares as versions do, not letter by letter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tabtorch.version import __version__ as _written

__all__ = ["TorchVersion"]

_FORM = (
    r"\s*v?(?:(\d+)!)?(\d+(?:\.\d+)*)(?:[-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?(\d*))?"
    r"(?:-(\d+)|[-_.]?(post|rev|r)[-_.]?(\d*))?(?:[-_.]?(dev)[-_.]?(\d*))?(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*"
)
_PRE = {"alpha": "a", "beta": "b", "preview": "rc", "pre": "rc", "c": "rc"}


def _key(version: str) -> tuple[Any, ...]:
    """What a version sorts by (PEP 440): a dev release comes before the pre-releases, then the release, then post-releases. ValueError
    if it is none."""
    import re  # which few programs ask for

    found = re.fullmatch(_FORM, version, re.IGNORECASE)
    if found is None:
        raise ValueError(f"Invalid version: {version!r}")
    epoch, release, pre, pre_n, post_n, post, post_m, dev, dev_n, local = found.groups()
    numbers = [int(n) for n in release.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    posted, in_development = bool(post_n or post), bool(dev)
    stage: tuple[Any, ...] = (1,)  # no pre-release
    if pre:
        stage = 0, _PRE.get(pre.lower(), pre.lower()), int(pre_n or 0)
    elif in_development and not posted:
        stage = (-1,)
    parts = re.split(r"[-_.]", local.lower()) if local else []
    return (
        int(epoch or 0),
        tuple(numbers),
        stage,
        int(post_n or post_m or 0) if posted else -1,
        int(dev_n or 0) if in_development else float("inf"),
        tuple((1, int(p), "") if p.isdigit() else (0, 0, p) for p in parts),
    )


class TorchVersion(str):
    """A version: `torch.__version__ < "2.5"` and `torch.__version__ >= (2, 5)` are about numbers. What is no version is text."""

    def _compared(self, other: Any, method: str) -> Any:
        numbers = isinstance(other, Iterable) and not isinstance(other, str)
        try:
            return getattr(_key(self), method)(_key(".".join(map(str, other)) if numbers else other))
        except (ValueError, TypeError):
            return getattr(str, method)(self, other)

    def __gt__(self, other: Any) -> bool:
        return self._compared(other, "__gt__")

    def __lt__(self, other: Any) -> bool:
        return self._compared(other, "__lt__")

    def __eq__(self, other: object) -> bool:
        return self._compared(other, "__eq__")

    def __ge__(self, other: Any) -> bool:
        return self._compared(other, "__ge__")

    def __le__(self, other: Any) -> bool:
        return self._compared(other, "__le__")

    __hash__ = str.__hash__


__version__ = TorchVersion(_written)
