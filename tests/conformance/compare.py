"""When two results are the same."""

from __future__ import annotations

from typing import Any

import torch
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo

from . import translate


class Mismatch(AssertionError):
    """What is different, in a line."""


def tolerance(op: OpInfo, dtype: torch.dtype) -> tuple[float, float]:
    """PyTorch's (rtol, atol) for a dtype, or what OpInfo itself allows the operator in any of PyTorch's tests."""
    rtol, atol = torch.testing._comparison.default_tolerances(dtype)
    for d in op.decorators:
        for o in d.decorators if isinstance(d, DecorateInfo) else (d,):
            if isinstance(o, toleranceOverride) and dtype in o.d:
                atol, rtol = max(atol, o.d[dtype].atol), max(rtol, o.d[dtype].rtol)
    return rtol, atol


def double(x: Any) -> Any:
    """The same values and dtypes in double precision: what the rounding is measured against."""
    wide = {torch.complex64: torch.complex128, torch.complex32: torch.complex128}
    low = (torch.float32, torch.float16, torch.bfloat16)
    if isinstance(x, torch.Tensor):
        to = torch.float64 if x.dtype in low else wide.get(x.dtype)
        return x if to is None else x.detach().to(to).requires_grad_(x.requires_grad)
    if isinstance(x, torch.dtype):
        return torch.float64 if x in low else wide.get(x, x)
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(double(v) for v in x)
    if isinstance(x, dict):
        return {k: double(v) for k, v in x.items()}
    return x


def close(want: torch.Tensor, got: torch.Tensor, tol: tuple[float, float]) -> bool:
    """Within the tolerance; nan equals nan."""
    if want.dtype is torch.bool or not (want.is_floating_point() or want.is_complex()):
        return torch.equal(want, got)
    return torch.allclose(got, want, rtol=tol[0], atol=tol[1], equal_nan=True)


def as_near(want: torch.Tensor, got: torch.Tensor, truth: torch.Tensor, normwise: bool = False) -> bool:
    """Not farther from the result in double precision than three times what PyTorch's own is: rounding, not an error.

    Some results lose most digits by cancellation, in both libraries; no fixed tolerance would say anything about those.
    normwise: rounding is measured against the largest element, as fits gradients, whose elements are sums of such terms.
    """
    if truth.shape != got.shape or not (want.is_floating_point() or want.is_complex()):
        return False
    wide = torch.complex128 if got.is_complex() or truth.is_complex() else torch.float64
    a, b, t = want.to(wide), got.to(wide), truth.to(wide)
    sure = torch.isfinite(t) & torch.isfinite(a)
    if not torch.allclose(torch.where(sure, 0, b), torch.where(sure, 0, a), equal_nan=True):
        return False
    if not torch.isfinite(b[sure]).all():
        return False
    allowed = 3 * (a - t)[sure].abs()
    eps = torch.finfo(want.dtype).eps
    if not allowed.numel():
        return True
    size = t[sure].abs()
    return bool(((b - t)[sure].abs() <= allowed.max() + 2 * eps * (size.max() if normwise else size)).all())


def same(want: Any, got: Any, tol: Any, truth: Any = None, where: str = "result", values: bool = True) -> None:
    """Raises Mismatch unless a result of PyTorch and one of tabtorch are the same in structure, shape, dtype and values.

    tol: dtype -> (rtol, atol). truth: a function that gives the same result in double precision, or None.
    """
    wants, gots = translate.tensors(want), translate.tensors(got)
    if isinstance(want, (list, tuple)) != isinstance(got, (list, tuple)) or len(wants) != len(gots):
        raise Mismatch(
            f"{where}: {type(got).__name__} of {len(gots)} tensors, not {type(want).__name__} of {len(wants)}"
        )
    if not wants:
        _plain(want, got, where)
    truths: list[Any] | None = None
    for i, (w, g) in enumerate(zip(wants, gots, strict=True)):
        at = where if len(wants) == 1 else f"{where} {i}"
        if tuple(w.shape) != tuple(g.shape):
            raise Mismatch(f"{at}: shape {tuple(g.shape)}, not {tuple(w.shape)}")
        if str(w.dtype) != str(g.dtype):
            raise Mismatch(f"{at}: dtype {g.dtype}, not {w.dtype}")
        if not values or w.numel() == 0:
            continue
        w, g = torch.as_tensor(w.detach()).resolve_conj().resolve_neg(), translate.back(g)
        if close(w, g, tol(w.dtype)):
            continue
        if truth is not None and truths is None:
            try:
                truths = translate.tensors(truth())
            except Exception:  # what has no double form is judged by the tolerance alone
                truths = []
        if truths and len(truths) == len(wants) and as_near(w, g, truths[i].detach(), where == "gradient"):
            continue
        raise Mismatch(f"{at}: {_difference(w, g, tol(w.dtype))}")


def _plain(want: Any, got: Any, where: str) -> None:
    if isinstance(want, (list, tuple)):
        for w, g in zip(want, got, strict=True):
            _plain(w, g, where)
        return
    if isinstance(want, torch.dtype):
        want, got = str(want), str(got)
    both = isinstance(want, (float, complex)) and isinstance(got, (float, complex))
    if not (torch.allclose(torch.tensor(want), torch.tensor(got), equal_nan=True) if both else want == got):
        raise Mismatch(f"{where}: {got!r}, not {want!r}")


def _difference(want: torch.Tensor, got: torch.Tensor, tol: tuple[float, float]) -> str:
    if want.is_floating_point() or want.is_complex():
        bad = ~torch.isclose(got, want, rtol=tol[0], atol=tol[1], equal_nan=True)
    else:
        bad = want != got
    first = tuple(int(i) for i in bad.nonzero()[0])
    return (
        f"{int(bad.sum())} of {want.numel()} wrong, first at {first}: {got[first].item()!r}, not {want[first].item()!r}"
    )
