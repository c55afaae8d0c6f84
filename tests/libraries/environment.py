"""The environment of the libraries: `.libraries`, apart from the one of the tests, with PyTorch and what requirements.txt pins."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PINS = HERE / "requirements.txt"
WHERE = Path(os.environ.get("TABTORCH_LIBRARIES") or ROOT / ".libraries")
PYTHON = WHERE / "bin" / "python"


class NotThere(Exception):
    """A library could not be installed; the text says why."""


def plain(name: str) -> str:
    """A distribution's name as all its spellings come to: `pyro_ppl` is `pyro-ppl`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """The version of each distribution that requirements.txt pins."""
    lines = (line.partition("#")[0].strip() for line in PINS.read_text(encoding="utf-8").splitlines())
    return {plain(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def installed() -> dict[str, str]:
    """The version of each distribution that is in the environment."""
    paths = [str(p) for p in WHERE.glob("lib/python*/site-packages")]
    return {plain(d.name): d.version.partition("+")[0] for d in importlib.metadata.distributions(path=paths)}


def lacking(names: Iterable[str]) -> list[str]:
    """Those of `names` that are not installed in the pinned version."""
    have, want = installed(), pins()
    return [n for n in map(plain, names) if have.get(n) != want[n]]


def install(names: Iterable[str] | None = None, seconds: float | None = None) -> None:
    """Install these, with PyTorch and what they need, or all that is pinned. Nothing is asked of the network if they are there.

    seconds: how long it may take. NotThere if that is not enough, or pip failed: with no network, say.
    """
    wanted = lacking(pins() if names is None else ["torch", "numpy", *names])
    if not wanted:
        return
    try:
        if not PYTHON.exists():
            _run([sys.executable, "-m", "venv", str(WHERE)], seconds)
        pip = [str(PYTHON), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1"]
        _run([*pip, "-c", str(PINS), *(f"{n}=={pins()[n]}" for n in wanted)], seconds)
    except subprocess.TimeoutExpired:
        raise NotThere(f"{', '.join(wanted)}: installing took more than {seconds:g} s") from None


def _run(command: list[str], seconds: float | None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise NotThere(f"pip could not install what the libraries need: {' '.join(errors[-2:])[:500]}")
