"""Small functions that are formulas over others: tests of whole tensors, powers, indices, copies of views, in-place forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tabtorch import _lazy, ops
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import named, record
from tabtorch.autograd.views import before_write, check_inplace
from tabtorch.base import dtypes
from tabtorch.core import sections, views
from tabtorch.core.shapes import type_name, wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery.arguments import must_be_tensor
from tabtorch.ops.machinery.dispatch import layout_of
from tabtorch.ops.machinery.operand_devices import together
from tabtorch.ops.machinery.operation import into, operation
from tabtorch.ops.machinery.out_types import ASK, EXACT, Rule, castable, same
from tabtorch.ops.machinery.registry import register
from tabtorch.ops.reductions.nonzero import places_out
from tabtorch.ops.shaping.convert import in_order


def need_tensor(name: str, argument: str, position: int, x: Any) -> None:
    """TypeError, as PyTorch's parser raises it, for an argument that is no tensor."""
    if not isinstance(x, Tensor):
        raise must_be_tensor(name, argument, position - 1, x)


# ---- tests of whole tensors


@operation("allclose")
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether |input - other| <= atol + rtol * |other| everywhere. Waits for the device."""
    need_tensor("allclose", "other", 2, other)
    return bool(ops.isclose(input.detach(), other.detach(), rtol, atol, equal_nan).all().item())


@operation("equal")
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape and the same elements. Waits for the device."""
    need_tensor("equal", "other", 2, other)
    input, other = together((input, other))
    if input.shape != other.shape:
        return False
    return bool(ops.eq(input.detach(), other.detach()).all().item())


@operation("is_nonzero")
def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not 0. RuntimeError for several elements, or none. Waits for the device."""
    return bool(input)


@register("is_signed")
def is_signed(input: Tensor) -> bool:
    """Whether its type has negative numbers."""
    return input.is_signed()


@register("is_conj")
def is_conj(input: Tensor) -> bool:
    """Whether it shows the conjugates of what its storage holds."""
    return input.is_conj()


@register("is_neg")
def is_neg(input: Tensor) -> bool:
    """Whether it shows the negatives of what its storage holds."""
    return input.is_neg()


@register("is_distributed", method=True)
def is_distributed(input: Tensor) -> bool:
    """False: no tensor lies on several machines."""
    return False


@register("get_device")
def get_device(input: Tensor) -> int:
    """The number of its device; -1 on cpu."""
    return input.get_device()


# ---- sets

_BRUTE = 64  # so many comparisons an element cost less than sorting and a search


@operation("isin", method=False)
def isin(
    elements: Any = None,
    test_elements: Any = None,
    *,
    assume_unique: bool = False,
    invert: bool = False,
    out: Any = None,
    element: Any = None,
    test_element: Any = None,
) -> Tensor:
    """Whether each of `elements` is among `test_elements`, in the shape of `elements`. One of the two may be a number, and is
    called `element` or `test_element` then."""
    elements, test_elements = (a if b is None else b for a, b in ((elements, element), (test_elements, test_element)))
    if isinstance(elements, Tensor):
        like = elements
    elif isinstance(test_elements, Tensor):
        like = test_elements
    else:
        raise TypeError(
            "isin() received an invalid combination of arguments - got "
            f"({type(elements).__name__}, {type(test_elements).__name__}), but expected one of:\n"
            " * (Tensor elements, Tensor test_elements, *, bool assume_unique = False, bool invert = False, Tensor out = None)\n"
            " * (Number element, Tensor test_elements, *, bool assume_unique = False, bool invert = False, Tensor out = None)\n"
            " * (Tensor elements, Number test_element, *, bool assume_unique = False, bool invert = False, Tensor out = None)"
        )
    for x in (elements, test_elements):
        if isinstance(x, Tensor) and (x.dtype.is_complex or x.dtype is dtypes.bool_):
            raise RuntimeError(f"Unsupported input type encountered for isin(): {type_name(x.dtype)}")
    if not isinstance(test_elements, Tensor):
        found = ops.eq(elements, test_elements)
    else:
        x = elements if isinstance(elements, Tensor) else ops.scalar_tensor(elements, device=like.device)
        tests = test_elements.reshape(-1)
        if tests.numel() == 0:
            found = ops.zeros(tuple(x.shape), dtype=dtypes.bool_, device=x.device)
        elif tests.numel() <= _BRUTE:
            found = ops.eq(x.unsqueeze(-1), tests).any(-1)
        else:
            d = dtypes.promote_types(x.dtype, tests.dtype)
            ranked, wide = tests.detach().to(d).sort()[0], x.detach().to(d)
            at = ops.searchsorted(ranked, wide.contiguous()).clamp(max=tests.numel() - 1)
            found = ops.eq(ranked[at], wide)
    return into(out, ops.logical_not(found) if invert else found, rule=EXACT)


# ---- powers and indices


@register("vander")
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Columns of powers of a vector, N of them (default: as many as elements), the highest first."""
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    n = x.shape[0] if N is None else N
    if n < 0:
        raise RuntimeError("N must be non-negative.")
    if x.dtype.category < 2:
        x = x.to(dtypes.int64)
    if n == 0:
        return x.new_empty((x.shape[0], 0))
    columns = ops.ones_like(x).unsqueeze(1)
    if n > 1:
        powers = x.unsqueeze(1).expand(x.shape[0], n - 1).cumprod(1)
        columns = ops.cat([columns, powers], 1)
    return columns if increasing else columns.flip(1)


@register("unravel_index")
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Flat indices as one tensor of coordinates for each dimension of `shape`."""
    if not isinstance(indices, Tensor):
        raise TypeError(f"expected 'indices' to be a tensor, but got {type(indices)}")
    if indices.dtype.category != 1:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype!r}")
    if isinstance(shape, int):
        shape = (shape,)
    elif not isinstance(shape, (tuple, list)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    for n in shape:
        if not isinstance(n, int):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(n)}")
    if any(n < 0 for n in shape):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(shape)}")
    flat = indices.to(dtypes.int64)
    found = [flat.div(math.prod(shape[d + 1 :]), rounding_mode="floor").remainder(n) for d, n in enumerate(shape)]
    if not found:
        return ()
    n = indices.ndim  # side by side in memory, as PyTorch has them
    order = layout_of([indices._tab_meta], indices._tab_meta.shape) or tuple(range(n))
    return in_order(ops.stack(found, -1), (*order, n)).unbind(-1)


_PLACES_OUT = places_out("nonzero_static")


@operation("nonzero_static")
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1, out: Any = None) -> Tensor:
    """The first `size` rows of `nonzero()`, then rows of `fill_value`: (size, ndim), with no wait for the device."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    mask = ops.ne(input.detach(), 0).reshape(-1)
    n = mask.numel()
    rank = mask.cumsum(0) - 1
    place = ops.where(mask & (rank < size), rank, size)  # those left over share one place past the end
    flat = ops.full((size + 1,), -1, dtype=dtypes.int64, device=input.device)
    flat = flat.scatter(0, place, ops.arange(n, device=input.device)).narrow(0, 0, size)
    if not input.ndim:
        return into(out, ops.empty((size, 0), dtype=dtypes.int64, device=input.device), rule=_PLACES_OUT)
    shape = tuple(max(s, 1) for s in input.shape)  # an empty tensor has no places to divide by its sizes
    columns = [ops.where(flat < 0, fill_value, c) for c in unravel_index(flat.clamp(min=0), shape)]
    return into(out, ops.stack(columns, 1), rule=_PLACES_OUT)


# ---- norms, gamma


@register("norm_except_dim")
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm over all dimensions but `dim` (-1: over all), kept as ones."""
    if dim == -1:
        return v.norm(pow)
    d = wrap_dim(dim, v.ndim)
    rest = tuple(k for k in range(v.ndim) if k != d)
    return v.norm(pow, rest, keepdim=True) if rest else v.abs()


@register("_weight_norm")
def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """g v / |v|, the norm over all dimensions but one (-1: over all)."""
    return v * (g / norm_except_dim(v, 2, dim))


@operation("mvlgamma", aliases=("special_multigammaln",))
def mvlgamma(input: Tensor, p: int, *, out: Any = None) -> Tensor:
    """The logarithm of the p-dimensional gamma function."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    if input.dtype is dtypes.bool_:
        raise RuntimeError("The input tensor may not be a boolean tensor.")
    d = input.dtype if input.dtype.category > 1 else dtypes.get_default_dtype()
    steps = ops.arange(0, p, dtype=d, device=input.device) * -0.5
    r = (input.unsqueeze(-1) + steps).lgamma().sum(-1) + p * (p - 1) * math.log(math.pi) / 4
    return r if out is None else into(out, r, rule=_mvlgamma_out(input.dtype))


def _mvlgamma_out(d: Any) -> Rule:
    """PyTorch names the type of the input, and calls that of the result the desired one."""
    return castable(f"mvlgamma: result type {type_name(d)} can't be cast to the desired output type {{Want}}")


# ---- in-place forms


@register("mvlgamma_", method=True, torch=False)
def mvlgamma_(self: Tensor, p: int) -> Tensor:
    """In-place `mvlgamma`."""
    check_inplace(self)
    value = mvlgamma(before_write(self), p)
    _mvlgamma_out(self.dtype)(value.dtype, self.dtype)
    return self.copy_(value)


register("kron", lambda self, other: ops.kron(self, other), method=True, torch=False, doc="`torch.kron`.")
register("addmv_", lambda input, *args, **options: input.addmv_(*args, **options), doc="`addmv` in place.")
register("detach_", lambda input: input.detach_(), doc="`detach` in place.")


# ---- views that are copies


def _plain(t: Tensor) -> Tensor:
    return t.clone(memory_format=_lazy.layout.contiguous_format)


def _copies(name: str, view: Callable[..., Any], several: bool = False) -> None:
    def copy(input: Tensor, *args: Any, out: Any = None, **options: Any) -> Any:
        r = view(input.resolve_conj(), *args, **options)
        if not several:
            return into(out, _plain(r), rule=EXACT)
        parts = tuple(_plain(t) for t in r)
        if out is None:
            return parts
        for o, t in zip(out, parts, strict=True):
            into(o, t, rule=EXACT)
        return None

    copy.__name__ = copy.__qualname__ = name + "_copy"
    copy.__doc__ = f"`{name}` as a copy."
    register(name + "_copy", copy)


for _name in (
    "as_strided", "diagonal", "expand", "permute", "select", "squeeze", "t", "transpose", "unfold", "unsqueeze",
    "view_as_complex", "view_as_real",
):  # fmt: skip
    _copies(_name, getattr(views, _name))


def _seen_as(x: Tensor, *shape: Any) -> Tensor:
    return views.view(x, *shape) if isinstance(shape[0], dtypes.dtype) else views.reshape(x, *shape)


_copies("view", _seen_as)  # also of what no view shows in that shape
_copies("alias", lambda x: x)
_copies("detach", lambda x: x.detach())
_copies("slice", lambda x, dim=0, start=None, end=None, step=1: views.slice_along(x, dim, start, end, step))
_copies("split", sections.split, several=True)
_copies("split_with_sizes", sections.split, several=True)
_copies("unbind", sections.unbind, several=True)


_NARROW_OUT = same("Expected self.dtype() == output.dtype() to be true, but got false." + ASK)


@operation("narrow_copy")
def narrow_copy(input: Tensor, dim: int, start: int, length: int, *, out: Any = None) -> Tensor:
    """`narrow` as a copy."""
    if dim >= input.ndim > 0:
        raise RuntimeError("Expected dim < static_cast<int64_t>(self_sizes.size()) to be true, but got false.")
    if length < 0 and input.ndim:
        n = input.shape[dim]
        at = start + n if start < 0 else start
        raise RuntimeError(f"start ({at}) + length ({length}) exceeds dimension size ({n}).")
    r = _plain(views.narrow(input, dim, start, length))
    return into(out, named(r, "NarrowCopyBackward0", input), rule=_NARROW_OUT)


def _apart(name: str, split: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor, dim: int) -> tuple[Tensor, ...]:
    """The same pieces, each of which autograd takes for a tensor of its own: a write to one is not seen in the others' history."""
    whole = x.resolve_conj().resolve_neg()  # PyTorch gives these functions a copy of a tensor that has a mark
    if STATE.inference:  # where autograd has no say they are what `split` gives
        return split(whole)
    out = []
    for p in split(whole.detach()):
        t = Tensor._view_of(whole, p._tab_meta)
        t._tab_storage = whole._tab_storage.untracked()
        out.append(t)
    if x._tab_requires_grad:
        metas = [t._tab_meta for t in out]

        def backward(gs: list[Tensor | None]) -> Tensor:
            given = next(g for g in gs if g is not None)
            return ops.cat([given.new_zeros(m.shape) if g is None else g for g, m in zip(gs, metas)], dim)

        record(name, (x,), out, backward)
    return tuple(out)


@register("unsafe_chunk", method=True)
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunk`, of which each piece may be written to in place."""
    name = (
        "UnsafeSplitBackward0"
        if not input.ndim or input.shape[wrap_dim(dim, input.ndim)]
        else "UnsafeSplitWithSizesBackward0"
    )
    return _apart(name, lambda t: sections.chunk(t, chunks, dim), input, dim)


@register("unsafe_split", method=True)
def unsafe_split(tensor: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """`split`, of which each piece may be written to in place."""
    return _apart("UnsafeSplitBackward0", lambda t: sections.split(t, split_size, dim), tensor, dim)


@register("unsafe_split_with_sizes", method=True)
def unsafe_split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """`split_with_sizes`, of which each piece may be written to in place."""
    return _apart("UnsafeSplitWithSizesBackward0", lambda t: sections.split(t, split_sizes, dim), input, dim)
