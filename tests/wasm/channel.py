"""Messages through two named pipes, each with its length before it: between CPython and Pyodide in Node."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Node's own file system: the one that Pyodide shows knows no pipes
NODE = """
(there, here) => {
  const fs = process.getBuiltinModule("node:fs");
  const out = fs.openSync(there, "w");
  const back = fs.openSync(here, "r");
  const read = (n) => {
    const bytes = new Uint8Array(n);
    for (let at = 0; at < n; ) {
      const got = fs.readSync(back, bytes, at, n - at);
      if (got === 0) return new Uint8Array(0);
      at += got;
    }
    return bytes;
  };
  return {
    send(proxy) {
      const view = proxy.getBuffer("u8");
      try {
        for (let at = 0; at < view.data.length; ) at += fs.writeSync(out, view.data, at);
      } finally {
        view.release();
      }
    },
    receive() {
      const head = read(4);
      return head.length ? read(new DataView(head.buffer).getUint32(0, true)) : head;
    },
  };
}
"""


def from_pyodide(folder: str) -> tuple[Callable[[bytes], None], Callable[[], bytes]]:
    """send and receive, in Pyodide; `folder` has the pipes."""
    from pyodide.code import run_js
    from pyodide.ffi import create_proxy

    pipes: Any = run_js(NODE)(f"{folder}/there", f"{folder}/back")

    def send(data: bytes) -> None:
        proxy = create_proxy(struct.pack("<I", len(data)) + data)
        pipes.send(proxy)
        proxy.destroy()

    return send, lambda: pipes.receive().to_bytes()


def from_cpython(folder: Path) -> tuple[Callable[[bytes], None], Callable[[], bytes]]:
    """send and receive, in CPython; waits until the other side has opened its ends."""
    there, back = open(folder / "there", "rb"), open(folder / "back", "wb")

    def send(data: bytes) -> None:
        back.write(struct.pack("<I", len(data)) + data)
        back.flush()

    def receive() -> bytes:
        head = there.read(4)
        return there.read(struct.unpack("<I", head)[0]) if len(head) == 4 else b""

    return send, receive


def make(folder: Path) -> None:
    """The two pipes."""
    for name in ("there", "back"):
        os.mkfifo(folder / name)
