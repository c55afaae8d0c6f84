"""The questions asked of an operator about sparse tensors: PyTorch's own sparse samples, in every layout that it says it takes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

import tabtorch

from . import checks, compare, translate
from .compare import Mismatch
from .translate import Translator, tensors

LAYOUTS = ("coo", "csr", "csc", "bsr", "bsc")


def layouts(op: OpInfo) -> list[str]:
    """The sparse layouts that PyTorch has samples of an operator in."""
    return [x for x in LAYOUTS if getattr(op, "supports_sparse" + ("" if x == "coo" else "_" + x))]


def _samples(op: OpInfo, layout: str, dtype: str, grad: bool, limit: int) -> list[SampleInput]:
    torch.manual_seed(checks.SEED)
    make = getattr(op, "sample_inputs_sparse_" + layout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = list(make("cpu", getattr(torch, dtype), requires_grad=grad))
        except NotImplementedError:  # PyTorch's own tests make them of the dense ones, too
            dense = op.sample_inputs("cpu", getattr(torch, dtype))
            found = [_made(s, layout, grad) for s in dense if isinstance(s.input, torch.Tensor) and s.input.dim() == 2]
        except Exception:  # PyTorch cannot make its own
            return []
    return [found[i * len(found) // limit] for i in range(limit)] if limit and len(found) > limit else found


def _made(s: SampleInput, layout: str, grad: bool) -> SampleInput:
    x = s.input.detach()
    x = x.to_sparse() if layout == "coo" else getattr(x, "to_sparse_" + layout)(*([(1, 1)] if layout[0] == "b" else []))
    return SampleInput(x.requires_grad_(grad), args=s.args, kwargs=s.kwargs)


def forward(op: OpInfo, device: str, dtype: str, limit: int, counts: dict[str, int]) -> Iterator[checks.Verdict]:
    """Values, shapes, dtypes and layouts of results."""
    f = checks._function(op)
    for layout in layouts(op):
        for sample in _samples(op, layout, dtype, False, limit):
            yield checks._judged(sample, lambda s=sample: _forward(op, f, s, device))


def _dense(x: Any) -> Any:
    return [t if t.layout in (torch.strided, tabtorch.strided) else t.to_dense() for t in tensors(x)]


def _same_layouts(want: Any, got: Any) -> None:
    for w, g in zip(tensors(want), tensors(got), strict=True):
        if str(w.layout) != str(g.layout):
            raise Mismatch(f"layout {g.layout}, not {w.layout}", "structure")


def _forward(op: OpInfo, f: Any, sample: SampleInput, device: str) -> str:
    args = Translator(device)((sample.input, tuple(sample.args), sample.kwargs))
    checks._seed()
    try:
        want = checks._call(op.op, sample)
        dense = _dense(want)
    except Exception as e:
        return f"PyTorch raises {type(e).__name__} itself"
    if why := checks._without(device, want, sample.input, sample.args, sample.kwargs):
        return why
    with tabtorch.device(device):
        got = f(args[0], *args[1], **args[2])
    _same_layouts(want, got)
    drawn = op.name in ("randn_like",)
    compare.same(dense, _dense(got), functools.partial(compare.tolerance, op), values=not drawn)
    return ""


def gradient(op: OpInfo, device: str, dtype: str, limit: int, counts: dict[str, int]) -> Iterator[checks.Verdict]:
    """Gradients, where the result and they are made dense. Those of elements that are not stored are PyTorch's own choice."""
    f = checks._function(op)
    for layout in layouts(op):
        for sample in _samples(op, layout, dtype, True, limit):
            yield checks._judged(sample, lambda s=sample: _gradient(op, f, s, device))


def _gradient(op: OpInfo, f: Any, s: SampleInput, device: str) -> str:
    mine = Translator(device)((s.input, tuple(s.args), s.kwargs))
    process = lambda r: _dense(s.output_process_fn_grad(r) if s.output_process_fn_grad else r)  # noqa: E731
    try:
        want = checks._grads(torch, op.op, (s.input, tuple(s.args), s.kwargs), process, False, lambda t: t)
    except Exception as e:
        return f"PyTorch raises {type(e).__name__} itself"
    if isinstance(want, str):
        return want
    with tabtorch.device(device):
        got = checks._grads(tabtorch, f, mine, _dense, False, lambda t: translate.tensor(t, device))
    pairs = [(w, g) for w, g in zip(want, got, strict=True) if w is not None]
    if any(g is None for _, g in pairs):
        raise Mismatch("a gradient is missing", "missing gradient")
    leaves = [t for t in tensors((s.input, tuple(s.args), s.kwargs)) if t.requires_grad]
    for leaf, (w, g) in zip(leaves, pairs, strict=False):
        a, b = _dense(w)[0].detach(), translate.back(_dense(g)[0])
        if leaf.layout is not torch.strided:  # compared where the tensor has elements
            there = torch.ones_like(
                leaf.detach().values() if leaf.layout is not torch.sparse_coo else leaf.detach()._values()
            )
            there = translate.filled(leaf.detach(), there).to_dense() != 0
            a, b = a * there, b * there
        compare.same(a, translate.tensor(b, device), functools.partial(compare.tolerance, op), where="gradient")
    return ""
