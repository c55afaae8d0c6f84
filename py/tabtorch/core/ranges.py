"""`arange` and `range`: their values are computed from the index where they are read."""

from __future__ import annotations

import math
from typing import Any

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.core.creation import check_strided, finished, placed, plain, whole
from tabtorch.core.shapes import as_float
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import cast
from tabtorch.engine.graph import Map, emit, inst
from tabtorch.engine.symbols import Symbol
from tabtorch.engine.view import contiguous_meta
from tabtorch.ops.machinery.out_types import dtype_with_out
from tabtorch.ops.machinery.promotion import REAL_NUMBERS, check_kernel
from tabtorch.ops.machinery.registry import register


def _arange_at(p: Any) -> Any:
    t = p.inst.scalars[0]
    i = cast(p.index, t)
    if len(p.inst.scalars) == 2:
        return p.scalar(0) + i * p.scalar(1)
    # the step in two parts, of which the first has few bits: its products are exact
    return (p.scalar(0) + i * p.scalar(1)) + i * p.scalar(2)


_ARANGE = Map("arange", _arange_at, indexed=True, cost=2)


_NEW = {"out", "dtype", "layout", "device", "pin_memory", "requires_grad"}


@register("arange")
def arange(*args: Any, **kw: Any) -> Tensor:
    """`arange(end)`, `arange(start, end, step=1)`: start, start + step, … below end. Integers give int64."""
    asked = dict(kw)
    names = ("end",) if len(args) == 1 else ("start", "end", "step")
    given = dict(zip(names, args)) | {k: kw.pop(k) for k in ("start", "end", "step") if k in kw}
    wrong = [k for k, v in given.items() if not hasattr(v, "__float__")]
    if wrong == ["end"] and len(args) == 1:
        raise TypeError(f"arange(): argument 'end' (position 1) must be Number, not {type(args[0]).__name__}")
    if wrong or len(args) > 3 or "end" not in given or not kw.keys() <= _NEW:
        one, more = (
            f"Number end, *, {_lazy.signatures.NEW}",
            f"Number start, Number end, Number step = 1, *, {_lazy.signatures.NEW}",
        )
        two = f"Number start, Number end, *, {_lazy.signatures.NEW.removeprefix('Tensor out = None, ')}"
        raise _lazy.signatures.wrong_arguments("arange", args, asked, _lazy.signatures.listed(one, two, more))
    start, end, step = (plain(given.get(k, v)) for k, v in (("start", 0), ("end", 0), ("step", 1)))
    return _range("arange", start, end, step, False, kw)


@register("range")
def range_(start: Any = 0, end: Any = None, step: Any = 1, **kw: Any) -> Tensor:
    """Like `arange`, with `end` included, in the default dtype. Deprecated, as in PyTorch."""
    if end is None:
        start, end = 0, start
    kw.setdefault("dtype", dtypes.get_default_dtype())
    return _range("range", plain(start), plain(end), plain(step), True, kw)


def _range(name: str, start: Any, end: Any, step: Any, closed: bool, kw: dict[str, Any]) -> Tensor:
    out = kw.pop("out", None)
    dtype: Any = dtype_with_out(name, kw.pop("dtype", None), out)
    device = kw.pop("device", None)
    requires_grad = kw.pop("requires_grad", False)
    check_strided(name, kw)
    if dtype is None:
        floating = any(isinstance(v, float) for v in (start, end, step))
        dtype = dtypes.get_default_dtype() if floating else dtypes.int64
    check_kernel("arange_cpu", dtype, REAL_NUMBERS)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if dtype.category == 1 and whole(step) == 0:
        raise ValueError("step must be nonzero")
    if not all(type(v) is Symbol or math.isfinite(v) for v in (start, end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if name == "arange" and dtype is dtypes.int64:
        start, end, step = whole(start), whole(end), whole(step)
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        n = (end - start) // step + 1 if closed else -(-(end - start) // step)
    else:
        n = math.floor((end - start) / step) + 1 if closed else math.ceil((end - start) / step)
    where_ = placed(dtype, device if out is None or device is not None else out.device)
    m = contiguous_meta((n,), dtype, where_)
    c = dtype.compute
    if dtype.category == 1:
        r = Tensor._wrap(emit(inst(_ARANGE, (), m, (c, c)), (), (whole(start), whole(step))), m)
    elif c == "f64":
        r = Tensor._wrap(emit(inst(_ARANGE, (), m, (c, c)), (), (as_float(start), as_float(step))), m)
    else:
        high, low = _split_number(float(step))
        scalars = (float(start), high, low)
        r = Tensor._wrap(emit(inst(_ARANGE, (), m, (c, c, c)), (), scalars), m)
    if out is not None:
        r = _lazy.inplace.write_out(out, r)
    return finished(r, requires_grad)


def _split_number(v: float) -> tuple[float, float]:
    """v as a sum whose first term has 12 significant bits."""
    if v == 0 or not math.isfinite(v):
        return v, 0.0
    f, e = math.frexp(v)
    high = math.ldexp(float(math.trunc(f * 4096)), e - 12)
    return high, v - high
