"""The bare page behind `tabtorch run`: processes, threads, and the ways to read."""

from __future__ import annotations

import re
from typing import Any

import pytest

from browser.pages import Editor, run_script, without_webgpu

READING = """import torch
x = torch.arange(300.0, device="cuda")
assert x.is_cuda
y = (x * 2 + 1).reshape(3, 100)
print(y.sum().item(), y[2, 5:8].tolist(), bool((y > 0).all()))
big = torch.arange(70_001, dtype=torch.int64, device="cuda") * 3
values = big.tolist()
assert values == [3 * i for i in range(70_001)]
for i in range(20):
    assert (x[i] + 1).item() == i + 1
print(y[0, :3])
"""

AWAITING = """import torch
x = torch.ones(3, device="cuda") * 2
print(await x.read(), await x.sum().long().read())
"""


def check_reading(done: Any) -> None:
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout.startswith("90000.0 [411.0, 413.0, 415.0] True\ntensor([1., 3., 5.]")


def test_a_process(runner: Any) -> None:
    script = """import os, sys
from pathlib import Path
print(__name__, sys.argv, os.getcwd(), os.environ["COLOUR"])
print(Path("in/words.txt").read_text())
Path("out").mkdir()
Path("out/made.bin").write_bytes(bytes(range(256)))
Path("in/words.txt").write_text("changed")
print("é at the end", end="")
print("a warning", file=sys.stderr)
sys.exit(7)
"""
    files = {"in/words.txt": b"words", "in/same.txt": b"same"}
    request = {"filename": "main.py", "argv": ["-v", "ü"], "env": {"COLOUR": "red"}}
    done = run_script(runner, script, files=files, **request)
    assert done.status == 7
    assert done.stdout == "__main__ ['main.py', '-v', 'ü'] /work red\nwords\né at the end"
    assert done.stderr == "a warning\n"
    assert done.files == {"out/made.bin": bytes(range(256)), "in/words.txt": b"changed"}


@pytest.mark.parametrize(
    ("script", "status", "stderr"),
    [
        ("raise SystemExit('the reason')", 1, "the reason\n"),
        ("import sys; sys.exit()", 0, ""),
        ("import atexit, sys; atexit.register(lambda: print('bye', file=sys.stderr))", 0, "bye\n"),
    ],
)
def test_status(runner: Any, script: str, status: int, stderr: str) -> None:
    done = run_script(runner, script)
    assert (done.status, done.stderr) == (status, stderr)


def test_a_traceback_is_on_standard_error(runner: Any) -> None:
    done = run_script(runner, "import torch\ntorch.ones(2, 3) @ torch.ones(2, 3)\n", filename="/work/bad.py")
    assert done.status == 1 and done.stdout == ""
    assert done.stderr.startswith('Traceback (most recent call last):\n  File "/work/bad.py", line 2, in <module>\n')
    assert done.stderr.endswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)\n")


def test_reading_in_a_worker(runner: Any) -> None:
    check_reading(run_script(runner, READING))


def test_reading_on_the_main_thread(fresh_runner: Any) -> None:
    check_reading(run_script(fresh_runner, READING, thread="main"))
    check_reading(run_script(fresh_runner, READING, thread="main"))


@pytest.mark.parametrize("thread", ["worker", "main"])
def test_reading_without_promise_integration(fresh_runner: Any, name: str, thread: str) -> None:
    """By the canvas copy where the browser can; else the error says what to await, and that works."""
    script = "from pyodide.ffi import can_run_sync\nassert not can_run_sync()\n"
    done = run_script(fresh_runner, script + READING, thread=thread, jspi=False)
    if done.status == 0:
        check_reading(done)
    else:
        assert name == "chromium", done.stderr  # on SwiftShader no canvas is tried
        assert done.stderr.splitlines()[-1].startswith("RuntimeError: ") and "await" in done.stderr.splitlines()[-1]
    done = run_script(fresh_runner, script + AWAITING, thread=thread, jspi=False)
    assert (done.status, done.stdout, done.stderr) == (0, "[2.0, 2.0, 2.0] 6\n", "")


def test_the_cpu_device(runner: Any) -> None:
    done = run_script(runner, "import torch\nprint(torch.ones(2).device.type, torch.ones(2) + 1)", device="cpu")
    assert (done.status, done.stdout, done.stderr) == (0, "cpu tensor([2., 2.])\n", "")


LOSING = """import torch
from tabtorch.bridge import get_bridge

x, host = torch.ones(4, device="cuda"), torch.ones(4, device="cpu")
print((x + 1).sum().item())
get_bridge().lose_device()
for _ in range(2):
    try:
        print((x * 2).tolist())
    except torch.AcceleratorError as error:
        print(error)
x = torch.ones(4, device="cuda")
print((x + 1).sum().item(), (host + 1).sum().item())
"""


def test_a_device_that_is_lost(runner: Any) -> None:
    """The operation that met it says so, what was on it is gone, and the next line has another one."""
    done = run_script(runner, LOSING)
    assert (done.status, done.stderr) == (0, "")
    first, lost, gone, last = done.stdout.splitlines()
    assert (first, last) == ("8.0", "8.0 8.0")
    assert re.match(r"\w+: the GPU device was lost .*what it held is gone", lost)
    assert re.match(r"\w+: this needs a tensor that was on a GPU device which has been lost", gone)


TOO_LARGE = """import torch
column = torch.ones(1 << 17, 1, device="cuda")
for make in (lambda: torch.zeros(1 << 33, device="cuda"), lambda: column + column.view(-1)):
    try:
        print(make().sum().item())
    except torch.OutOfMemoryError as error:
        print(error)
    print((torch.ones(2, device="cuda") + 1).tolist())
torch.no_such_thing
"""


def test_a_tensor_too_large_and_a_name_that_is_not_there(runner: Any) -> None:
    done = run_script(runner, TOO_LARGE)
    lines = done.stdout.splitlines()
    assert lines[1] == lines[3] == "[2.0, 2.0]"
    assert "needs 34359738368 bytes" in lines[0] and "needs 68719476736 bytes" in lines[2]
    assert done.status == 1
    assert done.stderr.splitlines()[-1].startswith("AttributeError: module 'torch' has no attribute 'no_such_thing'")


def test_the_page_with_no_webgpu(playwright: Any, name: str, address: str) -> None:
    """It works, on `cpu`, and says why."""
    with without_webgpu(playwright, name) as browser:
        editor = Editor(browser.new_page(), address)
        editor.load()
        assert editor.device.startswith("cpu · no WebGPU: ") and len(editor.device) > 25
        setting = {"chromium": "chrome://flags/#enable-unsafe-webgpu", "firefox": "dom.webgpu.enabled"}[name]
        assert "scripts run on the CPU" in editor.output and setting in editor.output
        output = editor.run(
            "import torch\nx = torch.rand(3)\nprint(x.device, torch.cuda.is_available(), (x + 1).min() >= 1)"
        )
        assert output == "cpu False tensor(True)\n"
        output = editor.run("import torch\ntorch.ones(2, device='cuda')")
        assert output.startswith("Traceback") and "WebGPU" in output.splitlines()[-1]


COUNT_WORKERS = """() => {
  window.workers = 0;
  window.Worker = class extends Worker {
    constructor(...rest) {
      super(...rest);
      window.workers++;
    }
  };
}"""


def test_a_python_that_was_prepared_is_used_once(fresh_runner: Any) -> None:
    """What `tabtorch run --keep` leaves waiting: of the same device and environment, else a fresh one is started."""
    fresh_runner.evaluate(COUNT_WORKERS)
    fresh_runner.evaluate("() => tabtorchPrepare({ device: 'cpu' })")
    assert run_script(fresh_runner, "x = 1; print('first')", device="cpu").stdout == "first\n"
    assert fresh_runner.evaluate("workers") == 1
    fresh_runner.evaluate("() => tabtorchPrepare({ device: 'webgpu' })")
    assert run_script(fresh_runner, "print('x' in globals())", device="cpu").stdout == "False\n"
    assert fresh_runner.evaluate("workers") == 3
