"""`python -m wasm.record FILE`: samples of PyTorch's table of operators with PyTorch's results, for a tab to compare with.

The file is a checkpoint of PyTorch's: to read it is a test too. Which operators: a slice that turns with the commit.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from conformance import checks, compare, drawn, left_out, translate
from slices import number

#: dtypes whose samples are taken, in this order, where the operator has them
DTYPES = ("float32", "int64", "complex64", "bool", "float16")
SAMPLES = 2
_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.Size, torch.Tensor)


def path_of(op: Any) -> str | None:
    """Where an operator is to be found below `torch`; None for what PyTorch's tests wrote around it."""
    path = translate._names().get(id(op.op))
    return path if path is None or not path.startswith("_") else None


def operators() -> list[str]:
    """The titles of the operators that can be recorded: they do not draw, and have one right answer."""
    left = {*left_out.UNINITIALISED, *left_out.UP_TO_GAUGE, *left_out.TIES, *left_out.FORMULAS}
    variants = {"as_strided.partial_views"}  # sees a storage around its argument, which does not move to another device
    return [
        title
        for title, op in checks.operators().items()
        if path_of(op)
        and op.name not in left
        and title not in variants
        and not any(
            left_out.reason(checks.Answer(title, "cpu", c, "float32", failed=1)) for c in ("forward", "gradient")
        )
    ]


def sendable(x: Any) -> bool:
    """Whether a checkpoint may hold it and a tab can read it."""
    if isinstance(x, dict):
        return all(map(sendable, x.values()))
    if isinstance(x, torch.Tensor):
        return x.layout is torch.strided and x.dtype in (*_known, torch.float64, torch.complex128)
    return all(map(sendable, x)) if type(x) in (list, tuple) else isinstance(x, _PLAIN)


_known = [getattr(torch, d) for d in checks.ON_BOTH]


def dense(t: torch.Tensor) -> torch.Tensor:
    """The elements, with no marks."""
    if t._is_zerotensor():
        return torch.zeros(t.shape, dtype=t.dtype)
    return t.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def slack(want: torch.Tensor, truth: torch.Tensor | None) -> float:
    """How far two results may be apart that round differently: four times what PyTorch's is from double precision."""
    if truth is None or truth.shape != want.shape or not (want.is_floating_point() or want.is_complex()):
        return 0.0
    wide = torch.complex128 if truth.is_complex() or want.is_complex() else torch.float64
    a, t = want.to(wide), truth.to(wide)
    sure = torch.isfinite(a) & torch.isfinite(t)
    if not sure.any():
        return 0.0
    return float(4 * (a - t)[sure].abs().max() + 2 * torch.finfo(want.dtype).eps * t[sure].abs().max())


def results(op: Any, args: Any, seeds: list[torch.Tensor] | None) -> tuple[Any, list[Any], list[torch.Tensor]]:
    """The outputs, the gradients of a weighted sum of them, and the weights."""
    out = checks._call(op.op, args)
    outs = [t for t in translate.tensors(out) if t.requires_grad]
    leaves = [t for t in translate.tensors((args.input, args.args, args.kwargs)) if t.requires_grad]
    if not outs:
        return out, [], []
    seeds = seeds or [torch.arange(1, t.numel() + 1).double().sin().reshape(t.shape).to(t.dtype) for t in outs]
    loss = sum((t * w).real.sum() if t.is_complex() else (t * w).sum() for t, w in zip(outs, seeds, strict=True))
    return out, list(torch.autograd.grad(loss, leaves, allow_unused=True)), seeds


def case(title: str, op: Any, dtype: str, sample: Any) -> dict[str, Any] | None:
    """One sample with PyTorch's results, or None if they cannot be sent or PyTorch fails itself."""
    args = [sample.input, list(sample.args), dict(sample.kwargs)]
    if not sendable(args) or any(t.is_conj() or t.is_neg() for t in translate.tensors(args)):
        return None
    try:
        if drawn.draws(op, lambda: checks._call(op.op, sample)):
            return None
        out, grads, seeds = results(op, sample, None)
    except Exception:
        return None
    if not sendable(out):
        return None
    wants = [dense(t) for t in translate.tensors(out)]
    grads = [None if g is None else dense(g) for g in grads]
    torch.set_default_dtype(torch.float64)  # what integers become
    try:
        truths, wide, _ = results(op, sample.transform(compare.double), [compare.double(w) for w in seeds])
        truths = translate.tensors(truths)
    except Exception:  # what has no double form is judged by the tolerance alone
        truths, wide = [None] * len(wants), [None] * len(grads)
    finally:
        torch.set_default_dtype(torch.float32)
    if len(truths) != len(wants) or len(wide) != len(grads):
        truths, wide = [None] * len(wants), [None] * len(grads)
    return {
        "name": f"{title} {dtype}",
        "path": path_of(op),
        "args": args,
        "several": not isinstance(out, torch.Tensor),
        "plain": None if wants else out,
        "wants": wants,
        "slack": [slack(w, t) for w, t in zip(wants, truths, strict=True)],
        "weights": seeds,
        "grads": grads,
        "grad slack": [0.0 if g is None or t is None else slack(g, t) for g, t in zip(grads, wide, strict=True)],
        "tolerance": [compare.tolerance(op, w.dtype) for w in wants],
        "grad tolerance": compare.tolerance(op, getattr(torch, dtype)),
    }


def record(count: int) -> list[dict[str, Any]]:
    """About `count` samples, from the operator on that is this commit's turn."""
    names = operators()
    first = number() % len(names)
    cases: list[dict[str, Any]] = []
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for title in names[first:] + names[:first]:
            op = checks.operators()[title]
            for dtype in [d for d in DTYPES if getattr(torch, d) in op.supported_dtypes("cpu")][:2]:
                grad = dtype == "float32" and op.supports_autograd
                try:
                    samples = checks._samples(op, dtype, grad=grad, limit=SAMPLES)
                except Exception:  # some generators fail for a dtype
                    continue
                cases += filter(None, (case(title, op, dtype, s) for s in samples))
            if len(cases) >= count:
                break
    return cases


def main() -> int:
    p = argparse.ArgumentParser(prog="wasm.record", description=__doc__)
    p.add_argument("file", type=Path)
    p.add_argument("--count", type=int, default=600, help="samples, about (default: %(default)s)")
    a = p.parse_args()
    cases = record(a.count)
    a.file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(cases, a.file)
    names = [c["name"].split()[0] for c in cases]
    size = a.file.stat().st_size
    print(f"{len(cases)} samples of {len(set(names))} operators, {names[0]} … {names[-1]}: {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
