"""A slice of something long: in an order that is always the same, from a place that rotates with the commit, as long as time lets."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

#: into so many parts the whole is cut; a slice begins at one of them
PARTS = 64


def number(asked: str = "auto") -> int:
    """The number of the slice: as asked for, or, for "auto", TABTORCH_SLICE, or the commit's hash; 0 where there is neither."""
    if asked != "auto":
        return int(asked)
    if "TABTORCH_SLICE" in os.environ:
        return int(os.environ["TABTORCH_SLICE"])
    try:
        said = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
        return int(said.stdout[:8], 16)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return 0


def rotated(items: Sequence[T], slice_number: int, key: Callable[[T], str]) -> list[T]:
    """The items from the beginning of a part on, the others after them; those of one key together, keys in a mixed order.

    Mixed, so that a slice holds some of everything; by a hash, so that a new operator moves no other.
    """
    mixed = sorted(items, key=lambda x: hashlib.sha256(key(x).encode()).digest())
    keys = [key(x) for x in mixed]
    start = slice_number % PARTS * len(mixed) // PARTS
    while 0 < start < len(mixed) and keys[start] == keys[start - 1]:
        start -= 1
    return mixed[start:] + mixed[:start]
