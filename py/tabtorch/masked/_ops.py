"""Reductions and normalizations of the elements that a mask lets through; those of sparse tensors are in `sparse.masked`.

A mask is a bool tensor that broadcasts to the input; where it is False an element counts as the identity of the operation
(0 for a sum, -inf for a maximum). Rows without any element give that identity, or nan where there is none.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import tabtorch as torch
from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.core.layout import strided
from tabtorch.core.tensor import Tensor

# what hides elements from each operation: a number, or "low" / "high" for what no element of the type lies beyond
_IDENTITY = {
    "sum": 0,
    "cumsum": 0,
    "prod": 1,
    "cumprod": 1,
    "norm": 0,
    "median": math.nan,
    "amax": "low",
    "argmax": "low",
    "logaddexp": "low",
    "logsumexp": "low",
    "amin": "high",
    "argmin": "high",
}


_REDUCTIONS = frozenset("sum prod amax amin argmax argmin mean median norm var std logsumexp".split())
_NORMALIZATIONS = frozenset("softmax log_softmax softmin normalize cumsum cumprod".split())


def _identity(name: str, d: Any) -> Any:
    value = _IDENTITY[name]
    if not isinstance(value, str):
        return value
    sign = -1 if value == "low" else 1
    if d.is_floating_point or (d.is_complex and name == "logsumexp"):
        return sign * math.inf
    if d is dtypes.bool_:
        raise NotImplementedError(f"identity of {name} on {d!r} input")
    info = dtypes.iinfo(d)
    return info.min if sign < 0 else info.max


def _input_mask(input: Tensor, *args: Any, mask: Tensor | None = None, **kwargs: Any) -> Tensor:
    """`mask` as bool, in the shape and the layout of `input`; arguments of the masked operation may follow, as in PyTorch.

    ValueError without a mask, or for a layout that has none. IndexError where the mask has more dimensions.
    """
    if input.layout is not strided:
        return _lazy.sparse_masked.input_mask(input, mask)
    if mask is None:
        raise ValueError("_input_mask requires explicit mask")
    if mask.ndim > input.ndim:
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    if mask.layout is not strided:
        mask = _lazy.sparse_masked.dense_mask(mask, input.shape)
    return mask.to(dtypes.bool_).expand(input.shape)


def _output_mask(op: Any, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Which elements of `op(input, *args, **kwargs)` have a value: for a reduction those of which some element is let through.

    op: an operation of `torch.masked`; ValueError for another.
    """
    if not callable(op):
        raise ValueError(f"_output_mask expected masked operation (got {type(op).__name__} object)")
    if op.__name__ in _NORMALIZATIONS:
        return _input_mask(input, *args, **kwargs)
    if op.__name__ not in _REDUCTIONS:
        raise ValueError(f"_output_mask expected masked operation (got callable {op.__module__}.{op.__name__})")
    if op.__name__ == "norm":
        args = args[1:]
    mask = _input_mask(input, *args, **kwargs)
    dims = _dims(args[0] if args else kwargs.get("dim"), input.ndim)
    for d in reversed(dims):
        mask = mask.any(d, bool(kwargs.get("keepdim", False)))
    return mask


def _only_strided(name: str, input: Tensor, mask: Any = None) -> None:
    if input.layout is not strided:
        _lazy.sparse_masked.refuse(name, input, mask)


def _filled(name: str, input: Tensor, mask: Tensor | None, value: Any = None) -> Tensor:
    if mask is None:
        return input
    value = _identity(name, input.dtype) if value is None else value
    return torch.where(_input_mask(input, mask=mask), input, value)


def _dims(dim: Any, ndim: int) -> tuple[int, ...]:
    if dim is None or dim == ():
        return tuple(range(ndim))
    dims: list[int] = []
    n = builtins.max(ndim, 1)
    for d in (dim,) if isinstance(dim, int) else dim:
        if d in dims:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
        if not -n <= d < n:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")
        dims.append(d % n)
    return tuple(sorted(dims))


def _summed(input: Tensor, dtype: Any) -> Any:
    return dtype or (dtypes.int64 if input.dtype.category < 2 else input.dtype)


def sum(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """The sum over `dim` (an int, several, or None for all)."""
    if input.layout is not strided:
        return _lazy.sparse_masked.reduced("sum", input, dim, keepdim, dtype, mask)
    return _filled("sum", input, mask).sum(_dims(dim, input.ndim), bool(keepdim), dtype=_summed(input, dtype))


def prod(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """The product over `dim` (an int, several, or None for all)."""
    if input.layout is not strided:
        return _lazy.sparse_masked.reduced("prod", input, dim, keepdim, dtype, mask)
    r = _filled("prod", input, mask).to(_summed(input, dtype))
    for d in reversed(_dims(dim, input.ndim)):
        r = r.prod(d, bool(keepdim))
    return r


def logsumexp(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """log(sum(exp(x))) over `dim` (an int, several, or None for all)."""
    _only_strided("logsumexp", input, mask)
    dims = _dims(dim, input.ndim)
    return torch.logsumexp(_filled("logsumexp", input, mask), dims, keepdim).to(dtype or input.dtype)


def _extreme(name: str, doc: str) -> Callable[..., Tensor]:
    def f(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
        places = name.startswith("arg")
        if places:
            _only_strided(name, input, mask)
        elif input.layout is not strided:
            return _lazy.sparse_masked.reduced(name, input, dim, keepdim, dtype, mask)
        x = _filled(name, input, mask)
        where = dim if places else _dims(dim, input.ndim)
        r: Tensor = getattr(torch, name)(x, where, bool(keepdim))
        return r.to(dtype or input.dtype)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc
    return f


amax = _extreme("amax", "The largest element over `dim` (an int, several, or None for all).")
amin = _extreme("amin", "The smallest element over `dim` (an int, several, or None for all).")
argmax = _extreme(
    "argmax", "The place of the largest element along `dim` (None: of the flat input), in the input's type."
)
argmin = _extreme(
    "argmin", "The place of the smallest element along `dim` (None: of the flat input), in the input's type."
)


def _along(name: str, identity: str, doc: str) -> Callable[..., Tensor]:
    def f(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
        _only_strided(name, input, mask)
        d = dtype or input.dtype
        (at,) = _dims(dim, input.ndim)[:1] or (0,)
        source: Any = torch if name.startswith("cum") else torch.nn.functional
        r: Tensor = getattr(source, name)(_filled(identity, input, mask), at, dtype=d)
        return r.to(d)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc
    return f


cumsum = _along("cumsum", "sum", "Running sums along `dim`.")
cumprod = _along("cumprod", "prod", "Running products along `dim`.")
softmax = _along("softmax", "amax", "exp(x) / sum(exp(x)) along `dim`.")
log_softmax = _along("log_softmax", "amax", "log(softmax(x)) along `dim`.")
softmin = _along("softmin", "amin", "softmax(-x) along `dim`.")


def _count(input: Tensor, dim: Any, keepdim: bool, mask: Any) -> Any:
    dims = _dims(dim, input.ndim)
    if mask is not None:
        return _input_mask(input, mask=mask).sum(dims, keepdim)
    n = math.prod(input.shape[d] for d in dims) if input.ndim else 1
    return torch.full((), n, dtype=dtypes.int64, device=input.device)


def mean(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """The mean over `dim` (an int, several, or None for all); nan where every element is hidden. ValueError for integers."""
    d = dtype or input.dtype
    if d.category < 2:
        raise ValueError(
            f"mean(): Could not infer output dtype. {'Input' if dtype is None else 'Optional'} dtype must be either "
            f"a floating point or complex dtype. Got: {d!r}"
        )
    if input.layout is not strided:
        return _lazy.sparse_masked.reduced("mean", input, dim, keepdim, dtype, mask)
    return sum(input, dim, keepdim=keepdim, dtype=d, mask=mask) / _count(input, dim, bool(keepdim), mask)


def median(input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Tensor:
    """The median along `dim`, the lower of two; nan where every element is hidden (ValueError for integers)."""
    _only_strided("median", input, mask)
    (at,) = _dims(dim, input.ndim)[:1] or (0,)
    real = input.dtype.is_floating_point
    x = _filled("median", input if real else input.to(dtypes.float32), mask)
    r: Tensor = torch.nanmedian(x, at, keepdim)[0]
    if real:
        return r
    if mask is not None and bool(r.isnan().any()):
        raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
    return r.to(dtype or input.dtype)


def norm(
    input: Tensor, ord: Any = 2.0, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """(sum of |x|^ord)^(1/ord) over `dim` (an int, several, or None for all)."""
    _only_strided("norm", input, mask)
    x = _filled("norm", input, mask, math.inf if ord == -math.inf else 0)
    return torch.linalg.vector_norm(x, ord, _dims(dim, input.ndim), bool(keepdim), dtype=dtype or input.dtype)


def _spread(root: bool, doc: str) -> Callable[..., Tensor]:
    def f(
        input: Tensor,
        dim: Any = None,
        unbiased: bool | None = None,
        *,
        correction: float | None = None,
        keepdim: bool = False,
        dtype: Any = None,
        mask: Any = None,
    ) -> Tensor:
        if unbiased is not None and correction is not None:
            raise AssertionError("Only one of unbiased and correction may be given")
        less = float(correction) if correction is not None else float(unbiased is None or unbiased)
        _only_strided("std/var", input)
        d = dtype or (input.dtype if input.dtype.category > 1 else dtypes.float32)
        wide = d if d.category > 1 else dtypes.float32
        n = _count(input, dim, True, mask)
        x = input - sum(input, dim, keepdim=True, dtype=d, mask=mask) / n
        total = sum(x * x.conj(), dim, keepdim=keepdim, dtype=wide, mask=mask)
        if n.ndim:
            n = n.reshape(total.shape)
        if less:
            n = (n.to(wide.to_real() if wide.is_complex else wide) - less).clamp(min=0)
        r: Tensor = (total / n).to(d)
        return r.sqrt() if root else r

    f.__name__ = f.__qualname__ = "std" if root else "var"
    f.__doc__ = doc
    return f


var = _spread(
    False,
    "The variance over `dim`, the sum of squares divided by the number of elements less `correction` (default 1).",
)
std = _spread(True, "The root of `var`.")


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Any = None
) -> Tensor:
    """x / max(norm(x), eps) along `dim`; 0 where the mask hides."""
    _only_strided("normalize", input, mask)
    size = norm(input, ord, dim, keepdim=True, dtype=dtype or input.dtype, mask=mask)
    return _filled("sum", input, mask) / torch.maximum(size, size.new_full((), eps))


def logaddexp(
    input: Tensor, other: Tensor, *, dtype: Any = None, input_mask: Any = None, other_mask: Any = None
) -> Tensor:
    """log(exp(x) + exp(y)), each with a mask of its own."""
    if not input.layout is other.layout is strided:
        raise ValueError(
            f"masked logaddexp expects strided tensors (got {input.layout} tensor for input, {other.layout} for other)"
        )
    r: Tensor = torch.logaddexp(_filled("logaddexp", input, input_mask), _filled("logaddexp", other, other_mask))
    return r.to(dtype or input.dtype)
