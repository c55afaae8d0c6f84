"""Copies of sparse tensors, with other types, on other devices, and new ones like them."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.core.tensor import Tensor
from tabtorch.engine.view import Size
from tabtorch.sparse.convert import parts, sparse_dims, to_dense
from tabtorch.sparse.tensor import BLOCKED, BY_ROW, COO, WORDS, is_sparse, like, made, op, refused, renewed, values_of


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


def _emptied(x: Any, to: Any, d: Any, where: Any) -> Any:
    """A tensor without elements, of the size of `x`, in another layout or its own."""
    torch = _lazy.torch
    if COO in (x.layout, to):
        if x.layout is to:
            at, v = parts(x)
            none = torch.empty((0, *v.shape[1:]), dtype=d, device=where)
            return made("", COO, (at.new_zeros((sparse_dims(x), 0)),), none, x.shape)
        return _lazy.sparse_create.filled("zeros", x.shape, 0, d, where, to)
    if to in BLOCKED and x.layout not in BLOCKED:
        return _lazy.sparse_create.filled("zeros", x.shape, 0, d, where, to)
    c, p, v = parts(x)
    n = p.ndim - 1
    block, dense = (tuple(v.shape[n + 1 : n + 3]), v.shape[n + 3 :]) if x.layout in BLOCKED else ((), v.shape[n + 1 :])
    if to not in BLOCKED:
        block = ()
    lines = x.shape[n if to in BY_ROW else n + 1] // (block[0 if to in BY_ROW else 1] if block else 1)
    batch = p.shape[:-1]
    zero = torch.zeros((*batch, lines + 1), dtype=c.dtype, device=where)
    none = torch.zeros((*batch, 0, *block, *dense), dtype=d, device=where)
    return made("", to, (zero, zero[..., :0]), none, x.shape)


def _like(name: str) -> None:
    def f(
        x: Any, *, dtype: Any = None, device: Any = None, layout: Any = None, requires_grad: bool = False, **kw: Any
    ) -> Any:
        d, where = dtype or x.dtype, device or x.device
        to = layout or x.layout
        if not is_sparse(x) or to is _lazy.layout.strided:
            return getattr(_lazy.torch, name.removesuffix("_like"))(tuple(x.shape), dtype=d, device=where)
        if name == "empty_like" and x.layout is to is not COO:  # with the indices, as PyTorch
            p = parts(x)
            r = made("", to, p[:-1], p[-1].to(dtype=d, device=where), x.shape)
        else:
            r = _emptied(x, to, d, where)
        return _lazy.sparse_create._finished(r, requires_grad)

    op(name)(f)


_like("zeros_like")
_like("empty_like")


def _random_like(name: str, method: str) -> None:
    def f(x: Any, *, dtype: Any = None, requires_grad: bool = False, **kw: Any) -> Any:
        if x.layout is COO:
            raise refused(method, x)
        v = getattr(_lazy.torch, name)(parts(x)[-1], dtype=dtype)
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
def new(x: Any, *args: Any, device: Any = None) -> Any:
    """The old constructor: one without elements, of a size, or one of indices and values. TypeError for a list of values."""
    if x.layout is not COO:
        raise RuntimeError(f"Cannot map DispatchKey {WORDS[x.layout][1]} to a unique layout.")
    made_of: dict[str, Any] = {"dtype": x.dtype, "device": x.device if device is None else device}
    first = args[0] if args else 0
    if len(args) in (2, 3) and isinstance(first, Tensor):
        return _lazy.sparse_create.sparse_coo_tensor(*args, **made_of)
    if len(args) == 1 and not isinstance(first, int):
        if not isinstance(first, (tuple, list)) or not all(isinstance(n, int) for n in first):
            raise TypeError(
                f"new() received an invalid combination of arguments - got ({type(first).__name__}), but expected one of:\n"
                " * (*, torch.device device = None)\n * (Tensor indices, Tensor values, *, torch.device device = None)\n"
                " * (tuple of ints size, *, torch.device device = None)"
            )
        if not isinstance(first, Size):
            raise TypeError(
                "SparseTensor.new(sequence) only accepts sizes.  Please use torch.sparse_coo_tensor() or construct a strided "
                "tensor and convert it to sparse via to_sparse."
            )
        args = tuple(first)
    return _lazy.sparse_create.sparse_coo_tensor(args or (0,), **made_of)


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
for _name in ("bernoulli", "normal", "nansum", "resize_", "resize_as_"):
    _refusing(_name, _name)
for _name, _kernel in (
    ("new_empty_strided", "empty_strided"),
    ("new_tensor", "new_tensor"),
    ("roll", "roll"),
    ("dot", "dot"),
):
    _refusing(_name, _kernel)
