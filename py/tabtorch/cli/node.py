"""Pyodide in Node, which runs one script: `run-node.mjs`, started and waited for."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import tabtorch
from tabtorch.bridge.node import environment, find_node
from tabtorch.cli.bare import Output, Until
from tabtorch.cli.site import CHECKOUT
from tabtorch.cli.status import Status

__all__ = ["in_node"]

PACKAGE = Path(tabtorch.__file__).resolve().parent


def in_node(spec: dict[str, Any], until: Until, status: Status, output: Output | None) -> int:
    """Run what `spec` says (see run-node.mjs): the exit status, or what `until` gave.

    output: told what is printed and reported, in threads of its own; None: it is printed on this process's streams.
    """
    spec = {
        **spec,
        "status": "in place" if status.in_place else "lines" if status.lines else None,
        "package": os.environ.get("TABTORCH_PACKAGE", str(PACKAGE)),
        "wgsl": str(CHECKOUT / "wgsl") if (CHECKOUT / "wgsl").is_dir() and PACKAGE.parent.name == "py" else None,
    }
    node = find_node()
    with _streams(output) as (streams, reports), tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({**spec, "reports": reports}, file)
        file.flush()
        command = [node, "--no-warnings", *_flags(node), str(PACKAGE / "cli" / "run-node.mjs"), file.name]
        process = subprocess.Popen(command, env=environment(), **streams)
        try:
            code = _wait(process, until)
        finally:
            process.kill()
            process.wait()
    return code if code >= 0 else 128 - code


def _flags(node: str) -> list[str]:
    """JSPI's flag, which has had two names; the newest Node needs none."""
    options = subprocess.run([node, "--v8-options"], capture_output=True, text=True, check=True).stdout
    names = ("--experimental-wasm-jspi", "--experimental-wasm-stack-switching")
    return [name for name in names if f"{name} " in options][:1]


@contextmanager
def _streams(output: Output | None) -> Iterator[tuple[dict[str, Any], int | None]]:
    """Arguments of Popen that give `output` all that is said, and the descriptor that is for reports; all has come at the end."""
    if output is None:
        yield {}, None
        return
    pipes = {name: os.pipe() for name in ("stdout", "stderr", "report")}
    ours = [(name, open(pipe[0], encoding="utf-8", errors="replace")) for name, pipe in pipes.items()]
    threads = [threading.Thread(target=_hear, args=(name, file, output), daemon=True) for name, file in ours]
    for thread in threads:
        thread.start()
    theirs = {name: pipe[1] for name, pipe in pipes.items()}
    reports = theirs["report"]
    try:
        yield {"stdout": theirs["stdout"], "stderr": theirs["stderr"], "pass_fds": [reports]}, reports
    finally:
        for descriptor in theirs.values():
            os.close(descriptor)
        for thread in threads:
            thread.join(10)  # a process that Node started may hold the other ends open


def _hear(name: str, file: IO[str], output: Output) -> None:
    with file:
        for line in file:
            output(name, line.removesuffix("\n") if name == "report" else line)


def _wait(process: subprocess.Popen[bytes], until: Until) -> int:
    while True:
        try:
            return process.wait(0.05)
        except subprocess.TimeoutExpired:
            status = until()
            if status is not None:
                return status
