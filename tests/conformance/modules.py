"""PyTorch's own table of modules, `module_db`, and those that draw (drawing.py), against tabtorch on both devices, with real
PyTorch in the same process.

    python -m conformance.modules [PATTERN ...] [--device cpu|webgpu] [--check forward,gradient,...] [-j N] [-v]

A sample is a module's constructor arguments and the inputs of one call, as PyTorch's own tests have them. Both libraries
make the module from the same seed; then ours takes the parameters of PyTorch's, so that one wrong initial value is one
failure and not all of them. Lazy modules are counted apart.
"""

from __future__ import annotations

import argparse
import copy
import fnmatch
import functools
import json
import pickle
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.testing._internal.common_modules import FunctionInput, ModuleErrorEnum, ModuleInfo, ModuleInput, module_db
from torch.testing._internal.common_utils import noncontiguous_like

import tabtorch

from . import checks, compare, drawing, drawn, translate
from .checks import Answer, Verdict
from .compare import Mismatch
from .translate import tensors
from .workers import Question, ask


def _new(cls: type, *args: Any, **kwargs: Any) -> Any:
    made = object.__new__(cls)
    made.__dict__["_made_with"] = (args, kwargs)
    return made


# what a module was made with, so that one among the arguments of another can be made again in tabtorch
torch.nn.Module.__new__ = staticmethod(_new)  # type: ignore[method-assign, assignment]

#: how long a question may take
_SECONDS = 900.0
#: how many samples of a module the questions take that ask the same of each
_FEW = 4


@functools.cache
def infos() -> dict[str, ModuleInfo]:
    """Every ModuleInfo that is not quantised, and of modules that draw, by PyTorch's name: "nn.Conv2d"."""
    table = {m.name: m for m in module_db if ".ao." not in m.module_cls.__module__}
    return table | {m.name: m for m in drawing.infos(set(table))}


def samples(info: ModuleInfo, dtype: str, *, grad: bool = False, training: bool = True) -> list[ModuleInput]:
    """The samples of a dtype, always the same."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind = getattr(torch, dtype)
        found = info.module_inputs_func(info, device="cpu", dtype=kind, requires_grad=grad, training=training)
        own = drawing.inputs(info.module_cls.__name__, kind, grad)
        return own + [s for s in found if s.forward_input is not None]


class Translator(translate.Translator):
    """Also of modules and packed sequences."""

    def __call__(self, x: Any) -> Any:
        if isinstance(x, torch.nn.Module):
            args, kwargs = x.__dict__["_made_with"]
            mine = getattr(tabtorch.nn, type(x).__name__)(*self(args), **self(kwargs))
            mine.load_state_dict(self(dict(x.state_dict())))
            return mine.train(x.training)
        if isinstance(x, PackedSequence):
            sizes = translate.tensor(x.batch_sizes, "cpu")
            return tabtorch.nn.utils.rnn.PackedSequence(self(x.data), sizes, self(x[2]), self(x[3]))
        return super().__call__(x)


class _Pair:
    """A module in both libraries, and the inputs of one call."""

    def __init__(self, info: ModuleInfo, s: ModuleInput, device: str, training: bool) -> None:
        self.device, self.to = device, Translator(device)
        made, call = s.constructor_input, s.forward_input
        self.made_with = (tuple(made.args), dict(made.kwargs))
        self.args, self.kwargs = tuple(call.args), dict(call.kwargs)
        theirs, ours = self.to(self.made_with), self.to((self.args, self.kwargs))
        self.my_args, self.my_kwargs = ours
        checks._seed()
        self.theirs = info.module_cls(*made.args, **made.kwargs)
        with tabtorch.device(device):
            self.cls = getattr(tabtorch.nn, info.module_cls.__name__)
            tabtorch.manual_seed(0)
            self.ours = self.cls(*theirs[0], **theirs[1])
        kind = next((t.dtype for t in tensors((self.args, self.kwargs)) if t.is_floating_point()), torch.float32)
        if kind is torch.float64:
            self.theirs, self.ours = self.theirs.double(), self.ours.double()
        if info.is_lazy:  # the first call is what makes the parameters
            if repr(self.theirs) != repr(self.ours) or repr(list(self.theirs.parameters())) != repr(
                list(self.ours.parameters())
            ):
                raise Mismatch(f"before the first call {self.ours}, not {self.theirs}")
            checks._seed()
            self.theirs(*self.args, **self.kwargs)
            with tabtorch.device(device):
                self.ours(*self.my_args, **self.my_kwargs)
        self.theirs.train(training)
        self.ours.train(training)

    def same_parameters(self) -> None:
        """Ours get the values of PyTorch's."""
        self.ours.load_state_dict(self.to(dict(self.theirs.state_dict())))

    def forward(self) -> tuple[Any, Any]:
        with self.numbers():
            checks._seed()
            want = self.theirs(*self.args, **self.kwargs)
        with tabtorch.device(self.device):
            tabtorch.manual_seed(0)
            return want, self.ours(*self.my_args, **self.my_kwargs)

    def truth(self) -> Callable[[], Any]:
        """The result in double precision, of the parameters as they are now."""
        module = copy.deepcopy(self.theirs)

        def compute() -> Any:
            wide = compare.double((_unpacked(self.args), self.kwargs))
            with self.numbers():
                checks._seed()
                return module.double()(*_packed(wide[0], self.args), **wide[1])

        return compute

    def drawn(self) -> bool:
        """Whether numbers are drawn in the call: those are the device's own on webgpu."""
        before = torch.get_rng_state()
        copy.deepcopy(self.theirs)(*self.args, **self.kwargs)
        return not torch.equal(before, torch.get_rng_state())

    def numbers(self) -> AbstractContextManager[None]:
        """Within it, PyTorch's functions take the numbers that ours draw on the device after the seed 0."""
        if self.device == "cpu" or not self.drawn():
            return nullcontext()
        ours = copy.deepcopy(self.ours)
        with tabtorch.device(self.device), tabtorch.no_grad():
            tabtorch.manual_seed(0)
            return drawn.Numbers(lambda: ours(*self.my_args, **self.my_kwargs)).in_pytorch()


def _unpacked(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tuple(a) if isinstance(a, PackedSequence) else a for a in args)


def _packed(args: tuple[Any, ...], like: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(PackedSequence(*a) if isinstance(b, PackedSequence) else a for a, b in zip(args, like, strict=True))


_tolerance = torch.testing._comparison.default_tolerances


def _same_state(theirs: Any, ours: Any, what: str, truth: Any = None) -> None:
    """The same names in the same order, shapes, dtypes and values."""
    want, got = dict(theirs), dict(ours)
    if list(want) != list(got):
        raise Mismatch(f"{what}: names {list(got)}, not {list(want)}")
    for k in want:
        compare.same(want[k], got[k], _tolerance, where=f"{what} {k}")


# -- the questions: each takes a pair, and raises Mismatch


def construct(p: _Pair, s: ModuleInput) -> str:
    """The parameters that a seed gives, their names and order, and how the module prints itself."""
    _same_state(p.theirs.state_dict(), p.ours.state_dict(), "initial")
    for method in ("named_parameters", "named_buffers"):
        want = [(n, t.requires_grad) for n, t in getattr(p.theirs, method)()]
        got = [(n, t.requires_grad) for n, t in getattr(p.ours, method)()]
        if want != got:
            raise Mismatch(f"{method}: {got}, not {want}")
    texts = [(repr(p.theirs), repr(p.ours)), (p.theirs.extra_repr(), p.ours.extra_repr())]
    texts += [(repr(list(dict(p.theirs.named_modules()))), repr(list(dict(p.ours.named_modules()))))]
    for want, got in texts:
        if (want := want.replace("torch.", "")) != (got := got.replace("tabtorch.", "").replace("torch.", "")):
            raise Mismatch(f"repr {got!r}, not {want!r}")
    if sorted(p.theirs.__constants__ if hasattr(p.theirs, "__constants__") else ()) and not hasattr(
        p.ours, "__constants__"
    ):
        raise Mismatch("no __constants__")
    for name, value in vars(p.theirs).items():
        simple = isinstance(value, (int, float, str, bool, tuple, type(None)))
        if simple and not name.startswith("_") and getattr(p.ours, name, "nothing") != value:
            raise Mismatch(f"attribute {name}: {getattr(p.ours, name, 'nothing')!r}, not {value!r}")
    if not torch.equal(torch.rand(2), translate.back(tabtorch.rand(2))):
        raise Mismatch("the constructor draws more or fewer random numbers")
    return ""


def forward(p: _Pair, s: ModuleInput) -> str:
    """The outputs, and the state after the call."""
    p.same_parameters()
    truth = p.truth()
    try:
        want, got = p.forward()
    except Mismatch:
        raise
    except Exception as e:
        if e.__traceback__ and "tabtorch" in str(_deepest(e)):
            raise
        return f"PyTorch raises {type(e).__name__} itself: {e}"
    compare.same(want, got, _tolerance, truth)
    _same_state(p.theirs.state_dict(), p.ours.state_dict(), "after the call")
    _apart(p)
    return ""


def _deepest(e: BaseException) -> str:
    frame = e.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    return frame.tb_frame.f_code.co_filename if frame else ""


def _apart(p: _Pair) -> None:
    """Inputs that are not contiguous."""
    if any(isinstance(a, PackedSequence) for a in p.args):
        return
    before = p.args, p.kwargs, p.my_args, p.my_kwargs
    p.args, p.kwargs = _scattered(p.args), _scattered(p.kwargs)
    p.my_args, p.my_kwargs = Translator(p.device)((p.args, p.kwargs))
    truth = p.truth()
    want, got = p.forward()
    compare.same(want, got, _tolerance, truth, where="of non-contiguous inputs")
    p.args, p.kwargs, p.my_args, p.my_kwargs = before


def _scattered(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return noncontiguous_like(x) if x.is_floating_point() and x.dim() else x
    if isinstance(x, dict):
        return {k: _scattered(v) for k, v in x.items()}
    return type(x)(_scattered(v) for v in x) if isinstance(x, (list, tuple)) else x


def _gradients(p: _Pair, s: ModuleInput, *, twice: bool) -> str:
    p.same_parameters()

    def call(m: Any) -> Callable[[Any], Any]:
        return lambda bundle: m(*bundle[1], **bundle[2])

    theirs = (list(p.theirs.parameters()), p.args, p.kwargs)
    ours = (list(p.ours.parameters()), p.my_args, p.my_kwargs)
    wide = copy.deepcopy(p.theirs).double()

    def plain(x: Any) -> Any:
        return x

    numbers = p.numbers()
    try:
        with numbers:
            want = checks._grads(torch, call(p.theirs), (theirs, (), {}), plain, twice, plain)
    except Mismatch:
        raise
    except Exception as e:
        return f"PyTorch raises {type(e).__name__} itself: {e}"
    if isinstance(want, str):
        return want
    with tabtorch.device(p.device):
        got = checks._grads(
            tabtorch, call(p.ours), (ours, (), {}), plain, twice, lambda t: translate.tensor(t, p.device)
        )
    if twice and all(w is None for w in want):
        return "PyTorch has no second derivative of it"
    if isinstance(got, str):
        got = [None] * len(want)

    def truth() -> Any:
        args = compare.double((_unpacked(p.args), p.kwargs))
        bundle = (list(wide.parameters()), args[0], args[1])

        def f(b: Any) -> Any:
            return wide(*_packed(b[1], p.args), **b[2])

        with p.numbers():
            found = checks._grads(torch, f, (bundle, (), {}), plain, twice, compare.double)
        return [] if isinstance(found, str) else [x for x, w in zip(found, want, strict=True) if w is not None]

    for i, (w, g) in enumerate(zip(want, got, strict=True)):
        if (w is None) != (g is None) and bool(((w if w is not None else translate.back(g)) != 0).any()):
            raise Mismatch(f"gradient {i} is {'missing' if g is None else 'there, and not zero'}")
    pairs = [(w, g) for w, g in zip(want, got, strict=True) if w is not None and g is not None]
    try:
        compare.same([w for w, _ in pairs], [g for _, g in pairs], _tolerance, where="gradient")
    except Mismatch:
        if len(pairs) != sum(w is not None for w in want) or not _rounded(pairs, truth()):
            raise
    return ""


def _rounded(pairs: list[tuple[Any, Any]], truths: list[Any]) -> bool:
    """Whether ours are as near to the gradients in double precision as PyTorch's, but for rounding.

    Measured against the largest of all: the terms of one may cancel, and all go through the same intermediate values.
    """
    both = [(w.double(), translate.back(g).double(), t.double()) for (w, g), t in zip(pairs, truths)]
    sound = all(w.shape == g.shape == t.shape and w.dtype == torch.float32 for (w, _), (_, g, t) in zip(pairs, both))
    if (
        not sound
        or len(both) != len(pairs)
        or not all(torch.isfinite(torch.stack([*map(_most, b)])).all() for b in both)
    ):
        return False
    error = max(_most(w - t) for w, _, t in both)
    size = max(_most(t) for _, _, t in both)
    allowed = 4 * error + 64 * torch.finfo(torch.float32).eps * size
    return all(bool(_most(g - t) <= allowed) for _, g, t in both)


def _most(t: torch.Tensor) -> torch.Tensor:
    return t.abs().max() if t.numel() else t.sum()


def gradient(p: _Pair, s: ModuleInput) -> str:
    """The gradients of the parameters and the inputs."""
    return _gradients(p, s, twice=False)


def gradgrad(p: _Pair, s: ModuleInput) -> str:
    """The gradients of those gradients."""
    return _gradients(p, s, twice=True)


def state(p: _Pair, s: ModuleInput) -> str:
    """Loading in every way, copies, pickles, modes, dtypes."""
    theirs = p.to(dict(p.theirs.state_dict()))
    for assign in (False, True):
        if str(p.ours.load_state_dict(dict(theirs), strict=True, assign=assign)) != "<All keys matched successfully>":
            raise Mismatch("load_state_dict does not match its own names")
        _same_state(p.theirs.state_dict(), p.ours.state_dict(), "loaded")
    for bad in ({**theirs, "other": 1}, dict(list(theirs.items())[1:]), {k: v[None] for k, v in theirs.items()}):
        real = {k: translate.back(v) if isinstance(v, tabtorch.Tensor) else v for k, v in bad.items()}
        want = checks._result(lambda r=real: p.theirs.load_state_dict(r))
        got = checks._result(lambda b=bad: p.ours.load_state_dict(b))
        if isinstance(want, Exception) != isinstance(got, Exception) or (
            isinstance(want, Exception) and str(want) != str(got)
        ):
            raise Mismatch(f"load_state_dict: {got}, not {want}")
    for m in (copy.deepcopy(p.ours), _pickled(p)):
        if m is None:
            continue
        _same_state(p.theirs.state_dict(), m.state_dict(), "copy")
        if repr(m) != repr(p.ours) or m.training != p.ours.training:
            raise Mismatch("a copy is another module")
    for mode in (False, True):
        p.ours.train(mode)
        p.theirs.train(mode)
        if [m.training for m in p.ours.modules()] != [m.training for m in p.theirs.modules()]:
            raise Mismatch("train() does not reach every module")
    for kind in ("float16", "bfloat16", "float32") + (("float64",) if p.device == "cpu" else ()):
        p.theirs.to(getattr(torch, kind))
        p.ours.to(getattr(tabtorch, kind))
        _same_state(p.theirs.state_dict(), p.ours.state_dict(), f"to({kind})")
    p.ours.requires_grad_(False).zero_grad()
    if any(t.requires_grad for t in p.ours.parameters()):
        raise Mismatch("requires_grad_(False) leaves one")
    return ""


def _pickled(p: _Pair) -> Any:
    args, kwargs = p.made_with
    held = [*args, *kwargs.values()]
    if any(callable(a) and not isinstance(a, torch.nn.Module) and "<l" in repr(a) for a in held):
        return None  # a lambda has no pickle in either library
    return pickle.loads(pickle.dumps(p.ours))


#: check -> (question, whether inputs need gradients, whether both training modes are asked, whether a few samples do)
CHECKS: dict[str, tuple[Callable[[_Pair, ModuleInput], str], bool, str, bool]] = {
    "construct": (construct, False, "one", False),
    "forward": (forward, False, "both", False),
    "gradient": (gradient, True, "differ", False),
    "gradgrad": (gradgrad, True, "differ", False),
    "state": (state, False, "one", True),
}


def _ask(info: ModuleInfo, device: str, check: str, dtype: str, limit: int) -> Iterator[Verdict]:
    if check == "errors":
        yield from _errors(info, device, dtype)
        return
    question, grad, modes, few = CHECKS[check]
    both = modes == "both" or (modes == "differ" and info.train_and_eval_differ)
    for training in (True, False) if both else (True,):
        found = samples(info, dtype, grad=grad, training=training)
        most = _FEW if few and not limit else limit
        if most and len(found) > most:
            found = [found[i * len(found) // most] for i in range(most)]
        for s in found:

            def one(s: ModuleInput = s, training: bool = training) -> str:
                return question(_Pair(info, s, device, training), s)

            mode = "train" if training else "eval"
            yield checks._judged(f"{s.desc or ''} {_said(s)} {mode}", one)  # type: ignore[arg-type]


def _said(s: ModuleInput) -> str:
    made, call = s.constructor_input, s.forward_input or FunctionInput()
    parts = [_short(x) for x in made.args] + [f"{k}={_short(v)}" for k, v in made.kwargs.items()]
    inputs = [_short(x) for x in call.args] + [f"{k}={_short(v)}" for k, v in call.kwargs.items()]
    return f"({', '.join(parts)})({', '.join(inputs)})"


def _short(x: Any) -> str:
    if isinstance(x, torch.Tensor):
        return f"{tuple(x.shape)}" + ("" if x.is_floating_point() else str(x.dtype).removeprefix("torch."))
    if isinstance(x, (list, tuple)):
        return f"[{', '.join(map(_short, x))}]"
    return type(x).__name__ if isinstance(x, torch.nn.Module) else repr(x)[:60]


def _errors(info: ModuleInfo, device: str, dtype: str) -> Iterator[Verdict]:
    """Bad input: PyTorch's exception, and its message in substance."""
    if info.module_error_inputs_func is None:
        return
    for training in (True, False):
        torch.manual_seed(0)
        found = info.module_error_inputs_func(
            info, device="cpu", dtype=getattr(torch, dtype), requires_grad=False, training=training
        )
        for e in found:
            yield checks._judged(_said(e.module_error_input), lambda e=e: _error(info, e, device))  # type: ignore[arg-type]


def _error(info: ModuleInfo, e: Any, device: str) -> str:
    made, call = e.module_error_input.constructor_input, e.module_error_input.forward_input or FunctionInput()
    to = Translator(device)
    mine = to((tuple(made.args), dict(made.kwargs), tuple(call.args), dict(call.kwargs)))
    cls = getattr(tabtorch.nn, info.module_cls.__name__)
    build = e.error_on is ModuleErrorEnum.CONSTRUCTION_ERROR
    if not build:
        theirs, ours = info.module_cls(*made.args, **made.kwargs), cls(*mine[0], **mine[1]).to(device)
    want = checks._result(
        lambda: info.module_cls(*made.args, **made.kwargs) if build else theirs(*call.args, **call.kwargs)
    )
    if not isinstance(want, Exception):
        return "PyTorch raises nothing"
    with tabtorch.device(device):
        got = checks._result(lambda: cls(*mine[0], **mine[1]) if build else ours(*mine[2], **mine[3]))
        if not isinstance(got, Exception):
            got = checks._result(lambda: [t.tolist() for t in tensors(got)])
    if not isinstance(got, Exception):
        raise Mismatch(f"no error, where PyTorch raises {type(want).__name__}: {str(want)[:200]}")
    checks._same_error(want, got, e.error_regex)
    return ""


def asked(info: ModuleInfo, device: str) -> list[tuple[str, str]]:
    """The (check, dtype) pairs that a module is asked on a device."""
    pairs = [("construct", "float32"), ("forward", "float32"), ("gradient", "float32")]
    pairs += [("gradgrad", "float32")] * info.supports_gradgrad + [("state", "float32")]
    pairs += [("errors", "float32")] * (info.module_error_inputs_func is not None)
    return pairs + [("forward", "float64"), ("gradient", "float64")] * (device == "cpu")


def answer(name: str, device: str, check: str, dtype: str, limit: int = 0) -> Answer:
    """Asks one question."""
    found = Answer(name, device, check, dtype)
    try:
        for v in _ask(infos()[name], device, check, dtype, limit):
            found.add(v)
            if v.kind == "skipped":
                found.counts[v.why] = found.counts.get(v.why, 0) + 1
    except Exception as e:
        found.lost(e)
    return found


def questions(
    patterns: Iterable[str] = ("*",),
    devices: Iterable[str] = ("cpu", "webgpu"),
    wanted: Iterable[str] = (),
    limit: int = 0,
) -> list[Question]:
    """Everything that is to be asked; a share of the samples in double precision."""
    found = []
    wanted, patterns = set(wanted), list(patterns)
    for name, info in infos().items():
        if any(fnmatch.fnmatchcase(n, x) for x in patterns for n in (name, name.removeprefix("nn."))):
            for device in devices:
                for check, dtype in asked(info, device):
                    if not wanted or check in wanted:
                        found.append(Question(name, device, check, dtype, limit or (6 if dtype == "float64" else 0)))
    return found


def rows(answers: Iterable[Answer] | None = None) -> list[dict[str, Any]]:
    """A row for each module and device: (passed, asked) of forward, gradient, gradgrad, and the rest as `errors`.

    answers: of a whole run; None runs it.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for a in ask(questions(), 2, _SECONDS, answer) if answers is None else answers:
        row = found.setdefault((a.op, a.device), {"name": a.op, "device": a.device, "lazy": infos()[a.op].is_lazy})
        for column in {a.check if a.check in ("forward", "gradient", "gradgrad", "errors") else "other"}:
            passed, of = row.get(column, (0, 0))
            row[column] = (passed + a.passed, of + a.passed + a.failed)
    return [found[k] for k in sorted(found)]


def _totals(answers: list[Answer]) -> Iterator[str]:
    good: Counter[tuple[str, ...]] = Counter()
    of: Counter[tuple[str, ...]] = Counter()
    for a in answers:
        lazy = "lazy " * infos()[a.op].is_lazy
        key = (f"{lazy}{a.check} {a.dtype}", a.device)
        of[key] += 1
        good[key] += a.ok
    yield from (f"{kind:26} {device:7} {good[kind, device]:4} of {n:4}" for (kind, device), n in sorted(of.items()))
    for device in sorted({a.device for a in answers}):
        names = {a.op for a in answers if a.device == device and not infos()[a.op].is_lazy}
        bad = {a.op for a in answers if a.device == device and a.failed and a.check in ("forward", "gradient")}
        yield f"forward and gradient       {device:7} {len(names - bad):4} of {len(names):4} modules"


def main() -> int:
    p = argparse.ArgumentParser(prog="conformance.modules", description=__doc__)
    p.add_argument("patterns", nargs="*", default=["*"], help="names of modules, with * and ?")
    p.add_argument("--device", choices=("cpu", "webgpu"), action="append")
    p.add_argument("--check", default="", help=",".join([*CHECKS, "errors"]) + " (default: all)")
    p.add_argument("--samples", type=int, default=0, help="at most so many a question (default: all)")
    p.add_argument("-j", type=int, default=2, help="processes")
    p.add_argument("-v", action="store_true", help="show more failures")
    p.add_argument("--json", type=Path, help="write the answers there, one a line, as they come")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    start = time.monotonic()
    asks = questions(a.patterns, a.device or ("cpu", "webgpu"), filter(None, a.check.split(",")), a.samples)
    answers: list[Answer] = []
    record = a.json.open("w") if a.json else None
    for x in ask(asks, a.j, _SECONDS, answer):
        answers.append(x)
        if record:
            print(json.dumps(asdict(x)), file=record, flush=True)
        if x.failed:
            print(f"FAILED {x.op} {x.device} {x.check} {x.dtype}: {x.failed} of {x.passed + x.failed}", flush=True)
            for sample, why, *_ in x.failures[: 20 if a.v else 1]:
                print(f"    {sample[:300]}\n      {why[:600]}", flush=True)
    print(*_totals(answers), sep="\n")
    if a.v:
        for why, n in sum((Counter(x.counts) for x in answers), Counter()).most_common():
            print(f"{n} skipped: {why[:200]}")
    asked_of = sum(x.passed + x.failed for x in answers)
    print(
        f"{len(answers)} questions, {asked_of} samples, {sum(x.skipped for x in answers)} skipped, "
        f"{sum(x.failed for x in answers)} failed, in {time.monotonic() - start:.0f} s"
    )
    return int(any(x.failed for x in answers))


if __name__ == "__main__":
    sys.exit(main())
