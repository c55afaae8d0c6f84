"""The examples in PyTorch's own docstrings, run in PyTorch and in tabtorch: python -m conformance.docstrings [PATTERN …].

Every `>>>` statement of the public API's docstrings is an example. A docstring's examples run in order, in PyTorch and in
tabtorch, from the same seed, with what they print, and what they assign, compared: numbers by a tolerance, the rest letter
by letter. An example that PyTorch itself cannot run here (a GPU, a file, a name that is nowhere defined) is not counted,
unless the docstring shows the very exception; nor one to which PyTorch says False where the docstring shows True, or the other
way round: with these numbers, on this machine, its rounding errors are beyond the tolerance of the example.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import fnmatch
import importlib
import inspect
import io
import math
import multiprocessing as mp
import os
import re
import signal
import sys
import tempfile
import time
import types
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from . import left_out

#: namespaces whose every name is asked; a name that tabtorch lacks has failed
ASKED = (
    "torch torch.Tensor torch.nn torch.nn.functional torch.nn.init torch.nn.utils torch.nn.utils.rnn torch.nn.parameter "
    "torch.nn.utils.parametrize torch.nn.utils.parametrizations torch.nn.utils.stateless torch.linalg torch.fft "
    "torch.special torch.signal.windows torch.masked torch.optim torch.optim.lr_scheduler torch.optim.swa_utils "
    "torch.utils.data torch.autograd torch.autograd.functional torch.autograd.graph torch.autograd.function "
    "torch.autograd.grad_mode"
).split()

#: namespaces of which only the names that tabtorch has are asked
WHERE_PRESENT = (
    "torch.distributions torch.func torch.random torch.utils torch.utils.checkpoint torch.accelerator torch.serialization"
    " torch.overrides torch.library torch.autograd.forward_ad torch.nn.attention torch.nn.utils.prune"
).split()

#: seconds a docstring may take: those with whole volumes to convolve take minutes on a GPU in software
TIMEOUT = 180
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf|nan)(?!\w*[A-Za-ik-z_])")
_DEVICE = re.compile(r",\s*device='(?:webgpu:0|cpu)'")
_OURS = (
    ("tabtorch", "torch"),
    ("torch.webgpu.", "torch."),
    ("webgpu:0", "cpu"),
    ("webgpu", "cpu"),
)


class Docstring(NamedTuple):
    """A docstring, by the public path of what it describes."""

    space: str
    name: str
    text: str


class Outcome(NamedTuple):
    """What one example did: "value", "raised" or "skipped", and its text."""

    kind: str
    source: str
    text: str


def docstrings() -> Iterator[Docstring]:
    """Each docstring of the public API that has an example, once."""
    seen: set[str] = set()
    for space in (*ASKED, *WHERE_PRESENT):
        place = _follow(torch, space)
        for name in sorted(dir(place)):
            if name.startswith("_"):
                continue
            value = inspect.getattr_static(place, name) if inspect.isclass(place) else getattr(place, name, None)
            legacy = re.fullmatch(r"torch\.\w+(Tensor|Storage)", f"{space}.{name}")
            if isinstance(value, types.ModuleType) or legacy or not _belongs(value, space):
                continue
            for path, text in _texts(f"{space}.{name}", value):
                if isinstance(text, str) and ">>>" in text and text not in seen:
                    seen.add(text)
                    yield Docstring(space, path, text)


def _belongs(value: Any, space: str) -> bool:
    """Not what a module of PyTorch has merely imported: from Python's library, or helpers of its own."""
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) or not callable(value):
        return True
    return module.partition(".")[0] in ("torch", "builtins", "_C") and (module != "torch.overrides" or space == module)


_METHODS = (types.FunctionType, types.MethodDescriptorType, staticmethod, classmethod)


def _texts(path: str, value: Any) -> Iterator[tuple[str, str]]:
    yield path, getattr(value, "__doc__", None) or ""
    if (
        inspect.isclass(value)
        and (value.__module__ or "").startswith("torch")
        and path.startswith("torch.")
        and path != "torch.Tensor"
    ):
        for name, method in vars(value).items():
            if not name.startswith("_") and isinstance(method, _METHODS):
                yield f"{path}.{name}", getattr(method, "__doc__", None) or ""


def _follow(root: Any, path: str) -> Any:
    for i, part in enumerate(path.split(".")[1:], 2):
        try:
            root = getattr(root, part)
        except AttributeError:
            root = importlib.import_module(root.__name__.partition(".")[0] + "." + ".".join(path.split(".")[1:i]))
    return root


def present(path: str) -> bool:
    """Whether tabtorch has the name."""
    import tabtorch

    try:
        return _follow(tabtorch, path) is not None
    except (AttributeError, ImportError, NotImplementedError):
        return False


def statements(text: str) -> list[tuple[ast.stmt, str]]:
    """The statements of a docstring's examples, each with the lines that the docstring prints below it."""
    groups: list[tuple[list[str], list[str]]] = []
    inside = False
    for line in text.expandtabs().split("\n"):
        s = line.strip()
        if s.startswith(">>>") or (inside and s.startswith("...") and groups and not groups[-1][1]):
            if not inside:
                groups.append(([], []))
            groups[-1][0].append(s[4:] if s[3:4] == " " else s[3:])
            inside = True
            continue
        inside = inside and not s
        if groups and s:
            groups[-1][1].append(s)
    found: list[tuple[ast.stmt, str]] = []
    for lines, shown in groups:
        found += [(node, "") for node in _parse(lines)]
        if found:
            found[-1] = (found[-1][0], "\n".join(shown))
    return found


def _parse(lines: list[str]) -> list[ast.stmt]:
    """All the lines at once; else the longest pieces from the top that are Python."""
    body = []
    while lines:
        for end in range(len(lines), 0, -1):
            try:
                body += ast.parse(inspect.cleandoc("\n" + "\n".join(lines[:end]))).body
                break
            except SyntaxError:
                continue
        lines = lines[max(end, 1) :]
    return body


def _importer(library: str) -> Any:
    """`__import__` to which "torch" is the library."""

    def load(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if name.partition(".")[0] != "torch" or level:
            return builtins.__import__(name, globals, locals, fromlist, level)
        return builtins.__import__(library + name.removeprefix("torch"), globals, locals, fromlist, level)

    return load


def names(library: str) -> dict[str, Any]:
    """What PyTorch's examples take for granted."""
    lib = importlib.import_module(library)
    loads = types.ModuleType("builtins")
    vars(loads).update(vars(builtins))
    vars(loads)["__import__"] = _importer(library)
    nn = importlib.import_module(library + ".nn")
    known: dict[str, Any] = {
        "torch": lib,
        "nn": nn,
        "F": nn.functional,
        "init": nn.init,
        "np": np,
        "numpy": np,
        "math": math,
    }
    known |= {
        "inf": math.inf,
        "nan": math.nan,
        "optim": importlib.import_module(library + ".optim"),
        "os": os,
        "sys": sys,
    }
    known |= {"Tensor": lib.Tensor, "__builtins__": vars(loads), "__name__": "__main__"}
    return known


class _Late(BaseException):
    pass


def _late(*_: Any) -> None:
    raise _Late


def run(doc: Docstring, library: str) -> list[Outcome]:
    """The docstring's examples, in order."""
    env = names(library)
    env["torch"].manual_seed(0)
    with contextlib.suppress(AttributeError, ImportError, NotImplementedError):  # what is described needs no import
        env.setdefault(doc.name.rpartition(".")[2], _follow(env["torch"], doc.name))
    if "optimizer" in doc.text:  # "assuming optimizer …"
        env["model"] = env["nn"].Linear(4, 2)
        env["optimizer"] = env["optim"].SGD(env["model"].parameters(), lr=0.05, momentum=0.9)
        env |= dict.fromkeys(("train", "validate"), lambda *_: None)
    found = []
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(TIMEOUT)
    try:
        for node, shown in statements(doc.text):
            source = ast.unparse(node)
            out = io.StringIO()
            try:
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                    value = _run(node, env)
                    text = out.getvalue() + ("" if value is None else repr(value))
                found.append(Outcome("skipped" if {text, shown} == {"True", "False"} else "value", source, text))
            except Exception as e:
                wanted = "Traceback" in shown or re.search(r"\w*Error\b", shown)
                message = str(e).split("\n")[0]
                found.append(Outcome("raised" if wanted else "skipped", source, f"{type(e).__name__}: {message}"))
    except (_Late, SystemExit):
        found.append(Outcome("skipped", source, f"took more than {TIMEOUT} s"))
    finally:
        signal.alarm(0)
    return found


def _run(node: ast.stmt, env: dict[str, Any]) -> Any:
    """A statement; its value, where it is an expression, or what it assigns."""
    if isinstance(node, ast.Expr):
        return eval(compile(ast.Expression(node.value), "<example>", "eval"), env)
    exec(compile(ast.Module([node], []), "<example>", "exec"), env)
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    values = [env[n.id] for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and n.id in env]
    shown = [v for v in values if isinstance(v, (env["torch"].Tensor, int, float, complex, str, tuple, list))]
    return shown or None


def same(want: str, got: str, form: bool = False) -> bool:
    """The same text; floating numbers within 2e-4 of their own size (PyTorch prints four digits), or 1e-5 of the largest.

    A number alone may be what rounding left of a difference: those are the same below PyTorch's own atol of 1e-5.
    """
    want, got = (_DEVICE.sub("", t) for t in (want, got))
    for ours, theirs in _OURS:
        got = got.replace(ours, theirs)
        want = want.replace(ours, theirs)
    texts = [re.sub(r"0x[0-9a-f]+", "0x", t) for t in (want, got)]
    texts = [re.sub(r"(?<=[\d.])(?=[-+][\d.]+(?:e[-+]\d+)?j)", " ", t) for t in texts]
    rest = [re.sub(r"\s+", "", _NUMBER.sub("#", t)).replace("#j", "#") for t in texts]
    if rest[0] != rest[1]:
        return False
    a, b = (_NUMBER.findall(t) for t in texts)
    if form:
        return True
    finite = [abs(float(x)) for x in a if math.isfinite(float(x))]
    floor = 1e-5 * max(1.0 if len(a) == 1 else 0.0, *finite, 0.0)
    return all(_near(x, y, floor) for x, y in zip(a, b, strict=True))


def _near(x: str, y: str, floor: float) -> bool:
    if x == y:
        return True
    whole = [re.fullmatch(r"[-+]?\d+", s) is not None for s in (x, y)]
    if any(whole):
        return all(whole) and int(x) == int(y)
    p, q = float(x), float(y)
    if not (math.isfinite(p) and math.isfinite(q)):
        return p == q or p != p and q != q
    return abs(p - q) <= max(2e-4 * abs(p), floor, 1.01e-4 * (abs(p) >= 1e-3))


def _real(doc: Docstring) -> list[Outcome]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return run(doc, "torch")


def _ours(doc: Docstring, device: str) -> list[Outcome]:
    import tabtorch

    tabtorch.set_default_device(device)
    tabtorch.set_default_dtype(tabtorch.float32)
    tabtorch.set_printoptions(profile="default")
    tabtorch.set_grad_enabled(True)
    return run(doc, "tabtorch")


def _serve(pipe: Any, device: str) -> None:
    warnings.simplefilter("ignore")
    while (doc := pipe.recv()) is not None:
        try:
            pipe.send(_ours(doc, device) if device else _real(doc))
        except BaseException as e:
            pipe.send([Outcome("skipped", "", f"{type(e).__name__}: {e}")])


class Library:
    """A library in a process of its own, which may hang or die; PyTorch's is made anew for each docstring."""

    def __init__(self, device: str = "") -> None:
        self.device = device
        self.process: Any = None

    def ask(self, doc: Docstring) -> list[Outcome]:
        """The outcomes of a docstring's examples."""
        if self.process is None:
            context: Any = mp.get_context("fork")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=_serve, args=(theirs, self.device), daemon=True)
            self.process.start()
            theirs.close()
        try:
            self.pipe.send(doc)
            found = self.pipe.recv() if self.pipe.poll(TIMEOUT + 20) else []
        except EOFError:
            found = []
        if not self.device or not found or found[-1].text.startswith("took"):
            self.end()
        return found

    def end(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


class Judged(NamedTuple):
    """One example on one device."""

    doc: Docstring
    device: str
    ok: bool
    want: Outcome
    got: Outcome


def judge(doc: Docstring, device: str, want: list[Outcome], got: list[Outcome]) -> Iterator[Judged]:
    """Every runnable example of a docstring."""
    form = bool(left_out.DOCSTRINGS_FORM_ONLY.search(doc.text))
    for i, w in enumerate(want):
        g = got[i] if i < len(got) else Outcome("skipped", w.source, got[-1].text if got else "the process died")
        if w.kind == "value":
            yield Judged(doc, device, g.kind == "value" and same(w.text, g.text, form), w, g)
        elif w.kind == "raised":
            yield Judged(doc, device, g.text.partition(":")[0] == w.text.partition(":")[0], w, g)


def main() -> int:
    """The command."""
    p = argparse.ArgumentParser(prog="conformance.docstrings", description=__doc__)
    p.add_argument("patterns", nargs="*", default=["*"], help="public paths, with * and ?, e.g. 'torch.fft.*'")
    p.add_argument("--device", choices=("cpu", "webgpu"), action="append")
    p.add_argument("--seconds", type=int, default=TIMEOUT, help="that a docstring may take (default: %(default)s)")
    p.add_argument("-v", action="store_true", help="show the failures")
    a = p.parse_args()
    globals()["TIMEOUT"] = a.seconds
    warnings.simplefilter("ignore")
    out = {d for patterns in left_out.DOCSTRINGS.values() for d in patterns.split()}
    asked, absent = [], Counter[str]()
    for doc in docstrings():
        if not any(fnmatch.fnmatchcase(doc.name, x) for x in a.patterns) or any(
            fnmatch.fnmatchcase(doc.name, x) for x in out
        ):
            continue
        if doc.space in WHERE_PRESENT and not present(doc.name):
            absent[doc.space] += 1
            continue
        asked.append(doc)
    answers: list[Judged] = []
    devices = a.device or ["cpu", "webgpu"]
    libraries = {d: Library(d) for d in devices}
    theirs = Library()
    shown = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for i, doc in enumerate(asked):
            want = theirs.ask(doc)
            if not any(w.kind != "skipped" for w in want):
                continue
            for device, library in libraries.items():
                new = list(judge(doc, device, want, library.ask(doc)))
                answers += new
                bad = [x for x in new if not x.ok]
                for x in bad[: 100 if a.v else 0]:
                    print(
                        f"{doc.name} {device}\n    >>> {x.want.source[:300]}\n    "
                        f"PyTorch : {x.want.text[:600]}\n    tabtorch: {x.got.text[:600]}",
                        flush=True,
                    )
            if time.monotonic() > shown + 30:
                shown = time.monotonic()
                print(f"... {i + 1} of {len(asked)} docstrings", file=sys.stderr, flush=True)
        os.chdir("/")
    for library in libraries.values():
        library.end()
    _totals(answers, absent)
    return 0


def _totals(answers: list[Judged], absent: Counter[str]) -> None:
    keys = sorted({(x.doc.space, x.device) for x in answers})
    for space, device in [*keys, *(("all", d) for d in sorted({d for _, d in keys}))]:
        mine = [x for x in answers if x.device == device and space in (x.doc.space, "all")]
        whole: dict[str, bool] = {}
        for x in mine:
            whole[x.doc.name] = whole.get(x.doc.name, True) and x.ok
        good = sum(x.ok for x in mine)
        print(
            f"{space:34} {device:7} examples {good:5} of {len(mine):5} ({100 * good / len(mine):5.1f} %)"
            f"   docstrings {sum(whole.values()):4} of {len(whole):4} ({100 * sum(whole.values()) / len(whole):5.1f} %)"
        )
    failed = sorted({x.doc.name for x in answers if not x.ok})
    print(f"docstrings with a failure: {' '.join(failed)}")
    if absent:
        print("not asked, since tabtorch does not have the name:", ", ".join(f"{k}: {n}" for k, n in absent.items()))


if __name__ == "__main__":
    sys.exit(main())
