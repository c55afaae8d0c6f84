"""The one narrow bridge to the JavaScript runtime: a byte stream of commands, and bytes that are read back.

In Pyodide the runtime lives in the same tab and reads the commands in place; in CPython a Node child process runs the
same bundle. Importing this module starts nothing.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tabtorch.bridge.base import LOCK, Bridge, on_loss
from tabtorch.bridge.block import CPU, WEBGPU, BlockWriter

__all__ = [
    "CPU",
    "WEBGPU",
    "BlockWriter",
    "Bridge",
    "close",
    "exchanged",
    "get_bridge",
    "init",
    "keeps",
    "on_close",
    "on_loss",
]

_bridge: Bridge | None = None
_on_close: list[Callable[[], None]] = []
#: what modules keep of a runtime: (names of a module, one of them, what makes an empty one)
_kept: list[tuple[dict[str, Any], str, Callable[[], Any]]] = []
#: the thread for which another bridge is in the place of the runtime's
_guest = 0

IN_TAB = sys.platform == "emscripten"


def get_bridge() -> Bridge:
    """The bridge; it starts on first use, and again after its runtime has died.

    Raises RuntimeError where it cannot start, and in a tab without JSPI if `await tabtorch.init()` was not called.
    """
    global _bridge
    if _guest and _guest != get_ident():
        with LOCK:  # until the runtime's is back
            pass
    bridge = _bridge
    if bridge is not None and bridge.alive:
        return bridge
    if IN_TAB:
        close()
        from tabtorch.bridge.pyodide import start

        found = start()  # waits: another task may have been there first
        if _bridge is None or not _bridge.alive:
            _bridge = found
        return _bridge
    from tabtorch.bridge.node import start

    with LOCK:
        if _bridge is None or not _bridge.alive:
            close()
            _bridge = start()
        return _bridge


async def init() -> None:
    """Start the bridge without blocking. Needed only where Python cannot wait (a browser without JSPI)."""
    global _bridge
    if _bridge is not None and _bridge.alive:
        return
    close()
    if IN_TAB:
        from tabtorch.bridge.pyodide import start_async

        found = await start_async()
        if _bridge is None or not _bridge.alive:
            _bridge = found
    else:
        get_bridge()


def close() -> None:
    """Let the runtime go, with every buffer in it. The next use starts a new one."""
    global _bridge
    with LOCK:
        bridge, _bridge = _bridge, None
        if bridge is not None:
            bridge.close()
            for callback in _on_close:
                callback()


def on_close(callback: Callable[[], None]) -> None:
    """Call `callback` when a runtime is gone: ids of kernels, plans and buffers mean nothing to the next one."""
    _on_close.append(callback)


def keeps(space: dict[str, Any], name: str, empty: Callable[[], Any] = dict) -> None:
    """Says that `space[name]`, of a module, means something only with the runtime that there is. space: its `globals()`."""
    _kept.append((space, name, empty))


@contextmanager
def exchanged(other: Bridge) -> Iterator[None]:
    """`other` in the place of the runtime's bridge, for this thread; other threads that need the runtime wait. What is kept of
    the runtime (`keeps`) is put aside. Nothing may wait to be sent, and no buffer of one may be used with the other."""
    global _bridge, _guest
    with LOCK:
        before = _bridge
        aside = [(space, name, space[name]) for space, name, _ in _kept]
        try:
            for space, name, empty in _kept:
                space[name] = empty()
            _bridge, _guest = other, get_ident()
            yield
        finally:
            _bridge, _guest = before, 0
            for space, name, own in aside:
                space[name] = own


def _forked() -> None:
    """In the child of a fork, which must not talk into its parent's pipe: it gets a runtime of its own when it needs one."""
    global forked
    LOCK.release()
    forked = _bridge is not None or forked
    close()


#: whether this process is the child of one that had a runtime, whose tensors have no value here
forked = False

if hasattr(os, "register_at_fork"):
    # The lock is had while the process forks, so that no thread which is not in the child leaves something half done there.
    os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=_forked)
