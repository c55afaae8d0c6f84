"""What the page asks of Python: run a file as `__main__`, answer the prompt, complete a name."""

import ast
import asyncio
import codeop
import contextlib
import gc
import inspect
import io
import json
import linecache
import os
import signal
import sys
import traceback
import types
from importlib.machinery import PathFinder

import pyodide.ffi
import pyodide.webloop
import tabcells
import tabcontrols
import tabdisplay
import tabfresh
from pyodide.code import find_imports, run_js

_emit = None  # set by the page: emit(kind, *details)
_missing = {}  # packages that could not be fetched: import name -> why
_flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_compiler = codeop.CommandCompiler()
_compiler.compiler.flags |= _flags
_prompts = 0
_clean = False  # whether a Run starts clean
_run_sync = pyodide.ffi.run_sync
_waiting = []  # what the script is suspended in, the innermost last: each can be cancelled
_interrupted = False  # Stop came while the script was suspended, or before its first line
_stopped = False  # Stop came since the first of the cells that run
_task = None  # of the script that runs
around = contextlib.nullcontext  # what the user's code runs in: the inspector's profiler, when that is asked for


# A promise cannot be cancelled. What comes of it later is left alone. In a box: see tabtorch/bridge/pyodide.py.
_cancellable = run_js("""
(waited) => {
  let cancel;
  const promise = new Promise((resolve, reject) => {
    cancel = () => resolve();
    waited.then(resolve, reject);
  });
  return { promise, cancel };
}
""")


def start(emit, interactive):
    """Connect the page. Lines go out as they end, as in a terminal. interactive: somebody sits before it."""
    global _emit
    _emit = emit
    tabdisplay.start(emit, _flush, interactive)
    sys.stdout.reconfigure(line_buffering=True)
    sys.stderr.reconfigure(line_buffering=True)
    sys.stdin = _Input()
    signal.signal(signal.SIGINT, _on_interrupt)
    sys.unraisablehook = _on_unraisable
    pyodide.ffi.run_sync = pyodide.webloop.run_sync = run_sync
    _fresh_main(None)


class _Input(io.TextIOBase):
    """Standard input: the page is asked for each line. The end of the file, where nobody can be asked."""

    def readline(self, size=-1):
        _flush()
        answer = _emit("input")
        if answer is None:
            return ""
        if not pyodide.ffi.can_run_sync():
            raise OSError("nobody can be asked here: this browser cannot wait for an answer (it has no JSPI)")
        line = run_sync(answer)
        return line if isinstance(line, str) else ""

    def read(self, size=-1):
        return "".join(iter(self.readline, ""))

    def readable(self):
        return True

    def close(self):
        """It is there for the next script, too; `exit()` closes it."""


def interrupt():
    """Stop, while the script waits: a KeyboardInterrupt where it does, at once if that can be cancelled.

    Before it has begun (packages are fetched, say) that is its first line.
    """
    global _interrupted, _stopped
    _stopped = _interrupted = True
    if _waiting:
        _waiting[-1].cancel()
    elif _task is not None:
        _task.cancel()


def forget_interrupt():
    """What ran has ended: a Stop that came too late for it is not meant for what comes next."""
    global _interrupted
    _interrupted = False


def _on_interrupt(_, frame):
    """KeyboardInterrupt in the script, never in the event loop that will wake it: what the script waits for ends."""
    main = sys.modules["__main__"].__dict__
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code is _on_unraisable.__code__:
            _emit("interrupt")  # again, a little later: what is raised here ends nothing
            return
        if frame.f_globals is main or frame.f_code is _execute.__code__:
            raise KeyboardInterrupt
        frame = frame.f_back
    interrupt()


def _on_unraisable(unraisable):
    """An exception where none can be raised (a weak reference's callback, say) is printed; Stop comes again."""
    if unraisable.exc_type is KeyboardInterrupt:
        _emit("interrupt")
    else:
        sys.__unraisablehook__(unraisable)


def run_sync(awaitable):
    """pyodide.ffi.run_sync, but a Stop that came meanwhile is raised here."""
    global _interrupted
    cancellable = awaitable
    if isinstance(awaitable, pyodide.ffi.JsPromise):
        cancellable = _cancellable(awaitable)
        awaitable = cancellable.promise
    elif inspect.iscoroutine(awaitable):
        cancellable = awaitable = asyncio.ensure_future(awaitable)  # as pyodide.ffi does; a task can be cancelled
    _waiting.append(cancellable)
    try:
        result = _run_sync(awaitable)
    except asyncio.CancelledError:
        if not _interrupted:
            raise
        result = None
    finally:
        _waiting.pop()
    if _interrupted:
        _interrupted = False
        raise KeyboardInterrupt
    return result


async def load_tabtorch():
    """Install tabtorch as torch, and start its device."""
    import tabtorch
    from tabtorch import bridge

    tabtorch.install()
    await bridge.init()
    _magics()  # what a translated line calls


def compiled():
    """What the modules of tabtorch were compiled to, for the next visit; empty, where nothing is new."""
    from tabtorch import _archive

    return _archive.compiled()


def start_clean():
    """From now on a Run puts back what the one before has changed."""
    global _clean
    _clean = True


def describe():
    """What the page says about the device, as JSON: `device`, `version`, the interpreter's, and the runtime's `info`."""
    try:
        import torch

        from tabtorch.bridge import get_bridge

        accelerator = torch.accelerator.current_accelerator()
        device = accelerator.type if accelerator is not None else "cpu"
        report = {"device": device, "version": torch.__version__, "info": get_bridge().info}
    except Exception as error:
        report = {"device": "", "version": "", "info": {}, "error": f"{type(error).__name__}: {error}"}
    return json.dumps({**report, "python": sys.version.split()[0]}, default=str)


def runtime():
    """The runtime that the device is in, for the page to look at."""
    from tabtorch.bridge import get_bridge

    return get_bridge().runtime


def _magics():
    """The lines that notebooks have beside Python; of the package, which is there once tabtorch is."""
    from tabtorch.cli import magics

    return magics


def wanted(source):
    """Names that the source imports and that cannot be found here."""
    try:
        names = set(find_imports(_magics().translate(source)))
    except SyntaxError:
        return []  # said when it is run
    tops = sorted({name.partition(".")[0] for name in names})
    return [name for name in tops if name not in sys.modules and not _findable(name)]


def missing(names, why):
    """Remember why packages could not be fetched, for the traceback of the script that imports one."""
    _missing.update(dict.fromkeys(names, why))


def _findable(name):
    if name in sys.builtin_module_names or PathFinder.find_spec(name) is not None:
        return True
    # what tabtorch stands in for, such as safetensors, is not fetched; other finders only say what could be
    ours = [finder for finder in sys.meta_path if type(finder).__module__.startswith("tabtorch.")]
    return any(finder.find_spec(name, None) is not None for finder in ours)


def _fresh_main(path):
    """A new, empty `__main__`; what the last one held is let go."""
    old = sys.modules.get("__main__")
    main = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    if path is not None:
        main.__file__ = path
    sys.modules["__main__"] = main
    if old is not None and getattr(old, "__tabpage__", False):
        old.__dict__.clear()
        gc.collect()
    main.__tabpage__ = True
    return main.__dict__


def _remember(filename, source):
    """Let tracebacks and `inspect` find the lines. No modification time: the entry is never looked up on disk."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)


async def _execute(code, namespace):
    """Code compiled with top-level await allowed: only what uses it is a coroutine."""
    global _task, _interrupted
    if _interrupted:
        _interrupted = False
        raise KeyboardInterrupt
    _task = asyncio.current_task()
    try:
        result = eval(code, namespace)
        if code.co_flags & inspect.CO_COROUTINE:
            await result
    except asyncio.CancelledError as error:
        if not _interrupted:
            raise
        _interrupted = False
        raise KeyboardInterrupt().with_traceback(error.__traceback__) from None
    finally:
        _task = None


def _internal(filename):
    package = sys.modules.get("tabtorch")
    folder = os.path.dirname(package.__file__) + "/" if package is not None and package.__file__ else None
    return (
        filename in (__file__, tabcells.__file__, tabcontrols.__file__)
        or filename.startswith(("<frozen ", "<torch>"))
        or bool(folder and filename.startswith(folder))
    )


def _cut(report):
    """Leave the user's frames; tabtorch's own are shown with TABTORCH_TRACEBACK=full."""
    if os.environ.get("TABTORCH_TRACEBACK") == "full":
        keep = [frame for frame in report.stack if frame.filename != __file__]
    else:
        keep = [frame for frame in report.stack if not _internal(frame.filename)]
    report.stack[:] = keep
    for other in (report.__cause__, report.__context__, *(report.exceptions or ())):
        if other is not None:
            _cut(other)


def _print_exception(error):
    """The traceback on standard error; returns (file, line) of the user's frames, the innermost last."""
    report = traceback.TracebackException.from_exception(error)
    _cut(report)
    sys.stdout.flush()
    print("".join(report.format()), end="", file=sys.stderr)
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name in _missing:
        print(f"{name} is fetched when a script imports it, and that failed: {_missing[name]}", file=sys.stderr)
    elif hint := _magics().hint(error):
        print(hint, file=sys.stderr)
        _emit("missing", name)
    sys.last_exc = error
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    places = [(frame.filename, frame.lineno or 0) for frame in report.stack]
    return [*places, (error.filename, error.lineno or 0)] if isinstance(error, SyntaxError) else places


def _exit_status(error):
    """As the interpreter's: None is 0, a number is itself, anything else is printed and is 1."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _said_status(error):
    """The same, and the page says so: a script that ends early should not look as one that came to its end."""
    status = _exit_status(error)
    _flush()
    _emit("note", f"Python was asked to exit, with status {status}.\n")
    return status


def _flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass  # closed by the script


async def _ended(work):
    """How the user's code ended: (exit status, places of the error)."""
    status, places = 0, []
    tabdisplay.begin()
    try:
        with around():
            await work
    except SystemExit as error:
        status = _said_status(error)
    except (KeyboardInterrupt, asyncio.CancelledError) as error:
        status, places = 130, _print_exception(error)
    except BaseException as error:
        status, places = 1, _print_exception(error)
    _finish_display()
    return status, places


async def _start_file(filename, path, argv):
    """A fresh `__main__` for this script."""
    if _clean:
        tabfresh.remember()
        await tabfresh.restore()
    tabdisplay.fresh()
    _fresh_main(path)
    sys.argv = [filename, *argv]
    sys.path[0] = os.path.dirname(path)


async def run_file(source, filename, path, argv):
    """Run a script in a fresh `__main__`. Returns (exit status, line of the error or 0).

    filename: as tracebacks name it; path: where it lies in this file system; argv: after the name.
    """
    await _start_file(filename, path, argv)
    _remember(filename, source)
    status, places = await _ended(_run_file(source, filename))
    return status, next((line for file, line in reversed(places) if file == filename), 0)


async def _run_file(source, filename):
    tree = _magics().tree(source, filename)
    code = compile(tree, filename, "exec", flags=_flags, dont_inherit=True)
    await _execute(code, sys.modules["__main__"].__dict__)
    await _raise_found()


async def _raise_found():
    """What asserts on the device have found and nobody has read."""
    asserts = sys.modules.get("tabtorch.ops.machinery.asserts")
    if asserts is not None:
        await asserts.raise_found_async()


async def run_cells(cells, filename, path, clean):
    """Run cells, (number, first line, text) of each, until one fails; in a fresh `__main__` if `clean`.

    Returns (exit status, number of the cell in whose text it failed or 0, line in the script as it was when that ran).
    """
    global _stopped
    _stopped = False
    if clean:
        tabcells.forget()
        await _start_file(filename, path, [])
    elif _clean:
        tabfresh.remember()
        sys.path[0] = os.path.dirname(path)
        sys.modules["__main__"].__file__ = path
    for number, first, text in cells:
        if _stopped:
            return 130, 0, 0
        _emit("cell", number)
        status, places = await _ended(_run_cell(tabcells.padded(first, text), tabcells.name(filename, number)))
        if status:
            return status, *tabcells.place(places)
    return 0, 0, 0


async def _run_cell(source, name):
    _remember(name, source)
    for code in tabcells.parts(source, name, _flags):
        await _execute(code, sys.modules["__main__"].__dict__)
    await _raise_found()


def _finish_display():
    """What is shown is as far as the script has come; what that meets is told, and fails nothing."""
    try:
        tabdisplay.finish()
    except BaseException as error:
        _print_exception(error)
    _flush()


def finish():
    """The end of a process: exit handlers, then the streams."""
    import atexit

    atexit._run_exitfuncs()
    _flush()


def needs_more(source):
    """Whether the prompt should wait for another line."""
    try:
        return _compiler(_magics().translate(source), "<stdin>", "single") is None
    except (SyntaxError, ValueError, OverflowError):
        return False  # several statements at once, or an error to be shown


async def evaluate(source):
    """Run what was entered at the prompt, in the namespace of the last run; values are printed as they are made."""
    global _prompts
    if _clean:
        tabfresh.remember()
    filename = f"<python-input-{_prompts}>"
    _prompts += 1
    _remember(filename, source)
    status, _ = await _ended(_run_line(source, filename))
    return status


async def _run_line(source, filename):
    tree = _magics().tree(source, filename)
    code = compile(ast.Interactive(tree.body), filename, "single", flags=_flags, dont_inherit=True)
    await _execute(code, sys.modules["__main__"].__dict__)


def about(text):
    """Of the name at the end of text: [what it is, the first paragraph of its documentation], or nothing."""
    import tabcomplete

    return tabcomplete.about(text, sys.modules["__main__"].__dict__)


def complete(text):
    """What can stand at the end of text: (length of what it replaces, names, [signature, summary] of each)."""
    import tabcomplete

    return tabcomplete.complete(text, sys.modules["__main__"].__dict__)
