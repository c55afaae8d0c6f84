"""Files from a server in a real tab: streamed, kept, and read again (tab_files.py says how)."""

from __future__ import annotations

import http.server
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch

WANTED = os.environ.get("TABTORCH_BROWSERS", "chromium firefox").split()
SCRIPT = Path(__file__).parents[1] / "tab_files.py"


def files() -> dict[str, bytes]:
    big = {f"t{i}": torch.full((i,), i, dtype=torch.float16) for i in range(40)}
    big["big"] = torch.arange(24 << 20, dtype=torch.int32) * 7
    new, old = io.BytesIO(), io.BytesIO()
    torch.save({"w": torch.arange(3)}, new)
    torch.save({"w": torch.arange(3)}, old, _use_new_zipfile_serialization=False)
    small = safetensors.torch.save({"w": torch.arange(3)})
    return {
        "large.safetensors": safetensors.torch.save(big),
        "state.pth": new.getvalue(),
        "old.pth": old.getvalue(),
        "state.safetensors": small,
        "cut.safetensors": small[:-8],
    }


@pytest.fixture
def server() -> Iterator[str]:
    held = files()
    asked: list[str] = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path[1:]
            data = " ".join(asked).encode() if name == "asked" else held.get(name)
            if name != "asked":
                asked.append(name)
            self.send_response(404 if data is None else 200)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as s:
        threading.Thread(target=s.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{s.server_port}/"
        s.shutdown()


@pytest.mark.browser
@pytest.mark.parametrize("browser", ["node", *WANTED])
def test_files_of_a_server(browser: str, server: str) -> None:
    kept = "fetched" if browser == "node" else "kept"  # Node has no file system of an origin
    command = [sys.executable, "-m", "tabtorch.cli", "run", str(SCRIPT), "--browser", browser, "--", server, kept]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.endswith("all good\n"), done.stdout + done.stderr
