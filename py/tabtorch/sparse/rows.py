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
from tabtorch.sparse.convert import (
    added,
    coalesce,
    coo,
    from_keys,
    keys,
    loose,
    merged,
    parts,
    sparse_dims,
    to_coo,
    to_dense,
    values_at,
)
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
op("conj")(lambda x: OPS["conj_physical"](x) if x.dtype.is_complex else x)
# by which the function of that name comes here
op("_conj_physical")(OPS["conj_physical"])
op("_conj_physical_self_")(OPS["conj_physical_"])
# conj() has computed, so that there is nothing to resolve
op("positive", "resolve_conj", "resolve_neg", "pin_memory")(lambda x, *a: x)
op("_real")(lambda x: like("Real", x, values_of(x).real) if x.dtype.is_complex else x)


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


op("square")(lambda x: power(x, 2))


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
        a = parts(x)
        size = a[-1].shape[a[1].ndim : a[1].ndim + 2] if layout in BLOCKED else ()
        total = _both(to_coo(x), to_coo(y), alpha, to, name)
        at, v = coo(total)
        return to_compressed(x.shape, at, v, layout, tuple(size))
    if sparse_dims(x) != sparse_dims(y):
        raise RuntimeError(
            "add: expected 'self' and 'other' to have same number of sparse dimensions, dense dimensions"
        )
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
        y: Any = args[0] if args else kw.get("other")
        if (
            name in ("add", "sub")
            and not is_sparse(x)
            and is_sparse(y)
            and not needs_record(x, y)
            and x.is_contiguous()
        ):
            if (
                x.shape == y.shape and x.dtype is y.dtype and x.dtype is not dtypes.bool_
            ):  # only what changes is written
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
        raise RuntimeError(f"mul: operands of layouts {x.layout!r} and {y.layout!r} are not supported")
    r = _common(to_coo(x), to_coo(y))
    at, v = coo(r)
    size = parts(x)[-1].shape[parts(x)[1].ndim : parts(x)[1].ndim + 2] if x.layout in BLOCKED else ()
    return to_compressed(x.shape, at, v, x.layout, tuple(size))


def _by_dense(x: Any, y: Any) -> Any:
    torch = _lazy.torch
    shape = torch.broadcast_shapes(x.shape, y.shape)
    if x.layout is not COO:
        if tuple(shape) != tuple(x.shape):
            raise RuntimeError(f"mul: a tensor of size {list(x.shape)} cannot be broadcast to {list(shape)}")
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
    for d, n in enumerate(x.shape):
        if n not in (1, shape[d + lead]):
            raise RuntimeError(
                f"The input's length {n} at dimension {d} does not broadcast over the requested shape of length {shape[d + lead]} at "
                f"dimension {d + lead}"
            )
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
