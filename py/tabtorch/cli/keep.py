"""A browser that stays for the next run: a process in the background, with Python started in its tab and waiting.

It listens on loopback, and answers who knows its token: lines of JSON, one request a connection. A file in the user's
cache directory says where it is. It ends when nobody has asked for a while, when its file is gone or another's, when
its browser is, or when `tabtorch stop` says so; whoever finds none that answers starts one.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import platform
import secrets
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tabtorch.cli.bare import BarePage, Output, Say, Until, opened
from tabtorch.cli.site import find_site

__all__ = ["run_kept", "serve_kept", "stop_kept"]

IDLE_S = 900.0
ANSWER_S = 10.0  # how long one that is there may take to say so
#: what the browser itself was started with: with other values it is another
STARTED_WITH = ("TABTORCH_CHROMIUM", "TABTORCH_FIREFOX", "TABTORCH_GPU", "TABTORCH_GPU_DISPLAY", "TABTORCH_SITE")


class Gone(ConnectionError):
    """The other end has closed the connection, or says nothing that makes sense."""


class Line:
    """A connection that carries objects, each a line of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pending = b""

    def send(self, message: dict[str, Any]) -> None:
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def closed(self) -> bool:
        """Whether the other end has gone: it sends nothing after its request."""
        return bool(select.select([self._connection], [], [], 0)[0])

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """The next object, or None if none comes in time. Raises Gone."""
        parts, end = [self._pending], time.monotonic() + seconds
        while b"\n" not in parts[-1]:
            self._pending = b""
            if not select.select([self._connection], [], [], max(0.0, end - time.monotonic()))[0]:
                self._pending = b"".join(parts)
                return None
            piece = self._connection.recv(1 << 20)
            if not piece:
                raise Gone("the connection was closed")
            parts.append(piece)
        line, _, self._pending = b"".join(parts).partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise Gone("not a line of JSON")
        return message


def _folder() -> Path:
    home = Path.home()
    if platform.system() == "Darwin":
        base = home / "Library" / "Caches"
    elif platform.system() == "Windows":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    folder = base / "tabtorch"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _file(site: Path, browser: str) -> Path:
    """Where the browser kept for this site, as it is now built, says how to reach it."""
    built = (site / "index.html").stat().st_mtime_ns
    key = json.dumps([str(site), built, *(os.environ.get(name) for name in STARTED_WITH)])
    return _folder() / f"kept-{browser}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"


# -- who asks


@contextlib.contextmanager
def _ask(file: Path, request: dict[str, Any]) -> Any:
    """Send `request` to the process that `file` tells of: the line it will answer on. Raises OSError."""
    try:
        said = json.loads(file.read_text())
        port, token = int(said["port"]), str(said["token"])
    except (ValueError, KeyError, TypeError):
        raise Gone(f"{file} is damaged") from None
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as connection:
        line = Line(connection)
        line.send({"token": token, **request})
        yield line


def _spawn(file: Path, site: Path, browser: str) -> None:
    """Start the process, and wait until its file is there. Raises RuntimeError with what it said."""
    log = file.with_suffix(".log")
    with open(log, "wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tabtorch.cli.keep", str(site), browser, str(file)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,  # Ctrl+C in this terminal is not for it
        )
    while not file.exists():
        if process.poll() is not None:
            raise RuntimeError(f"the kept browser did not start: {log.read_text().strip()}")
        time.sleep(0.05)
    # Nobody waits for it: it is to outlive this process.
    process.returncode = 0


def _follow(line: Line, output: Output, say: Say, until: Until) -> dict[str, Any]:
    """What the script says, as it comes, and the page's reply at its end."""
    while True:
        message = line.receive(0.05)
        if message is None:
            status = until()
            if status is not None:
                return {"status": status, "files": []}
        elif "output" in message:
            output(*message["output"])
        elif "say" in message:
            say(message["say"])
        elif "reply" in message:
            reply: dict[str, Any] = message["reply"]
            return reply


def run_kept(
    site: Path, browser: str, request: dict[str, Any], output: Output, say: Say, until: Until
) -> dict[str, Any]:
    """Run `request` in the kept browser, which is started if there is none; if it is busy, in one of its own."""
    file = _file(site, browser)
    for _ in range(2):
        if not file.exists():
            say(f"starting {browser}…")
            _spawn(file, site, browser)
        with contextlib.suppress(OSError), _ask(file, {"run": request}) as line:
            answer = line.receive(ANSWER_S)
            if answer == {"accepted": True}:
                try:
                    return _follow(line, output, say, until)
                except Gone:
                    output("stderr", f"tabtorch: the kept {browser} went away\n")
                    file.unlink(missing_ok=True)
                    return {"status": 2, "files": []}
            if answer == {"accepted": False}:
                break
        file.unlink(missing_ok=True)  # nobody answers: it died
    with opened(site, browser, say) as page:
        return page.run(request, output, say, until)


def stop_kept() -> int:
    """End every kept browser of this user; the exit status."""
    stopped = 0
    for file in sorted(_folder().glob("kept-*.json")):
        with contextlib.suppress(OSError), _ask(file, {"stop": True}) as line:
            stopped += line.receive(ANSWER_S) == {"stopped": True}
        file.unlink(missing_ok=True)
    for log in _folder().glob("kept-*.log"):
        log.unlink(missing_ok=True)
    print(f"stopped {stopped} kept browser{'s' * (stopped != 1)}" if stopped else "no browser was kept")
    return 0


# -- who answers


class _Stopped(Exception):
    """`tabtorch stop`."""


class _Server:
    def __init__(self, page: BarePage, file: Path) -> None:
        self._page = page
        self._file = file
        self._token = secrets.token_hex(32)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._idle_s = float(os.environ.get("TABTORCH_KEEP_S", IDLE_S))

    def serve(self) -> None:
        """Until nobody has asked for a while."""
        self._announce()
        last = time.monotonic()
        try:
            while time.monotonic() - last < self._idle_s and self._is_mine():
                if select.select([self._listening], [], [], 0.5)[0]:
                    self._answer()
                    last = time.monotonic()
        except _Stopped:
            pass
        finally:
            if self._is_mine():
                self._file.unlink(missing_ok=True)
            self._listening.close()

    def _announce(self) -> None:
        text = json.dumps({"port": self._listening.getsockname()[1], "token": self._token, "pid": os.getpid()})
        part = self._file.with_suffix(f".{os.getpid()}")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        part.replace(self._file)

    def _is_mine(self) -> bool:
        try:
            return self._token in self._file.read_text()
        except OSError:
            return False

    def _answer(self, busy: bool = False) -> None:
        connection, _ = self._listening.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(ANSWER_S)
            line = Line(connection)
            request = line.receive(ANSWER_S) or {}
            if not hmac.compare_digest(str(request.get("token", "")), self._token):
                return
            if "stop" in request:
                line.send({"stopped": True})
                raise _Stopped
            if not busy:
                self._page.check()  # who asks meets a closed connection, and starts another browser
            line.send({"accepted": not busy})
            if not busy:
                self._run(line, request["run"])

    def _run(self, line: Line, request: dict[str, Any]) -> None:
        def until() -> int | None:
            if select.select([self._listening], [], [], 0)[0]:
                self._answer(busy=True)
            return 130 if line.closed() else None

        def output(stream: str, text: str) -> None:
            with contextlib.suppress(OSError):  # `until` will see that nobody listens
                line.send({"output": [stream, text]})

        def say(text: str) -> None:
            with contextlib.suppress(OSError):
                line.send({"say": text})

        reply = self._page.run(request, output, say, until)
        with contextlib.suppress(OSError):
            line.send({"reply": reply})
        self._page.prepare({key: request[key] for key in ("device", "env")})


def serve_kept(site: Path, browser: str, file: Path) -> None:
    """Be the process that keeps `browser`."""
    with opened(site, browser, lambda text: None) as page:
        _Server(page, file).serve()


if __name__ == "__main__":
    if sys.argv[1] != str(find_site()):
        raise SystemExit(f"the site is not at {sys.argv[1]}")
    serve_kept(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
