"""The questions asked of one operator on one device. Each is a generator of verdicts, one a sample."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

import tabtorch
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph

from . import compare, drawn, relaid, translate
from .compare import Mismatch
from .left_out import FORMULAS, ORACLES, OUT_NOT_PERMUTED, TIES, UNINITIALISED, UP_TO_GAUGE
from .translate import Translator, Unsupported, tensors

# torch.manual_seed, which PyTorch's samples call for each of theirs, notes a call with its stack for every kind of
# accelerator that is not there: ten times the cost of the rest
for _absent in (torch.cuda, torch.xpu, torch.mtia):
    _absent._is_in_bad_fork = lambda: True  # type: ignore[attr-defined]

ON_BOTH = ("float32", "int64", "int32", "int16", "int8", "uint8", "bool", "float16", "bfloat16", "complex64")
DTYPES = {"webgpu": ON_BOTH, "cpu": (*ON_BOTH, "float64", "complex128")}
_CPU_ONLY = (torch.float64, torch.complex128)

# PyTorch's own seeds for what draws random numbers would hide whether a sample draws any: the questions seed both libraries
common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

#: what the samples are drawn from
SEED = 0
#: how many samples of an operator are laid out otherwise, each in up to three ways
_RELAID = 12
#: what tabtorch's function is wrapped in: a mutation, which the questions should notice
disturbance: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None


@dataclass
class Verdict:
    """passed, failed (with why) or skipped (with why) on one sample."""

    kind: str
    sample: str
    why: str = ""
    cause: str = ""  # of a failure: one of compare.KINDS
    size: float = 0.0  # of a difference of values: how many times the tolerance


class Failure(NamedTuple):
    """A sample that failed: what it was, why, about what (one of compare.KINDS), and how many times the tolerance."""

    sample: str
    why: str
    cause: str = "raised"
    size: float = math.inf


@dataclass
class Answer:
    """What a check of an operator came to."""

    op: str
    device: str
    check: str
    dtype: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[Failure] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Every sample that could be asked passed."""
        return not self.failed

    def add(self, v: Verdict) -> None:
        """Counts a verdict."""
        setattr(self, v.kind, getattr(self, v.kind) + 1)
        if v.kind == "failed":
            self.failures.append(Failure(v.sample, v.why, v.cause, v.size))

    def lost(self, e: Exception) -> None:
        """There is no such function, or PyTorch cannot make its own samples."""
        self.failed += 1
        self.failures.append(Failure("", f"{type(e).__name__}: {str(e)[:300]}"))


def title(op: OpInfo) -> str:
    """PyTorch's name of an OpInfo: the operator, and its variant where it has several."""
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


@functools.cache
def operators() -> dict[str, OpInfo]:
    """Every OpInfo by title."""
    return {title(op): op for op in op_db}


def _samples(
    op: OpInfo, dtype: str, *, grad: bool = False, limit: int = 0, reference: bool = False
) -> list[SampleInput]:
    """The samples of a dtype, always the same; limit: at most that many, evenly spread."""
    torch.manual_seed(SEED)
    make = op.reference_inputs if reference else op.sample_inputs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(make("cpu", getattr(torch, dtype), requires_grad=grad))
    if grad:
        found = [s.transform(_leaf) for s in found]
    if limit and len(found) > limit:
        found = [found[i * len(found) // limit] for i in range(limit)]
    return found


def _leaf(x: Any) -> Any:
    """A leaf of its own for one that is a view made without gradients: PyTorch gives no gradient for some of those."""
    if isinstance(x, torch.Tensor) and x.requires_grad and x._is_view():
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x).requires_grad_()
    return x


def _function(op: OpInfo) -> Callable[..., Any]:
    """tabtorch's function of an operator."""
    f = translate.function(op.op, op.name)
    return disturbance(f) if disturbance else f


def _call(f: Callable[..., Any], sample: Any, *, to: Callable[[Any], Any] = lambda x: x) -> Any:
    return f(to(sample.input), *to(tuple(sample.args)), **to(sample.kwargs))


def _truth(f: Callable[..., Any], sample: SampleInput, process: Any = None) -> Callable[..., Any]:
    """What computes the result in double precision. process: what becomes of a result before it is compared."""

    def compute(rounding: torch.Generator | None = None) -> Any:
        torch.manual_seed(0)
        state = torch.get_rng_state()
        torch.set_default_dtype(torch.float64)  # what integers become
        try:
            found = _call(f, sample, to=functools.partial(compare.double, rounding=rounding))
        finally:
            torch.set_default_dtype(torch.float32)
        if not torch.equal(state, torch.get_rng_state()):
            raise Unsupported("numbers drawn in double precision are others")
        return process(found) if process else found

    return compute


def _seed() -> None:
    torch.manual_seed(0)
    tabtorch.manual_seed(0)


def _without(device: str, *values: Any) -> str:
    """Why a sample cannot be asked on a device, or nothing."""
    if device == "webgpu" and (any(t.dtype in _CPU_ONLY for t in tensors(values)) or _named(values)):
        return "a double result or argument: cpu only"
    return ""


def _named(x: Any) -> bool:
    """Whether a double dtype is among the arguments."""
    if isinstance(x, dict):
        x = list(x.values())
    return any(map(_named, x)) if isinstance(x, (list, tuple)) else any(x is d for d in _CPU_ONLY)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _judged(sample: SampleInput, ask: Callable[[], str]) -> Verdict:
    """Runs one question; it returns a reason to skip, or nothing, or raises."""
    try:
        label = sample.summary() if isinstance(sample, SampleInput) else str(sample)
    except RuntimeError:  # PyTorch has no summary of some sparse tensors
        label = f"{getattr(sample.input, 'layout', '')} {tuple(sample.input.shape)} {sample.args} {sample.kwargs}"[:200]
    try:
        with _quiet():
            why = ask()
        return Verdict("skipped" if why else "passed", label, why)
    except Unsupported as e:
        return Verdict("skipped", label, f"{e}")
    except Mismatch as e:
        return Verdict("failed", label, str(e), e.kind, e.size)
    except Exception as e:
        return Verdict("failed", label, f"{type(e).__name__}: {str(e)[:300]}", "raised", math.inf)


def _shares(t: Any, inputs: list[Any]) -> bool:
    if str(t.layout) != "torch.strided":
        return False
    if isinstance(t, torch.Tensor):
        here = t.untyped_storage()
        return bool(here.nbytes()) and any(here.data_ptr() == x.untyped_storage().data_ptr() for x in inputs)
    return any(t._tab_storage.root is x._tab_storage.root for x in inputs)


def _same_aliasing(want: Any, got: Any, inputs: list[Any], mine: list[Any]) -> None:
    """A view where PyTorch gives one, with its strides; a copy where PyTorch copies."""
    inputs = [t for t in inputs if t.layout is torch.strided]
    mine = [t for t in mine if t.layout is tabtorch.strided]
    for w, g in zip(tensors(want), tensors(got), strict=True):
        if w.layout is not torch.strided:
            continue
        if not w.untyped_storage().nbytes():
            continue
        shared = _shares(w, inputs)
        if shared != _shares(g, mine):
            said = "a copy, where PyTorch gives a view" if shared else "a view, where PyTorch copies"
            raise Mismatch(said, "aliasing")
        if shared and w.stride() != g.stride():
            raise Mismatch(f"a view with strides {g.stride()}, not {w.stride()}", "strides")


def _theirs(op: OpInfo, sample: SampleInput, f: Any, mine: Any, device: str, gradient: bool = False) -> Any:
    """PyTorch's function of a sample: its own, but for what webgpu draws and what PyTorch has right in another dtype only."""
    if device == "webgpu" and drawn.draws(op, lambda: _call(op.op, sample)):
        return drawn.theirs(op, f, mine, device)
    if gradient and op.name in FORMULAS:
        return FORMULAS[op.name]
    narrow = getattr(sample.input, "dtype", None)
    if str(narrow).removeprefix("torch.") in ORACLES.get(op.name, ()):
        return functools.partial(_in_int64, op.op, narrow)
    return op.op


def _on_a_copy(f: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    return f(x.clone(), *args, **kwargs)


def _in_int64(f: Any, narrow: torch.dtype, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    found = f(x.long(), *args, **kwargs)
    if isinstance(found, tuple):
        return (found[0].to(narrow), *found[1:])
    return found.to(narrow)


def forward(op: OpInfo, device: str, dtype: str, limit: int, counts: dict[str, int]) -> Iterator[Verdict]:
    """The function on every sample: values, shapes, dtypes, strides, views. Counts dispatches, reads and compiled shaders."""
    f = _function(op)
    for sample in _samples(op, dtype, limit=limit):
        yield _judged(sample, lambda s=sample: _forward(op, f, s, device, counts))


def _forward(op: OpInfo, f: Any, sample: SampleInput, device: str, counts: dict[str, int] | None) -> str:
    _seed()
    to = Translator(device)
    args = to((sample.input, tuple(sample.args), sample.kwargs))
    theirs = _theirs(op, sample, f, args, device)
    _seed()
    try:
        want = _call(theirs, sample)
    except Mismatch:
        raise
    except Exception as e:
        return f"PyTorch raises {type(e).__name__} itself"
    if why := _without(device, want, sample.input, sample.args, sample.kwargs):
        return why
    bridge = get_bridge()
    if counts is not None:
        graph.flush()
        bridge.reset_stats()
    with tabtorch.device(device):
        got = f(args[0], *args[1], **args[2])
    if counts is not None:
        graph.flush()
        stats = bridge.stats()
        for k in ("dispatches", "reads", "kernels"):
            counts[k] = counts.get(k, 0) + stats[k]
        counts["calls"] = counts.get("calls", 0) + 1
    tol = functools.partial(compare.tolerance, op)
    truth: Any = _truth(theirs, sample)
    if op.name in UP_TO_GAUGE:
        compare.same(want, got, tol, values=False, strides=True)
        process = sample.output_process_fn_grad
        want, got = process(want), translate.function(process)(got)
        truth = _truth(theirs, sample, process)
    if op.name in TIES:
        compare.same(want, got, tol, values=False, strides=True)
        want, got = _settled(sample, TIES[op.name], want, got)
        truth = None  # elements of the input: nothing is rounded
    compare.same(want, got, tol, truth, values=op.name not in UNINITIALISED, strides=True)
    _same_aliasing(want, got, tensors((sample.input, sample.args)), tensors((args[0], args[1])))
    return ""


def _settled(sample: SampleInput, at: int, want: Any, got: Any) -> tuple[Any, Any]:
    """Results of a sort with the elements that the indices name in place of the indices."""
    x, dim = sample.input, sample.kwargs.get("dim", sample.args[at] if len(sample.args) > at else -1)
    if not x.dim() or not isinstance(dim, int) or sample.kwargs.get("stable") or True in sample.args[:1]:
        return want, got
    w, g = tensors(want)[-1], tensors(got)[-1]
    if tuple(w.shape) != tuple(g.shape) or str(w.dtype) != str(g.dtype):
        return want, got

    def named(i: torch.Tensor) -> torch.Tensor:
        return x.detach().take_along_dim(i if i.dim() == x.dim() else i.unsqueeze(dim), dim)

    there = translate.back(g)
    if w.shape == x.shape and not torch.equal(there.sort(dim)[0], w.sort(dim)[0]):
        raise Mismatch("the indices are no permutation", "values")
    return [*tensors(want)[:-1], named(w)], [*tensors(got)[:-1], named(there)]


def reference(op: OpInfo, device: str, dtype: str, limit: int, counts: dict[str, int]) -> Iterator[Verdict]:
    """Harder inputs: PyTorch's reference inputs (nan, inf, -0.0, extremes, empty, 0-d), and samples made non-contiguous."""
    f = _function(op)
    try:
        hard = _samples(op, dtype, limit=limit or 150, reference=True)
    except Exception:  # some of PyTorch's own generators fail for a dtype
        hard = []
    for sample in hard:
        yield _judged(sample, lambda s=sample: _forward(op, f, s, device, None))
    for sample in _samples(op, dtype, limit=limit or 40):
        try:
            apart = sample.noncontiguous()
        except Exception:  # a sample of sparse tensors has no such form
            continue
        yield _judged(apart, lambda s=apart: _forward(op, f, s, device, None))


def layouts(op: OpInfo, device: str, dtype: str, limit: int, counts: dict[str, int]) -> Iterator[Verdict]:
    """The function on samples that are laid out otherwise in memory: values, strides, views."""
    f = _function(op)
    for sample in relaid.samples(_samples(op, dtype, limit=min(limit, _RELAID) if limit else _RELAID)):
        yield _judged(sample, lambda s=sample: _forward(op, f, s, device, None))


def variants(op: OpInfo, device: str, dtype: str, limit: int, counts: dict[str, int]) -> Iterator[Verdict]:
    """The method, in-place and out= forms, and the aliases."""
    f = _function(op)
    tol = functools.partial(compare.tolerance, op)
    values = op.name not in UNINITIALISED

    def other(theirs: Any, mine: Any, s: SampleInput, in_place: bool) -> str:
        _seed()
        to, args = Translator(device), (s.input, tuple(s.args), s.kwargs)
        if in_place:
            args = (s.input.detach().clone(), *args[1:])
        if why := _without(device, args):
            return why
        a = to(args)
        exact = op.op
        if device == "webgpu" and drawn.draws(op, lambda: _call(op.op, s)):
            apart = functools.partial(_on_a_copy, mine)
            exact = theirs = functools.partial(drawn.theirs(op, apart, a, device), inplace=in_place)
            _seed()
        try:
            want: Any = theirs(args[0], *args[1], **args[2])
        except Exception as e:
            with tabtorch.device(device):
                try:
                    mine(a[0], *a[1], **a[2])
                except Exception as f:
                    _same_error(e, f)
                    return ""
            raise Mismatch(f"no error, where PyTorch raises {type(e).__name__}: {e}", "no error") from None
        if why := _without(device, want):
            return why
        with tabtorch.device(device):
            got = mine(a[0], *a[1], **a[2])
        compare.same(want, got, tol, _truth(exact, s), values=values, strides=True)
        if in_place and isinstance(want, torch.Tensor) and (want is args[0]) != (got is a[0]):
            raise Mismatch("the in-place form does not return its argument", "aliasing")
        return ""

    forms: list[tuple[str, Any, Any, bool]] = []

    def form(kind: str, theirs: Any, in_place: bool, name: str) -> Verdict | None:
        if theirs is None:
            return None
        try:
            forms.append((kind, theirs, translate.function(theirs, name), in_place))
        except AttributeError as e:
            return Verdict("failed", kind, f"AttributeError: {e}", "raised", math.inf)
        return None

    missing = [
        form("method", op.method_variant, False, "Tensor." + op.name),
        form("in place", op.inplace_variant, True, "Tensor." + op.name + "_"),
        form("operator", op.operator_variant, False, ""),
        form("in-place operator", op.inplace_operator_variant, True, ""),
        *(form(a.name, a.op, False, a.name) for a in op.aliases),
    ]
    yield from (m for m in missing if m)
    for sample in _samples(op, dtype, limit=limit or 20):
        for kind, theirs, mine, in_place in forms:
            if op.name in UP_TO_GAUGE or in_place and not isinstance(sample.input, torch.Tensor):
                continue
            v = _judged(sample, lambda t=theirs, m=mine, s=sample, i=in_place: other(t, m, s, i))
            yield replace(v, sample=f"{kind}: {v.sample}")
    if op.supports_out:
        for i, sample in enumerate(_samples(op, dtype, limit=12)):
            v = _judged(sample, lambda s=sample, i=i: _out(op, f, s, device, tol, values, i))
            yield replace(v, sample=f"out=: {v.sample}")


def _out(op: OpInfo, f: Any, s: SampleInput, device: str, tol: Any, values: bool, i: int) -> str:
    """out= of the right shape, of another that is resized, laid out otherwise, and of a dtype that is refused."""
    _seed()
    want = _call(op.op, s)
    wants = tensors(want)
    if not wants or _without(device, want, s.input, s.args, s.kwargs):
        return "no result to write, or a double one"
    single = isinstance(want, torch.Tensor)
    to = Translator(device)
    args = to((s.input, tuple(s.args), s.kwargs))

    def laid(t: torch.Tensor, how: int) -> torch.Tensor:
        if how == 0:
            return torch.zeros_like(t, memory_format=torch.contiguous_format)
        if how == 1:
            return torch.empty(0, dtype=t.dtype)
        return torch.zeros(t.shape[::-1], dtype=t.dtype).permute(tuple(range(t.dim()))[::-1])

    for how in (0, 1, 2) if i < 3 else (0,):
        if how == 2 and op.name in OUT_NOT_PERMUTED:
            continue
        theirs = [laid(w, how) for w in wants]
        mine = [translate.tensor(t, device) for t in theirs]
        _seed()
        got_theirs = _result(lambda t=theirs: _call(functools.partial(op.op, out=t[0] if single else tuple(t)), s))
        with tabtorch.device(device):
            got = _result(lambda m=mine: f(args[0], *args[1], **{**args[2], "out": m[0] if single else tuple(m)}))
        if isinstance(got_theirs, Exception):
            if not isinstance(got, Exception):
                raise Mismatch(f"no error, where PyTorch raises {type(got_theirs).__name__}: {got_theirs}", "no error")
            continue
        if isinstance(got, Exception):
            raise got
        if op.name in UP_TO_GAUGE:
            continue
        compare.same(
            theirs, mine, tol, lambda r=None: tensors(_truth(op.op, s)(r)), where="out", values=values, strides=True
        )
        if how == 2 and any(t.numel() and t.stride() != m.stride() for t, m in zip(theirs, mine)):
            raise Mismatch("out= changed the strides of its tensor", "strides")
        if single and got is not mine[0]:
            raise Mismatch("the result is not the tensor that out= named", "aliasing")
    if i == 0 and single and wants[0].dtype.is_floating_point:
        wrong = torch.empty(wants[0].shape, dtype=torch.long)
        theirs_e = _result(lambda: _call(functools.partial(op.op, out=wrong), s))
        mine_w = translate.tensor(torch.zeros_like(wrong), device)
        with tabtorch.device(device):
            mine_e = _result(lambda: f(args[0], *args[1], **{**args[2], "out": mine_w}))
        if isinstance(theirs_e, Exception) and not isinstance(mine_e, Exception):
            raise Mismatch(f"out= of int64 is taken; PyTorch raises {type(theirs_e).__name__}: {theirs_e}", "no error")
    return ""


def _result(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as e:
        return e


def gradient(op: OpInfo, device: str, dtype: str, limit: int, counts: dict[str, int]) -> Iterator[Verdict]:
    """The gradients of every input that takes one, for random gradients of every output."""
    yield from _gradients(op, device, dtype, limit, twice=False)


def gradgrad(op: OpInfo, device: str, dtype: str, limit: int, counts: dict[str, int]) -> Iterator[Verdict]:
    """The gradients of those gradients."""
    yield from _gradients(op, device, dtype, limit, twice=True)


def _gradients(op: OpInfo, device: str, dtype: str, limit: int, *, twice: bool) -> Iterator[Verdict]:
    f = _function(op)
    for sample in _samples(op, dtype, grad=True, limit=limit):
        yield _judged(sample, lambda s=sample: _gradient(op, f, s, device, twice=twice))


def _gradient(op: OpInfo, f: Any, s: SampleInput, device: str, *, twice: bool) -> str:
    tol = functools.partial(compare.tolerance, op)
    if op.name in UNINITIALISED:
        return "not initialised"
    if why := _without(device, s.input, s.args, s.kwargs):
        return why
    process = s.output_process_fn_grad
    to = Translator(device)
    mine = to((s.input, tuple(s.args), s.kwargs))
    theirs = _theirs(op, s, f, mine, device, gradient=True)
    seen: list[Any] = []
    try:
        want = _grads(torch, theirs, (s.input, tuple(s.args), s.kwargs), process, twice, lambda t: seen.append(t) or t)
    except Mismatch:
        raise
    except Exception as e:
        return f"PyTorch raises {type(e).__name__} itself"
    if isinstance(want, str):
        return want
    if why := _without(device, want, seen):
        return why
    with tabtorch.device(device):
        got = _grads(tabtorch, f, mine, translate.function(process), twice, lambda t: translate.tensor(t, device))
    if isinstance(got, str):
        got = [None] * len(want)

    def truth(rounding: torch.Generator | None = None) -> Any:
        wide = compare.double((s.input, tuple(s.args), s.kwargs), rounding)
        torch.manual_seed(0)
        state = torch.get_rng_state()
        found = _grads(torch, theirs, wide, process, twice, lambda t: compare.double(t))
        # a factorization draws where it begins, and comes to the same
        if op.name not in UP_TO_GAUGE and not torch.equal(state, torch.get_rng_state()):
            raise Unsupported("numbers drawn in double precision are others")
        return [] if isinstance(found, str) else [x for x in found if x is not None]

    absent = [i for i, (w, g) in enumerate(zip(want, got, strict=True)) if (w is None) != (g is None)]
    for i in absent:  # no gradient and one of zeros mean the same
        there = want[i] if want[i] is not None else translate.back(got[i])
        if bool((there != 0).any()):
            said = f"gradient {i} is {'missing' if got[i] is None else 'there, and not zero'}"
            raise Mismatch(said, "missing gradient")
    pairs = [(w, g) for w, g in zip(want, got, strict=True) if w is not None and g is not None]
    near = truth if not absent else None
    compare.same([w for w, _ in pairs], [g for _, g in pairs], tol, near, where="gradient")
    return ""


def _grads(m: Any, f: Any, args: Any, process: Any, twice: bool, ours: Callable[[torch.Tensor], Any]) -> Any:
    """Gradients of `f` in the library `m`; a string says why there are none."""
    _seed()
    leaves = [t for t in tensors(args) if t.requires_grad]
    outputs = tensors(process(f(args[0], *args[1], **args[2])))
    # what is written in place is no leaf any more
    outputs = [t for t in outputs if t.requires_grad]
    if not leaves or not outputs:
        return "nothing takes a gradient"
    weights = torch.Generator().manual_seed(1)

    def weight(t: Any) -> Any:
        kind = getattr(torch, str(t.dtype).removeprefix("torch."))
        single = {torch.float64: torch.float32, torch.complex128: torch.complex64}.get(kind, kind)
        return ours(torch.randn(tuple(t.shape), generator=weights, dtype=single).to(kind))

    grads = m.autograd.grad(outputs, leaves, [weight(t) for t in outputs], allow_unused=True, create_graph=twice)
    if not twice:
        return list(grads)
    # a weight for every leaf, whether its gradient is a constant or not: the libraries may differ in that
    firsts = [(g, w) for g, w in zip(grads, map(weight, leaves)) if g is not None and g.requires_grad]
    if not firsts:
        return [None] * len(leaves)
    return list(m.autograd.grad([g for g, _ in firsts], leaves, [w for _, w in firsts], allow_unused=True))


def errors(op: OpInfo, device: str, dtype: str, limit: int, counts: dict[str, int]) -> Iterator[Verdict]:
    """Bad input: PyTorch's exception, and its message in substance."""
    if op.error_inputs_func is None:
        return
    f = _function(op)
    torch.manual_seed(SEED)

    def ask(s: SampleInput, regex: str) -> str:
        if why := _without(device, s.input, s.args, s.kwargs):
            return why
        args = Translator(device)((s.input, tuple(s.args), s.kwargs))
        want = _result(lambda: _call(op.op, s))
        if not isinstance(want, Exception):
            return "PyTorch raises nothing"
        with tabtorch.device(device):
            got = _result(lambda: f(args[0], *args[1], **args[2]))
            if not isinstance(got, Exception):
                got = _result(lambda: [t.tolist() for t in tensors(got)])
        if not isinstance(got, Exception):
            raise Mismatch(f"no error, where PyTorch raises {type(want).__name__}: {str(want)[:200]}", "no error")
        _same_error(want, got, regex)
        return ""

    for e in op.error_inputs("cpu"):
        yield _judged(e.sample_input, lambda e=e: ask(e.sample_input, e.error_regex))


def _same_error(want: Exception, got: Exception, regex: str = "") -> None:
    names = {c.__name__ for c in type(got).__mro__}
    if type(want).__name__ not in names:
        said = f"{type(got).__name__}: {str(got)[:200]}, not {type(want).__name__}: {str(want)[:200]}"
        raise Mismatch(said, "error type")
    if not (regex and re.search(regex, str(got))) and not _alike(str(want), str(got)):
        raise Mismatch(f"message {str(got)[:200]!r}, not {str(want)[:200]!r}", "message")


def _alike(want: str, got: str) -> bool:
    """The same first sentence, or most of the words: devices, and lists of overloads that only a C++ parser has, apart."""
    if "received an invalid combination of arguments" in want or "must be" in want and "must be" in got:
        return True
    words = [re.findall(r"[A-Za-z_]+|-?\d+", s.split("\n")[0].lower()) for s in (want, got)]
    a, b = set(words[0]), set(words[1])
    return len(a & b) >= 0.6 * len(a)


def _sparse(name: str) -> Any:
    def check(*args: Any) -> Any:
        from . import sparse

        return getattr(sparse, name)(*args)

    return check


CHECKS: dict[str, Callable[[OpInfo, str, str, int, dict[str, int]], Iterator[Verdict]]] = {
    "forward": forward,
    "variants": variants,
    "reference": reference,
    "layouts": layouts,
    "gradient": gradient,
    "gradgrad": gradgrad,
    "errors": errors,
    "sparse": _sparse("forward"),
    "sparse gradient": _sparse("gradient"),
}


def asked(op: OpInfo, device: str) -> list[tuple[str, str]]:
    """The (check, dtype) pairs that an operator is asked on a device."""
    known = {str(d).removeprefix("torch.") for d in op.supported_dtypes("cpu")}
    mine = [d for d in DTYPES[device] if d in known]
    first = "float32" if "float32" in mine else mine[0] if mine else ""
    if not first:
        return []
    pairs = [("forward", first), ("variants", first), ("reference", first)]
    pairs += [("layouts", first), ("errors", first)]
    for d in ("float32", "complex64"):
        if d in mine and op.supports_autograd and getattr(torch, d) in op.supported_backward_dtypes("cpu"):
            pairs.append(("gradient", d))
            if op.supports_gradgrad:
                pairs.append(("gradgrad", d))
    if any(getattr(op, "supports_sparse" + x) for x in ("", "_csr", "_csc", "_bsr", "_bsc")):
        pairs.append(("sparse", first))
        pairs += [("sparse gradient", d) for c, d in pairs if c == "gradient"]
    return pairs + [("forward", d) for d in mine if d != first]


def answer(name: str, device: str, check: str, dtype: str, limit: int = 0) -> Answer:
    """Asks one question."""
    op = operators()[name]
    found = Answer(name, device, check, dtype)
    try:
        for v in CHECKS[check](op, device, dtype, limit, found.counts):
            found.add(v)
    except Exception as e:
        found.lost(e)
    return found
