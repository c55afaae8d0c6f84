"""The built site, served from this machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

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


class _Content:
    """A file's bytes, as they are and as they may travel; what is known of them stays known."""

    def __init__(self, path: Path, compress: bool) -> None:
        self._path = path
        self._compress = compress
        self._lock = threading.Lock()

    @cached_property
    def tag(self) -> str:
        """The start of their SHA-256, as in the site's manifest."""
        return hashlib.sha256(self.plain()).hexdigest()[:12]

    def plain(self) -> bytes:
        return self._path.read_bytes()

    @cached_property
    def _br(self) -> bytes | None:
        """Python has no Brotli: the build has made it."""
        beside = self._path.with_name(f"{self._path.name}.br")
        return self._worth(beside.read_bytes()) if beside.exists() else None

    @cached_property
    def _gzip(self) -> bytes | None:
        return self._worth(gzip.compress(self.plain(), 6))

    def _worth(self, packed: bytes) -> bytes | None:
        return packed if len(packed) < 0.95 * self._path.stat().st_size else None

    def packed(self, accepted: set[str]) -> tuple[str, bytes] | None:
        """The smallest of the encodings that the browser takes, if that is worth it. Each is made when it is first wanted."""
        with self._lock:
            if not self._compress:
                return None
            if "br" in accepted and self._br:
                return "br", self._br
            if "gzip" in accepted and self._gzip:
                return "gzip", self._gzip
            return None


class _Contents:
    """Each file is hashed, and compressed, once for as long as it stays the same."""

    def __init__(self, compress: bool) -> None:
        self._compress = compress
        self._known: dict[tuple[Path, int, int], _Content] = {}

    def of(self, path: Path) -> _Content:
        """Raises OSError."""
        status = path.stat()
        if not path.is_file():
            raise IsADirectoryError(path)
        return self._known.setdefault((path, status.st_mtime_ns, status.st_size), _Content(path, self._compress))

    def prepare(self, site: Path) -> None:
        """Before the first browser asks, the largest file first."""
        for path in sorted(site.rglob("*"), key=lambda path: -path.stat().st_size):
            if path.is_file() and path.suffix != ".br":
                self.of(path).packed({"br", "gzip"})


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    contents: _Contents
    extensions_map = {
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".whl": "application/octet-stream",
    }

    def send_head(self) -> io.BytesIO | IO[bytes] | None:  # type: ignore[override]
        path = Path(self.translate_path(self.path))
        if path.is_dir() and urlsplit(self.path).path.endswith("/"):
            path /= "index.html"
        try:
            content = self.contents.of(path)
        except OSError:
            return super().send_head()  # says what is the matter
        if self.headers.get("If-None-Match") == f'"{content.tag}"':
            self.send_response(304)
            self._send_caching(content.tag)
            self.end_headers()
            return None
        packed = content.packed(self._accepted())
        data = packed[1] if packed else content.plain()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Length", str(len(data)))
        if packed:
            self.send_header("Content-Encoding", packed[0])
        self._send_caching(content.tag)
        self.end_headers()
        return io.BytesIO(data)

    def _accepted(self) -> set[str]:
        """Encodings that the browser takes; one with a weight of nought it does not."""
        offered = (each.replace(" ", "").split(";q=") for each in self.headers.get("Accept-Encoding", "").split(","))
        return {name for name, *weight in offered if not weight or weight[0].strip("0.")}

    def _send_caching(self, tag: str) -> None:
        """What is named by its content never changes; anything else is asked for each time, and answered with 304."""
        address = urlsplit(self.path)
        named = address.query == tag or "/assets/" in address.path
        self.send_header("Cache-Control", "public, max-age=31536000, immutable" if named else "no-cache")
        self.send_header("ETag", f'"{tag}"')
        self.send_header("Vary", "Accept-Encoding")

    def end_headers(self) -> None:
        # Isolated, the page may share memory with its worker: so Stop reaches a loop that never waits.
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        # Pages of other origins have cells of this one: its script, and frames, in isolated pages too.
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Cross-Origin-Resource-Policy", "cross-origin")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A tab that goes away in mid-download is no error; anything else is."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _server(site: Path, host: str, port: int, *, compress: bool) -> _Server:
    contents = _Contents(compress)
    if compress:
        threading.Thread(target=contents.prepare, args=(site,), daemon=True).start()
    handler = type("_SiteHandler", (_Handler,), {"contents": contents})
    return _Server((host, port), partial(handler, directory=str(site)))


@contextmanager
def serving(site: Path, port: int = 0, *, compress: bool = False) -> Iterator[str]:
    """Serve `site` on loopback meanwhile, on a free port if none is named: its address.

    Nothing is compressed unless that is asked for: on loopback it takes longer than it saves.
    """
    server = _server(site, "127.0.0.1", port, compress=compress)
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
        server = _server(site, host, port, compress=True)
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
