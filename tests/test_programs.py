"""Ordinary programs print on tabtorch what they print on real PyTorch."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from conformance.left_out import PROGRAMS
from sidebyside import DEVICES

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in (HERE / "programs").glob("*.py"))
NUMBER = re.compile(r"(?<![\w'])[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?(?![\w'])")


@cache
def run(where: str, names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """What each of these programs prints on "pytorch", or on a device of tabtorch. All run in one process."""
    return run_programs("programs", where, *names)


def asked(session: pytest.Session, device: str = "") -> tuple[str, ...]:
    """The programs that tests of this session want, on one device or on any: of a slice the rest need not run."""
    wanted = [item.callspec.params for item in session.items if getattr(item, "originalname", "") == "test_a_program"]
    return tuple(sorted({p["name"] for p in wanted if device in ("", p["device"])}))


def run_programs(folder: str, where: str, *names: str) -> dict[str, dict[str, str]]:
    """What programs of a folder print, and the errors that ended them."""
    on = () if where == "pytorch" else ("--tabtorch", where)
    command = [sys.executable, str(HERE / "run_programs.py"), folder, *on, *names]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # the tests run side by side
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def plain(text: str) -> str:
    """Without what may differ: where a tensor lies, and the name of a composite's gradient, which is its last step's here."""
    return re.sub(r"grad_fn=<\w+>", "grad_fn", re.sub(r", device='[^']*'|\bcuda\.", "", text))


def words(text: str) -> list[str]:
    """The text without its numbers, and without line breaks, which depend on them."""
    return NUMBER.sub("#", plain(text)).split()


def numbers(text: str) -> list[float]:
    return [float(each) for each in NUMBER.findall(plain(text))]


def assert_same(here: str, there: str, tolerance: float = 2e-4) -> None:
    """The same words; numbers of four printed decimals may differ by the last one."""
    if here == there:
        return
    for mine, theirs in zip(here.splitlines(), there.splitlines()):
        if words(mine) != words(theirs):
            break
    assert words(here) == words(there), f"first at:\n{mine}\n{theirs}"
    for k, (a, b) in enumerate(zip(numbers(here), numbers(there), strict=True)):
        close = a == b or math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
        assert close, f"number {k}: {a}, not {b}\n{here}\n--- PyTorch:\n{there}"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_a_program(name: str, device: str, request: pytest.FixtureRequest) -> None:
    here = run(device, asked(request.session, device))[name]
    there = run("pytorch", asked(request.session))[name]
    for each in (there, here):
        if each["error"]:
            pytest.fail(each["error"], pytrace=False)
    assert_same(here["out"], there["out"], PROGRAMS.get(name, 2e-4))
