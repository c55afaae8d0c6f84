"""The command line: `run` in Node, Chromium and Firefox, `serve`, `info`; and the bridge inside each of the three."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tabtorch.cli import browsers
from tabtorch.cli import run as run_module
from tabtorch.cli.commands import main
from tabtorch.cli.run import TIMED_OUT, Script
from tabtorch.cli.site import serving

HERE = Path(__file__).parent
WANTED = os.environ.get("TABTORCH_BROWSERS", "chromium firefox").split()


@pytest.fixture(params=["node", "chromium", "firefox"])
def browser(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name != "node" and name not in WANTED:
        pytest.skip(f"{name} was not asked for")
    return name


def tabtorch(*arguments: str | Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tabtorch.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


class TestRun:
    def test_a_script_with_a_mounted_folder(self, browser: str, tmp_path: Path) -> None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "helper.py").write_text("def double(x): return 2 * x")
        (tmp_path / "data.txt").write_text("21")
        script = tmp_path / "main.py"
        script.write_text("""
import os, sys
import torch
from pathlib import Path
from lib.helper import double
assert __name__ == "__main__" and Path(__file__).name == "main.py"
print("argv", sys.argv[1:])
print("sum", torch.ones(4).sum().item())
Path("out").mkdir()
Path("out/result.txt").write_text(str(double(int(Path("data.txt").read_text()))))
print("é", end="")
print("to stderr", file=sys.stderr)
sys.exit(3)
""")
        done = tabtorch("run", script, "--browser", browser, "--mount", tmp_path, "--", "-x", "--browser", "é")
        assert done.stdout == "argv ['-x', '--browser', 'é']\nsum 4.0\né"
        assert "to stderr\n" in done.stderr
        assert done.returncode == 3
        assert (tmp_path / "out" / "result.txt").read_text() == "42"
        assert (tmp_path / "data.txt").read_text() == "21"

    def test_an_exception(self, browser: str, tmp_path: Path) -> None:
        script = tmp_path / "bad.py"
        script.write_text("import torch\nprint('before')\ntorch.ones(2) + torch.ones(3)\n")
        done = tabtorch("run", script, "--browser", browser)
        assert done.returncode == 1
        assert done.stdout == "before\n"
        assert 'bad.py", line 3, in <module>' in done.stderr
        assert done.stderr.rstrip().splitlines()[-1].startswith("RuntimeError: The size of tensor a (2) must match")

    def test_an_index_that_only_the_device_knows(self, tmp_path: Path) -> None:
        """It is an error though nobody reads, and no frame of the package is shown."""
        script = tmp_path / "bad.py"
        script.write_text("import torch\nx = torch.ones(3)\ny = x[(torch.rand(2) * 2).long() + 3]\nprint('after')\n")
        done = tabtorch("run", script, "--browser", "node")
        assert (done.returncode, done.stdout) == (1, "after\n"), done.stderr
        *_, first, second = done.stderr.rstrip().splitlines()
        assert re.fullmatch("IndexError: index [34] is out of bounds for dimension 0 with size 3", first)
        assert "bad.py:3 (`y = x[" in second and "tabtorch/" not in done.stderr

    def test_a_syntax_error(self, tmp_path: Path) -> None:
        script = tmp_path / "bad.py"
        script.write_text("print('never')\nx = = 1\n")
        done = tabtorch("run", script, "--browser", "node")
        assert (done.returncode, done.stdout) == (1, "")
        assert "SyntaxError" in done.stderr and "line 2" in done.stderr

    @pytest.mark.parametrize(
        ("ending", "status", "said"),
        [
            ("raise SystemExit", 0, ""),
            ("raise SystemExit('no')", 1, "no\n"),
            ("import atexit; atexit.register(print, 'bye')", 0, ""),
            ("raise KeyboardInterrupt", 130, "KeyboardInterrupt\n"),
        ],
    )
    def test_endings(self, ending: str, status: int, said: str, tmp_path: Path) -> None:
        script = tmp_path / "end.py"
        script.write_text(ending)
        done = tabtorch("run", script, "--browser", "node", "--device", "cpu")
        assert done.returncode == status
        assert done.stderr.endswith(said)
        assert done.stdout == ("bye\n" if "bye" in ending else "")

    def test_output_comes_as_it_is_printed(self, browser: str, tmp_path: Path) -> None:
        script = tmp_path / "slow.py"
        script.write_text("import time\nprint('first')\ntime.sleep(2)\nprint('second')\n")
        command = [sys.executable, "-m", "tabtorch.cli", "run", str(script), "--browser", browser]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            times = [(line.strip(), time.monotonic()) for line in process.stdout]
        assert [word for word, _ in times] == ["first", "second"]
        assert times[1][1] - times[0][1] > 1

    def test_a_timeout(self, browser: str, tmp_path: Path) -> None:
        script = tmp_path / "forever.py"
        script.write_text("while True: pass\n")
        begin = time.monotonic()
        done = tabtorch("run", script, "--browser", browser, "--timeout", "6")
        assert done.returncode == TIMED_OUT
        assert done.stderr.endswith("did not end within 6 s\n")
        assert time.monotonic() - begin < 30

    def test_device(self, tmp_path: Path) -> None:
        script = tmp_path / "device.py"
        script.write_text("import torch\nprint(torch.zeros(1).device.type)\n")
        assert tabtorch("run", script, "--browser", "node", "--device", "cpu").stdout == "cpu\n"
        assert tabtorch("run", script, "--browser", "node", "--device", "webgpu").stdout == "webgpu\n"

    def test_the_bridge_inside(self, browser: str) -> None:
        done = tabtorch("run", HERE / "tab_bridge.py", "--browser", browser)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("all good\n")

    def test_no_such_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", "/nonexistent.py"]) == 2
        assert capsys.readouterr().err.startswith("tabtorch: ")

    def test_no_site(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setenv("TABTORCH_SITE", str(tmp_path))
        (tmp_path / "a.py").write_text("")
        assert main(["run", str(tmp_path / "a.py")]) == 2
        assert "make site" in capsys.readouterr().err

    def test_no_browser(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", "/nonexistent")
        for name in ("TABTORCH_CHROMIUM", "TABTORCH_FIREFOX"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(browsers, "_APPS", {"chromium": (), "firefox": ()})
        assert "apt-get install chromium" in (browsers.missing("chromium") or "")
        assert "firefox-esr" in (browsers.missing("firefox") or "")


class TestScript:
    def test_what_lies_beside_it_comes_along(self, tmp_path: Path) -> None:
        for name in ("a.py", "data/b.txt", ".git/c", "node_modules/d.js", "__pycache__/e.pyc", "env/pyvenv.cfg"):
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(name)
        script = Script.load(str(tmp_path / "a.py"), [])
        assert script.filename == "/work/a.py"
        assert set(script.files) == {"/work/a.py", "/work/data/b.txt"}

    def test_of_a_large_folder_only_modules(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(run_module, "LARGEST_FOLDER", 100)
        (tmp_path / "a.py").write_text("")
        (tmp_path / "b.py").write_text("")
        (tmp_path / "large.bin").write_bytes(bytes(1000))
        assert set(Script.load(str(tmp_path / "a.py"), []).files) == {"/work/a.py", "/work/b.py"}

    def test_a_script_outside_the_mounted_folder(self, tmp_path: Path) -> None:
        (tmp_path / "code").mkdir()
        (tmp_path / "work").mkdir()
        (tmp_path / "code" / "a.py").write_text("")
        (tmp_path / "work" / "b.txt").write_text("")
        script = Script.load(str(tmp_path / "code" / "a.py"), [], mount=str(tmp_path / "work"))
        assert script.filename == "/script/a.py"
        assert set(script.files) == {"/script/a.py", "/work/b.txt"}

    def test_nothing_is_written_outside_the_mounted_folder(self, tmp_path: Path) -> None:
        (tmp_path / "work").mkdir()
        (tmp_path / "a.py").write_text("")
        script = Script.load(str(tmp_path / "a.py"), [], mount=str(tmp_path / "work"))
        script.save("sub/good.txt", b"good")
        assert (tmp_path / "work" / "sub" / "good.txt").read_bytes() == b"good"
        with pytest.raises(RuntimeError, match="outside"):
            script.save("../bad.txt", b"bad")
        assert not (tmp_path / "bad.txt").exists()


class TestServe:
    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[str]:
        (tmp_path / "index.html").write_text("<p>here")
        (tmp_path / "a.mjs").write_text("export {}")
        (tmp_path / "b.wasm").write_bytes(b"\0asm")
        with serving(tmp_path) as url:
            yield url

    @pytest.mark.parametrize(
        ("path", "kind"),
        [("/", "text/html"), ("/a.mjs", "text/javascript"), ("/b.wasm", "application/wasm")],
    )
    def test_types(self, site: str, path: str, kind: str) -> None:
        with urllib.request.urlopen(site + path) as answer:
            assert answer.headers["Content-Type"] == kind

    def test_not_found(self, site: str) -> None:
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            urllib.request.urlopen(site + "/nothing")
        caught.value.close()

    def test_serve(self) -> None:
        command = [sys.executable, "-m", "tabtorch.cli", "serve", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout
                url = process.stdout.readline().split()[0]
                with urllib.request.urlopen(url) as answer:
                    assert b"<html" in answer.read()
                port = url.rstrip("/").rpartition(":")[2]
                second = tabtorch("serve", "--port", port)
                assert second.returncode == 2 and f"port {port}" in second.stderr
            finally:
                process.terminate()


class TestInfo:
    def test_here(self) -> None:
        done = tabtorch("info")
        assert "adapter" in done.stdout and "maxBufferSize" in done.stdout and "npm webgpu" in done.stdout
        assert done.returncode == 0

    def test_json_from_a_tab(self) -> None:
        done = tabtorch("info", "--browser", "chromium", "--json")
        report = json.loads(done.stdout)
        assert report["webgpu"]["adapter"]["vendor"]
        assert report["versions"]["tabtorch"]
