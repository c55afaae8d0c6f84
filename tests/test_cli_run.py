"""`tabtorch run` as it is used again and again: what it says as it starts, standard input, --watch, --keep, completion."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tabtorch.cli import browsers, magics
from tabtorch.cli.commands import main
from tabtorch.cli.run import Script
from tabtorch.cli.status import Status

WANTED = os.environ.get("TABTORCH_BROWSERS", "chromium firefox").split()


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "tabtorch.cli", *map(str, arguments)]


def tabtorch(*arguments: str | Path, typed: str = "", at: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), input=typed, capture_output=True, text=True, timeout=180, cwd=at)


def at_a_terminal(*arguments: str | Path) -> tuple[str, str]:
    """What it prints, and what it says on standard error, which is a terminal."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    try:
        env = {**os.environ, "TERM": "xterm"}
        done = subprocess.run(command(*arguments), stdout=subprocess.PIPE, stderr=theirs, timeout=180, env=env)
        return done.stdout.decode(), os.read(ours, 100_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)


MANY_KERNELS = """import torch
print("begins")
x = torch.linspace(0, 1, 64)
values = []
for i in range(16):
    y = x
    for j in range(12 + i):
        y = torch.sin(y * (j + 1)) if (i + j) % 3 else torch.tanh(y + j)
    values.append(y.sum())
torch.stack(values).tolist()
print("ends")
"""


def wait_for(what: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith("tabtorch ") and "torch 2." in said


def test_a_script_from_standard_input(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("value = 21\n")
    typed = "import sys, helper\nprint(2 * helper.value, sys.argv[1:])\nnothing\n"
    done = tabtorch("run", "-", "--browser", "node", "--device", "cpu", "--", "a", typed=typed, at=tmp_path)
    assert (done.returncode, done.stdout) == (1, "42 ['a']\n")
    assert '<stdin>", line 3' in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["helper.py"]


def test_a_tab_is_given_a_script_that_lies_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        request = Script.load("-", []).request()
    assert request["files"] == [["/work/<stdin>", ""]] and request["filename"] == "/work/<stdin>"


class TestStatus:
    @pytest.fixture
    def script(self, tmp_path: Path) -> Path:
        path = tmp_path / "a.py"
        path.write_text("print('out')\n")
        return path

    def test_lines_to_a_pipe_with_v(self, script: Path) -> None:
        said = tabtorch("run", script, "--browser", "node", "--device", "cpu", "-v").stderr.splitlines()
        assert said[0] == "tabtorch: loading Python…" and "tabtorch: starting the device…" in said

    @pytest.mark.parametrize("name", ["node", "chromium"])
    def test_a_line_of_the_terminal_that_is_gone_when_the_script_prints(self, script: Path, name: str) -> None:
        if name != "node" and name not in WANTED:
            pytest.skip(f"{name} was not asked for")
        output, said = at_a_terminal("run", script, "--browser", name, "--device", "cpu")
        assert output == "out\n"
        assert "loading Python…" in said and "\n" not in said
        assert said.endswith("\r\x1b[2K"), "the line is left behind"

    def test_how_many_kernels_are_compiled(self, script: Path) -> None:
        if "chromium" not in WANTED:
            pytest.skip("chromium was not asked for; Firefox says of a kernel that it is ready before it is compiled")
        script.write_text(MANY_KERNELS)
        output, said = at_a_terminal("run", script)
        assert output == "begins\nends\n"
        counts = [tuple(map(int, each)) for each in re.findall(r"compiling (\d+) of (\d+) kernels…", said)]
        assert counts and all(ready < asked for ready, asked in counts) and max(counts)[1] > 5, said
        assert said.endswith("\r\x1b[2K"), "the line is left behind"

    def test_a_line_of_the_script_is_not_overwritten(self) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        terminal = Terminal()
        status = Status(stream=terminal)
        output = status.before(lambda stream, text: None)
        status.say("starting")
        output("stdout", "step 1: ")
        status.say("compiling")
        output("stdout", "done\n")
        status.say("running")
        status.clear()
        assert terminal.getvalue() == "\r\x1b[2Kstarting\r\x1b[2K\r\x1b[2Krunning\r\x1b[2K"


def test_watch(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("import helper\nprint('got', helper.value, flush=True)\nwhile True: pass\n")
    helper = tmp_path / "helper.py"
    helper.write_text("value = 1\n")
    output = tmp_path.parent / f"{tmp_path.name}.out"

    def has(text: str) -> Callable[[], bool]:
        return lambda: text in output.read_text()

    with open(output, "w") as out:
        arguments = command("run", script, "--watch", "--browser", "node", "--device", "cpu")
        process = subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_for(has("got 1\n"))
        helper.write_text("value = 12\n")  # ends the loop, too
        wait_for(has("got 12\n"))
        assert "--- a.py again ---" in output.read_text()
        script.write_text("print('the end')\n")
        wait_for(has("the end\n"))
        assert output.read_text().count("got") == 2
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.wait()


def test_what_cannot_be_kept_or_watched(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "a.py", "--keep", "--browser", "node"]) == 2
    assert "--keep keeps a browser" in capsys.readouterr().err
    assert main(["run", "-", "--watch"]) == 2
    assert "--watch needs a file" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--browser", "node"], ["--keep"], []])
def test_what_cannot_be_a_picture(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "a.py", "--screenshot", "a.png" if more else "a.jpg", *more]) == 2
    assert "--screenshot" in capsys.readouterr().err


@pytest.mark.parametrize("name", browsers.NAMES)
def test_a_picture_of_the_page(name: str, tmp_path: Path) -> None:
    """A run as any other: output, status, files beside the script. The picture has all of the output: it is that high."""
    if name not in WANTED:
        pytest.skip(f"{name} was not asked for")
    (tmp_path / "helper.py").write_text("height = 1500\n")
    typed = """
import os, sys, tabtorch, torch
from helper import height
print(torch.ones(2).sum().item(), os.getcwd(), sys.argv[1:])
tabtorch.show(torch.rand(height, 10), scale=1)
try:
    input("anybody? ")
except EOFError:
    print("nobody")
open("made.txt", "w").write("by the script")
sys.exit(3)
"""
    picture = tmp_path / "pictures" / "a.png"
    options = ["--browser", name, "--screenshot", picture, "--device", "cpu", "--mount", ".", "--", "a"]
    done = tabtorch("run", "-", *options, typed=typed, at=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (3, "2.0 /work ['a']\nanybody? nobody\n", "")
    assert (tmp_path / "made.txt").read_text() == "by the script"
    width, height = struct.unpack(">2I", picture.read_bytes()[16:24])  # of a PNG's header
    assert width == 1280 and 1500 < height < 2000


class TestKeep:
    @pytest.fixture(params=browsers.NAMES)
    def name(self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        name: str = request.param
        if name not in WANTED:
            pytest.skip(f"{name} was not asked for")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("TABTORCH_KEEP_S", "300")
        yield name
        main(["stop"])

    def kept(self, tmp_path: Path) -> dict[str, int]:
        (file,) = tmp_path.rglob("kept-*.json")
        told: dict[str, int] = json.loads(file.read_text())
        return told

    def test_a_browser_stays(self, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        script = tmp_path / "a.py"

        def run(source: str, *more: str) -> tuple[int, str]:
            script.write_text(source)
            done = tabtorch("run", script, "--keep", "--browser", name, "--device", "cpu", *more)
            return done.returncode, done.stdout + done.stderr

        assert run("x = 1\nprint('one')\nraise SystemExit(3)") == (3, "one\n")
        first = self.kept(tmp_path)
        status, said = run("print('x' in globals())", "-v")
        assert (status, said.splitlines()[0]) == (0, "False")
        assert "starting " + name not in said, "it was not kept"
        assert run("while True: pass", "--timeout", "3")[0] == 124
        assert run("print('after')") == (0, "after\n")
        assert self.kept(tmp_path) == first

        os.kill(first["pid"], signal.SIGKILL)
        assert run("print('again')") == (0, "again\n")
        assert self.kept(tmp_path)["pid"] != first["pid"]
        capsys.readouterr()
        assert main(["stop"]) == 0
        assert capsys.readouterr().out == "stopped 1 kept browser\n"
        assert not list(tmp_path.rglob("kept-*"))


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        ("tabtorch ", {"run", "serve", "info", "export", "stop", "completion", "--version", "--help", "-h"}),
        ("tabtorch run --br", {"--browser"}),
        ("tabtorch run --browser f", {"firefox"}),
        ("tabtorch info --browser ", {"chromium", "firefox", "node"}),
        ("tabtorch run a", {"a.py"}),
        ("tabtorch completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes(typed: str, proposed: set[str], tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    words = typed.split(" ")
    ask = f"""eval "$({sys.executable} -m tabtorch.cli completion bash)"
COMP_WORDS=({" ".join(words[:-1])} "{words[-1]}") COMP_CWORD={len(words) - 1}
_tabtorch; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, cwd=tmp_path)
    assert (done.stderr, set(done.stdout.split())) == ("", proposed)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_every_option_is_known_to_the_other_shells(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    said = capsys.readouterr().out
    for option in ("version", "browser", "watch", "keep", "port", "json"):
        assert f"--{option}" in said or f"-l {option}" in said
    assert said.count("chromium firefox node") >= 2


class TestNotebookLines:
    """What is no Python in a script is understood, or says what to do."""

    def test_python_stays_as_it_is(self) -> None:
        for source in ("x = 1  # what?\n", "print('!ls')\n", 'text = """\n%time\n?x\n"""\n', "a != b"):
            assert magics.translate(source) == source
        assert magics.translate("y = (a\n  % b)\n") == "y = (a\n  % b)\n"

    @pytest.mark.parametrize(
        ("line", "called"),
        [
            ("%time f(x)", ".run('time', 'f(x)')"),
            ("    %timeit f(x)", ".run('timeit', 'f(x)')"),
            ("torch.randn?", ".run('about', 'torch.randn')"),
            ("??torch.randn", ".run('source', 'torch.randn')"),
            ("!ls -l 'a'", """.run('shell', "ls -l 'a'")"""),
            ("names = !ls", ".run('shell', 'ls')"),
            ("!pip install einops", ".pip('install einops')"),
            ("%pip install einops", ".pip('install einops')"),
        ],
    )
    def test_a_line_is_a_call(self, line: str, called: str) -> None:
        source = f"if True:\n{'' if line.startswith(' ') else '  '}{line}\n"
        translated = magics.translate(source)
        assert translated.split("\n")[1].endswith(called)
        assert translated.count("\n") == source.count("\n")
        magics.tree(source, "a.py")

    def test_in_node(self, tmp_path: Path) -> None:
        script = tmp_path / "a.py"
        script.write_text("x = [1]\n%time x.append(2)\nx?\n!ls\n")
        done = tabtorch("run", script, "--browser", "node", "--device", "cpu")
        assert done.returncode == 1
        assert done.stdout.startswith("Wall time: ") and "x: list\n[1, 2]\n" in done.stdout
        assert 'a.py", line 4, in <module>\n    !ls\n' in done.stderr and "there is no shell" in done.stderr

    def test_a_package_that_is_not_here(self) -> None:
        told = magics.hint(ModuleNotFoundError("No module named 'einops.torch'", name="einops.torch"))
        assert "%pip install einops`" in told and 'micropip.install("einops")' in told
        assert magics.hint(ModuleNotFoundError("No module named 'json.x'", name="json.x")) == ""
        assert magics.hint(ValueError("x")) == ""
