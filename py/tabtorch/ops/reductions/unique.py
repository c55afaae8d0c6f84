"""Distinct values, places in sorted sequences, and counts: `unique`, `searchsorted`, `bucketize`, `bincount`, `histc`."""

from __future__ import annotations

from typing import Any

from tabtorch.base import dtypes
from tabtorch.core.shapes import remembered, type_name, wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Expr, cast, const, idiv, where
from tabtorch.engine.graph import Custom, Inst, inst
from tabtorch.engine.lower import Kernel
from tabtorch.engine.plan import Lowering
from tabtorch.engine.view import Meta, contiguous_meta
from tabtorch.ops.indexing.index_maps import check_range, every_example, folded, wrapped
from tabtorch.ops.machinery.asserts import Complaint, assert_range
from tabtorch.ops.machinery.batching import Call, Examples
from tabtorch.ops.machinery.integer_bounds import Range
from tabtorch.ops.machinery.operand_devices import together
from tabtorch.ops.machinery.operation import into, operation, run
from tabtorch.ops.machinery.out_types import same
from tabtorch.ops.machinery.promotion import FLOATING, INTEGERS, REAL, REAL_NUMBERS, check_kernel
from tabtorch.ops.machinery.registry import function
from tabtorch.ops.reductions.reduce import greater, quiet
from tabtorch.ops.reductions.sort import order_of, order_of_rows


def _call(name: str, *args: Any, **kw: Any) -> Any:
    f = function(name)
    assert f is not None, name
    return f(*args, **kw)


# ---- distinct values


def _runs(starts: Tensor, values: Any, order: Tensor | None, inverse: bool, counts: bool) -> tuple[Any, ...]:
    """(values at the starts of runs, run of each element, length of each run). Reads how many runs there are."""
    n = starts.shape[0]
    at = starts.nonzero().reshape(-1)
    inv = cnt = None
    if inverse:
        run_of = starts.cumsum(0) - 1
        inv = run_of if order is None else _call("empty_like", run_of).scatter(0, order, run_of)
    if counts:
        ends = _call("cat", [at[1:], at.new_full((1 if n else 0,), n)])
        cnt = ends - at
    return values(at), inv, cnt


def _result(values: Tensor, inv: Any, cnt: Any, inverse: bool, counts: bool) -> Any:
    if not inverse and not counts:
        return values
    return (values, *((inv,) if inverse else ()), *((cnt,) if counts else ()))


def _starts(s: Tensor) -> Tensor:
    """Where a sequence (or the rows of a matrix) differs from what stands before."""
    n = s.shape[0]
    if n == 0:
        return s.new_zeros((0,), dtype=dtypes.bool_)
    differs = s.narrow(0, 1, n - 1) != s.narrow(0, 0, n - 1)
    if differs.ndim > 1:
        differs = differs.any(1)
    return _call("cat", [differs.new_ones((1,)), differs])


def _distinct(x: Tensor, sort: bool, inverse: bool, counts: bool, dim: Any) -> Any:
    check_kernel("unique" if dim is None else "unique_dim", x._tab_meta.dtype, REAL)
    with quiet():
        if dim is None:
            flat = x.detach().reshape(-1)
            order = order_of(flat, 0) if sort else None
            s = flat.gather(0, order) if order is not None else flat
            values, inv, cnt = _runs(_starts(s), lambda at: s.gather(0, at), order, inverse, counts)
            return _result(values, None if inv is None else inv.reshape(x.shape), cnt, inverse, counts)
        d = wrap_dim(dim, x.ndim)
        moved = x.detach().movedim(d, 0)
        n = moved.shape[0]
        if x.numel() == 0:
            if n:
                raise RuntimeError(
                    "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
                )
            if x.shape.count(0) > 1:
                raise RuntimeError("Number of zero sized dimensions is more than one, so unique cannot be applied ")
            none = x.new_empty(0, dtype=dtypes.int64)
            return _result(x.detach().clone(), none, none, inverse, counts)
        rows = moved.reshape(n, -1)
        order = order_of_rows(rows) if sort else None
        s = rows.index_select(0, order) if order is not None else rows
        values, inv, cnt = _runs(_starts(s), lambda at: s.index_select(0, at), order, inverse, counts)
        return _result(values.reshape(-1, *moved.shape[1:]).movedim(0, d), inv, cnt, inverse, counts)


@operation("unique")
def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    """Distinct values, sorted; with them, on request, where each element went, and how often each occurs."""
    return _distinct(input, True, return_inverse, return_counts, dim)


@operation("unique_consecutive")
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    """The first of each run of equal values."""
    return _distinct(input, False, return_inverse, return_counts, dim)


# ---- places in sorted sequences


def _search(i: Inst, low: Lowering) -> None:
    """`static` = (right, whether the sequence is one for all rows)."""
    right, one = i.static
    seq, val = i.ins[0], i.ins[1]
    n = seq.shape[-1]
    width = val.shape[-1] if val.ndim and not one else 1
    total = val.numel

    def body(k: Kernel, t: Expr) -> None:
        v = k.let(cast(k.load(low.input(1), low.index(k, val, t, 1)), i.compute), "v")
        en = k.dim(n, "n")
        row = const(0, "u32") if one else k.let(idiv(t, k.dim(width, "width")) * en, "row")
        lo, hi = k.var(const(0, "u32"), "lo"), k.var(en, "hi")
        k.r.push(f"while ({lo.value} < {hi.value})")
        half = k.let((lo + hi) >> 1, "half")
        at: Any = k.let(row + half, "at")
        if len(i.ins) > 2:
            inner = k.load(low.input(2), low.index(k, i.ins[2], at, 2))
            at = k.let(row + wrapped(inner, en, en - 1, negative=False), "at")
        x = k.let(cast(k.load(low.input(0), low.index(k, seq, at, 0)), i.compute), "x")
        goes = k.let(~greater(x, v) if right else greater(v, x), "goes")
        k.assign(lo, where(goes, half + 1, lo))
        k.assign(hi, where(goes, hi, half))
        k.r.pop()
        k.store(low.output, t, cast(lo, i.out.dtype.compute))

    low.launch("searchsorted", total, body)


def _search_examples(e: Examples) -> Call | None:
    right, one = e.static
    seq, val = e.ins[0], e.ins[1]
    if not one:
        return Call((right, False), e.ins)
    if not e.own[0] and not any(e.own[2:]):  # one sequence for all
        return Call((right, True), [e.node.inst.ins[0], val, *e.node.inst.ins[2:]])
    rows = folded(val, [(0, 1), (1, val.ndim)])
    return None if rows is None or seq.ndim != 2 else Call((right, False), [seq, rows, *e.ins[2:]])


_SEARCH = Custom("searchsorted", _search, batched=_search_examples)
_BAD_SORTER = Complaint(RuntimeError, "torch.searchsorted(): sorter index out of range")


@remembered
def _search_inst(metas: tuple[Meta, ...], right: bool, dtype: Any) -> Inst:
    seq, val = metas[0], metas[1]
    kind = dtypes.promote_types(seq.dtype, val.dtype)
    if val.numel:
        check_kernel("searchsorted_out_cpu", kind, REAL_NUMBERS)
    out = contiguous_meta(val.shape, dtype, val.device)
    return inst(_SEARCH, metas, out, static=(right, seq.ndim == 1), compute=kind.compute)


_SEARCH_OUT = [
    same(
        "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or Long(int64) depending on whether "
        "out_int32 flag is True, but we got output tensor's dtype {Have} and out_int32 flag is " + flag
    )
    for flag in ("False", "True")
]


@operation("searchsorted", method=False)
def searchsorted(
    sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: Any = None, sorter: Any = None,
    out: Any = None,
) -> Tensor:  # fmt: skip
    """Where each value would have to go into the sorted last dimension of `sorted_sequence`, before (or after) equal ones."""
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    seq = sorted_sequence
    if not isinstance(input, Tensor):
        if seq.ndim != 1:
            raise RuntimeError(
                "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1"
            )
        input = _call("tensor", input, device=seq.device)
    if any(t is not None and t._tab_meta.device.implicit for t in (seq, input, sorter)):
        seq, input, sorter = together((seq, input, sorter))
    if seq.device.number != input.device.number:
        raise RuntimeError(
            "torch.searchsorted(): boundaries and input value tensors should have same device type, but got boundaries tensor "
            f"device type {seq.device.type} and input value tensor device type {input.device.type}"
        )
    if seq.ndim == 0:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension"
        )
    if seq.ndim > 1 and (seq.ndim != input.ndim or seq.shape[:-1] != input.shape[:-1]):
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor "
            f"and input value tensor must match, but we got boundaries tensor {list(seq.shape)} and input value tensor "
            f"{list(input.shape)}"
        )
    if sorter is not None:
        if sorter.shape != seq.shape:
            raise RuntimeError(
                "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor "
                f"{list(seq.shape)} and got sorter tensor {list(sorter.shape)}"
            )
        if sorter.dtype is not dtypes.int64:
            raise RuntimeError(
                f"torch.searchsorted(): sorter must be a tensor of long dtype but got dtype {type_name(sorter.dtype)}"
            )
        check_range(sorter, seq.shape[-1], 0, _BAD_SORTER, "searchsorted")
    tensors = (seq, input) if sorter is None else (seq, input, sorter)
    i = _search_inst(
        tuple(t._tab_meta for t in tensors), right or side == "right", dtypes.int32 if out_int32 else dtypes.int64
    )
    return into(out, run(i, i.out, *tensors), rule=_SEARCH_OUT[bool(out_int32)])


@operation("bucketize", method=False)
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Any = None
) -> Tensor:
    """The number of the bucket, between sorted boundaries, that each value falls in."""
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right, out=out)


# ---- counts


def _range(x: Tensor) -> Any:
    """The smallest and the largest element; one read."""
    low_high: Any = function("stack")(list(x.aminmax()))  # type: ignore[misc]
    return low_high.tolist()


@operation("bincount")
def bincount(input: Tensor, weights: Any = None, minlength: int = 0) -> Tensor:
    """How often each value of a vector of small integers occurs, or the sum of their weights. Reads the largest."""
    if input.ndim != 1:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    check_kernel("bincount_cpu", input.dtype, INTEGERS)
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    dtype = dtypes.int64
    if weights is not None:
        if weights.shape != input.shape:
            raise RuntimeError("weights should be 1-d and have the same length as input")
        dtype = dtypes.float32 if weights.dtype is dtypes.float32 else dtypes.float64
        if input._tab_meta.device.lacks(dtype) and not input._tab_meta.device.implicit:
            dtype = dtypes.float32
    with quiet():
        if input.numel() == 0:
            return input.new_zeros((minlength,), dtype=dtype if weights is not None else dtypes.int64)
        low, high = _range(input)
        if low < 0:
            raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
        size = max(high + 1, minlength)
        src = input.new_ones(input.shape, dtype=dtype) if weights is None else weights.detach().to(dtype)
        return input.new_zeros((size,), dtype=dtype).scatter_add(0, input.to(dtypes.int64), src)


_NOT_FINITE = Complaint(RuntimeError, "torch.histc: range of the input is not finite")


HIST_OUT = same(
    "torch.histogram: input tensor and hist tensor should have the same dtype, but got input {want} and hist {have}"
)


@operation("histc")
def histc(input: Tensor, bins: int = 100, min: Any = 0, max: Any = 0, *, out: Any = None) -> Tensor:
    """How many elements fall into each of `bins` equal parts of [min, max] (both 0: of the range of the data)."""
    check_kernel("histogram_cpu", input.dtype, FLOATING)
    if bins <= 0:
        raise RuntimeError(f"bins must be > 0, but got {bins} for dimension 0")
    x = input.detach().reshape(-1)
    with quiet():
        low, high = float(min), float(max)
        hidden = x.device.type != "cpu" or every_example(x) is not x
        if low == high and x.numel() and hidden:  # the ends are not read: that would wait for the GPU
            least, most = x.aminmax()
            assert_range(every_example((most - least).isfinite()), Range(1, 1), _NOT_FINITE, "histc")
            one = (least == most).to(x.dtype)
            low, high = least - one, most + one
        else:
            if low == high and x.numel():
                low, high = _range(x)
            if low == high:
                low, high = low - 1, high + 1
            if not (low > float("-inf") and high < float("inf")):
                raise RuntimeError(f"torch.histc: range of [{low:g}, {high:g}] is not finite")
            if low > high:
                raise RuntimeError("torch.histc: max must be larger than min")
        inside = (x >= low) & (x <= high)
        at = ((x - low) * (bins / (high - low))).floor()
        at = _call("where", inside, at, x.new_zeros(())).to(dtypes.int64).clamp(0, bins - 1)
        return into(out, x.new_zeros((bins,)).scatter_add(0, at, inside.to(x.dtype)), rule=HIST_OUT)
