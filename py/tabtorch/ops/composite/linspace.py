"""`linspace` and `logspace`."""

from __future__ import annotations

import operator
from typing import Any

from tabtorch.base import dtypes
from tabtorch.base.device import cpu
from tabtorch.core.creation import check_strided, fill_node, finished, number, placed, plain
from tabtorch.core.ranges import arange
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import cast, const, where
from tabtorch.engine.graph import Map, emit, inst
from tabtorch.engine.view import contiguous_meta
from tabtorch.ops.indexing.index_maps import every_example
from tabtorch.ops.machinery.inplace import write_out
from tabtorch.ops.machinery.out_types import dtype_with_out
from tabtorch.ops.machinery.registry import function, register


def _linspace_at(p: Any) -> Any:
    t = p.inst.scalars[0]
    n = p.dim(p.inst.out.numel, "n")
    i = p.index
    back = cast(n - const(1, "u32") - i, t)
    step = p.scalar(2)
    return where(i < p.dim(p.inst.out.numel // 2, "half"), p.scalar(0) + step * cast(i, t), p.scalar(1) - step * back)


_LINSPACE = Map("linspace", _linspace_at, indexed=True, cost=3)


def _arguments(name: str, start: Any, end: Any, steps: Any, kw: dict[str, Any]) -> Any:
    """(start, end, steps, dtype, device, what ends the call)."""
    for what, x in (("start", start), ("end", end)):
        if isinstance(x, Tensor) and x.ndim:
            raise RuntimeError(
                f"{name} only supports 0-dimensional start and end tensors, but got {what} with {x.ndim} dimension(s)."
            )
    try:
        n = operator.index(plain(steps))
    except TypeError:
        given = ", ".join(type(x).__name__ for x in (start, end, steps))
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({given})") from None
    if n < 0:
        raise RuntimeError("number of steps must be non-negative")
    out, device, dtype = kw.pop("out", None), kw.pop("device", None), kw.pop("dtype", None)
    requires_grad = kw.pop("requires_grad", False)
    check_strided(name, kw)
    d: Any = dtype_with_out(name, dtype, out)
    natural = dtypes.get_default_dtype()
    if any(x.is_complex() if isinstance(x, Tensor) else isinstance(x, complex) for x in (start, end)):
        natural = natural.to_complex()
        if d is not None and not d.is_complex:
            raise RuntimeError(f"torch.{name}(): inferred dtype {natural!r} can't be safely cast to passed dtype {d!r}")
    d = d or natural
    where_ = placed(d, device if out is None else out.device)
    ends = [x for x in (start, end) if isinstance(x, Tensor)]
    batched = any(every_example(x) is not x for x in ends)
    if d.category > 1 and ends and all(x.device == where_ and (where_.lacks(dtypes.float64) or batched) for x in ends):
        wide = (
            dtypes.complex64 if d.is_complex else dtypes.float32
        )  # not read: what only the GPU knows would be waited for
        start, end = (x.detach().to(wide) if isinstance(x, Tensor) else x for x in (start, end))
    else:
        start, end = plain(start), plain(end)
    if d.category == 1:
        start, end = int(start), int(end)
    return start, end, n, d, where_, lambda r: finished(r if out is None else write_out(out, r), requires_grad)


@register("linspace")
def linspace(start: Any, end: Any, steps: int, **kw: Any) -> Tensor:
    """`steps` numbers from `start` to `end`, both included, at equal distances."""
    start, end, n, d, device, finish = _arguments("linspace", start, end, steps, kw)
    if isinstance(start, Tensor) or isinstance(end, Tensor):
        return finish(_between(start, end, n, device).to(d))
    if d.category == 1 and device.lacks(
        dtypes.float64
    ):  # WGSL's rounding may put a number below the whole one that it is
        return finish(linspace(start, end, n, dtype=d, device=cpu).to(device))
    m = contiguous_meta((n,), d, device)
    if n == 1:
        return finish(Tensor._wrap(fill_node((1,), number(start, d), d, device), m))
    # PyTorch steps in the type itself; integers are exact only in float64, where there is one
    c = d.compute if d.is_complex else "f64" if d.compute != "f32" and not device.lacks(dtypes.float64) else "f32"
    kind = complex if d.is_complex else float
    scalars = (kind(start), kind(end), kind((end - start) / (n - 1) if n else 0))
    return finish(Tensor._wrap(emit(inst(_LINSPACE, (), m, (c, c, c)), (), scalars), m))


@register("logspace")
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, **kw: Any) -> Tensor:
    """`base` to the powers that `linspace(start, end, steps)` gives."""
    start, end, n, d, device, finish = _arguments("logspace", start, end, steps, kw)
    if isinstance(start, Tensor) or isinstance(end, Tensor):
        return finish(_power(base, _between(start, end, n, device)).to(d))
    # in double precision, which is on cpu: what a power makes of a rounding error is large
    wide = dtypes.complex128 if d.is_complex else dtypes.float64
    return finish(_power(base, linspace(start, end, n, dtype=wide, device=cpu)).to(d).to(device))


def _between(start: Any, end: Any, n: int, device: Any) -> Tensor:
    """`n` numbers between two, of which one at least is a 0-d tensor."""
    at = arange(n, device=device)
    step = (end - start) / max(n - 1, 1)
    back = end - step * (n - 1 - at)
    r: Tensor = function("where")(at < max(n // 2, 1), start + step * at, back)  # type: ignore[misc]
    return r


def _power(base: Any, x: Tensor) -> Tensor:
    r: Tensor = function("pow")(complex(base) if x.is_complex() else float(base), x)  # type: ignore[misc]
    return r
