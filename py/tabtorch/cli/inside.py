"""Inside Pyodide: run a script as `__main__`, and end as the interpreter would."""

from __future__ import annotations

import ast
import asyncio
import atexit
import inspect
import linecache
import os
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import tabtorch
from tabtorch.cli import magics

__all__ = ["is_internal", "run"]


def is_internal(filename: str) -> bool:
    """Whether a frame of that file is tabtorch's, which a traceback leaves out."""
    package = os.path.dirname(os.path.abspath(tabtorch.__file__)) + os.sep
    return filename.startswith((package, "<frozen ", "<torch>"))


def _cut(report: traceback.TracebackException) -> None:
    """Leave the frames of the user's code; `TABTORCH_TRACEBACK=full` leaves all but this file's."""
    full = os.environ.get("TABTORCH_TRACEBACK") == "full"
    report.stack[:] = [
        frame for frame in report.stack if frame.filename != __file__ and (full or not is_internal(frame.filename))
    ]
    for other in (report.__cause__, report.__context__, *(report.exceptions or ())):
        if other is not None:
            _cut(other)


def _failed(error: BaseException) -> int:
    """The exit status of a script that `error` ended; what there is to say is on standard error."""
    sys.stdout.flush()
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    report = traceback.TracebackException.from_exception(error)
    _cut(report)
    print("".join(report.format()), end="", file=sys.stderr)
    hint = magics.hint(error)
    if hint:
        print(hint, file=sys.stderr)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


async def run(source: str, filename: str, argv: list[str], watch: Callable[[Any], None]) -> int:
    """Run `source` with `torch` installed; its exit status, 2 if there is no device. A top-level `await` is allowed.

    watch: is given the runtime, once that is there.
    """
    from tabtorch import bridge
    from tabtorch.ops.machinery import asserts

    tabtorch.install()
    try:
        await bridge.init()
    except RuntimeError as error:  # no such device: nothing in the script is to blame
        print(f"tabtorch: {error}", file=sys.stderr)
        return 2
    here: Any = bridge.get_bridge()  # Pyodide's, whose runtime is in this JavaScript
    watch(here.runtime)

    main = types.ModuleType("__main__")
    main.__file__ = os.path.abspath(filename)
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.argv = [filename, *argv]
    sys.path.insert(0, os.path.dirname(main.__file__))
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    status = 0
    try:
        tree = magics.tree(source, filename)
        code = compile(tree, filename, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        result = eval(code, main.__dict__)
        if code.co_flags & inspect.CO_COROUTINE:
            await result
        await asserts.raise_found_async()  # what nobody has read
    except (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
        status = _failed(error)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status
