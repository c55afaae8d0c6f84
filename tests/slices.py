"""What is too long for every run is done a slice at a time, another with each commit: `make everything` does the whole.

TABTORCH_SLICE=7 asks for a certain one.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


@functools.cache
def number() -> int:
    """The number that chooses the slices: `TABTORCH_SLICE`, else from the commit, else 0."""
    chosen = os.environ.get("TABTORCH_SLICE")
    if chosen:
        return int(chosen)
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):  # no repository, or no git
        return 0
    return int(commit[:7], 16)


def slice_of(n: int, of: str = "") -> int:
    """Which of `n` slices is due, 0 … n - 1. of: what is sliced, so that not all things turn together."""
    return (number() + int(hashlib.sha256(of.encode()).hexdigest()[:6], 16)) % n if n > 1 else 0


def part(items: Sequence[Any], n: int, of: str = "") -> list[Any]:
    """Every n-th of `items`, from the one that is due; n slices together are all of them."""
    return list(items[slice_of(n, of) :: n])
