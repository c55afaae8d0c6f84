"""Stop: whatever a script does it ends, and its variables are kept."""

from __future__ import annotations

import http.server
import threading
from functools import partial
from typing import Any

import pytest

from browser.pages import Editor
from tabtorch.cli.site import find_site

#: what says that it has begun: at once, or when it has been at it for a while
LOOPS = {
    "python": "print('begun')\nwhile True:\n    pass\n",
    "sleep": "print('begun')\nimport time\ntime.sleep(1000)\n",
    "input": "print('begun')\ninput()\n",
    "gpu": """
a, n = torch.rand(1024, 1024), 0
while n := n + 1:
    a = torch.tanh(a @ a)
    if n == 3:
        print('begun')
""",
    "training": """
import itertools
m = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
o, data = torch.optim.Adam(m.parameters()), torch.rand(128, 256)
steps = itertools.count()
while True:
    o.zero_grad()
    (m(data) - data).pow(2).mean().backward()
    o.step()
    if next(steps) == 50:
        print('begun')
""",
}
START = "import torch\nx = torch.ones(2)\n"


def begun(editor: Editor) -> None:
    editor.page.wait_for_function("document.getElementById('output').textContent.includes('begun')", timeout=60000)


def check_stopped(editor: Editor) -> None:
    editor.wait(30)
    assert editor.state.startswith("Ended with status 130")
    assert editor.output.endswith("KeyboardInterrupt\n")
    assert "tensor([1., 1.]" in editor.enter("x")


@pytest.mark.parametrize("loop", LOOPS)
def test_stop_keeps_the_variables(editor: Editor, loop: str) -> None:
    editor.start(START + LOOPS[loop])
    begun(editor)
    editor.page.click("#stop")
    check_stopped(editor)


@pytest.mark.parametrize(("where", "keys"), [(".cm-content", "Escape"), ("#repl", "Escape"), ("#repl", "Control+c")])
def test_keys_stop(editor: Editor, where: str, keys: str) -> None:
    editor.start(START + LOOPS["python"])
    begun(editor)
    editor.page.locator(where).press(keys)
    check_stopped(editor)


def test_stop_as_soon_as_it_runs(editor: Editor) -> None:
    """Before the first line, or just after its output came: Python reads the signal again and again meanwhile."""
    for turn in range(30):
        editor.start(START + LOOPS["python"])
        if turn % 2:
            begun(editor)
        editor.page.locator("#repl").press("Escape")
        editor.wait(30)
        assert "did not answer" not in editor.output
        assert editor.state.startswith("Ended with status 130")


def test_a_read_that_the_gpu_is_long_at_can_be_stopped(editor: Editor) -> None:
    """Python waits for a promise, which nothing else ends."""
    promise = "run_sync(run_js('new Promise(() => {})'))"
    imports = "from pyodide.code import run_js\nfrom pyodide.ffi import run_sync\n"
    editor.start(f"{START}{imports}print('begun')\n{promise}\n")
    begun(editor)
    editor.page.click("#stop")
    check_stopped(editor)


class _Plain(http.server.SimpleHTTPRequestHandler):
    """As a static host: no headers of ours."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def test_a_static_host(running: Any) -> None:
    """No headers come with the pages there, so the site adds them itself."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Plain, directory=str(find_site())))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = running.new_page()
    try:
        editor = Editor(page, f"http://127.0.0.1:{server.server_port}/")
        page.goto(editor.address)
        page.wait_for_function("crossOriginIsolated")
        editor.wait()
        editor.start(START + LOOPS["python"])
        begun(editor)
        editor.page.click("#stop")
        check_stopped(editor)
    finally:
        page.close()
        server.shutdown()
        server.server_close()
