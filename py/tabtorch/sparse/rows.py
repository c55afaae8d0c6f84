"""Elementwise operations that leave zeros zero, sums, products and copies of sparse tensors."""

from __future__ import annotations

from math import prod
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import needs_record, record
from tabtorch.base import dtypes
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery import registry
from tabtorch.ops.machinery.registry import camel
from tabtorch.sparse.convert import added, coalesce, coo, from_keys, keys, loose, merged, parts, sparse_dims, to_coo, to_dense
from tabtorch.sparse.convert import compressed as to_compressed
from tabtorch.sparse.tensor import (
    BLOCKED,
    COO,
    OPS,
    WORDS,
    is_sparse,
    like,
    made,
    op,
    refused,
    renewed,
    values_of,
)

#: of any layout; a COO tensor is coalesced first, for f(a) + f(b) is not f(a + b)
_UNARY = (
    "abs asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac isinf isnan isneginf isposinf log1p rad2deg relu round "
    "sgn sign signbit sin sinh sqrt tan tanh trunc"
).split()
#: linear ones, for which that does not matter
_LINEAR = "neg conj_physical".split()


def _function(name: str) -> Any:
    return registry.function(name)


def _unary(name: str) -> None:
    linear = name in _LINEAR

    def f(x: Any, *args: Any, **kw: Any) -> Any:
        if x.layout is COO:
            if name == "angle":
                raise refused(name, x)
            if not linear:
                x = coalesce(x)
        elif name == "nan_to_num":
            raise RuntimeError(f"unsupported tensor layout: {WORDS[x.layout][0]}")
        return like(camel(name), x, _function(name)(values_of(x), *args, **kw))

    op(name)(f)

    def in_place(x: Any, *args: Any, **kw: Any) -> Any:
        if x.layout is COO and not linear and not x._tab_storage.coalesced:
            raise RuntimeError(f"{name}_ requires coalesced input")
        return renewed(x, f(x, *args, **kw))

    op(name + "_")(in_place)


for _name in (*_UNARY, *_LINEAR, "nan_to_num", "angle"):
    _unary(_name)
op("conj", "resolve_conj")(lambda x: OPS["conj_physical"](x) if x.dtype.is_complex else x)
op("positive", "resolve_neg", "pin_memory")(lambda x, *a: x)
op("_real")(lambda x: like("Real", x, values_of(x).real) if x.dtype.is_complex else x)
op("square")(lambda x: power(x, 2))


@op("_imag")
def imag(x: Any) -> Any:
    """The imaginary parts. RuntimeError for a tensor that is not complex."""
    if not x.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return like("Imag", x, values_of(x).imag)


@op("pow")
def power(x: Any, exponent: Any) -> Any:
    """Powers of the elements. RuntimeError for the zeroth, or a tensor as exponent."""
    if not is_sparse(x) or (isinstance(exponent, Tensor) and exponent.ndim):
        raise refused("pow", x if is_sparse(x) else exponent)
    if x.layout is not COO:
        raise RuntimeError(f"unsupported tensor layout: {WORDS[x.layout][0]}")
    if not isinstance(exponent, Tensor) and exponent == 0:
        raise RuntimeError("pow: cannot raise to zeroth power on sparse tensor; it would make the result tensor dense")
    return like("Pow", coalesce(x), values_of(coalesce(x)) ** exponent)


# ---- sums


def _sum(x: Any, y: Any, alpha: Any, name: str) -> Any:
    if is_sparse(x) and is_sparse(y):
        if (x.layout is COO) is not (y.layout is COO):
            raise RuntimeError(f"{name}: operands of layouts {x.layout!r} and {y.layout!r} are not supported")
        if x.shape != y.shape:
            raise RuntimeError(
                f"add: expected sizes of 'self' and 'other' to match, but {list(x.shape)} != {list(y.shape)}"
            )
        to = _lazy.torch.result_type(values_like(x), values_like(y))
        return _both(x, y, alpha, to, name)
    if is_sparse(x):
        if x.layout is COO or not isinstance(y, Tensor):
            if x.layout is not COO:
                raise RuntimeError(
                    f"add: expected 'self' and 'other' to have same size, but self has size [] while other has size "
                    f"{list(x.shape)} (FYI: op2-sparse addition does not currently support broadcasting)"
                )
            raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
        s, d, sign = x, y, 1
    else:
        s, d, sign = y, x, alpha
    if not isinstance(d, Tensor):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if s.shape != d.shape:
        kind = "dense" if s.layout is COO else "op2"
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same size, but self has size {list(x.shape)} while other has size "
            f"{list(y.shape)} (FYI: {kind}-sparse addition does not currently support broadcasting)"
        )
    to = _lazy.torch.result_type(values_like(s), d)
    one, other = s.detach(), d.detach()
    at, v = loose(one)
    v, other = _times(v.to(to), sign), other.to(to)
    by = alpha if s is x else 1
    sizes = d.shape[: at.shape[0]]
    flat = _times(other, by).reshape(prod(sizes), *d.shape[at.shape[0] :])
    r = added(flat, keys(at, sizes), v).reshape(d.shape)
    # the gradient for the sparse one is dense, as PyTorch's
    record(camel(name) + "Backward0", (d, s), r, (lambda g: _times(g, by), lambda g: _times(g, sign)))
    return r


def values_like(x: Any) -> Any:
    """A tensor that counts in type promotion as `x` does."""
    v = parts(x)[-1] if is_sparse(x) else x
    return v.new_zeros((1,) * x.ndim) if isinstance(x, Tensor) and v.ndim != x.ndim else v


def _times(v: Any, alpha: Any) -> Any:
    return v if not isinstance(alpha, Tensor) and alpha == 1 else v * alpha


def _both(x: Any, y: Any, alpha: Any, to: Any, name: str) -> Any:
    layout = x.layout
    if layout is not COO:
        a, b = parts(x), parts(y)
        size = a[-1].shape[a[1].ndim : a[1].ndim + 2] if layout in BLOCKED else ()
        total = _both(to_coo(x), to_coo(y), alpha, to, name)
        at, v = coo(total)
        return to_compressed(x.shape, at, v, layout, tuple(size))
    if sparse_dims(x) != sparse_dims(y):
        raise RuntimeError("add: expected 'self' and 'other' to have same number of sparse dimensions, dense dimensions")
    torch = _lazy.torch
    vx, vy = values_of(x).to(to), _times(values_of(y).to(to), alpha)
    at = torch.cat([parts(x)[0], parts(y)[0]], 1)
    v = torch.cat([vx, vy])
    sizes = x.shape[: at.shape[0]]
    k, v = merged(keys(at, sizes), v)
    both = x._tab_storage.coalesced and y._tab_storage.coalesced
    return made(camel(name), COO, (from_keys(k, sizes),), v, x.shape, both)


@op()
def add(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    """x + alpha · y: of two sparse tensors, or of a dense one and a sparse one, which is dense."""
    return _sum(x, y, alpha, "add")


@op()
def sub(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    """x - alpha · y."""
    return _sum(x, y, -alpha, "sub")


@op("rsub")
def rsub(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    """y - alpha · x."""
    return _sum(y, x, -alpha, "rsub")


def _in_place(name: str) -> None:
    f = OPS[name]

    def g(x: Any, *args: Any, **kw: Any) -> Any:
        y = args[0] if args else kw.get("other")
        if name in ("add", "sub") and not is_sparse(x) and is_sparse(y) and not needs_record(x, y) and x.is_contiguous():
            if x.shape == y.shape and x.dtype is y.dtype and x.dtype is not dtypes.bool_:  # only what changes is written
                at, v = loose(y)
                alpha = kw.get("alpha", 1)
                sizes = x.shape[: at.shape[0]]
                flat = x.view(prod(sizes), *x.shape[at.shape[0] :])
                flat.index_add_(0, keys(at, sizes), _times(v, -alpha if name == "sub" else alpha))
                return x
        r = f(x, *args, **kw)
        if is_sparse(x) and is_sparse(r):
            return renewed(x, r)
        if is_sparse(x) or is_sparse(r):  # dense *= sparse
            r = to_dense(r) if is_sparse(r) else r
        return x.copy_(r)

    op(name + "_")(g)


# ---- products


@op("mul")
def mul(x: Any, y: Any) -> Any:
    """Products of the elements: sparse, whatever the other operand is."""
    if not is_sparse(x):
        x, y = y, x
    if not isinstance(y, Tensor) or (y.ndim == 0 and not is_sparse(y)):
        return like("Mul", x, values_of(x) * y)
    if not is_sparse(y):
        return _by_dense(x, y)
    if x.layout is COO and y.layout is COO:
        if y.ndim == 0 or x.ndim == 0:
            s, z = (x, y) if y.ndim == 0 else (y, x)
            return like("Mul", s, values_of(s) * to_dense(z))
        return _common(x, y)
    if x.layout is not y.layout and COO in (x.layout, y.layout):
        raise RuntimeError("mul: operands of layouts " f"{x.layout!r} and {y.layout!r} are not supported")
    r = _common(to_coo(x), to_coo(y))
    at, v = coo(r)
    size = parts(x)[-1].shape[parts(x)[1].ndim : parts(x)[1].ndim + 2] if x.layout in BLOCKED else ()
    return to_compressed(x.shape, at, v, x.layout, tuple(size))


def _by_dense(x: Any, y: Tensor) -> Any:
    torch = _lazy.torch
    shape = torch.broadcast_shapes(x.shape, y.shape)
    if x.layout is not COO:
        if tuple(shape) != tuple(x.shape):
            raise RuntimeError(f"mul: a tensor of size {list(x.shape)} cannot be broadcast to {list(shape)}")
        from tabtorch.sparse.convert import values_at

        return like("Mul", x, values_of(x) * values_at(y.expand(shape), x.detach()))
    x = broadcast(x, shape)
    at, v = (parts(x)[0], values_of(x)) if x._tab_storage.coalesced else coo(x)
    sd = at.shape[0]
    picked = y.expand(shape).reshape(prod(shape[:sd]), *shape[sd:]).index_select(0, keys(at, shape[:sd]))
    return made("Mul", COO, (at,), v * picked, shape, True)


@op("_sparse_broadcast_to")
def broadcast(x: Any, shape: Any) -> Any:
    """A COO tensor repeated along dimensions that it has not, or whose size is 1."""
    shape = tuple(shape)
    if tuple(x.shape) == shape:
        return x
    torch = _lazy.torch
    at, v = coo(x)
    lead = len(shape) - x.ndim
    sd = at.shape[0] + lead
    rows = [at.new_zeros(at.shape[1])] * lead + list(at.unbind(0))
    wide = [d for d in range(sd) if d < lead or (x.shape[d - lead] == 1 and shape[d] != 1)]
    for d in reversed(wide):
        n = shape[d]
        place = torch.arange(n, device=at.device).repeat_interleave(rows[d].shape[0])
        rows = [place if k == d else r.repeat(n) for k, r in enumerate(rows)]
        v = v.repeat(n, *[1] * (v.ndim - 1))
    v = v.expand(v.shape[0], *shape[sd:])
    return coalesce(made("SparseBroadcastTo", COO, (torch.stack(rows),), v, shape))


def _common(x: Any, y: Any) -> Any:
    if x.shape != y.shape or sparse_dims(x) != sparse_dims(y):
        raise RuntimeError(
            "sparse_binary_op_intersection_cpu(): expects sparse inputs with equal dimensionality, number of sparse "
            "dimensions, and shape of sparse dimensions"
        )
    (ax, vx), (ay, vy) = coo(x), coo(y)
    sizes = x.shape[: ax.shape[0]]
    kx, ky = keys(ax, sizes), keys(ay, sizes)
    if not kx.shape[0] or not ky.shape[0]:
        return made("Mul", COO, (ax[:, :0],), vx[:0] * vy[:0], x.shape, True)
    torch = _lazy.torch
    place = torch.searchsorted(ky, kx).clamp(max=ky.shape[0] - 1)
    both = (ky.index_select(0, place) == kx).nonzero().reshape(-1)
    v = vx.index_select(0, both) * vy.index_select(0, place.index_select(0, both))
    return made("Mul", COO, (ax.index_select(1, both),), v, x.shape, True)


def _quotient(name: str, x: Any, y: Any, kw: dict[str, Any]) -> Any:
    if not is_sparse(x) or is_sparse(y) or (isinstance(y, Tensor) and y.ndim):
        raise RuntimeError(
            f"Sparse {'floor ' if name == 'floor_divide' else ''}division requires a scalar or zero-dim dense tensor divisor "
            f"(got shape {list(y.shape) if isinstance(y, Tensor) else []} for divisor)"
        )
    if x.layout is not COO:
        if name == "floor_divide":
            raise refused(name, x)
        raise RuntimeError(f"unsupported tensor layout: {WORDS[x.layout][0]}")
    if name == "floor_divide" or kw.get("rounding_mode") is not None:
        x = coalesce(x)
    return like(camel(name), x, _function(name)(values_of(x), y, **kw))


op("div")(lambda x, y, **kw: _quotient("div", x, y, kw))
op("floor_divide")(lambda x, y, **kw: _quotient("floor_divide", x, y, kw))
for _name in ("add", "sub", "mul", "div", "floor_divide"):
    _in_place(_name)


# ---- copies and types


@op()
def clone(x: Any, *, memory_format: Any = None) -> Any:
    """A copy. RuntimeError for a memory format."""
    if memory_format not in (None, _lazy.layout.preserve_format):
        raise RuntimeError("unsupported memory format option Contiguous")
    s = x._tab_storage
    return made("Clone", x.layout, [p.clone() for p in s.parts[:-1]], values_of(x).clone(), x.shape, s.coalesced)


@op()
def contiguous(x: Any, memory_format: Any = None) -> Any:
    """RuntimeError: a sparse tensor has no memory format."""
    raise RuntimeError("unsupported memory format option Contiguous")


def _moved(x: Any, *args: Any, **kw: Any) -> Any:
    old = parts(x)[-1]
    v = values_of(x).to(*args, **kw)
    if v.dtype is old.dtype and v._tab_meta.device is old._tab_meta.device and not kw.get("copy"):
        return x
    s = x._tab_storage
    return made("ToCopy", x.layout, [p.to(v.device) for p in s.parts[:-1]], v, x.shape, s.coalesced)


@op()
def to(x: Any, *args: Any, **kw: Any) -> Any:
    """The same tensor with another dtype, or on another device."""
    if args and isinstance(args[0], Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    layout = kw.pop("layout", None)
    if layout not in (None, x.layout):
        raise RuntimeError(
            f"to(options) doesn't support converting to a different layout, but got self.layout being {WORDS[x.layout][0]} and "
            f"options.layout set as {WORDS[layout][0]}"
        )
    return _moved(x, *args, **kw)


for _name, _type in {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "int": "int32", "long": "int64",
    "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool", "cfloat": "complex64", "cdouble": "complex128",
}.items():  # fmt: skip
    op(_name)(lambda x, *a, _type=_type, **kw: _moved(x, dtypes.PUBLIC[_type]))
for _name in ("cpu", "cuda"):
    op(_name)(lambda x, *a, _name=_name, **kw: _moved(x, *(a or (_name,))))


@op("type")
def type_(x: Any, dtype: Any = None, non_blocking: bool = False, **kw: Any) -> Any:
    """The name of its type, or itself as another."""
    if dtype is None:
        return f"torch.sparse.{dtypes.TYPE_NAMES[x.dtype.name]}Tensor"
    return _moved(x, dtype)


@op()
def type_as(x: Any, other: Any) -> Any:
    """In the type of another sparse tensor."""
    return to(x, other.dtype, layout=other.layout)


@op()
def copy_(x: Any, src: Any, non_blocking: bool = False) -> Any:
    """Writes another sparse tensor of the same layout to this one."""
    if not (is_sparse(x) and is_sparse(src)):
        name = lambda t: ("torch.sparse." if is_sparse(t) else "torch.") + dtypes.TYPE_NAMES[t.dtype.name] + "Tensor"  # noqa: E731
        raise RuntimeError(
            f"copy_() between dense and sparse Tensors is not implemented! Found self type = {name(x)} and src type = {name(src)}"
        )
    if x.layout is not src.layout:
        raise RuntimeError(
            f"copy of sparse compressed tensors having different layouts is not supported, self layout is {WORDS[x.layout][0]} and src "
            f"layout is {WORDS[src.layout][0]}"
        )
    if x is src:
        return x
    moved = _moved(src, x.device, x.dtype)
    return renewed(x, like("Copy", moved, values_of(moved)))


@op()
def zero_(x: Any) -> Any:
    """Removes all elements (of a compressed tensor: makes them 0)."""
    if x.layout is not COO:
        return renewed(x, like("Zero", x.detach(), parts(x)[-1].zero_()))
    sd = sparse_dims(x)
    at, v = parts(x)
    return renewed(x, made("Zero", COO, (at.new_zeros((sd, 0)),), v.new_zeros((0, *v.shape[1:])), x.shape, True))


def _like(name: str) -> None:
    def f(x: Any, *, dtype: Any = None, device: Any = None, layout: Any = None, requires_grad: bool = False, **kw: Any) -> Any:
        d, where = dtype or x.dtype, device or x.device
        to = layout or x.layout
        if not is_sparse(x) or to is _lazy.layout.strided:
            return getattr(_lazy.torch, name.removesuffix("_like"))(tuple(x.shape), dtype=d, device=where)
        if x.layout is COO is to:
            at, v = parts(x)
            r = made("", COO, (at.new_zeros((sparse_dims(x), 0)),),
                     _lazy.torch.empty((0, *v.shape[1:]), dtype=d, device=where), x.shape)
        elif to in BLOCKED or name == "empty_like":
            p = parts(x)
            n = p[1].ndim - 1
            if name == "zeros_like":
                v = _lazy.torch.zeros((*p[1].shape[:-1], 0, *p[2].shape[n + 1 :]), dtype=d, device=where)
                r = made("", to, (p[0] * 0, p[1][..., :0]), v, x.shape)
            else:
                r = made("", to, p[:2], p[2].to(dtype=d, device=where), x.shape)
        else:
            r = _lazy.sparse_create.filled("zeros", x.shape, 0, d, where, to)
            if to is not COO and name == "zeros_like":
                p = parts(x)
                v = _lazy.torch.zeros((*p[1].shape[:-1], 0, *p[2].shape[p[1].ndim :]), dtype=d, device=where)
                r = made("", to, (p[0] * 0, p[1][..., :0]), v, x.shape)
        return _lazy.sparse_create._finished(r, requires_grad)

    op(name)(f)


_like("zeros_like")
_like("empty_like")


def _random_like(name: str, method: str) -> None:
    def f(x: Any, *, dtype: Any = None, requires_grad: bool = False, **kw: Any) -> Any:
        if x.layout is COO:
            raise refused(method, x)
        v = _function(name)(parts(x)[-1], dtype=dtype)
        return _lazy.sparse_create._finished(like("", x.detach(), v), requires_grad)

    op(name)(f)


_random_like("randn_like", "normal_")


@op("fill_")
def fill_(x: Any, value: Any) -> Any:
    """Fills the stored elements of a compressed tensor."""
    if x.layout is COO:
        raise refused("fill_.Scalar", x)
    return renewed(x, like("Fill", x.detach(), _lazy.torch.full_like(parts(x)[-1], value)))


for _name in ("new_zeros", "new_empty"):
    op(_name)(
        lambda x, *size, dtype=None, device=None, layout=None, requires_grad=False, **kw: _lazy.sparse_create.filled(
            "zeros",
            size[0] if len(size) == 1 and not isinstance(size[0], int) else size,
            0,
            dtype or x.dtype,
            device or x.device,
            layout or x.layout,
            requires_grad,
        )
    )


@op()
def is_nonzero(x: Any) -> bool:
    """Whether the one element is not 0. RuntimeError for more than one."""
    return bool(item(x))


@op()
def item(x: Any) -> Any:
    """The one element."""
    if x.numel() != 1:
        raise RuntimeError(f"a Tensor with {x.numel()} elements cannot be converted to Scalar")
    return to_dense(x).item()


def _refusing(name: str, kernel: str) -> None:
    def f(x: Any, *args: Any, **kw: Any) -> Any:
        raise refused(kernel, x if is_sparse(x) else args[0])

    op(name)(f)


for _name in ("new_ones", "new_full", "ones_like", "full_like"):
    _refusing(_name, "fill_.Scalar")
for _name in ("rand_like", "randint_like"):
    _refusing(_name, "uniform_")
for _name in ("bernoulli", "normal", "nansum", "resize_", "resize_as_", "new"):
    _refusing(_name, _name)
for _name, _kernel in (("new_empty_strided", "empty_strided"), ("new_tensor", "new_tensor"), ("roll", "roll"), ("dot", "dot")):
    _refusing(_name, _kernel)
