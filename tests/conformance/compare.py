"""When two results are the same."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo

from . import translate

#: what a failure can be about; "raised" is an exception that PyTorch does not raise, "no error" the reverse of it
KINDS = (
    "values", "nan", "dtype", "shape", "strides", "structure", "aliasing", "missing gradient", "raised", "no error",
    "error type", "message", "lost", "unnoticed",
)  # fmt: skip


class Mismatch(AssertionError):
    """What is different, in a line; of which of `KINDS`, and for values how many times the tolerance it is."""

    def __init__(self, text: str, kind: str = "structure", size: float = math.inf) -> None:
        super().__init__(text)
        self.kind, self.size = kind, size


def tolerance(op: OpInfo, dtype: torch.dtype) -> tuple[float, float]:
    """PyTorch's (rtol, atol) for a dtype, or what OpInfo itself allows the operator in any of PyTorch's tests."""
    rtol, atol = torch.testing._comparison.default_tolerances(dtype)
    for d in op.decorators:
        for o in d.decorators if isinstance(d, DecorateInfo) else (d,):
            if isinstance(o, toleranceOverride) and dtype in o.d:
                atol, rtol = max(atol, o.d[dtype].atol), max(rtol, o.d[dtype].rtol)
    return rtol, atol


def double(x: Any, rounding: torch.Generator | None = None) -> Any:
    """The same values and dtypes in double precision: what the rounding is measured against.

    rounding: each value is changed by as much as rounding it to its own dtype may have.
    """
    wide = {torch.complex64: torch.complex128, torch.complex32: torch.complex128}
    low = (torch.float32, torch.float16, torch.bfloat16)
    if isinstance(x, torch.Tensor):
        to = torch.float64 if x.dtype in low else wide.get(x.dtype)
        if to is None:
            return x
        new = x.detach().to(to)
        if rounding is not None:
            off = 2 * torch.rand(new.shape, generator=rounding, dtype=torch.float64) - 1
            new = new * (1 + off * torch.finfo(x.dtype).eps)
        return new.requires_grad_(x.requires_grad)
    if isinstance(x, torch.dtype):
        return torch.float64 if x in low else wide.get(x, x)
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(double(v, rounding) for v in x)
    if isinstance(x, dict):
        return {k: double(v, rounding) for k, v in x.items()}
    return x


def close(want: torch.Tensor, got: torch.Tensor, tol: tuple[float, float]) -> bool:
    """Within the tolerance; nan equals nan."""
    if want.dtype is torch.bool or not (want.is_floating_point() or want.is_complex()):
        return torch.equal(want, got)
    return torch.allclose(got, want, rtol=tol[0], atol=tol[1], equal_nan=True)


def as_near(
    want: torch.Tensor,
    got: torch.Tensor,
    truth: torch.Tensor,
    normwise: bool = False,
    rounded: torch.Tensor | None = None,
) -> bool:
    """Not farther from the result in double precision than three times what PyTorch's own is: rounding, not an error.

    Some results lose most digits by cancellation, in both libraries; no fixed tolerance would say anything about those.
    rounded: a gradient in double precision of inputs that were rounded; what it is off, any in single precision may be.
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
    if not bool(sure.any()):
        return True
    size, error = t[sure].abs(), (a - t)[sure].abs()
    if rounded is not None and rounded.shape == t.shape:
        moved = (rounded.to(wide) - t)[sure].abs()
        error = torch.maximum(error, torch.where(moved.isfinite(), moved, 0.0))
    allowed = 3 * error.max()
    if not normwise:  # of each element the smaller of the largest error there is, and of the largest relative one
        some = size > 0
        relative = 3 * (error / size)[some].max() if bool(some.any()) else 0.0
        allowed = torch.where(some, torch.minimum(allowed, relative * size), allowed)
    eps = torch.finfo(want.dtype).eps
    return bool(((b - t)[sure].abs() <= allowed + 2 * eps * (size.max() if normwise else size)).all())


def _halves(want: torch.Tensor, got: torch.Tensor, truth: torch.Tensor, tol: tuple[float, float]) -> bool:
    """Whether each element is near PyTorch's in half precision, or near what PyTorch gives in double precision.

    PyTorch rounds some halves between its steps, and overflows there; a result that is nearer to the truth is no error.
    """
    if want.dtype not in (torch.float16, torch.bfloat16) or truth.shape != want.shape or truth.is_complex():
        return False
    near = torch.isclose(got, want, rtol=tol[0], atol=tol[1], equal_nan=True)
    return bool((near | torch.isclose(got, truth.to(want.dtype), rtol=tol[0], atol=tol[1], equal_nan=True)).all())


def _same_strides(want: torch.Tensor, got: Any, where: str) -> None:
    """Strides are compared where they say where an element is: not of one element, and not in empty tensors."""
    w, g = want.stride(), got.stride()
    if want.numel() and any(a != b for a, b, n in zip(w, g, want.shape) if n > 1):
        raise Mismatch(f"{where}: strides {tuple(g)}, not {tuple(w)}", "strides")


def same(
    want: Any, got: Any, tol: Any, truth: Any = None, where: str = "result", values: bool = True, strides: bool = False
) -> None:
    """Raises Mismatch unless a result of PyTorch and one of tabtorch are the same in structure, shape, dtype and values.

    tol: dtype -> (rtol, atol). truth: a function that gives the same result in double precision, of the inputs or of inputs
    that are rounded (`double` says how); or None. strides: theirs are compared, too.
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
            raise Mismatch(f"{at}: shape {tuple(g.shape)}, not {tuple(w.shape)}", "shape")
        if str(w.dtype) != str(g.dtype):
            raise Mismatch(f"{at}: dtype {g.dtype}, not {w.dtype}", "dtype")
        if str(w.layout) != str(g.layout):
            raise Mismatch(f"{at}: layout {g.layout}, not {w.layout}", "structure")
        if w.layout is not torch.strided:
            w, g = w.to_dense(), g.to_dense()
        elif strides:
            _same_strides(w, g, at)
        if not values or w.numel() == 0:
            continue
        w, g = torch.as_tensor(w.detach()).resolve_conj().resolve_neg(), translate.back(g)
        if close(w, g, tol(w.dtype)):
            continue
        if truth is not None and truths is None:
            try:
                truths = _dense(truth())
            except Exception:  # what has no double form is judged by the tolerance alone
                truths = []
        if truths and len(truths) == len(wants):
            t, normwise = truths[i].detach(), where == "gradient"
            if as_near(w, g, t, normwise) or _halves(w, g, t, tol(w.dtype)):
                continue
            rounded = _rounded(truth, len(wants)) if normwise else []
            if rounded and as_near(w, g, t, normwise, rounded[i].detach()):
                continue
        raise _difference(w, g, tol(w.dtype), at)


def _dense(x: Any) -> list[torch.Tensor]:
    return [t if t.layout is torch.strided else t.to_dense() for t in translate.tensors(x)]


def _rounded(truth: Any, count: int) -> list[torch.Tensor]:
    try:
        found = _dense(truth(torch.Generator().manual_seed(2)))
    except Exception:
        return []
    return found if len(found) == count else []


def _plain(want: Any, got: Any, where: str) -> None:
    if isinstance(want, (list, tuple)):
        for w, g in zip(want, got, strict=True):
            _plain(w, g, where)
        return
    if isinstance(want, torch.dtype):
        want, got = str(want), str(got)
        if want != got:
            raise Mismatch(f"{where}: {got}, not {want}", "dtype")
    if type(want) in (bool, int, float, complex) and type(want) is not type(got):
        raise Mismatch(f"{where}: {type(got).__name__} {got!r}, not {type(want).__name__} {want!r}", "dtype")
    both = isinstance(want, (float, complex)) and isinstance(got, (float, complex))
    if not (torch.allclose(torch.tensor(want), torch.tensor(got), equal_nan=True) if both else want == got):
        raise Mismatch(f"{where}: {got!r}, not {want!r}", "values")


def _difference(want: torch.Tensor, got: torch.Tensor, tol: tuple[float, float], where: str) -> Mismatch:
    """How many elements are wrong, the first of them, and how far the farthest is off."""
    kind, size = "values", math.inf
    if want.is_floating_point() or want.is_complex():
        bad = ~torch.isclose(got, want, rtol=tol[0], atol=tol[1], equal_nan=True)
        if bool((want[bad].isnan() & got[bad].isfinite()).all()):
            kind = "nan"  # PyTorch's is nan, ours is a number
        elif bool((want[bad].isfinite() & got[bad].isfinite()).all()):
            wide = torch.complex128 if want.is_complex() else torch.float64
            w, g = want[bad].to(wide), got[bad].to(wide)
            size = float(((g - w).abs() / (tol[1] + tol[0] * w.abs())).max())
    else:
        bad = want != got
        size = float((want.double() - got.double()).abs().max())
    first = tuple(int(i) for i in bad.nonzero()[0])
    text = (
        f"{int(bad.sum())} of {want.numel()} wrong, first at {first}: {got[first].item()!r}, not {want[first].item()!r}"
    )
    return Mismatch(f"{where}: {text}" + (f"; {size:.3g} times the tolerance" if size < math.inf else ""), kind, size)
