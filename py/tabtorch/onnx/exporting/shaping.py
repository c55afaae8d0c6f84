"""ATen's operators of shapes, indices and constants as ONNX's."""

from __future__ import annotations

from typing import Any

from tabtorch.base import dtypes
from tabtorch.onnx.exporting.builder import Builder, Size, Value
from tabtorch.onnx.exporting.table import Out, aten

#: where a slice without an end ends
_END = 2**63 - 1


@aten("view", "reshape", "_unsafe_view", "_reshape_alias")
def reshape(b: Builder, out: Out, x: Value, size: Any, stride: Any = None) -> Value:
    # where -1 stands no size may be nought as a number: allowzero and -1 exclude each other
    if any(isinstance(n, int) and n == -1 for n in size):
        return b.op("Reshape", x, b.sizes(size), sizes=out.sizes)
    return b.reshape(x, size, out.sizes)


@aten("view_as", "reshape_as")
def view_as(b: Builder, out: Out, x: Value, other: Value) -> Value:
    return b.op("Reshape", x, b.shape(other), sizes=out.sizes, allowzero=1)


@aten("flatten")
def flatten(b: Builder, out: Out, x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    if not x.rank:
        return b.reshape(x, [1])
    first, last = start_dim % x.rank, end_dim % x.rank
    before, after = [b.size(x, d) for d in range(first)], [b.size(x, d) for d in range(last + 1, x.rank)]
    return b.op("Reshape", x, b.sizes([*before, -1, *after]), sizes=out.sizes)


@aten("unflatten")
def unflatten(b: Builder, out: Out, x: Value, dim: int, sizes: Any) -> Value:
    dim %= x.rank
    dims = [*[b.size(x, d) for d in range(dim)], *sizes, *[b.size(x, d) for d in range(dim + 1, x.rank)]]
    return reshape(b, out, x, dims)


@aten("transpose", "swapaxes", "swapdims")
def transpose(b: Builder, out: Out, x: Value, dim0: int, dim1: int) -> Value:
    perm = list(range(x.rank))
    if perm:
        perm[dim0], perm[dim1] = perm[dim1], perm[dim0]
    return b.transpose(x, perm)


@aten("t", "numpy_T", "mT")
def t(b: Builder, out: Out, x: Value) -> Value:
    return transpose(b, out, x, -1, -2) if x.rank > 1 else x


@aten("permute")
def permute(b: Builder, out: Out, x: Value, dims: Any) -> Value:
    return b.transpose(x, [d % x.rank for d in dims])


@aten("movedim", "moveaxis")
def movedim(b: Builder, out: Out, x: Value, source: Any, destination: Any) -> Value:
    source = [source] if isinstance(source, int) else source
    destination = [destination] if isinstance(destination, int) else destination
    places = {d % x.rank: s % x.rank for s, d in zip(source, destination, strict=True)}
    rest = iter([d for d in range(x.rank) if d not in places.values()])
    return b.transpose(x, [places[d] if d in places else next(rest) for d in range(x.rank)])


@aten("unsqueeze")
def unsqueeze(b: Builder, out: Out, x: Value, dim: int) -> Value:
    return b.op("Unsqueeze", x, b.constant([dim % (x.rank + 1)]), sizes=out.sizes)


@aten("squeeze")
def squeeze(b: Builder, out: Out, x: Value, dim: Any = None) -> Value:
    dims = (
        list(range(x.rank)) if dim is None else [d % max(x.rank, 1) for d in ([dim] if isinstance(dim, int) else dim)]
    )
    ones = [d for d in dims if x.rank and x.sizes[d] == 1]
    return b.op("Squeeze", x, b.constant(ones), sizes=out.sizes) if ones else x


@aten("expand", "broadcast_to")
def expand(b: Builder, out: Out, x: Value, size: Any, implicit: bool = False) -> Value:
    return b.op("Expand", x, b.sizes([1 if isinstance(n, int) and n == -1 else n for n in size]), sizes=out.sizes)


@aten("expand_as")
def expand_as(b: Builder, out: Out, x: Value, other: Value) -> Value:
    return b.op("Expand", x, b.shape(other), sizes=out.sizes)


@aten("repeat", "tile")
def repeat(b: Builder, out: Out, x: Value, repeats: Any) -> Value:
    more = len(repeats) - x.rank
    if more > 0:
        x = b.reshape(x, [*[1] * more, *[b.size(x, d) for d in range(x.rank)]])
    return b.op("Tile", x, b.sizes([*[1] * -more, *repeats]), sizes=out.sizes)


@aten("repeat_interleave")
def repeat_interleave(
    b: Builder, out: Out, x: Value, repeats: Any, dim: int | None = None, output_size: Any = None
) -> Value:
    if isinstance(repeats, Value) and not isinstance(repeats, Size):
        raise NotImplementedError("repeat_interleave by a tensor of repeats")
    if dim is None:
        x, dim = b.reshape(x, [-1]) if x.rank != 1 else x, 0
    dim %= x.rank
    wide = b.op("Unsqueeze", x, b.constant([dim + 1]), sizes=[*x.sizes[: dim + 1], 1, *x.sizes[dim + 1 :]])
    tiled = b.op(
        "Tile", wide, b.sizes([*[1] * (dim + 1), repeats, *[1] * (x.rank - dim - 1)]), sizes=[None] * (x.rank + 1)
    )
    dims = [b.size(x, d) for d in range(x.rank)]
    return b.op("Reshape", tiled, b.sizes([*dims[:dim], -1, *dims[dim + 1 :]]), sizes=out.sizes)


@aten("cat", "concat", "concatenate")
def cat(b: Builder, out: Out, tensors: Any, dim: int = 0) -> Value:
    given = [b.cast(x, out.dtype) for x in tensors if x.sizes != (0,)] or tensors[:1]
    return given[0] if len(given) == 1 else b.op("Concat", *given, sizes=out.sizes, axis=dim % max(out.rank, 1))


@aten("stack")
def stack(b: Builder, out: Out, tensors: Any, dim: int = 0) -> Value:
    dim %= out.rank
    wide = [
        b.op("Unsqueeze", b.cast(x, out.dtype), b.constant([dim]), sizes=[*x.sizes[:dim], 1, *x.sizes[dim:]])
        for x in tensors
    ]
    return b.op("Concat", *wide, sizes=out.sizes, axis=dim)


def _cut(b: Builder, x: Value, dim: int, start: Any, end: Any, step: Any = 1) -> Value:
    sizes = [None if d == dim % x.rank else n for d, n in enumerate(x.sizes)]
    bounds = [b.sizes([v]) for v in (start, end)]
    return b.op("Slice", x, *bounds, b.constant([dim % x.rank]), b.sizes([step]), sizes=sizes)


@aten("slice")
def cut(b: Builder, out: Out, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Value:
    if start in (None, 0) and (end is None or (isinstance(end, int) and end >= _END)) and step == 1:
        return x
    return _cut(b, x, dim, 0 if start is None else start, _END if end is None else end, step)


@aten("narrow")
def narrow(b: Builder, out: Out, x: Value, dim: int, start: Any, length: Any) -> Value:
    if isinstance(start, int) and isinstance(length, int):
        return _cut(b, x, dim, start, start + length)
    return _cut(b, x, dim, start, b.op("Add", b.sizes([start]), b.sizes([length])))


@aten("select")
def select(b: Builder, out: Out, x: Value, dim: int, index: Any) -> Value:
    return b.op(
        "Gather",
        x,
        b.scalar(index) if isinstance(index, Size) else b.constant(index),
        sizes=out.sizes,
        axis=dim % x.rank,
    )


@aten("slice_scatter")
def slice_scatter(
    b: Builder, out: Out, x: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Value:
    dim %= x.rank
    n = b.size(x, dim)
    nought, one = b.constant(0), b.constant(1)
    every = b.constant(list(range(n))) if isinstance(n, int) else b.op("Range", nought, b.scalar(n), one, sizes=(None,))
    at = _cut(b, every, 0, 0 if start is None else start, _END if end is None else end, step)
    order = [dim, *[d for d in range(x.rank) if d != dim]]
    at = b.op("Unsqueeze", at, b.constant([1]), sizes=(None, 1))
    made = b.op("ScatterND", b.transpose(x, order), at, b.transpose(b.cast(src, x.dtype), order))
    return b.transpose(made, [order.index(d) for d in range(x.rank)])


@aten("select_scatter")
def select_scatter(b: Builder, out: Out, x: Value, src: Value, dim: int, index: Any) -> Value:
    dim %= x.rank
    if not isinstance(index, int):
        raise NotImplementedError("select_scatter at an index that varies")
    wide = b.op("Unsqueeze", src, b.constant([dim]), sizes=[*src.sizes[:dim], 1, *src.sizes[dim:]])
    return slice_scatter(b, out, x, wide, dim, index, _END if index == -1 else index + 1)


@aten("copy")
def copy(b: Builder, out: Out, x: Value, src: Value, non_blocking: bool = False) -> Value:
    return b.op("Expand", b.cast(src, x.dtype), b.shape(x), sizes=x.sizes)


def _parts(b: Builder, x: Value, dim: int, lengths: list[int]) -> list[Value]:
    dim %= x.rank
    if len(lengths) == 1:
        return [x]
    names = b.node("Split", [x, b.constant(lengths)], len(lengths), axis=dim)
    return [
        Value(n, x.dtype, [k if d == dim else s for d, s in enumerate(x.sizes)])
        for n, k in zip(names, lengths, strict=True)
    ]


def _length(x: Value, dim: int) -> int:
    n = x.sizes[dim]
    if n is None:
        raise NotImplementedError("to split a dimension whose size varies into parts")
    return n


@aten("split", "split_with_sizes", "unsafe_split")
def split(b: Builder, out: Out, x: Value, split_size: Any, dim: int = 0) -> list[Value]:
    if isinstance(split_size, int):
        n = _length(x, dim)
        split_size = [min(split_size, n - k) for k in range(0, n, split_size)] or [0]
    return _parts(b, x, dim, list(split_size))


@aten("chunk", "unsafe_chunk")
def chunk(b: Builder, out: Out, x: Value, chunks: int, dim: int = 0) -> list[Value]:
    n = _length(x, dim)
    return split(b, out, x, max(-(-n // chunks), 1), dim)


@aten("tensor_split")
def tensor_split(b: Builder, out: Out, x: Value, indices_or_sections: Any, dim: int = 0) -> list[Value]:
    n = _length(x, dim)
    if isinstance(indices_or_sections, int):
        each, more = divmod(n, indices_or_sections)
        return _parts(b, x, dim, [each + (k < more) for k in range(indices_or_sections)])
    ends = [0, *[min(k if k >= 0 else k + n, n) for k in indices_or_sections], n]
    return [_cut(b, x, dim, first, last) for first, last in zip(ends[:-1], ends[1:], strict=True)]


@aten("unbind")
def unbind(b: Builder, out: Out, x: Value, dim: int = 0) -> list[Value]:
    left = [n for d, n in enumerate(x.sizes) if d != dim % x.rank]
    return [b.op("Gather", x, b.constant(k), sizes=left, axis=dim % x.rank) for k in range(_length(x, dim))]


@aten("flip")
def flip(b: Builder, out: Out, x: Value, dims: Any) -> Value:
    axes = [d % x.rank for d in dims]
    n = len(axes)
    return b.op("Slice", x, b.constant([-1] * n), b.constant([-(2**63)] * n), b.constant(axes), b.constant([-1] * n))


@aten("roll")
def roll(b: Builder, out: Out, x: Value, shifts: Any, dims: Any = ()) -> Value:
    if not dims:
        flat = roll(b, out, b.reshape(x, [-1]) if x.rank != 1 else x, shifts, [0])
        return b.op("Reshape", flat, b.shape(x), sizes=x.sizes, allowzero=1)
    for by, dim in zip(shifts, dims, strict=True):
        n = _length(x, dim)
        k = -by % max(n, 1)
        if k:
            x = b.op("Concat", _cut(b, x, dim, k, _END), _cut(b, x, dim, 0, k), sizes=x.sizes, axis=dim % x.rank)
    return x


@aten("constant_pad_nd")
def constant_pad_nd(b: Builder, out: Out, x: Value, pad: Any, value: Any = 0) -> Value:
    return _padded(b, out, x, pad, "constant", value)


@aten("pad")
def pad(b: Builder, out: Out, x: Value, pad: Any, mode: str = "constant", value: Any = None) -> Value:
    return _padded(b, out, x, pad, {"replicate": "edge", "circular": "wrap"}.get(mode, mode), value or 0)


for _mode, _kind in {"reflection": "reflect", "replication": "edge"}.items():

    @aten(*[f"{_mode}_pad{k}d" for k in (1, 2, 3)])
    def _pad_by(b: Builder, out: Out, x: Value, padding: Any, kind: str = _kind) -> Value:
        return _padded(b, out, x, padding, kind, 0)


def _padded(b: Builder, out: Out, x: Value, pad: Any, mode: str, value: Any) -> Value:
    rank = x.rank
    before, after = [0] * rank, [0] * rank
    for k in range(len(pad) // 2):
        before[rank - 1 - k], after[rank - 1 - k] = pad[2 * k], pad[2 * k + 1]
    if mode == "wrap":
        if b.opset < 19:
            for d in range(rank):
                parts = (
                    [_cut(b, x, d, -before[d], _END)] * (before[d] > 0)
                    + [x]
                    + [_cut(b, x, d, 0, after[d])] * (after[d] > 0)
                )
                x = (
                    x
                    if len(parts) == 1
                    else b.op("Concat", *parts, sizes=[*x.sizes[:d], None, *x.sizes[d + 1 :]], axis=d)
                )
            return x
    fill = b.like(value, x.dtype) if mode == "constant" else None
    return b.op("Pad", x, b.sizes([*before, *after]), fill, sizes=out.sizes, mode=mode)


@aten("tril")
def tril(b: Builder, out: Out, x: Value, diagonal: int = 0) -> Value:
    return _triangle(b, x, diagonal, 0)


@aten("triu")
def triu(b: Builder, out: Out, x: Value, diagonal: int = 0) -> Value:
    return _triangle(b, x, diagonal, 1)


def _triangle(b: Builder, x: Value, diagonal: int, upper: int) -> Value:
    whole = b.cast(x, dtypes.int64) if x.dtype == dtypes.bool_ else x
    return b.cast(b.op("Trilu", whole, b.constant(diagonal), upper=upper), x.dtype)


@aten("diagonal")
def diagonal(b: Builder, out: Out, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    n, m = _length(x, dim1), _length(x, dim2)
    first, second = dim1 % x.rank, dim2 % x.rank
    rest = [d for d in range(x.rank) if d not in (first, second)]
    x = b.transpose(x, [first, second, *rest])
    count = max(0, min(n + min(offset, 0), m - max(offset, 0)))
    at = [[k - min(offset, 0), k + max(offset, 0)] for k in range(count)]
    picked = b.op("GatherND", x, b.constant(at), sizes=[count, *x.sizes[2:]])
    return b.transpose(picked, [*range(1, picked.rank), 0])


# ---- indices


@aten("index_select")
def index_select(b: Builder, out: Out, x: Value, dim: int, index: Value) -> Value:
    x = x if x.rank else b.reshape(x, [1])
    made = b.op(
        "Gather",
        x,
        index,
        sizes=[*x.sizes[: dim % x.rank], *index.sizes, *x.sizes[dim % x.rank + 1 :]],
        axis=dim % x.rank,
    )
    return made if made.rank == out.rank else b.op("Reshape", made, b.constant([]), sizes=())


@aten("gather")
def gather(b: Builder, out: Out, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    if not x.rank or not index.rank:
        raise NotImplementedError("gather of what has no dimensions")
    return b.op("GatherElements", x, index, sizes=index.sizes, axis=dim % x.rank)


@aten("take_along_dim")
def take_along_dim(b: Builder, out: Out, x: Value, indices: Value, dim: Any = None) -> Value:
    if dim is None or any(n is None for n in (*x.sizes, *indices.sizes)):
        raise NotImplementedError("take_along_dim of all, or of sizes that vary")
    axis = dim % x.rank
    wide = [n if d == axis else m for d, (n, m) in enumerate(zip(x.sizes, out.sizes, strict=True))]
    x, indices = (
        b.op("Expand", x, b.sizes(wide), sizes=wide),
        b.op("Expand", indices, b.sizes(out.sizes), sizes=out.sizes),
    )
    return gather(b, out, x, dim, indices)


@aten("embedding")
def embedding(
    b: Builder,
    out: Out,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    return b.op("Gather", weight, indices, sizes=[*indices.sizes, *weight.sizes[1:]], axis=0)


@aten("scatter")
def scatter(b: Builder, out: Out, x: Value, dim: int, index: Value, src: Any, reduce: str | None = None) -> Value:
    if not isinstance(src, Value):
        src = b.op("Expand", b.constant(src, x.dtype), b.shape(index), sizes=index.sizes)
    how = {"add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}.get(
        reduce or "", None
    )
    return b.op("ScatterElements", x, index, _shown(b, src, index), axis=dim % x.rank, reduction=how)


def _shown(b: Builder, src: Value, index: Value) -> Value:
    """The part of the source that the index covers."""
    for d in range(src.rank):
        if src.sizes[d] != index.sizes[d]:
            src = _cut(b, src, d, 0, b.size(index, d))
    return Value(src.name, src.dtype, index.sizes)


@aten("scatter_add")
def scatter_add(b: Builder, out: Out, x: Value, dim: int, index: Value, src: Value) -> Value:
    return scatter(b, out, x, dim, index, src, "add")


@aten("scatter_reduce")
def scatter_reduce(
    b: Builder, out: Out, x: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True
) -> Value:
    if not include_self or reduce == "mean":
        raise NotImplementedError("scatter_reduce with include_self=False, or of means")
    return scatter(b, out, x, dim, index, src, reduce)


@aten("index")
def index(b: Builder, out: Out, x: Value, indices: Any) -> Value:
    """Tensors at some dimensions: those that stand together come first, are gathered, and go back to their place."""
    at = [d for d, i in enumerate(indices) if i is not None]
    given = [indices[d] for d in at]
    if any(i.dtype in (dtypes.bool_, dtypes.uint8) for i in given):
        if len(given) > 1 or given[0].rank != x.rank:
            raise NotImplementedError("an index of several masks, or of a mask that is no tensor's whole")
        (mask,) = given
        flat, chosen = (
            b.op("Reshape", x, b.constant([-1]), sizes=[None]),
            b.op("Reshape", mask, b.constant([-1]), sizes=[None]),
        )
        return b.op("Compress", flat, b.cast(chosen, dtypes.bool_), sizes=[None], axis=0)
    if len(at) == 1:
        return b.op("Gather", x, given[0], sizes=out.sizes, axis=at[0])
    rest = [d for d in range(x.rank) if d not in at]
    moved = b.transpose(x, [*at, *rest])
    rank = max(i.rank for i in given)
    sizes: list[Any] = [None] * rank
    for i in given:
        for k, n in enumerate(i.sizes):
            place = rank - i.rank + k
            sizes[place] = n if sizes[place] in (None, 1) else sizes[place]
    wide = [b.cast(i, dtypes.int64) for i in given]
    total = wide[0]
    for i in wide[1:]:
        total = b.op("Add", b.op("Mul", total, b.constant(0)), i, sizes=sizes)
    shape = b.shape(Value(total.name, dtypes.int64, [None] * rank))
    each = [
        b.op("Unsqueeze", b.op("Expand", i, shape, sizes=sizes), b.constant([rank]), sizes=[*sizes, 1]) for i in wide
    ]
    places = b.op("Concat", *each, sizes=[*sizes, len(at)], axis=rank)
    picked = b.op(
        "GatherND", moved, _wrapped(b, places, [b.size(x, d) for d in at]), sizes=[*sizes, *moved.sizes[len(at) :]]
    )
    first = at[0] if at == list(range(at[0], at[0] + len(at))) else 0
    return b.transpose(picked, [*range(rank, rank + first), *range(rank), *range(rank + first, picked.rank)])


def _wrapped(b: Builder, places: Value, lengths: list[Any]) -> Value:
    """Indices below nought from the end: GatherND has them; onnxruntime as well."""
    return places


@aten("index_put")
def index_put(b: Builder, out: Out, x: Value, indices: Any, values: Value, accumulate: bool = False) -> Value:
    if any(i is None for i in indices):
        raise NotImplementedError("index_put with slices between its indices")
    if indices[0].dtype == dtypes.bool_:
        if len(indices) > 1 or values.rank or accumulate:
            raise NotImplementedError("index_put by a mask of other than one number")
        mask = indices[0]
        for _ in range(x.rank - mask.rank):
            mask = b.op("Unsqueeze", mask, b.constant([mask.rank]), sizes=[*mask.sizes, 1])
        return b.op("Where", mask, b.cast(values, x.dtype), x, type=x.dtype, sizes=x.sizes)
    rank = max(i.rank for i in indices)
    total = b.cast(indices[0], dtypes.int64)
    for i in indices[1:]:
        total = b.op("Add", b.op("Mul", total, b.constant(0)), b.cast(i, dtypes.int64), sizes=[None] * rank)
    shape = b.shape(Value(total.name, dtypes.int64, [None] * rank))
    unknown: list[Any] = [None] * rank
    each = [
        b.op(
            "Unsqueeze",
            b.op("Expand", b.cast(i, dtypes.int64), shape, sizes=unknown),
            b.constant([rank]),
            sizes=[*unknown, 1],
        )
        for i in indices
    ]
    places = each[0] if len(each) == 1 else b.op("Concat", *each, sizes=[*unknown, len(indices)], axis=rank)
    rest = [b.size(x, d) for d in range(len(indices), x.rank)]
    whole = b.op("Concat", shape, b.sizes(rest), sizes=(rank + len(rest),), axis=0) if rest else shape
    wide = b.op("Expand", b.cast(values, x.dtype), whole, sizes=[None] * (rank + len(rest)))
    return b.op("ScatterND", x, places, wide, reduction="add" if accumulate else None)


@aten("masked_select")
def masked_select(b: Builder, out: Out, x: Value, mask: Value) -> Value:
    return index(b, out, x, [mask])


@aten("nonzero")
def nonzero(b: Builder, out: Out, x: Value) -> Value:
    found = b.op("NonZero", x, type=dtypes.int64, sizes=[x.rank, None])
    return b.transpose(found, [1, 0])


# ---- constants


@aten("full")
def full(b: Builder, out: Out, size: Any, fill_value: Any, **kwargs: Any) -> Value:
    return b.op("Expand", b.like(fill_value, out.dtype), b.sizes(size), sizes=out.sizes)


@aten("zeros", "empty")
def zeros(b: Builder, out: Out, size: Any, **kwargs: Any) -> Value:
    return full(b, out, size, 0)


@aten("ones")
def ones(b: Builder, out: Out, size: Any, **kwargs: Any) -> Value:
    return full(b, out, size, 1)


@aten("full_like", "new_full")
def full_like(b: Builder, out: Out, x: Value, size: Any, fill_value: Any = None, **kwargs: Any) -> Value:
    if fill_value is None:
        return b.op("Expand", b.like(size, out.dtype), b.shape(x), sizes=x.sizes)
    return full(b, out, size, fill_value)


@aten("zeros_like", "empty_like", "zero")
def zeros_like(b: Builder, out: Out, x: Value, **kwargs: Any) -> Value:
    return full_like(b, out, x, 0)


@aten("ones_like")
def ones_like(b: Builder, out: Out, x: Value, **kwargs: Any) -> Value:
    return full_like(b, out, x, 1)


@aten("fill")
def fill(b: Builder, out: Out, x: Value, value: Any) -> Value:
    return full_like(b, out, x, value)


@aten("new_zeros", "new_empty")
def new_zeros(b: Builder, out: Out, x: Value, size: Any, **kwargs: Any) -> Value:
    return full(b, out, size, 0)


@aten("new_ones")
def new_ones(b: Builder, out: Out, x: Value, size: Any, **kwargs: Any) -> Value:
    return full(b, out, size, 1)


@aten("scalar_tensor")
def scalar_tensor(b: Builder, out: Out, s: Any, **kwargs: Any) -> Value:
    return b.like(s, out.dtype)


@aten("arange")
def arange(b: Builder, out: Out, *bounds: Any, **kwargs: Any) -> Value:
    start, end, step = {1: (0, *bounds, 1), 2: (*bounds, 1), 3: bounds}[len(bounds)]
    dtype = out.dtype if out.dtype in (dtypes.int64, dtypes.int32, dtypes.float32, dtypes.float64) else dtypes.int64
    made = b.op("Range", *[b.like(v, dtype) for v in (start, end, step)], sizes=[None])
    return b.cast(made, out.dtype)


@aten("eye")
def eye(b: Builder, out: Out, n: Any, m: Any = None, **kwargs: Any) -> Value:
    shaped = b.op("ConstantOfShape", b.sizes([n, n if m is None else m]), type=dtypes.float32, sizes=out.sizes)
    return b.cast(b.op("EyeLike", shaped), out.dtype)


@aten("one_hot")
def one_hot(b: Builder, out: Out, x: Value, num_classes: int = -1) -> Value:
    if num_classes < 0:
        raise NotImplementedError("one_hot without the number of classes")
    return b.op("OneHot", x, b.constant(num_classes), b.constant([0, 1]), type=dtypes.int64, sizes=out.sizes)


@aten("meshgrid")
def meshgrid(b: Builder, out: Out, tensors: Any, indexing: str = "ij") -> list[Value]:
    n = len(tensors)
    order = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else list(range(n))
    shape = b.sizes([b.size(tensors[k], 0) if tensors[k].rank else 1 for k in order])
    made = []
    for k, x in enumerate(tensors):
        shaped = b.reshape(x, [-1 if order[d] == k else 1 for d in range(n)]) if n > 1 or not x.rank else x
        made.append(b.op("Expand", shaped, shape, sizes=[None] * n))
    return made
