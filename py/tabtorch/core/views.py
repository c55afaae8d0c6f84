"""View operations: another `Meta` over the same storage. Nothing is computed and nothing is copied. Those that give several views
are in sections.py.

Names, arguments and errors are PyTorch's (https://docs.pytorch.org/docs/stable/tensor_view.html). Each records its
gradient, which is a formula over tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.views import as_strided_backward, refresh
from tabtorch.autograd.views import view as track
from tabtorch.base.dtypes import dtype as Dtype
from tabtorch.core import shapes
from tabtorch.core.layout import contiguous_format
from tabtorch.core.shapes import as_int, ints, wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.engine.view import CONJ, NEG, Meta, broadcast_shapes
from tabtorch.ops.machinery.registry import register


def _view(x: Tensor, m: Meta, name: str, backward: Callable[..., Any], *args: Any) -> Tensor:
    """The view `m` of `x`; its gradient is `backward(g, *args)`."""
    if args and x._tab_requires_grad:
        return track(x, m, name, lambda g: backward(g, *args))
    return track(x, m, name, backward)


def refreshed(x: Tensor) -> Meta:
    """The Meta of what a view is to be taken of. Its history is looked for first, as in PyTorch: that may be refused.

    Asked for where a tensor is stale only: a call more is a tenth of what a view costs."""
    if STATE.grad:
        refresh(x)
    return x._tab_meta


def _reshape_back(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    return reshape(g, shape)


# ---- shape


def view(self: Tensor, *shape: Any, **kw: Any) -> Tensor:
    """The same elements in another shape (one size may be -1), or the same bytes as another dtype.

    Raises RuntimeError where strides do not allow it: `reshape` copies there.
    """
    if kw:
        shape = (kw.pop("size", kw.pop("dtype", ())),)
    if len(shape) == 1 and isinstance(shape[0], Dtype):
        return _view_dtype(self, shape[0])
    if not shape:
        raise TypeError(
            "view() received an invalid combination of arguments - got (), but expected one of:\n * (torch.dtype dtype)\n * "
            "(tuple of ints size)"
        )
    m = refreshed(self) if self._tab_stale else self._tab_meta
    return _view(self, shapes.viewed(m, ints(shape, "view")), "ViewBackward0", _reshape_back, m.shape)


def _view_dtype(x: Tensor, dtype: Dtype) -> Tensor:
    """The same bytes as another type: autograd knows nothing of it, as in PyTorch."""
    t = Tensor._view_of(x, _lazy.reinterpreted.retyped(x._tab_meta, dtype))
    if t._tab_inference != STATE.inference:
        t._tab_inference = STATE.inference
        t._tab_storage = x._tab_storage.untracked()
    return t


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """`view(other.shape)`."""
    return view(self, other._tab_meta.shape)


def reshape(input: Tensor, *shape: Any, **kw: Any) -> Tensor:
    """The elements in another shape: a view where strides allow, else a copy."""
    if kw:
        shape = (kw.pop("shape"),)
    elif not shape:
        raise TypeError('reshape() missing 1 required positional arguments: "shape"')
    return _reshape(input, ints(shape, "reshape", "shape"))


def _reshape(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    m = t._tab_meta
    r = shapes.reshaped(m, shape)
    if r is False:
        full = shapes.infer_size(shape, m.numel)
        out = t.clone(memory_format=contiguous_format)
        r = _view(out, shapes.viewed(out._tab_meta, full), "UnsafeViewBackward0", _reshape_back, m.shape)
        r._base = None  # nobody sees what it is a view of
        out._tab_storage.views = None
        return r
    return _view(t, r, "ViewBackward0" if m.contiguous else "ReshapeAliasBackward0", _reshape_back, m.shape)


def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """`reshape(other.shape)`."""
    return _reshape(self, other._tab_meta.shape)


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions `start_dim` to `end_dim` as one. A 0-d tensor becomes 1-d."""
    m = input._tab_meta
    shape = shapes.flat_shape(m, start_dim, end_dim)
    return input if shape == m.shape else _reshape(input, shape)


def ravel(input: Tensor) -> Tensor:
    """The elements as one dimension."""
    return view(input.contiguous(), (input._tab_meta.numel,))


def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """Dimension `dim` as several, of these sizes (one may be -1)."""
    return view(input, shapes.unflat_shape(input._tab_meta, dim, ints((sizes,), "unflatten")))


def squeeze(input: Tensor, dim: Any = None, *more: int) -> Tensor:
    """Without dimensions of size 1: all, or only `dim` (an int, several, or a tuple) where it is one."""
    m = refreshed(input) if input._tab_stale else input._tab_meta
    if more:
        dim = (dim, *more)
    elif dim is not None and type(dim) is not int:
        _lazy.signatures.complain("squeeze", (dim,), {}, True)
    if dim is None:
        return _view(input, shapes.squeezed(m, None), "SqueezeBackward0", _reshape_back, m.shape)
    if isinstance(dim, (tuple, list)):
        return _view(input, shapes.squeezed(m, tuple(dim)), "SqueezeBackward2", _reshape_back, m.shape)
    return _view(input, shapes.squeezed(m, (dim,)), "SqueezeBackward1", _reshape_back, m.shape)


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a dimension of size 1 put in at `dim`."""
    m = refreshed(input) if input._tab_stale else input._tab_meta
    return _view(input, shapes.unsqueezed(m, dim), "UnsqueezeBackward0", squeeze, dim)


def expand(self: Tensor, *size: Any, implicit: bool = False, **kw: Any) -> Tensor:
    """Dimensions of size 1 seen as larger (stride 0); -1 keeps a size."""
    m = refreshed(self) if self._tab_stale else self._tab_meta
    return _view(self, shapes.expanded(m, _sizes("expand", size, kw)), "ExpandBackward0", _same)


def _sizes(name: str, size: tuple[Any, ...], kw: dict[str, Any]) -> tuple[int, ...]:
    """`name(*size)`, `name(size)` or `name(size=size)`."""
    if not size and "size" in kw:
        size = (kw.pop("size"),)
    if not size:
        raise TypeError(f'{name}() missing 1 required positional arguments: "size"')
    if kw:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kw))}'")
    return ints(size, name)


def _same(g: Tensor) -> Tensor:
    """The tape sums a gradient over the dimensions that were broadcast."""
    return g


def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """`expand(other.shape)`."""
    return expand(self, other._tab_meta.shape)


def broadcast_to(input: Tensor, *size: Any, **kw: Any) -> Tensor:
    """`expand(size)`."""
    return expand(input, _sizes("broadcast_to", size, kw))


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """The tensors expanded to their common shape."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    shape = broadcast_shapes(*(t._tab_meta.shape for t in tensors))
    return tuple(t if t._tab_meta.shape == shape else expand(t, shape) for t in tensors)


def atleast_1d(*tensors: Any) -> Any:
    """0-d tensors as 1-d."""
    return _each(tensors, lambda t: t if t.ndim >= 1 else reshape(t, (1,)))


def atleast_2d(*tensors: Any) -> Any:
    """With at least two dimensions; new ones come first."""
    return _each(tensors, lambda t: t if t.ndim >= 2 else reshape(t, (1, 1)) if t.ndim == 0 else unsqueeze(t, 0))


def atleast_3d(*tensors: Any) -> Any:
    """With at least three dimensions; a vector becomes (1, n, 1), a matrix (m, n, 1)."""

    def one(t: Tensor) -> Tensor:
        if t.ndim == 0:
            return reshape(t, (1, 1, 1))
        if t.ndim == 1:
            return unsqueeze(unsqueeze(t, 0), -1)
        return unsqueeze(t, -1) if t.ndim == 2 else t

    return _each(tensors, one)


def _each(tensors: tuple[Any, ...], f: Callable[[Tensor], Tensor]) -> Any:
    if len(tensors) == 1:
        if isinstance(tensors[0], (tuple, list)):
            return tuple(f(t) for t in tensors[0])
        return f(tensors[0])
    return tuple(f(t) for t in tensors)


# ---- order of dimensions


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    if type(dim0) is not int or type(dim1) is not int:
        dim0, dim1 = ints((dim0, dim1), "transpose", "dim")
    m = refreshed(input) if input._tab_stale else input._tab_meta
    return _view(input, shapes.transposed(m, dim0, dim1), "TransposeBackward0", transpose, dim0, dim1)


def permute(input: Tensor, *dims: Any, **kw: Any) -> Tensor:
    """The dimensions in another order."""
    if kw:
        dims = (kw.pop("dims"),)
    elif not dims:
        raise TypeError('permute() missing 1 required positional arguments: "dims"')
    order = ints(dims, "permute", "dims")
    m = shapes.permuted(refreshed(input) if input._tab_stale else input._tab_meta, order)
    inverse = [0] * len(order)
    for k, d in enumerate(order):
        inverse[d] = k
    return _view(input, m, "PermuteBackward0", permute, tuple(inverse))


def t(input: Tensor) -> Tensor:
    """A matrix transposed; a vector or 0-d tensor as it is. Raises RuntimeError for more than 2 dimensions."""
    n = (refreshed(input) if input._tab_stale else input._tab_meta).ndim
    if n > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {n}D")
    return _view(input, shapes.transposed(input._tab_meta, 0, -1) if n == 2 else input._tab_meta, "TBackward0", t)


def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged, and conjugated."""
    n = input._tab_meta.ndim
    if n == 1:
        raise RuntimeError("tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor.")
    if not n:
        return input.conj() if input._tab_meta.dtype.is_complex else input
    r = transpose(input, -2, -1)
    return r.conj() if r._tab_meta.dtype.is_complex else r


def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions `source` moved to the places `destination`; the others keep their order."""
    src, dst = (shapes.one_or_more(d, "movedim") for d in (source, destination))
    order = shapes.moved(input._tab_meta.ndim, src, dst)
    return permute(input, order) if order else _view(input, input._tab_meta, "AliasBackward0", _same)


# ---- parts


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Slice number `index` along `dim`, without that dimension."""
    i = index if type(index) is int else as_int(index)
    m = refreshed(input) if input._tab_stale else input._tab_meta
    return track(input, shapes.selected(m, dim, i), "SelectBackward0", _embedding(m, dim, i, None, 1))


def _embedding(m: Meta, dim: int, start: int, length: int | None, step: int) -> Callable[[Tensor], Tensor]:
    """The gradient of a part along one dimension: zeros with the part put in."""

    if type(dim) is not int:
        dim = dim.__index__()

    def backward(g: Tensor) -> Tensor:
        d = wrap_dim(dim, m.ndim)
        n = m.shape[d]
        part = (start + n if start < 0 else start, length, step)
        return _lazy.slices.embed(g, m.shape, tuple(part if k == d else (0, s, 1) for k, s in enumerate(m.shape)))

    return backward


def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """`length` elements from `start` along `dim`."""
    if isinstance(start, Tensor) and (start._tab_meta.ndim or start._tab_meta.dtype.category != 1):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    at = start if type(start) is int else as_int(start)
    if type(length) is not int:
        length = as_int(length)
    m = input._tab_meta
    return track(input, shapes.narrowed(m, dim, at, length), "SliceBackward0", _embedding(m, dim, at, length, 1))


def slice_along(input: Tensor, dim: int, start: int | None = None, stop: int | None = None, step: int = 1) -> Tensor:
    """`input[..., start:stop:step, ...]` along one dimension."""
    m = refreshed(input) if input._tab_stale else input._tab_meta
    out = shapes.sliced(m, dim, start, stop, step)
    d = wrap_dim(dim, m.ndim)
    a, n = shapes.slice_bounds(m.shape[d], start, stop, step)
    return track(input, out, "SliceBackward0", _embedding(m, d, a, n, step))


def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of `size` along `dimension`, `step` apart, as a new last dimension."""
    m = refreshed(self) if self._tab_stale else self._tab_meta
    dimension, size, step = ints((dimension, size, step), "unfold", "dimension")
    out = shapes.unfolded(m, dimension, size, step)

    def backward(g: Any) -> Tensor:
        if not m.ndim:
            return g.sum()
        d = wrap_dim(dimension, m.ndim)
        r: Tensor = _lazy.stft.overlap_add(g.movedim(d, -2), step, m.shape[d]).movedim(-1, d)
        return r

    return track(self, out, "UnfoldBackward0", backward)


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of dimensions `dim1` and `dim2`, as the last dimension."""
    m = refreshed(input) if input._tab_stale else input._tab_meta
    offset, dim1, dim2 = ints((offset, dim1, dim2), "diagonal", "offset")
    out = shapes.diagonal_of(m, offset, dim1, dim2)
    return _view(input, out, "DiagonalBackward0", _put_diagonal, m.shape, offset, dim1, dim2)


def _put_diagonal(g: Tensor, shape: tuple[int, ...], offset: int, dim1: int, dim2: int) -> Tensor:
    return _lazy.slices.diagonal_embed(g, shape, offset, dim1, dim2)


def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """Any view of the storage. Raises RuntimeError where it would reach past the storage's end."""
    m = refreshed(input) if input._tab_stale else input._tab_meta
    node = input._tab_storage.node.inst.out
    nbytes = node.numel * node.dtype.itemsize
    size, stride = ints((size,), "as_strided"), ints((stride,), "as_strided", "stride")
    out = shapes.restrided(m, nbytes, size, stride, storage_offset)
    return _view(input, out, "AsStridedBackward0", unstride, m, out)


def unstride(g: Any, m: Meta, out: Meta) -> Tensor:
    """The gradient of a tensor `m`, of that of a view `out` of its storage."""
    r: Any = as_strided_backward(g, m, out)
    if overlaps(m):  # every place that shows an element gets its share, as in PyTorch
        r = r / as_strided_backward(r.new_ones(m.shape), m, m)
    return r


def overlaps(m: Meta) -> bool:
    """Whether two indices may show one element."""
    reach = 0
    for s, n in sorted((s, n) for n, s in zip(m.shape, m.strides) if n > 1):
        if s <= reach:
            return True
        reach += s * (n - 1)
    return False


# ---- complex


def conj(input: Tensor) -> Tensor:
    """The complex conjugate, as a view; a real tensor is given back as it is."""
    if not input._tab_meta.dtype.is_complex:
        return input
    m = refreshed(input) if input._tab_stale else input._tab_meta
    return _view(input, m.marked(m.mark ^ CONJ), "ConjBackward0", conj)


def neg_view(input: Tensor) -> Tensor:
    """The negative, as a view."""
    m = refreshed(input) if input._tab_stale else input._tab_meta
    return _view(input, m.marked(m.mark ^ NEG), "NegViewBackward0", lambda g: -g)


def resolve_conj(input: Tensor) -> Tensor:
    """A copy of a view that shows conjugates; other tensors are given back as they are."""
    return input.clone() if input._tab_meta.mark & CONJ else input


def resolve_neg(input: Tensor) -> Tensor:
    """A copy of a view that shows negatives; other tensors are given back as they are."""
    return input.clone() if input._tab_meta.mark & NEG else input


def view_as_real(input: Tensor) -> Tensor:
    """A complex tensor as pairs of real numbers: a new last dimension of size 2."""
    return _view(
        input,
        _lazy.reinterpreted.complex_as_real(refreshed(input) if input._tab_stale else input._tab_meta),
        "ViewAsRealBackward0",
        lambda g: view_as_complex(g.contiguous()),
    )


def view_as_complex(input: Tensor) -> Tensor:
    """Pairs of real numbers (last dimension of size 2) as complex ones."""
    m = refreshed(input) if input._tab_stale else input._tab_meta
    return _view(
        input, _lazy.reinterpreted.real_as_complex(m), "ViewAsComplexBackward0", lambda g: view_as_real(resolve_conj(g))
    )


def pairs(z: Tensor, part: int) -> Tensor:
    """A view of a complex tensor as pairs of real numbers, for one part of them; a conjugate has the parts of what it is of."""
    if not z._tab_meta.mark & CONJ:
        return view_as_real(z)
    return neg_view(view_as_real(conj(z))) if part else view_as_real(conj(z))


def real(input: Tensor) -> Tensor:
    """The real part, a view; a real tensor is its own."""
    return _part(input, 0) if input._tab_meta.dtype.is_complex else input


def imag(input: Tensor) -> Tensor:
    """The imaginary part, a view. Raises RuntimeError for a real tensor."""
    if not input._tab_meta.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return _part(input, 1)


def _part(z: Tensor, part: int) -> Tensor:
    if z._tab_meta.mark & CONJ:
        return select(pairs(z, part), -1, part)

    def backward(g: Tensor) -> Tensor:
        zero = g.new_zeros(()).expand(g.shape)
        return view_as_complex(_lazy.joining.stack([zero, g] if part else [g, zero], -1))

    return _view(z, _lazy.reinterpreted.part_of_complex(z._tab_meta, part), "SelectBackward0", backward)


register("view", view, method=True, torch=False)
_f: Any
for _f in (
    view_as, reshape_as, expand, expand_as, unfold,
):  # fmt: skip
    register(_f.__name__, _f, method=True, torch=False)
for _f in (
    reshape, flatten, ravel, unflatten, squeeze, unsqueeze, broadcast_to, transpose, permute, t, adjoint, movedim, select,
    narrow, diagonal, as_strided,
):  # fmt: skip
    register(_f.__name__, _f, method=True)
for _f in (broadcast_tensors, atleast_1d, atleast_2d, atleast_3d, view_as_complex, real, imag):
    register(_f.__name__, _f)
for _f in (conj, resolve_conj, resolve_neg):
    register(_f.__name__, _f, method=True)
register("_neg_view", neg_view, method=True)
register("view_as_real", view_as_real, method=True)
for _name in ("moveaxis",):
    register(_name, movedim, method=True)
register("swapdims", transpose, method=True)


@register("swapaxes", method=True)
def _swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """`transpose`, with NumPy's names."""
    return transpose(input, axis0, axis1)


@register("broadcast_shapes")
def _broadcast_shapes(*sizes: Any) -> Any:
    """The common shape of several, as `torch.Size`."""
    shapes = [(s,) if isinstance(s, int) else s for s in sizes]
    common = [1] * max(map(len, shapes), default=0)
    for at, shape in enumerate(shapes):
        for k in range(-1, -1 - len(shape), -1):
            if shape[k] < 0:
                raise ValueError("Attempting to broadcast a dimension with negative length!")
            if shape[k] not in (1, common[k]) and common[k] != 1:
                raise RuntimeError(
                    f"Attempting to broadcast a dimension of length {shape[k]} at {k}! Mismatching argument at index {at} "
                    f"had {shape}; but expected shape should be broadcastable to {common}"
                )
            if common[k] == 1:
                common[k] = shape[k]
    return _lazy.view.Size(common)
