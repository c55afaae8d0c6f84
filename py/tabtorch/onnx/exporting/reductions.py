"""ATen's reductions, sorts and scans as ONNX's."""

from __future__ import annotations

import math
from typing import Any

from tabtorch.base import dtypes
from tabtorch.onnx.exporting.builder import Builder, Value
from tabtorch.onnx.exporting.table import Out, aten


def _dims(dim: Any) -> list[int]:
    return [] if dim is None else [dim] if isinstance(dim, int) else list(dim)


for _kind, _names in {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceProd": "prod"}.items():
    for _name in _names.split():

        @aten(_name)
        def _reduced(
            b: Builder, out: Out, x: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None, kind: str = _kind
        ) -> Value:
            return b.reduce(kind, b.cast(x, out.dtype), _dims(dim), keepdim)


@aten("amax")
def amax(b: Builder, out: Out, x: Value, dim: Any = (), keepdim: bool = False) -> Value:
    return b.reduce("ReduceMax", x, _dims(dim), keepdim)


@aten("amin")
def amin(b: Builder, out: Out, x: Value, dim: Any = (), keepdim: bool = False) -> Value:
    return b.reduce("ReduceMin", x, _dims(dim), keepdim)


for _kind, _name in {"Max": "max", "Min": "min"}.items():

    @aten(_name)
    def _extreme(b: Builder, out: Out, x: Value, dim: Any = None, keepdim: bool = False, kind: str = _kind) -> Any:
        if isinstance(dim, Value):
            return b.op(kind, b.cast(x, out.dtype), b.cast(dim, out.dtype))
        if dim is None:
            return b.reduce(f"Reduce{kind}", x, [])
        return b.reduce(f"Reduce{kind}", x, [dim], keepdim), _arg(b, x, dim, keepdim, f"Arg{kind}")


def _arg(b: Builder, x: Value, dim: int | None, keepdim: bool, kind: str) -> Value:
    if not x.rank:
        return b.constant(0)
    if dim is None:
        x, dim, keepdim = b.op("Reshape", x, b.constant([-1]), sizes=[None]), 0, False
    axis = dim % x.rank
    left = [1 if d == axis else n for d, n in enumerate(x.sizes) if keepdim or d != axis]
    return b.op(kind, x, type=dtypes.int64, sizes=left, axis=axis, keepdims=int(keepdim))


@aten("argmax")
def argmax(b: Builder, out: Out, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _arg(b, x, dim, keepdim, "ArgMax")


@aten("argmin")
def argmin(b: Builder, out: Out, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _arg(b, x, dim, keepdim, "ArgMin")


@aten("all")
def all_(b: Builder, out: Out, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return b.cast(b.reduce("ReduceMin", b.cast(b.cast(x, dtypes.bool_), dtypes.int32), _dims(dim), keepdim), out.dtype)


@aten("any")
def any_(b: Builder, out: Out, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return b.cast(b.reduce("ReduceMax", b.cast(b.cast(x, dtypes.bool_), dtypes.int32), _dims(dim), keepdim), out.dtype)


@aten("logsumexp")
def logsumexp(b: Builder, out: Out, x: Value, dim: Any, keepdim: bool = False) -> Value:
    return b.reduce("ReduceLogSumExp", b.cast(x, out.dtype), _dims(dim), keepdim)


@aten("count_nonzero")
def count_nonzero(b: Builder, out: Out, x: Value, dim: Any = None) -> Value:
    return b.reduce("ReduceSum", b.cast(b.cast(x, dtypes.bool_), dtypes.int64), _dims(dim))


@aten("norm", "linalg_vector_norm")
def norm(
    b: Builder, out: Out, x: Value, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    x, p = b.cast(x, out.dtype), 2 if ord is None else ord
    kind = {1: "ReduceL1", 2: "ReduceL2", math.inf: "ReduceMax", -math.inf: "ReduceMin"}.get(p)
    if kind is not None:
        return b.reduce(kind, b.op("Abs", x) if kind.startswith("ReduceM") else x, _dims(dim), keepdim)
    if p == 0:
        return b.reduce("ReduceSum", b.cast(b.cast(x, dtypes.bool_), out.dtype), _dims(dim), keepdim)
    powers = b.op("Pow", b.op("Abs", x), b.constant(float(p), out.dtype))
    return b.op("Pow", b.reduce("ReduceSum", powers, _dims(dim), keepdim), b.constant(1 / p, out.dtype))


def _spread(b: Builder, x: Value, dim: Any, correction: Any, keepdim: bool) -> Value:
    """The variance."""
    dims = _dims(dim)
    off = b.op("Sub", x, b.reduce("ReduceMean", x, dims, True))
    total = b.reduce("ReduceSum", b.op("Mul", off, off), dims, keepdim)
    count: Any = b.constant(1)
    for d in dims or range(x.rank):
        n = b.size(x, d)
        count = b.op("Mul", count, b.scalar(n) if isinstance(n, Value) else b.constant(n), sizes=())
    by = b.op("Sub", b.cast(count, x.dtype), b.constant(float(correction), x.dtype), sizes=())
    return b.op("Div", total, b.op("Max", by, b.constant(0.0, x.dtype), sizes=()))


def _variance_arguments(dim: Any, correction: Any) -> tuple[Any, float]:
    """`var(x, unbiased)` and `var(x, dim, unbiased)` have their flag where others have the correction."""
    if isinstance(dim, bool):
        return None, float(dim)
    return dim, 1.0 if correction is None else float(correction)


@aten("var")
def var(
    b: Builder, out: Out, x: Value, dim: Any = None, correction: Any = None, keepdim: bool = False, unbiased: Any = None
) -> Value:
    dim, by = _variance_arguments(dim, correction if unbiased is None else unbiased)
    return _spread(b, x, dim, by, keepdim)


@aten("std")
def std(
    b: Builder, out: Out, x: Value, dim: Any = None, correction: Any = None, keepdim: bool = False, unbiased: Any = None
) -> Value:
    return b.op("Sqrt", var(b, out, x, dim, correction, keepdim, unbiased))


@aten("var_mean")
def var_mean(b: Builder, out: Out, x: Value, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    dim, correction = _variance_arguments(dim, correction)
    return var(b, out, x, dim, correction, keepdim), b.reduce("ReduceMean", x, _dims(dim), keepdim)


@aten("std_mean")
def std_mean(b: Builder, out: Out, x: Value, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    dim, correction = _variance_arguments(dim, correction)
    return std(b, out, x, dim, correction, keepdim), b.reduce("ReduceMean", x, _dims(dim), keepdim)


@aten("softmax", "_softmax")
def softmax(b: Builder, out: Out, x: Value, dim: int, dtype: Any = None) -> Value:
    return b.op("Softmax", b.cast(x, out.dtype), axis=dim)


@aten("log_softmax", "_log_softmax")
def log_softmax(b: Builder, out: Out, x: Value, dim: int, dtype: Any = None) -> Value:
    return b.op("LogSoftmax", b.cast(x, out.dtype), axis=dim)


@aten("cumsum")
def cumsum(b: Builder, out: Out, x: Value, dim: int, dtype: Any = None) -> Value:
    return b.op("CumSum", b.cast(x, out.dtype), b.constant(dim % max(x.rank, 1))) if x.rank else b.cast(x, out.dtype)


@aten("topk")
def topk(b: Builder, out: Out, x: Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    values, places = b.node("TopK", [x, b.sizes([k])], 2, axis=dim, largest=int(largest), sorted=int(sorted))
    return Value(values, x.dtype, out.sizes), Value(places, dtypes.int64, out.sizes)


@aten("sort")
def sort(b: Builder, out: Out, x: Value, dim: int = -1, descending: bool = False, stable: Any = None) -> Any:
    if not x.rank:
        return x, b.constant(0)
    return topk(b, Out(x.dtype, x.sizes), x, b.size(x, dim), dim, descending)


@aten("argsort")
def argsort(b: Builder, out: Out, x: Value, dim: int = -1, descending: bool = False) -> Value:
    found: Value = sort(b, out, x, dim, descending)[1]
    return found


@aten("einsum")
def einsum(b: Builder, out: Out, equation: str, tensors: Any, path: Any = None) -> Value:
    return b.op("Einsum", *[b.cast(x, out.dtype) for x in tensors], sizes=out.sizes, equation=equation)
