"""Samples that `wasm.record` has written, against the PyTorch that is here: needs neither NumPy nor pytest."""

from __future__ import annotations

import cmath
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

#: what a program must not do where it lacks these, but say so
_NEEDS = ("Numpy is not available", "numpy", "NumPy")


@dataclass
class Outcome:
    """How many samples were compared, why others were not, and what differs."""

    device: str
    passed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    operators: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        left = ", ".join(f"{n} {why}" for why, n in self.skipped.items())
        return f"{self.device}: {self.passed} samples of {len(self.operators)} operators as PyTorch has them; left: {left or 'none'}"


def to(x: Any, torch: Any, device: str, seen: dict[int, Any]) -> Any:
    """An argument on the device; a tensor met twice is one."""
    if isinstance(x, torch.Tensor):
        if id(x) not in seen:
            moved = x.detach().to(device)
            seen[id(x)] = moved.requires_grad_() if x.requires_grad else moved
        return seen[id(x)]
    if type(x) in (list, tuple):
        return type(x)(to(v, torch, device, seen) for v in x)
    if isinstance(x, dict):
        return {k: device if k == "device" else to(v, torch, device, seen) for k, v in x.items()}
    return x


def tensors(x: Any, torch: Any) -> list[Any]:
    """All tensors in a value, in order."""
    if isinstance(x, torch.Tensor):
        return [x]
    values = x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ()
    return [t for v in values for t in tensors(v, torch)]


def same(want: Any, got: Any, tolerance: tuple[float, float], slack: float) -> str:
    """What is different, or nothing."""
    if tuple(want.shape) != tuple(got.shape) or want.dtype is not got.dtype:
        return f"{tuple(got.shape)} {got.dtype}, not {tuple(want.shape)} {want.dtype}"
    rtol, atol = tolerance if want.dtype.is_floating_point or want.dtype.is_complex else (0, 0)
    a, b = (t.detach().reshape(-1).tolist() for t in (want, got))
    for i, (w, g) in enumerate(zip(a, b, strict=True)):
        if w == g or (cmath.isnan(w) and cmath.isnan(g)):
            continue
        if not abs(w - g) <= max(atol + rtol * abs(w), slack):
            return f"element {i} of {len(a)}: {g}, not {w}"
    return ""


def run_one(case: dict[str, Any], torch: Any, device: str) -> str:
    """One sample: what is different, or nothing. Raises what the operator raises."""
    seen: dict[int, Any] = {}
    first, args, kwargs = to(case["args"], torch, device, seen)
    f: Any = torch
    for name in case["path"].split("."):
        f = getattr(f, name)
    torch.manual_seed(0)
    out = f(first, *args, **kwargs)
    outs = tensors(out, torch)
    if len(outs) != len(case["wants"]) or (not outs and repr(out) != repr(case["plain"])):
        return f"{out!r}"[:200]
    for want, got, tolerance, slack in zip(case["wants"], outs, case["tolerance"], case["slack"], strict=True):
        if got.numel() and got.device.type != device:
            return f"the result is on {got.device}"
        if wrong := same(want, got.cpu(), tolerance, slack):
            return wrong
    if not case["weights"]:
        return ""
    kept = [t for t in outs if t.requires_grad]
    if len(kept) != len(case["weights"]):
        return f"{len(kept)} results require grad, not {len(case['weights'])}"
    products = [t * w.to(device) for t, w in zip(kept, case["weights"], strict=True)]
    loss = sum(p.real.sum() if p.is_complex() else p.sum() for p in products)
    leaves = [t for t in tensors([first, args, kwargs], torch) if t.requires_grad]
    grads = torch.autograd.grad(loss, leaves, allow_unused=True)
    for want, got, slack in zip(case["grads"], grads, case["grad slack"], strict=True):
        if want is None or got is None:  # nothing, or zeros: as in every comparison of gradients
            for other in (want, got):
                if other is not None and other.count_nonzero().item():
                    return "a gradient is missing, or one too many"
            continue
        if wrong := same(want, got.cpu(), case["grad tolerance"], slack):
            return f"gradient: {wrong}"
    return ""


def check(file: Any, torch: Any, device: str, seconds: float) -> Outcome:
    """Every n-th sample of a file, then the next ones, until the time is over."""
    cases = torch.load(file, map_location="cpu")
    found = Outcome(device)
    order = [i for k in range(8) for i in range(k, len(cases), 8)]
    end = time.monotonic() + seconds
    for i in order:
        if time.monotonic() > end:
            found.skipped["after its time"] += (
                len(cases) - found.passed - len(found.wrong) - sum(found.skipped.values())
            )
            break
        case = cases[i]
        wide = any(t.dtype in (torch.float64, torch.complex128) for t in tensors(case, torch))
        if device != "cpu" and (wide or "float64" in repr(case["args"])):
            found.skipped["in double precision"] += 1
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wrong = run_one(case, torch, device)
        except Exception as error:
            if any(word in str(error) for word in _NEEDS):
                found.skipped["that need NumPy"] += 1
                continue
            wrong = f"{type(error).__name__}: {str(error)[:200]}"
        if wrong:
            found.wrong.append(f"{case['name']}: {wrong}")
        else:
            found.passed += 1
            found.operators.add(case["name"].split()[0])
    return found
