"""The lines that notebooks have beside Python: `%pip install X`, `%time`, `name?`, `!command`.

A line is turned into a call of this module, so that it means the same at the prompt and in a script. What is Python
already stays as it is.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["NAMES", "UsageError", "hint", "pip", "run", "translate", "tree"]


class UsageError(Exception):
    """A line that cannot be carried out here; the message says what can."""


_INDENT = r"(?P<indent>\s*)(?P<to>[A-Za-z_]\w*\s*=\s*)?"
_MAGIC = re.compile(_INDENT + r"%{1,2}(?P<name>[A-Za-z_]\w*)(?P<rest>.*)")
_SHELL = re.compile(_INDENT + r"!(?P<rest>.+)")
_ASKED = re.compile(r"(?P<indent>\s*)(?:(?P<first>\?{1,2})\s*(?P<a>[\w.]+)|(?P<b>[\w.]+)\s*(?P<last>\?{1,2}))\s*")


def _call(name: str, rest: str) -> str:
    here = f"__import__('sys').modules[{__name__!r}]"
    return f"await {here}.pip({rest!r})" if name == "pip" else f"{here}.run({name!r}, {rest!r})"


def _translated(line: str) -> str:
    """The line as Python, if it is one of ours."""
    if found := _ASKED.fullmatch(line):
        rest = found["a"] or found["b"]
        return found["indent"] + _call("source" if "??" in (found["first"], found["last"]) else "about", rest)
    if found := _SHELL.fullmatch(line):
        command = found["rest"].strip()
        name, rest = ("pip", command[3:]) if re.match(r"pip3?\s", command) else ("shell", command)
    elif found := _MAGIC.fullmatch(line):
        name, rest = found["name"], found["rest"]
    else:
        return line
    return f"{found['indent']}{found['to'] or ''}{_call(name, rest.strip())}"


def translate(source: str) -> str:
    """`source` with lines of ours as Python. A source that is Python without that is not touched."""
    try:
        compile(source, "<source>", "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError):
        # by "\n" alone: that is what Python takes for the end of a line
        return "\n".join(map(_translated, source.split("\n")))
    return source


def tree(source: str, filename: str) -> ast.Module:
    """`source` parsed, lines of ours included; errors and tracebacks are of the lines as they were written."""
    text = translate(source)
    parsed = compile(
        text, filename, "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
    )
    assert isinstance(parsed, ast.Module)
    if text is not source:
        lines = zip(source.split("\n"), text.split("\n"))
        width = {at: len(before) for at, (before, after) in enumerate(lines, 1) if before != after}
        for node in ast.walk(parsed):
            if getattr(node, "lineno", None) in width and isinstance(node, (ast.expr, ast.stmt)):
                node.col_offset, node.end_col_offset = 0, width[node.lineno]
    return parsed


def hint(error: BaseException) -> str:
    """What to type about an error, or nothing."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    name = error.name.partition(".")[0]
    if name in sys.modules or name in sys.stdlib_module_names:
        return ""
    return (
        f"{name} is not installed here. If it is a package, type `%pip install {name}` at the prompt,\n"
        f'or put `import micropip; await micropip.install("{name}")` before the import.'
    )


# -- %name


def run(name: str, rest: str) -> Any:
    """Carry out `%name rest`."""
    if name not in _MAGICS:
        known = ", ".join(f"%{each}" for each in NAMES)
        raise UsageError(f"there is no %{name} here: there are {known}")
    return _MAGICS[name](rest)


def _main() -> dict[str, Any]:
    return sys.modules["__main__"].__dict__


def _value(source: str) -> Any:
    """Of an expression, its value once the device has computed it; other statements are carried out."""
    import torch

    parsed = ast.parse(source, "<timed>")
    last = parsed.body[-1] if parsed.body else None
    if isinstance(last, ast.Expr):
        parsed.body.pop()
    exec(compile(parsed, "<timed>", "exec"), _main())
    value = (
        eval(compile(ast.Expression(last.value), "<timed>", "eval"), _main()) if isinstance(last, ast.Expr) else None
    )
    torch.accelerator.synchronize()  # `value` is held until then: what nobody holds is not computed
    return value


def _duration(seconds: float) -> str:
    unit, size = next(((u, s) for u, s in (("s", 1.0), ("ms", 1e-3)) if seconds >= s), ("µs", 1e-6))
    return f"{seconds / size:.3g} {unit}"


def _time(rest: str) -> Any:
    if not rest:
        raise UsageError("%time EXPRESSION: how long it takes, until the device is done")
    begin = time.perf_counter()
    value = _value(rest)
    print(f"Wall time: {_duration(time.perf_counter() - begin)}")
    return value


def _timeit(rest: str) -> None:
    if not rest:
        raise UsageError("%timeit EXPRESSION: how long it takes on average, until the device is done")
    _value(rest)  # kernels are compiled once
    times: list[float] = []
    end = time.perf_counter() + 1.0
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 10_000):
        begin = time.perf_counter()
        _value(rest)
        times.append(time.perf_counter() - begin)
    mean = sum(times) / len(times)
    deviation = (sum((each - mean) ** 2 for each in times) / len(times)) ** 0.5
    print(f"{_duration(mean)} ± {_duration(deviation)} a run, {_duration(min(times))} at best ({len(times)} runs)")


def _own_names() -> list[str]:
    values = _main().items()
    return sorted(name for name, value in values if not name.startswith("_") and not inspect.ismodule(value))


def _who(rest: str) -> None:
    names = _own_names()
    print("  ".join(names) if names else "There are no variables yet.")


def _whos(rest: str) -> None:
    rows = []
    for name in _own_names():
        value = _main()[name]
        shape = getattr(value, "shape", None)
        detail = f"{tuple(shape)} {value.dtype}" if shape is not None and hasattr(value, "dtype") else ""
        rows.append((name, type(value).__name__, detail))
    for name, kind, detail in rows:
        widths = [max(len(row[at]) for row in rows) for at in (0, 1)]
        print(f"{name:<{widths[0]}}  {kind:<{widths[1]}}  {detail}".rstrip())


def _shell(rest: str) -> None:
    raise UsageError(
        f"there is no shell in a browser tab for `!{rest}`: "
        "packages come with %pip install NAME, files are read with open() and listed with os.listdir()"
    )


def _matplotlib(rest: str) -> None:
    if rest not in ("", "inline"):
        raise UsageError(f"%matplotlib {rest} is not here: figures are shown inline")


async def pip(rest: str) -> None:
    """`%pip install NAME ...`: by micropip, which is fetched if it is not there."""
    action, *names = rest.split()
    names = [name for name in names if name not in ("-q", "--quiet", "-U", "--upgrade")]
    if action != "install" or not names or any(name.startswith("-") for name in names):
        raise UsageError("%pip install NAME ... is what is here")
    try:
        if importlib.util.find_spec("micropip") is None:
            import pyodide_js

            await pyodide_js.loadPackage("micropip")
        micropip = importlib.import_module("micropip")
    except Exception as error:
        raise UsageError(f"micropip, which installs packages, could not be fetched: {_first_line(error)}") from None
    torch = sys.modules.get("torch")
    if torch is not None:  # packages that need it find the one that is here
        micropip.add_mock_package("torch", torch.__version__, modules={})
    for name in names:
        try:
            await micropip.install(name)
            _check_installed(name)
        except Exception as error:
            raise UsageError(f"{name} could not be installed: {_first_line(error)}{_advice(name, error)}") from None
        print(f"installed {name}")


def _check_installed(requirement: str) -> None:
    """OSError where micropip has raised nothing, and the package is not there: of Pyodide's distribution it only prints that."""
    if "://" in requirement or requirement.startswith("emfs:"):
        return
    from importlib.metadata import PackageNotFoundError, version

    named = re.match(r"[\w.-]+", requirement)
    try:
        version(named[0] if named else requirement)
    except PackageNotFoundError:
        raise OSError("it is in Pyodide's distribution, which could not be reached") from None


def _advice(name: str, error: Exception) -> str:
    """What can be typed instead."""
    if "fetch metadata" in str(error):
        return f"\nIf it has another name on PyPI, type `%pip install THAT_NAME`; pypi.org/search/?q={name} finds it."
    if "pure Python 3 wheel" in str(error):
        return (
            "\nWhat is compiled runs in a tab only where Pyodide's distribution has it. "
            "A wheel of pure Python is taken from any address: `%pip install https://…/name-1.0-py3-none-any.whl`."
        )
    return ""


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# -- name?


def _find(path: str) -> Any:
    """The object of a dotted name. Raises UsageError."""
    import builtins

    first, *rest = path.split(".")
    try:
        value = _main()[first] if first in _main() else getattr(builtins, first)
        for name in rest:
            value = getattr(value, name)
    except AttributeError:
        raise UsageError(f"`{path}` is not found") from None
    return value


def signature(value: Any, name: str = "") -> str:
    """`(x, *, dim=None) -> Tensor`, or nothing. Of a function that takes anything, what its docstring begins with."""
    if not callable(value):
        return ""
    opening = (inspect.getdoc(value) or "").partition("\n")[0]
    name = name or getattr(value, "__name__", "")
    try:
        told = inspect.signature(value)
    except (TypeError, ValueError):
        told = None
    takes_anything = told is None or [p.kind for p in told.parameters.values()] == [
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    ]
    if takes_anything and name and opening.startswith(f"{name}("):
        return opening[len(name) :]
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in told.parameters.values()] if told else []
    return str(told.replace(parameters=parameters, return_annotation=inspect.Signature.empty)) if told else "(...)"


def summary(value: Any, name: str = "") -> str:
    """The first line of its docstring, which says what it does."""
    if not (callable(value) or inspect.ismodule(value) or inspect.isdatadescriptor(value)):
        return ""
    lines = [line for line in (inspect.getdoc(value) or "").splitlines() if line.strip()]
    name = name or getattr(value, "__name__", "")
    return next((line for line in lines if not (name and line.startswith(f"{name}("))), "")


def _about(rest: str) -> None:
    value = _find(rest)
    name = rest.rpartition(".")[2]
    if callable(value):
        print(f"{rest}{signature(value, name)}")
    else:
        print(f"{rest}: {type(value).__name__}")
        print(_short(value))
    documented = callable(value) or inspect.ismodule(value)
    text = inspect.getdoc(value if documented else type(value))
    if text:
        print(f"\n{text}")


def _short(value: Any) -> str:
    lines = repr(value).splitlines() or [""]
    return "\n".join([*lines[:10], *(["..."] * (len(lines) > 10))])


def _source(rest: str) -> None:
    try:
        print(inspect.getsource(_find(rest)), end="")
    except (TypeError, OSError):
        _about(rest)


_MAGICS: dict[str, Callable[[str], Any]] = {
    "about": _about,
    "matplotlib": _matplotlib,
    "shell": _shell,
    "source": _source,
    "time": _time,
    "timeit": _timeit,
    "who": _who,
    "whos": _whos,
}
#: what a person types after %
NAMES = ["matplotlib", "pip", "time", "timeit", "who", "whos"]
