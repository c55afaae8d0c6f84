"""The bridge in CPython: a Node child process runs the same JavaScript, on Dawn or on the `cpu` device.

Frames, little endian: `u32 length, u32 kind, payload` to the child; `u32 length, u32 status, payload` back. Only what
asks for something is answered, so a flush never waits; errors of the work come back with the next answer.

Answers come in the order of the questions, which have numbers. Who waits for one reads those before it too, and leaves them
for the threads that asked; whoever comes next goes on from there. So threads wait at the same time, and none of them in the LOCK.
"""

from __future__ import annotations

import atexit
import glob
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from typing import IO, Any, NoReturn

from tabtorch.base import interrupts
from tabtorch.bridge.base import LOCK, SEND_ABOVE, Bridge, check_device, raise_errors, requested_device

__all__ = ["NodeBridge", "environment", "find_node", "real_gpu", "start"]

(
    EXECUTE,
    READ,
    INFO,
    STATS,
    RESET_STATS,
    SYNCHRONIZE,
    TAKE_ERRORS,
    INIT,
    LOSE_DEVICE,
    START_TIMES,
    TAKE_TIMES,
    FAULT,
    HEAP,
) = range(1, 14)
_KINDS = {
    "info": INFO,
    "stats": STATS,
    "resetStats": RESET_STATS,
    "takeErrors": TAKE_ERRORS,
    "loseDevice": LOSE_DEVICE,
    "startTimes": START_TIMES,
    "takeTimes": TAKE_TIMES,
    "fault": FAULT,
    "heap": HEAP,
}
_LARGEST = (1 << 32) - 1
_header = struct.Struct("<2I")

HERE = os.path.dirname(os.path.abspath(__file__))


class NodeBridge(Bridge):
    """A bridge over the pipes of one child."""

    kind = "node"

    def __init__(self) -> None:
        super().__init__()
        command = [find_node(), os.path.join(HERE, "host.mjs")]
        self._log: IO[bytes] | None = (
            None if os.environ.get("TABTORCH_DEBUG", "schedule") != "schedule" else tempfile.TemporaryFile()
        )
        # A session of its own: Ctrl-C in the terminal is for Python. The child ends when its standard input does.
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            env=environment(),
            start_new_session=True,
        )
        assert self._child.stdin and self._child.stdout
        self._to, self._from = self._child.stdin.fileno(), self._child.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._from, select.POLLIN)
        self._input = bytearray()
        self._asked = self._answered = 0  # numbers of the last question, and of the last answer that was read
        self._answers: dict[int, tuple[int, bytes]] = {}  # those that were read for other threads
        self._given_up: set[int] = set()  # questions whose asker was interrupted
        self._reading = threading.Lock()  # who has it reads from the child
        self._reader = 0  # the thread that has it
        self._sending = False
        self._why = "when it was closed", ""
        self._pid = os.getpid()
        atexit.register(self.close)
        try:
            self.info = json.loads(self._ask(INIT, json.dumps({"device": requested_device()}).encode()))
            check_device(self.info)
        except BaseException:
            self.close()
            raise

    # -- frames

    def _send(self, kind: int, *payload: Any, asks: int = 0) -> None:
        """In the LOCK. payload: in pieces. asks: how many answers it will have, which are counted with the first byte that goes."""
        if not self.alive:
            raise RuntimeError("this tabtorch runtime is gone, and with it the tensors it held")
        size = sum(map(len, payload))
        if size > _LARGEST:
            raise RuntimeError(f"{size} bytes are too many for one message (4 GiB)")
        parts = [memoryview(part) for part in (_header.pack(size, kind), *payload)]
        if self._sending:
            raise _interrupted()
        self._sending = True
        handler = interrupts.hold()  # with half a frame the child could not be talked to any more
        try:
            self._asked += asks
            while parts:
                sent = os.writev(self._to, parts)
                while parts and sent >= len(parts[0]):
                    sent -= len(parts.pop(0))
                if parts:
                    parts[0] = parts[0][sent:]
        except OSError:
            self._died()
        except BaseException:
            self._end()  # as above
            raise
        finally:
            self._sending = False
            interrupts.release(handler)

    def _fill(self, size: int) -> None:
        data = self._input
        while len(data) < size:
            self._poll.poll()  # where an interrupt finds nothing that was read, which would be lost
            handler = interrupts.hold()
            try:
                more = os.read(self._from, min(max(size - len(data), 1 << 16), 1 << 24))
                data += more
            finally:
                interrupts.release(handler)
            if not more:
                raise EOFError

    def _receive(self) -> tuple[int, bytes]:
        """The next answer. An exception in here (Ctrl-C) loses none."""
        self._fill(8)
        size, status = _header.unpack_from(self._input)
        self._fill(8 + size)
        with memoryview(self._input) as view:
            payload = bytes(view[8 : 8 + size])
        del self._input[: 8 + size]
        self._answered += 1
        return status, payload

    def _ask(self, kind: int, payload: bytes = b"") -> bytes:
        """Send a frame and wait for its answer. A READ takes the block with it, so that both are one submit of the device."""
        me = threading.get_ident()
        if self._reader == me:
            raise _interrupted()
        with LOCK:
            if kind == READ and self.block.pos > SEND_ABOVE:
                self.send()
            ticket = self._asked + 1
            try:
                if kind == READ:
                    self._carry(lambda nbytes: self._execute_and_ask(nbytes, payload))
                else:
                    self._send(kind, payload, asks=1)
            except KeyboardInterrupt:
                if self._asked == ticket:
                    self._given_up.add(ticket)
                raise
        try:
            with self._reading:
                self._reader = me
                try:
                    while self._answered < ticket - 1:
                        number = self._answered + 1
                        found = self._receive()
                        if number not in self._given_up:
                            self._answers[number] = found
                    status, answer = self._receive() if self._answered < ticket else self._answers.pop(ticket)
                finally:
                    self._reader = 0
        except (EOFError, OSError, KeyError):
            self._died()
        except BaseException:
            self._given_up.add(ticket)
            self._answers.pop(ticket, None)
            raise
        if status:
            text = answer.decode()
            if text.startswith("["):
                raise_errors(text)
            raise RuntimeError(text)
        return answer

    # -- Bridge

    def _execute(self, nbytes: int) -> None:
        with memoryview(self.block.data) as view:
            self._send(EXECUTE, view[:nbytes])

    def _execute_and_ask(self, nbytes: int, wanted: bytes) -> None:
        with memoryview(self.block.data) as view:
            self._send(READ, _header.pack(nbytes, 0), view[:nbytes], wanted, asks=1)

    def read(self, ident: int, dev: int, offset: int, nbytes: int) -> bytes:
        """The bytes `[offset, offset + nbytes)` of a buffer, when everything before it is done."""
        if not nbytes:
            self.flush()
            return b""
        return self._ask(READ, b'[{"id":%d,"offset":%d,"nbytes":%d}]' % (ident, offset, nbytes))

    def read_many(self, wanted: Sequence[tuple[int, int, int, int]]) -> list[Any]:
        """As `read` for each `(ident, dev, offset, nbytes)`, with one wait for all of them."""
        asked = [{"id": ident, "offset": offset, "nbytes": n} for ident, _, offset, n in wanted if n]
        if not asked:
            self.flush()
        view = memoryview(self._ask(READ, json.dumps(asked).encode()) if asked else b"")
        found, at = [], 0
        for *_, n in wanted:
            found.append(view[at : at + n])
            at += n
        return found

    def _call(self, name: str, argument: str = "") -> str:
        return self._ask(_KINDS[name], argument.encode()).decode()

    def synchronize(self) -> None:
        """Wait until the device has done everything sent so far; raise the errors of it."""
        self.flush()
        self._ask(SYNCHRONIZE)

    # -- the end

    def _end(self) -> None:
        """Close, and tell those who hold ids now, before anybody asks for the next runtime."""
        from tabtorch import bridge

        with LOCK:
            if bridge._bridge is self:
                bridge.close()
            else:
                self.close()

    def _died(self) -> NoReturn:
        child = self._child
        with LOCK:
            if self.alive:
                try:
                    status = child.wait(5)
                except subprocess.TimeoutExpired:
                    child.kill()
                    status = child.wait()
                how = signal.Signals(-status).name if status < 0 else f"status {status}"
                self._why = f"with {how}", self._last_words()
                self._end()
        how, said = self._why
        raise RuntimeError(
            f"the tabtorch runtime (Node, process {child.pid}) ended {how}; the tensors it held are lost, and the "
            f"next use starts a new one{said}"
        ) from None

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, end - 2000))
        text = self._log.read().decode(errors="replace").strip()
        return f". It said:\n{text}" if text else ""

    def close(self) -> None:
        """End the child."""
        with LOCK:
            if not self.alive:
                return
            self.alive = False
            atexit.unregister(self.close)
            child = self._child
            assert child.stdin and child.stdout
            child.stdin.close()
            if os.getpid() != self._pid:  # a fork: the child is the parent's
                child.stdout.close()
                child.returncode = 0
                if self._log is not None:
                    self._log.close()
                return
            try:
                child.wait(2)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            # Who still reads has met the end by now. Its number must not become that of another pipe while it does.
            if self._reading.acquire(timeout=2):
                child.stdout.close()
                self._reading.release()
            if self._log is not None:
                self._log.close()


def _interrupted() -> RuntimeError:
    return RuntimeError(
        "this tensor cannot be used now: the thread was interrupted, by a signal handler or a finalizer, while it talked to the "
        "runtime, and has to go on with that first"
    )


def start() -> Bridge:
    """Start a Node child. Raises RuntimeError if there is no Node, or no runtime to run."""
    return NodeBridge()


def find_node() -> str:
    """The path of Node. Raises RuntimeError."""
    found = os.environ.get("TABTORCH_NODE") or shutil.which("node")
    if not found:
        raise RuntimeError("tabtorch in CPython needs Node 20 or later: put `node` on the PATH, or set TABTORCH_NODE")
    if not os.path.exists(os.path.join(HERE, "runtime.js")):
        raise RuntimeError("the JavaScript runtime is not built: run `make runtime` in the repository")
    return found


def environment() -> dict[str, str]:
    """The environment of a Node process: where there is no graphics card, Vulkan's driver is SwiftShader."""
    env = dict(os.environ)
    env.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # Vulkan's loader grumbles without one
    if "VK_ICD_FILENAMES" not in env and "VK_DRIVER_FILES" not in env and not real_gpu():
        icd = swiftshader_icd()
        if icd:
            env["VK_ICD_FILENAMES"] = icd
    return env


def real_gpu() -> bool:
    """Whether this Linux machine has a graphics card that a Vulkan driver could open."""
    return bool(glob.glob("/dev/nvidia[0-9]*") or glob.glob("/dev/dri/renderD*") or os.path.exists("/dev/dxg"))


def swiftshader_icd() -> str | None:
    """The Vulkan driver file of SwiftShader, the software GPU that comes with Chromium."""
    cache = os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or os.path.expanduser("~/.cache/ms-playwright")
    places = ["/usr/lib/chromium*", "/opt/google/chrome*", "/opt/microsoft/msedge*", f"{cache}/chromium*/chrome-linux*"]
    for place in places:
        for path in sorted(glob.glob(f"{place}/vk_swiftshader_icd.json")):
            return path
    return None
