"""Bytes from a URL, a file, or what a user has chosen in the page: a piece at a time, or all at once."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Generator
from typing import Any

from tabtorch import _lazy

__all__ = ["PIECE", "Reader", "drive", "drive_async", "join", "open_reader", "open_reader_async", "read_bytes"]

#: bytes of a piece: the most that a reader of a large file holds at a time
PIECE = 1 << 22

IN_TAB = sys.platform == "emscripten"
_URL = re.compile(r"(https?|blob|data):", re.I)

Progress = bool | None | Callable[[int, int | None], Any]


def is_url(source: Any) -> bool:
    """Whether `source` is the text of a URL that can be fetched."""
    return isinstance(source, str) and _URL.match(source) is not None


def join(place: Any, name: str) -> Any:
    """What is called `name` in `place`: a folder's path, the URL of one, or a mapping of names to sources."""
    if is_url(place):
        head, mark, query = place.partition("?")
        return head.rstrip("/") + "/" + name + mark + query
    if isinstance(place, (str, os.PathLike)):
        return os.path.join(place, name)
    return place[name]


class Reader:
    """Reads `[offset, offset + nbytes)`, fewer bytes where the file ends. What it returns holds until the next read.

    `size`: bytes of the whole, None until that is known. `name`: for messages.
    """

    name = ""
    size: int | None = None
    ended = 0  # where in a file that is not the reader's the next one begins

    def read(self, offset: int, nbytes: int) -> Any:
        raise NotImplementedError

    async def read_async(self, offset: int, nbytes: int) -> Any:
        return self.read(offset, nbytes)

    def whole(self) -> None:
        """Makes `size` known, and every place readable."""

    async def whole_async(self) -> None:
        self.whole()

    def close(self) -> None:
        pass

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


class _Memory(Reader):
    def __init__(self, data: Any) -> None:
        self.view = memoryview(data).cast("B")
        self.size = len(self.view)

    def read(self, offset: int, nbytes: int) -> Any:
        return self.view[offset : offset + nbytes]


class _File(Reader):
    """A file that can seek, from its present position on; pieces come into one buffer, which is used again."""

    def __init__(self, file: Any, name: str, owned: bool) -> None:
        self.file = file
        self.name = name
        self.owned = owned
        self.start = file.tell()
        self.size = file.seek(0, 2) - self.start
        self.at = -1
        self.buffer = bytearray()
        self.into = getattr(file, "readinto", None)

    def read(self, offset: int, nbytes: int) -> Any:
        nbytes = max(0, min(nbytes, (self.size or 0) - offset))
        if offset != self.at:
            self.file.seek(self.start + offset)
        if self.into is None:
            data = self.file.read(nbytes)
            self.at = offset + len(data)
            return data
        if len(self.buffer) < nbytes:
            self.buffer = bytearray(nbytes)
        view = memoryview(self.buffer)[:nbytes]
        done = 0
        while done < nbytes:
            n = self.into(view[done:])
            if not n:
                break
            done += n
        self.at = offset + done
        return view[:done]

    def close(self) -> None:
        if self.owned:
            self.file.close()
        else:
            self.file.seek(self.start + self.ended)


class _Url(Reader):
    """A URL in CPython, forwards; a connection that breaks off goes on where it was, if the server can do that."""

    def __init__(self, url: str) -> None:
        self.name = url
        self.at = 0
        self.failures = 0
        self.tag: str | None = None
        self._connect()

    def _connect(self) -> None:
        from urllib.request import Request, urlopen

        headers = {"User-Agent": "tabtorch", **({"Range": f"bytes={self.at}-"} if self.at else {})}
        self.response = urlopen(Request(self.name, headers=headers))
        found = self.response.headers
        tag = found.get("ETag") or found.get("Last-Modified")
        if self.at:
            if tag != self.tag:
                raise OSError(f"{self.name} changed while it was read")
            if self.response.status != 206:  # all of it comes again
                self._skip(self.at)
        else:
            self.tag = tag
            length = found.get("Content-Length")
            self.size = int(length) if length else None

    def _skip(self, nbytes: int) -> None:
        while nbytes:
            got = len(self.response.read(min(nbytes, PIECE)))
            if not got:
                raise OSError(f"{self.name} is shorter than it was")
            nbytes -= got

    def read(self, offset: int, nbytes: int) -> Any:
        if offset < self.at:
            raise OSError(f"{self.name} is read forwards only")
        if offset > self.at:
            skip = offset - self.at
            while skip:
                skip -= len(self.read(self.at, min(skip, PIECE))) or skip
        if self.size is not None:
            nbytes = min(nbytes, self.size - self.at)
        data = bytearray(nbytes)
        view = memoryview(data)
        done = 0
        while done < nbytes:
            try:
                n = self.response.readinto(view[done:])
                broken: Exception | None = None
            except OSError as e:
                n, broken = 0, e
            done += n
            self.at += n
            if n:
                self.failures = 0
            elif self.size is None and broken is None:
                break
            else:
                self.failures += 1
                if self.failures >= 5:
                    raise broken or OSError(f"{self.name} ended after {self.at} of {self.size} bytes")
                self.response.close()
                self._connect()
        return view[:done]

    def close(self) -> None:
        self.response.close()


class _Page(Reader):
    """A URL, or a chosen file, through the runtime's `Source` (js/src/source.ts)."""

    def __init__(self, source: Any, name: str) -> None:
        self.source = source
        self.name = name
        self._look()

    def _look(self) -> None:
        self.size = None if self.source.size < 0 else int(self.source.size)

    async def read_async(self, offset: int, nbytes: int) -> Any:
        data = (await _told(self.source.read(offset, nbytes))).to_bytes()
        self._look()
        return data

    def read(self, offset: int, nbytes: int) -> Any:
        return _wait(self.read_async(offset, nbytes))

    async def whole_async(self) -> None:
        await _told(self.source.whole())
        self._look()

    def whole(self) -> None:
        _wait(self.whole_async())

    def close(self) -> None:
        self.source.close()


async def _told(promise: Any) -> Any:
    """A promise's value; what JavaScript throws is an OSError."""
    from pyodide.ffi import JsException

    try:
        return await promise
    except JsException as e:
        raise OSError(str(e).removeprefix("Error: ")) from None


def _wait(coroutine: Any) -> Any:
    from pyodide.ffi import can_run_sync, run_sync

    if not can_run_sync():
        coroutine.close()
        raise RuntimeError(
            "this browser cannot wait here (it has no JSPI, or Python was not started with runPythonAsync): use the "
            "function's async form with `await`"
        )
    return run_sync(coroutine)


async def _open_page(source: Any, name: str, cache: bool, random: bool) -> Reader:
    from pyodide.code import run_js

    _lazy.pyodide.load_runtime()
    opening = run_js("(from, cache, random) => tabtorchRuntime.Source.open(from, { cache, random })")
    return _Page(await _told(opening(source, cache, random)), name)


def _open(source: Any) -> Reader | None:
    """A reader of what needs no waiting; None for what does."""
    if isinstance(source, Reader):
        return source
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _Memory(source)
    if is_url(source):
        return None if IN_TAB else _Url(source)
    if isinstance(source, (str, os.PathLike)):
        return _File(open(source, "rb", 0), str(source), True)
    if hasattr(source, "read"):
        name = str(getattr(source, "name", ""))
        if isinstance(source, io.BytesIO) or (hasattr(source, "seek") and hasattr(source, "tell")):
            return _File(source, name, False)
        return _Memory(source.read())
    if hasattr(source, "arrayBuffer"):
        return None
    raise TypeError(f"expected a path, a URL, bytes, or a file object, got {type(source).__name__}")


def open_reader(source: Any, *, cache: bool = True, random: bool = False) -> Reader:
    """A reader of a path, a URL, bytes, a file object, or (in a tab) a JavaScript `File` or `Blob`.

    cache: in a tab, keep what is fetched in the origin's file system for the next time. random: the reader of a URL will
    go back and forth. OSError where it cannot be read.
    """
    found = _open(source)
    if found is None:
        found = _wait(_open_page(source, _name(source), cache, random))
    return _settled(found, random)


async def open_reader_async(source: Any, *, cache: bool = True, random: bool = False) -> Reader:
    """As `open_reader`, without blocking."""
    found = _open(source)
    return _settled(found or await _open_page(source, _name(source), cache, random), random)


def _name(source: Any) -> str:
    return source if isinstance(source, str) else str(getattr(source, "name", ""))


def _settled(reader: Reader, random: bool) -> Reader:
    if not (random and isinstance(reader, _Url)):
        return reader
    import tempfile

    # in CPython what a connection brings goes into a file first
    file = tempfile.TemporaryFile()
    with reader:
        while data := reader.read(reader.at, PIECE):
            file.write(data)
    file.seek(0)
    return _File(file, reader.name, True)


# ---- work that asks for bytes: a generator that yields (offset, nbytes) and is sent them

Work = Generator[tuple[int, int], Any, Any]


def _asking(work: Work, reader: Reader, report: Callable[[int, int | None], Any]) -> Generator[Any, Any, Any]:
    try:
        wanted = next(work)
        while True:
            data = yield wanted
            report(wanted[0] + len(data), reader.size)
            wanted = work.send(data)
    except StopIteration as done:
        return done.value


def drive(work: Work, reader: Reader, progress: Progress = None) -> Any:
    """Runs `work`, which yields `(offset, nbytes)` and is sent the bytes; what it returns."""
    asking = _asking(work, reader, reporter(progress, reader.name))
    try:
        wanted = next(asking)
        while True:
            wanted = asking.send(reader.read(*wanted))
    except StopIteration as done:
        return done.value


async def drive_async(work: Work, reader: Reader, progress: Progress = None) -> Any:
    """As `drive`, without blocking."""
    asking = _asking(work, reader, reporter(progress, reader.name))
    try:
        wanted = next(asking)
        while True:
            wanted = asking.send(await reader.read_async(*wanted))
    except StopIteration as done:
        return done.value


def reporter(progress: Progress, name: str) -> Callable[[int, int | None], Any]:
    """`progress` as a function `(bytes so far, bytes of the whole or None)`; True: a line on standard error."""
    if callable(progress):
        return progress
    if not progress:
        return lambda done, total: None
    shown = [-1]

    def line(done: int, total: int | None) -> None:
        step = 100 * done // total if total else done >> 20
        if step == shown[0]:
            return
        shown[0] = step
        text = f"{step:3d}% of {total / 1e6:.1f} MB" if total else f"{done / 1e6:.1f} MB"
        end = "\n" if total and done >= total else ""
        print(f"\r{os.path.basename(name.partition('?')[0])}: {text}", end=end, file=sys.stderr, flush=True)

    return line


def _gather(reader: Reader) -> Work:
    if isinstance(reader, _Memory):
        return bytes(reader.view)
    out = bytearray()
    while True:
        data = yield len(out), PIECE
        out += data
        if len(data) < PIECE and (reader.size is None or len(out) >= reader.size or not data):
            return bytes(out)


def read_bytes(source: Any, progress: Progress = None, *, cache: bool = True) -> bytes:
    """All bytes of a path, a URL, a file object, or (in a tab) a JavaScript `File` or `Blob`.

    progress: True for a line on standard error, or a function `(bytes so far, bytes of the whole or None)`. In a tab a URL
    is kept in the origin's file system for the next time, unless `cache` is False. OSError where it cannot be read.
    """
    if IN_TAB and is_url(source):
        from pyodide.ffi import can_run_sync

        if not can_run_sync():
            return _request(source)
    with open_reader(source, cache=cache) as reader:
        data: bytes = drive(_gather(reader), reader, progress)
        return data


async def read_bytes_async(source: Any, progress: Progress = None, *, cache: bool = True) -> bytes:
    """As `read_bytes`, without blocking: for hosts that have no JSPI."""
    with await open_reader_async(source, cache=cache) as reader:
        data: bytes = await drive_async(_gather(reader), reader, progress)
        return data


_REQUEST = """
(url) => {
  const request = new XMLHttpRequest();
  request.open("GET", url, false);
  request.responseType = "arraybuffer";
  request.send();
  if (request.status >= 400) throw new Error(`${url} cannot be fetched: HTTP ${request.status}`);
  return new Uint8Array(request.response);
}
"""


def _request(url: str) -> bytes:
    """A URL in a worker that cannot wait for a promise, but for a request."""
    from pyodide.code import run_js
    from pyodide.ffi import JsException

    try:
        data: bytes = run_js(_REQUEST)(url).to_bytes()
    except JsException as e:
        raise OSError(str(e).removeprefix("Error: ")) from None
    return data
