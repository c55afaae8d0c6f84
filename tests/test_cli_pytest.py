"""`pytest --tabtorch`: a project's tests in Node and in a tab, beside the same tests in CPython with real PyTorch."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

WANTED = os.environ.get("TABTORCH_BROWSERS", "chromium firefox").split()

CONFTEST = """
import pytest, torch

def pytest_addoption(parser):
    parser.addoption("--width", type=int, default=1)

@pytest.fixture
def layer(request):
    yield torch.nn.Linear(request.config.getoption("--width"), 1)
    print("layer is gone")

def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line("a summary of the project's own")
"""

TESTS = """
import sys, warnings
import pytest, torch
from helpers.doubling import double

def test_fixtures(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.pt").write_bytes(b"x")
    monkeypatch.setenv("SET_HERE", "1")
    print("for capsys")
    assert capsys.readouterr().out == "for capsys\\n"

def test_conftest(layer):
    print("width", layer.in_features)
    print("to standard error", file=sys.stderr)
    assert layer.in_features == 4, "the width of the command line"

@pytest.mark.parametrize("n", [1, 2, 3])
def test_parametrised(n):
    assert double(n) != 4

class TestTensors:
    def test_introspection(self):
        total = torch.tensor([1.0, 2.0]).sum()
        assert total == len([0, 1]) + 2

    def test_lists(self):
        found = torch.arange(3).tolist()
        assert found == [0, 1, 3]

    def test_error(self):
        torch.ones(2) + torch.ones(3)

def test_package():
    import einops
    assert einops.rearrange(torch.arange(4), "(a b) -> a b", a=2).tolist() == [[0, 1], [2, 3]]

@pytest.mark.skip(reason="not now")
def test_skipped(): pass

@pytest.mark.xfail(reason="known")
def test_known(): assert double(1) == 3

def test_warning():
    warnings.warn("be careful", UserWarning)

@pytest.fixture
def broken():
    raise OSError("no such thing")

@pytest.mark.slow
def test_setup(broken): pass
"""

NOT_COMPARED = re.compile(r"platform |tabtorch: |plugins: |rootdir: |cachedir: |-+ generated xml|=+ .* in [\d.]+s")


def command(*arguments: str | Path) -> list[str]:
    plugins = ["-p", "no:rerunfailures", "-p", "no:hypothesispytest", "-p", "pytest_tabtorch"]
    return [sys.executable, "-m", "pytest", *plugins, *map(str, arguments)]


def environment() -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return plain | {"PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "100", "TERM": "dumb"}


def run(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=folder, env=environment(), capture_output=True, text=True, timeout=300
    )


def in_node(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run(folder, "--tabtorch", "node", "--tabtorch-device", "cpu", *arguments)


def compared(output: str) -> list[str]:
    """The lines of a report that are the same wherever the tests run."""
    output = re.sub(r" at 0x[0-9a-f]+>", " at ...>", output)
    return [line for line in output.splitlines() if not NOT_COMPARED.match(line)]


def cases(report: Path) -> list[tuple[str, ...]]:
    """What a JUnit report says of each test."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        said = [f"{child.tag}: {child.get('message')}" for child in case if child.tag != "system-out"]
        found.append((case.get("classname", ""), case.get("name", ""), *said))
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = -ra\nmarkers = slow: takes long\ntabtorch_packages = einops\n"
    )
    (folder / "helpers").mkdir()
    (folder / "helpers" / "doubling.py").write_text("def double(x):\n    return 2 * x\n")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_all.py").write_text(TESTS)
    return folder


def test_as_in_cpython(project: Path, tmp_path: Path) -> None:
    """Outcomes, messages, captured output, warnings, the summary, `-v` and the JUnit report: word for word."""
    here = run(project, "-v", "--width", "4", "--junitxml", tmp_path / "here.xml", "-p", "no:cacheprovider")
    there = in_node(project, "-v", "--width", "4", "--junitxml", tmp_path / "there.xml")
    assert here.returncode == there.returncode == 1, there.stdout + there.stderr
    assert "assert tensor(3.) == (2 + 2)" in here.stdout and "be careful" in here.stdout
    assert compared(there.stdout) == compared(here.stdout)
    assert there.stderr == here.stderr == ""
    assert cases(tmp_path / "there.xml") == cases(tmp_path / "here.xml") != []
    assert "tabtorch: Python 3.14" in there.stdout and "device cpu" in there.stdout


@pytest.mark.parametrize(("name", "keep"), [("chromium", ["--tabtorch-keep"]), ("firefox", [])])
def test_in_a_tab(project: Path, name: str, keep: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name not in WANTED:
        pytest.skip(f"{name} was not asked for")
    chosen = ["test_all.py", "-k", "not setup and not lists", "-x", "-s", "--durations", "1", "-vv"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where a kept browser says that it is there
    done = run(project, "--tabtorch", name, *keep, "--tabtorch-device", "cpu", *chosen)
    stopped = subprocess.run([sys.executable, "-m", "tabtorch.cli", "stop"], capture_output=True, text=True, timeout=60)
    assert stopped.stdout == ("stopped 1 kept browser\n" if keep else "no browser was kept\n")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "collected 13 items / 2 deselected / 11 selected" in done.stdout
    assert "test_all.py::test_fixtures PASSED" in done.stdout
    assert re.search(r"test_all.py::test_conftest .*width 1\n", done.stdout, re.DOTALL), "-s shows what is printed"
    assert "E       AssertionError: the width of the command line\nE       assert 1 == 4" in done.stdout
    assert "stopping after 1 failures" in done.stdout and "slowest 1 durations" in done.stdout
    assert "PytestAssertRewriteWarning" not in done.stdout
    assert "=== 1 failed, 1 passed" in done.stdout


def test_last_failed_and_marks(project: Path) -> None:
    first = in_node(project, "-q", "--cache-clear", "test_all.py::TestTensors", "test_all.py::test_fixtures")
    assert "3 failed, 1 passed" in first.stdout, first.stdout + first.stderr
    again = in_node(project, "--lf", "-m", "not slow", "--collect-only", "test_all.py")
    assert again.returncode == 0
    assert "run-last-failure: rerun previous 3 failures" in again.stdout
    assert "<Class TestTensors>" in again.stdout and "<Function test_lists>" in again.stdout
    assert "test_fixtures" not in again.stdout


def test_a_tab_that_ends_or_hangs_fails_its_test(tmp_path: Path) -> None:
    (tmp_path / "test_ends.py").write_text("""
import os
def test_first(): pass
def test_exits():
    print("the last words", file=os.fdopen(os.dup(2), "w"), flush=True)
    os._exit(3)
def test_between(): pass
def test_hangs():
    while True: pass
def test_last(): pass
""")
    done = in_node(tmp_path, "-v", "--tabtorch-timeout", "6", "-s", "--junitxml", tmp_path / "report.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    said = {name: outcome for _, name, *outcome in cases(tmp_path / "report.xml")}
    assert list(said) == ["test_first", "test_exits", "test_between", "test_hangs", "test_last"]
    assert said["test_first"] == said["test_between"] == said["test_last"] == []
    assert "the tab ended" in said["test_exits"][0] and "the last words" in said["test_exits"][0]
    assert "did not end within 6 s" in said["test_hangs"][0]
    assert "2 failed, 3 passed" in done.stdout and done.stdout.count("collected ") == 1


def test_what_does_not_load(tmp_path: Path) -> None:
    """A conftest.py that only a tab can load; modules that nothing can; a file that is not there."""
    (tmp_path / "conftest.py").write_text("import js\n")
    (tmp_path / "test_bad.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "test_good.py").write_text("def test_good(): pass\n")
    done = in_node(tmp_path)
    assert done.returncode == 2
    assert "conftest.py is loaded in the tab only: ModuleNotFoundError: No module named 'js'" in done.stdout
    assert "ModuleNotFoundError: No module named 'nothing_of_that_name'" in done.stdout
    assert "ERROR test_bad.py" in done.stdout and "Interrupted: 1 error during collection" in done.stdout
    missing = in_node(tmp_path, "test_none.py")
    assert missing.returncode == 4
    assert "ERROR: file or directory not found: test_none.py" in missing.stdout + missing.stderr


def test_interrupted(tmp_path: Path) -> None:
    (tmp_path / "test_long.py").write_text("def test_first(): pass\ndef test_long():\n    while True: pass\n")
    arguments = command("--tabtorch", "node", "--tabtorch-device", "cpu", "-v")
    with subprocess.Popen(arguments, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            said = ""
            while "test_first PASSED" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            said += process.communicate(timeout=60)[0]
        finally:
            process.kill()
    assert process.returncode == 2, said
    assert "KeyboardInterrupt" in said and "1 passed" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tabtorch", "chromium"], "no Chrome, Chromium or Edge"),
        (["--tabtorch", "node", "--tabtorch-keep"], "keeps a browser"),
        (["--tabtorch", "node", "--pdb"], "no debugger in a tab"),
        (["--tabtorch", "node", "-o", "tabtorch_packages=numpy"], "numpy is not pure Python"),
        (["--tabtorch", "node", "--rootdir", "/"], "rootdir is /"),
    ],
)
def test_what_cannot_be(arguments: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_a(): pass\n")
    env = environment() | {"PATH": "/nonexistent", "PLAYWRIGHT_BROWSERS_PATH": "/nonexistent"}
    env.pop("TABTORCH_CHROMIUM", None)
    done = subprocess.run(command(*arguments), cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4
    assert said in done.stdout + done.stderr


def test_other_runs_load_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("""
import sys
def test_a():
    loaded = [name for name in sys.modules if name.partition(".")[0] == "tabtorch"]
    assert "pytest_tabtorch" in sys.modules and not loaded
""")
    done = run(tmp_path, "-q")
    assert done.returncode == 0, done.stdout
