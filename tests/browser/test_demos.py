"""Every demo in the page, in every browser, beside the same file on real PyTorch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from browser.pages import Editor, plain, run_script

DEMOS = Path(__file__).parents[2] / "web" / "demos"
NAMES = sorted(path.stem for path in DEMOS.glob("*.py"))
SHORTER = {"04-char-gpt": ("\nsteps = 300\n", "\nsteps = 75\n")}  # what it learns in these is enough to see

FIRST_STEPS = """
import itertools, runpy, sys
demo = runpy.run_path(sys.argv[1])
model, optimizer, train_loader, _ = demo["setup"]()
for loss in itertools.islice(demo["train"](model, optimizer, train_loader), 10):
    print(repr(loss.item()))
"""


@cache
def on_pytorch(*command: str) -> str:
    """What real PyTorch prints."""
    pytest.importorskip("torch")
    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # two threads of it, beside a browser, take far longer than one
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True, env=env)
    return done.stdout


@pytest.fixture(scope="module", params=NAMES)
def demo(request: pytest.FixtureRequest, loaded: Editor) -> tuple[str, str, str]:
    """A demo's name, and what it prints here and on real PyTorch."""
    name: str = request.param
    loaded.page.click(f"#demos a[data-demo='{name}']")
    loaded.page.wait_for_function("name => document.getElementById('file').textContent === name", arg=f"{name}.py")
    if name in SHORTER:
        loaded.write(loaded.code.replace(*SHORTER[name]))
    here = loaded.run(seconds=240)
    assert loaded.state.startswith("Done in"), here
    return name, here, "" if name in SHORTER else on_pytorch(str(DEMOS / f"{name}.py"))


def epochs(text: str) -> list[tuple[float, float]]:
    found = re.findall(r"^epoch \d+  loss (\S+)  accuracy (\S+)$", text, re.M)
    assert len(found) == len(text.splitlines())
    return [(float(loss), float(accuracy)) for loss, accuracy in found]


def check_digits(here: str, there: str) -> None:
    tab, native = epochs(here), epochs(there)
    assert tab[-1][1] >= 0.97
    assert [loss for loss, _ in tab] == pytest.approx([loss for loss, _ in native], rel=0.01)


def check_same_words(here: str, there: str) -> None:
    """The same text; numbers may differ in the last digit that is printed."""
    number = re.compile(r"[-+]?\d+\.\d*(?:e[-+]\d+)?")
    device = re.compile(r", device='[^']*'")
    here = device.sub("", here)
    assert number.sub("#", here).split() == number.sub("#", there).split()
    mine, theirs = ([float(each) for each in number.findall(text)] for text in (here, there))
    assert mine == pytest.approx(theirs, rel=2e-3, abs=2e-4)


def check_gpt(here: str, there: str) -> None:
    steps = [float(each) for each in re.findall(r"^step +\d+  loss (\S+)$", here, re.M)]
    assert len(steps) == 4 and steps[0] > 4.2 and steps[-1] < 2.9
    assert here.splitlines()[1].endswith(" parameters")
    written = here.partition("\n\n")[2]
    assert written.startswith("def ") and len(written) == 205


def check_mandelbrot(here: str, there: str) -> None:
    assert here == plain(there)


CHECKS = {"01": check_digits, "02": check_same_words, "03": check_same_words, "04": check_gpt, "05": check_mandelbrot}


def test_demo(demo: tuple[str, str, str]) -> None:
    name, here, there = demo
    CHECKS[name[:2]](here, there)


def test_the_first_steps_of_the_digits(runner: Any, tmp_path: Path) -> None:
    """The first ten losses are PyTorch's, to 1e-4."""
    path = "/home/pyodide/01-digits.py"  # beside the site's data
    here = run_script(runner, FIRST_STEPS, files={path: (DEMOS / "01-digits.py").read_bytes()}, argv=[path])
    assert here.status == 0, here.stderr
    script = tmp_path / "steps.py"
    script.write_text(FIRST_STEPS)
    there = on_pytorch(str(script), str(DEMOS / "01-digits.py"))
    mine, theirs = ([float(line) for line in text.split()] for text in (here.stdout, there))
    assert len(mine) == 10 and mine == pytest.approx(theirs, rel=1e-4)


def test_the_list_is_the_folder(loaded: Editor) -> None:
    listed = loaded.page.locator("#demos a").evaluate_all("links => links.map((link) => link.dataset.demo)")
    assert listed == NAMES
    titles = loaded.page.locator("#demos a").all_inner_texts()
    assert all(re.match(r"\d+\. [A-Z]", title) for title in titles)
