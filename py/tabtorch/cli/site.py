"""The built site, served from this machine."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import tabtorch
from tabtorch.cli.browsers import Missing

__all__ = ["find_site", "serve", "serving", "stale"]

CHECKOUT = Path(tabtorch.__file__).resolve().parents[2]


def find_site() -> Path:
    """The folder of the built site: `TABTORCH_SITE`, else the checkout's `web/dist`. Raises Missing."""
    named = os.environ.get("TABTORCH_SITE")
    site = Path(named) if named else CHECKOUT / "web" / "dist"
    if not (site / "index.html").exists():
        how = "run `make site` in a checkout of tabtorch, or set TABTORCH_SITE to the folder of a built one"
        raise Missing(f"there is no built site at {site}: {how}")
    return site


def stale(site: Path) -> bool:
    """Whether the site was built from this checkout, before something in it changed."""
    if site != CHECKOUT / "web" / "dist" or not (CHECKOUT / "build_wheel.py").exists():
        return False
    built = (site / "index.html").stat().st_mtime
    package, wgsl = CHECKOUT / "py" / "tabtorch", CHECKOUT / "wgsl"
    sources = (path for pattern in ("*.py", "*.js") for path in package.rglob(pattern))
    return any(path.stat().st_mtime > built for path in (*sources, *wgsl.glob("*.wgsl")))


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    extensions_map = {
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".whl": "application/octet-stream",
    }

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")  # ask each time; unchanged files answer 304
        # Isolated, the page may share memory with its worker: so Stop reaches a loop that never waits.
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A tab that goes away in mid-download is no error; anything else is."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _server(site: Path, host: str, port: int) -> _Server:
    return _Server((host, port), partial(_Handler, directory=str(site)))


@contextmanager
def serving(site: Path, port: int = 0) -> Iterator[str]:
    """Serve `site` on loopback meanwhile, on a free port if none is named: its address."""
    server = _server(site, "127.0.0.1", port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def serve(host: str, port: int) -> int:
    """Serve the site until Ctrl-C; the exit status."""
    site = find_site()
    try:
        server = _server(site, host, port)
    except OSError as error:
        print(f"tabtorch: port {port} cannot be had ({error.strerror}): try --port 0", file=sys.stderr)
        return 2
    with server:
        # WebGPU is only there in a secure context: over http that means loopback.
        shown = "localhost" if host in ("127.0.0.1", "0.0.0.0", "::") else host
        print(f"http://{shown}:{server.server_port}/   (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0
