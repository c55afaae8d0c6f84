"""One rival's side of the comparison: times rows in a page of the browser that tabtorch is timed in, and prints a line of JSON each.

python -m bench.rivals tfjs|jax-js|onnxruntime-web|torch-pyodide [--small] [NAME …]

Inputs are those of rows.py, made by real PyTorch: what the step of a row holds is given to the page. Each row has a browser of its
own, which ends with it, so that one that never comes back, or takes all of the memory, is no other's trouble.
"""

from __future__ import annotations

import argparse
import http.server
import inspect
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import rivals
from bench.rows import ROWS, Row

#: seconds that a row may take
_LIMIT = 180
_HTML, _BYTES = "text/html", "application/octet-stream"
_EMPTY = b"<!doctype html><title>bench</title>"
#: rows.py makes large inputs of so many numbers, again and again
_PERIOD = 1 << 20


def inputs(torch: Any, row: Row, sizes: dict[str, Any]) -> tuple[list[dict[str, Any]], bytes]:
    """What the row's step holds: of each tensor its name, shape and place among the bytes. A model's are `model.` and the name."""
    found: dict[str, Any] = {}
    held = [row.make(torch, "cpu", **sizes)]
    while held:
        for name, value in inspect.getclosurevars(held.pop()).nonlocals.items():
            if isinstance(value, torch.Tensor):
                found[name] = value
            elif isinstance(value, torch.nn.Module):
                found |= {f"{name}.{n}": p for n, p in [*value.named_parameters(), *value.named_buffers()]}
            elif inspect.isfunction(value):
                held.append(value)
    entries, parts, at = [], [], 0
    for name, tensor in found.items():
        flat = tensor.detach().reshape(-1)
        if len(flat) > _PERIOD and torch.equal(flat[_PERIOD:], flat[:-_PERIOD]):
            flat = flat[:_PERIOD]
        whole = not flat.is_floating_point()
        data = flat.to(torch.int32 if whole else torch.float32).numpy().tobytes()
        shape = list(tensor.shape)
        entries.append(
            {"name": name, "shape": shape, "type": "int" if whole else "float", "at": at, "count": len(flat)}
        )
        parts.append(data)
        at += len(data)
    return entries, b"".join(parts)


@contextmanager
def _site(folder: Path, data: bytes) -> Iterator[str]:
    """The address of what a page needs: the library's files, and the inputs, which may be large."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        extensions_map = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm", "": _BYTES}

        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def do_GET(self) -> None:
            kind, body = {"/": (_HTML, _EMPTY), "/inputs": (_BYTES, data)}.get(self.path, (None, b""))
            if kind is None:
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def end_headers(self) -> None:
            # isolated, as tabtorch's page is: clocks are coarse otherwise
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
            super().end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing is printed of requests."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


@contextmanager
def _page(folder: Path, data: bytes = b"") -> Iterator[Any]:
    """A page with the library, in a secure context, in a browser of its own."""
    from tabtorch.cli.browsers import alone

    with _site(folder, data) as address, alone("chromium") as browser:
        page = browser.new_page()
        page.on("pageerror", lambda error: print(error, file=sys.stderr))
        page.goto(address)
        page.add_script_tag(url="/bundle.js")
        yield page


#: while the browser's GPU process starts, there is no adapter
_ADAPTER = """async () => {
  let adapter = null;
  for (let i = 0; adapter === null && i < 50; i++) {
    adapter = await navigator.gpu.requestAdapter();
    if (adapter === null) await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const { vendor, architecture, device, description } = adapter.info;
  return { vendor, architecture, device, description };
}"""

_START = """([name, sizes, inputs]) => {
  measure(name, sizes, inputs).then(
    (found) => { globalThis.found = found; },
    (error) => { globalThis.found = { failed: `${error.name}: ${error.message}`.slice(0, 200) }; },
  );
}"""


def measure(torch: Any, folder: Path, row: Row, small: bool) -> dict[str, Any]:
    from playwright.sync_api import TimeoutError as Late

    sizes = row.small if small else row.sizes
    entries, data = inputs(torch, row, sizes)
    with _page(folder, data) as page:
        page.evaluate(_ADAPTER)
        page.evaluate(_START, [row.name, sizes, entries])
        try:
            done = page.wait_for_function("globalThis.found", polling=500, timeout=_LIMIT * 1000)
        except Late:
            return {"name": row.name, "failed": f"took more than {_LIMIT} s"}
        found: dict[str, Any] = done.json_value()
    return {"name": row.name, **found}


def main() -> None:
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("rival", choices=rivals.NAMES)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    try:
        folder = rivals.bundle(options.rival)
    except subprocess.CalledProcessError as error:  # what could not be fetched: its own words are above
        sys.exit(f"{options.rival} is left out: {error.cmd[0]} ended with {error.returncode}")
    with _page(folder) as page:
        known, adapter = page.evaluate("names"), page.evaluate(_ADAPTER)
    about = {"version": rivals.version(options.rival), "device": "webgpu", "adapter": adapter}
    print(json.dumps({"about": about}), flush=True)
    for name in options.names or known:
        if name not in known:
            continue
        begin = time.perf_counter()
        try:
            found = measure(torch, folder, ROWS[name], options.small)
        except Exception as error:
            found = {"name": name, "failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        found["seconds"] = round(time.perf_counter() - begin, 1)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
