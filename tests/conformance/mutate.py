"""Whether the questions can fail: each operator's result is disturbed a little, and they should notice.

    python -m conformance --mutate [PATTERN ...] [--device cpu|webgpu] [--slice auto] [--seconds N]

A disturbance is one element four tolerances off, another dtype, other strides, a gradient or a second gradient one percent
too large; of each result of the operator in turn. It is noticed if a sample that passes fails with it, for that reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

import tabtorch

from . import checks, compare, left_out, translate
from .checks import Answer, Verdict
from .translate import tensors
from .workers import Question

#: samples that are tried before it is said that a disturbance is not noticed; results of one operator that are disturbed
_TRIES, _RESULTS = 20, 4
_PERCENT = 0.01

Change = Callable[
    [Any, list[Any], Any], Any
]  # (a result, the inputs that take gradients, the OpInfo) -> the changed result


def _value(t: Any, leaves: list[Any], op: Any) -> Any:
    """The same tensor, with a finite element of middling size written over: views stay views, and nothing else changes."""
    if t.layout is not tabtorch.strided:
        stored = t.detach()._values() if t.layout is tabtorch.sparse_coo else t.detach().values()
        return t if _value(stored, leaves, op) is not None else None
    found = translate.back(t)
    real = found.abs() if found.is_complex() or found.is_floating_point() else found.double()
    flat = real.double().reshape(-1)
    finite = flat.isfinite().nonzero().reshape(-1)
    if not len(finite):  # what is not finite is no number that could be off
        return None
    size, at = flat[finite].median(0)
    index = torch.unravel_index(finite[at], found.shape) if found.dim() else ()
    place = t.storage_offset() + sum(int(i) * s for i, s in zip(index, t.stride()))
    element = tabtorch.as_strided(t.detach(), (), (), place)
    if t.dtype is tabtorch.bool:
        element.logical_not_()
    elif found.is_floating_point() or found.is_complex():
        rtol, atol = compare.tolerance(op, found.dtype)
        element.add_(4 * (atol + rtol * float(size)))
    else:
        element.add_(1)
    return t


_OTHER = {"float32": "float16", "float64": "float32", "complex128": "complex64", "int64": "int32", "bool": "uint8"}


def _dtype(t: Any, leaves: list[Any], op: Any) -> Any:
    if t.dtype is tabtorch.complex64:
        return t.real.clone()
    kind = _OTHER.get(str(t.dtype).removeprefix("torch."), "float32" if t.is_floating_point() else "int64")
    return t.to(getattr(tabtorch, kind))


def _strides(t: Any, leaves: list[Any], op: Any) -> Any:
    if t.numel() < 2 or t.layout is not tabtorch.strided:
        return None
    for times in (2, 3):  # the real parts of complex numbers lie two apart already
        new = tabtorch.stack([t] * times, -1).select(-1, 0)
        if any(a != b for a, b, n in zip(new.stride(), t.stride(), t.shape) if n > 1):
            break
    return new


def _gradient(t: Any, leaves: list[Any], op: Any) -> Any:
    if not t.requires_grad or not t.numel():
        return None
    if t.layout is tabtorch.strided:
        return t + _PERCENT * (t - t.detach())
    t.register_hook(lambda g: (1 + _PERCENT) * g)
    return t


def _second(t: Any, leaves: list[Any], op: Any) -> Any:
    return t + _PERCENT / 2 * (t - t.detach()).square() if t.requires_grad and t.numel() else None


def _sum(leaves: list[Any]) -> Any:
    found = sum((x.real if x.is_complex() else x).sum() for x in leaves if x.numel())
    return found - found.detach() if isinstance(found, tabtorch.Tensor) else None


def _added_gradient(t: Any, leaves: list[Any], op: Any) -> Any:
    """For operators whose gradient is zero: one percent of zero is no disturbance."""
    s = _sum(leaves)
    return t + (_PERCENT * s).to(t.dtype) if t.requires_grad and t.numel() and s is not None else None


def _added_second(t: Any, leaves: list[Any], op: Any) -> Any:
    s = _sum(leaves)
    return t + (_PERCENT * s.square()).to(t.dtype) if t.requires_grad and t.numel() and s is not None else None


#: kind -> (the check that is asked, what it should say, the disturbances, of which one must be noticed)
KINDS: dict[str, tuple[str, tuple[str, ...], tuple[Change, ...]]] = {
    "values": ("forward", ("values", "nan"), (_value,)),
    "dtype": ("forward", ("dtype",), (_dtype,)),
    "strides": ("forward", ("strides",), (_strides,)),
    "gradient": ("gradient", ("values", "missing gradient"), (_gradient, _added_gradient)),
    "second gradient": ("gradgrad", ("values", "missing gradient"), (_second, _added_second)),
}


class _Disturbance:
    """Changes one of the results of a function. `applied` says whether there was anything to change."""

    def __init__(self, change: Change, op: Any, which: int) -> None:
        self.change, self.op, self.which = change, op, which
        self.applied, self.results = False, 0

    def __call__(self, f: Callable[..., Any]) -> Callable[..., Any]:
        def disturbed(*args: Any, **kwargs: Any) -> Any:
            result = f(*args, **kwargs)
            leaves = [t for t in tensors((args, kwargs)) if isinstance(t, tabtorch.Tensor) and t.requires_grad]
            found = tensors(result)
            self.results = max(self.results, len(found))
            if not found:
                return self._plain(result)
            if self.which >= len(found):
                return result
            new = self.change(found[self.which], leaves, self.op)
            if new is None:
                return result
            self.applied = True
            return _replaced(result, found[self.which], new)

        return disturbed

    def _plain(self, x: Any) -> Any:
        """Results that are no tensors."""
        if isinstance(x, (list, tuple)) and x:
            return type(x)([self._plain(x[0]), *x[1:]])
        if type(x) in (bool, int, float, complex):
            if self.change is _value:
                self.applied = True
                return not x if isinstance(x, bool) else x + 1
            if self.change is _dtype:
                self.applied = True
                return complex(x) if not isinstance(x, complex) else x.real
        if isinstance(x, tabtorch.dtype) and self.change is _dtype:
            self.applied = True
            return tabtorch.int8 if x is not tabtorch.int8 else tabtorch.int16
        return x


def _replaced(x: Any, old: Any, new: Any) -> Any:
    if x is old:
        return new
    if isinstance(x, (list, tuple)):
        values = [_replaced(v, old, new) for v in x]
        return type(x)(*values) if hasattr(x, "_fields") else (list if isinstance(x, list) else tuple)(values)
    return {k: _replaced(v, old, new) for k, v in x.items()} if isinstance(x, dict) else x


def questions(devices: tuple[str, ...]) -> Iterator[Question]:
    """Every operator, device and kind that the checks ask something of."""
    for name, op in checks.operators().items():
        for device in devices:
            asked = checks.asked(op, device)
            for kind, (check, _, _) in KINDS.items():
                dtype = next((d for c, d in asked if c == check), None)
                if dtype is not None:
                    yield Question(name, device, f"disturbed {kind}", dtype)


def _pairs(op: Any, device: str, check: str, dtype: str, d: _Disturbance) -> Iterator[tuple[Verdict, Verdict, bool]]:
    """Verdicts on a sample as it is, and disturbed; and whether there was anything to disturb."""
    plain = checks.CHECKS[check](op, device, dtype, 0, {})
    other = checks.CHECKS[check](op, device, dtype, 0, {})
    while True:
        before = next(plain, None)
        checks.disturbance, d.applied = d, False
        try:
            after = next(other, None)
        finally:
            checks.disturbance = None
        if before is None or after is None:
            return
        yield before, after, d.applied


def _noticed(op: Any, device: str, kind: str, dtype: str, which: int) -> tuple[Verdict, int]:
    """Whether a disturbance of a result is; and how many results there are."""
    check, causes, changes = KINDS[kind]
    verdict, results = Verdict("skipped", "", ""), 0
    for change in changes:
        d = _Disturbance(change, op, which)
        tries, why, broken = 0, "", None
        for before, after, applied in itertools.islice(_pairs(op, device, check, dtype, d), 400):
            if before.kind == "failed" and verdict.kind == "skipped":
                broken = before
            elif before.kind != "passed":
                why = before.why
            elif applied and after.kind == "failed" and after.cause in causes:
                return Verdict("passed", after.sample, after.why), d.results
            elif applied:
                said = f"{after.kind} {after.cause} {after.why}".strip()
                verdict = Verdict("failed", after.sample, f"result {which}: not noticed: {said}", "unnoticed")
                tries += 1
                if tries == _TRIES:
                    break
        results = max(results, d.results)
        if verdict.kind == "skipped":  # no sample was disturbed: a failure of all of them is one here, too
            verdict = broken or Verdict("skipped", "", why or _nothing(kind))
    return verdict, results


def _nothing(kind: str) -> str:
    return {
        "values": "its results have no finite elements",
        "dtype": "its result is neither a tensor nor a number",
        "strides": "its results have one element at most",
    }.get(kind, "its results take no gradient")


def answer(name: str, device: str, check: str, dtype: str, limit: int = 0) -> Answer:
    """Disturbs an operator. Passed: noticed; failed: not noticed; skipped: there is nothing of the kind to disturb."""
    op, kind = checks.operators()[name], check.removeprefix("disturbed ")
    found = Answer(name, device, check, dtype)
    if kind == "values" and op.name in left_out.UNINITIALISED:
        found.skipped, found.counts = 1, {"its values are whatever was in memory": 1}
        return found
    try:
        verdict, results = _noticed(op, device, kind, dtype, 0)
        verdicts = [verdict, *(_noticed(op, device, kind, dtype, i)[0] for i in range(1, min(results, _RESULTS)))]
    except Exception as e:
        found.lost(e)
        return found
    asked = [v for v in verdicts if v.kind != "skipped"]
    for v in asked or verdicts[:1]:
        found.add(v)
        if v.kind == "skipped":
            found.counts[v.why] = 1
    return found


def undisturbed(answers: list[Answer]) -> Iterator[str]:
    """Which operators were not disturbed, and why, in a line a kind and reason."""
    of: dict[tuple[str, str], set[str]] = {}
    for a in answers:
        kind = a.check.removeprefix("disturbed ")
        if a.failed and (why := left_out.reason(a)):
            of.setdefault((kind, "left_out.py: " + why), set()).add(a.op)
        elif not a.passed + a.failed:
            for why in a.counts:
                of.setdefault((kind, why), set()).add(a.op)
    for (kind, why), names in sorted(of.items()):
        yield f"not disturbed: {kind}: {len(names)}, {why}: {' '.join(sorted(names))}"
