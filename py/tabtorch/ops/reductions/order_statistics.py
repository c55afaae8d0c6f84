"""Order statistics made of a sort: median, quantile, mode."""

from __future__ import annotations

from typing import Any

from tabtorch.autograd.tape import named as grad_named
from tabtorch.autograd.tape import record
from tabtorch.base import dtypes
from tabtorch.core.layout import contiguous_format
from tabtorch.core.shapes import wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.ops.indexing.index_maps import check_reals
from tabtorch.ops.machinery.asserts import Complaint
from tabtorch.ops.machinery.integer_bounds import Range
from tabtorch.ops.machinery.operation import into, into_two, named, operation
from tabtorch.ops.machinery.out_types import same
from tabtorch.ops.machinery.promotion import REAL, REAL_NUMBERS, check_kernel
from tabtorch.ops.machinery.registry import function
from tabtorch.ops.reductions.reduce import quiet, sum
from tabtorch.ops.reductions.sort import order_of, picked, sort

MedianResult = named("median", "values", "indices")
NanmedianResult = named("nanmedian", "values", "indices")
ModeResult = named("mode", "values", "indices")


def _where(c: Tensor, a: Any, b: Any) -> Tensor:
    f = function("where")
    assert f is not None
    return f(c, a, b)


_MEDIAN_OUT = (
    same(
        "Expected tensor for 'values' to have the same type as tensor for argument #2 'self'; but type torch.{Have}Tensor does "
        "not equal torch.{Want}Tensor (while checking arguments for median)"
    ),
    same(
        "Expected tensor for argument #1 'indices' to have scalar type {Want}; but got torch.{Have}Tensor instead (while "
        "checking arguments for median)"
    ),
)


def _median(name: str, kind: Any, x: Tensor, dim: Any, keepdim: bool, out: Any) -> Any:
    check_kernel("median_out_impl", x.dtype, REAL_NUMBERS)
    if dim is None:
        flat = x.reshape(-1)
        if flat.shape[0] == 0:
            r = x.new_full((), float("nan")) if x.is_floating_point() else x.new_zeros(())
            record(name.capitalize() + "Backward0", (x,), r, lambda g: g.new_zeros(x.shape))
            return r
        return _median(name, kind, flat, 0, False, None)[0]
    d = wrap_dim(dim, x.ndim)
    n = x.shape[d] if x.ndim else 1
    if n == 0:
        raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")
    with quiet():
        order = order_of(x, d)
        if x.ndim == 0:
            index = order
        elif not x.is_floating_point():
            index = order.narrow(d, (n - 1) // 2, 1).clone(memory_format=contiguous_format)
        else:
            numbers = sum(x.isnan().logical_not(), d, True)  # NaNs are sorted last
            if name == "median":
                at = _where(numbers == n, (n - 1) // 2, numbers)
            else:
                at = ((numbers - 1) // 2).clamp(min=0)
            index = order.gather(d, at)
    return into_two(out, picked(name.capitalize() + "Backward1", kind, x, index, d, keepdim), _MEDIAN_OUT)


@operation("median")
def median(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The middle element (the lower one of two) of all, or with its index along `dim`. NaN if there is one."""
    return _median("median", MedianResult, input, dim, keepdim, out)


@operation("nanmedian")
def nanmedian(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The median of what is not NaN."""
    return _median("nanmedian", NanmedianResult, input, dim, keepdim, out)


_BAD_QUANTILE = Complaint(RuntimeError, "quantile() q values must be in the range [0, 1]")
_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


_QUANTILE_OUT = same("quantile() out tensor must be same dtype as the input tensor")


def _quantile(
    name: str, x: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str, out: Any, ignore_nan: bool
) -> Tensor:
    """`quantile` and `nanquantile`: elements of the sorted rows at the places q · (n - 1), or between two of them."""
    if x.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    several = isinstance(q, Tensor)
    if not several:
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q:g}")
        q = x.new_full((), q)
    elif q.dtype is not x.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if x.numel() == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if several:
        check_reals(q, Range(0.0, 1.0), _BAD_QUANTILE, name)
    shape = list(x.shape)
    if dim is None:
        y, kept = x.reshape(-1), [1] * x.ndim
    else:
        d = wrap_dim(dim, x.ndim)
        y = x.movedim(d, -1) if x.ndim else x.reshape(1)
        kept = [1 if k == d else s for k, s in enumerate(shape)]
    n = y.shape[-1]
    y = sort(y, -1)[0]  # (…, n), NaN last
    numbers = sum(y.detach().isnan().logical_not(), -1, True)
    last = (numbers - 1).clamp(min=0).to(x.dtype) if ignore_nan else y.new_full((), float(n - 1))
    rank = q.reshape(-1) * last  # (…, q)
    if not ignore_nan:
        # with a NaN in the row, its place is read
        rank = _where(numbers == n, rank, y.new_full((), float(n - 1)))
    low, high = rank.floor(), rank.ceil()
    if interpolation == "lower":
        rank = high = low
    elif interpolation == "higher":
        rank = low = high
    elif interpolation == "nearest":
        rank = low = high = rank.round()
    lead = tuple(y.shape[:-1])
    width = q.numel()
    full = (*lead, width)
    at = lambda place: place.to(dtypes.int64).clamp(0, n - 1).expand(full)  # noqa: E731
    a = y.gather(-1, at(low))
    r = a
    if interpolation in ("linear", "midpoint"):
        b = y.gather(-1, at(high))
        weight = rank.new_full((), 0.5) if interpolation == "midpoint" else rank - low
        r = a.lerp(b, weight)
    r = r.movedim(-1, 0)  # (q, …)
    tail = kept if keepdim else [s for k, s in enumerate(shape) if dim is not None and k != wrap_dim(dim, x.ndim)]
    return into(out, grad_named(r.reshape([width, *tail] if q.ndim else tail), "SqueezeBackward4"), rule=_QUANTILE_OUT)


@operation("quantile")
def quantile(
    input: Tensor, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear", out: Any = None
) -> Tensor:
    """The q-th quantiles of all, or along `dim`; for several q they come first in the result. NaN if there is one."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation, out, False)


@operation("nanquantile")
def nanquantile(
    input: Tensor, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear", out: Any = None
) -> Tensor:
    """The quantiles of what is not NaN."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, out, True)


_MODE_OUT = same("expected scalar type '{Want}' but got '{Have}' for {field} output")


@operation("mode")
def mode(input: Tensor, dim: int = -1, keepdim: bool = False, *, out: Any = None) -> Any:
    """(commonest value along `dim`, the smallest of equally common ones; the index of its last occurrence)."""
    d = wrap_dim(dim, input.ndim)
    with quiet():
        if input.ndim == 0:
            index = order_of(input, 0)
        else:
            n = input.shape[d]
            if n == 0:
                raise IndexError(f"mode(): Expected reduction dim {d} to have non-zero size.")
            check_kernel("mode_cpu", input._tab_meta.dtype, REAL)
            order = order_of(input, d)
            s = input.gather(d, order)
            arange = function("arange")
            assert arange is not None
            shape = [1] * input.ndim
            shape[d] = n
            place = arange(n, device=input.device).reshape(shape)
            same = s.narrow(d, 1, n - 1) == s.narrow(d, 0, n - 1)
            cat = function("cat")
            assert cat is not None
            first = list(input.shape)
            first[d] = 1
            starts = cat([same.new_zeros(first), same], d).logical_not()
            begin = (starts * place).cummax(d)[0]
            index = order.gather(d, (place - begin).argmax(d, keepdim=True))
    return into_two(out, picked("ModeBackward0", ModeResult, input, index, d, keepdim), rule=_MODE_OUT)
