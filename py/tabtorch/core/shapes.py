"""Arithmetic of shapes: arguments to sizes and dimensions, and the `Meta` that each view operation makes of another.

Every function with a `Meta` first is remembered by its arguments, so that a view made again costs one lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from math import prod
from operator import index
from typing import Any, TypeVar

from tabtorch import _lazy
from tabtorch.base.device import device
from tabtorch.base.dtypes import TYPE_NAMES, dtype
from tabtorch.engine.symbols import Symbol, is_number
from tabtorch.engine.view import Meta, ordered_strides, view_strides

F = TypeVar("F", bound=Callable[..., Any])


def as_int(v: Any) -> Any:
    """`operator.index(v)`; a size that is not known yet (engine/symbols.py) stays what it is. TypeError for what is no int."""
    return v if type(v) is Symbol else index(v)


def as_float(v: Any) -> Any:
    """`float(v)`; a size that is not known yet stays what it is."""
    return v if is_number(v) else float(v)


def type_name(dtype: Any) -> str:
    """ "Float" for torch.float32, as messages have it."""
    return TYPE_NAMES[dtype.name]


#: arguments that stay what they are, at a glance
_PLAIN = frozenset((int, bool, float, str, type(None), Symbol, Meta, dtype, device))


def _numbers(key: tuple) -> tuple:
    """The same with ints in place of what can stand for one."""
    for k in key:
        if type(k) is tuple:
            if not _PLAIN.issuperset(map(type, k)) and _numbers(k) is not k:
                break
        elif type(k) not in _PLAIN and hasattr(k, "__index__"):
            break
    else:
        return key
    out = tuple(
        [
            _numbers(k) if type(k) is tuple else as_int(k) if type(k) not in _PLAIN and hasattr(k, "__index__") else k
            for k in key
        ]
    )
    return out


def remembered(build: F) -> F:
    """Keeps what `build` returned, by its arguments (all hashable). A 0-d tensor counts as the number that it is now."""
    table: dict[tuple, Any] = {}

    @wraps(build)
    def look(*key: Any) -> Any:
        try:
            r = table.get(key)
        except TypeError:  # a NumPy array that stands for an int has no hash
            if (numbers := _numbers(key)) is key:
                raise
            return look(*numbers)
        if r is None:
            if not _PLAIN.issuperset(map(type, key)) and (numbers := _numbers(key)) is not key:
                return look(*numbers)
            if len(table) > 50_000:  # programs that meet every size once must not grow without end
                table.clear()
            r = table[key] = build(*key)
        return r

    return look  # type: ignore[return-value]


# ---- arguments


def wrap_dim(dim: int, ndim: int) -> int:
    """A dimension counted from the front. Raises IndexError where it is not there; a 0-d tensor counts as 1-d."""
    n = ndim or 1
    if type(dim) is not int:
        dim = as_int(dim)
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim + n if dim < 0 else dim


def wrap_dims(dims: Iterable[int], ndim: int) -> tuple[int, ...]:
    """The same for several, which must differ."""
    out = tuple(wrap_dim(d, ndim) for d in dims)
    for d in out:
        if out.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return out


def integer(v: Any, name: str, arg: str, position: int) -> int:
    """An argument that is an int, or a 0-d integer tensor. TypeError, as PyTorch's, for what is neither."""
    if type(v) is int:
        return v
    try:
        if isinstance(v, bool):
            raise TypeError
        return as_int(v)
    except TypeError:
        raise TypeError(
            f"{name}(): argument '{arg}' (position {position}) must be int, not {type(v).__name__}"
        ) from None


def ints(args: tuple[Any, ...], name: str = "", arg: str = "size") -> tuple[int, ...]:
    """`f(2, 3)`, `f((2, 3))`, `f([2, 3])` -> (2, 3). Elements may be 0-d integer tensors."""
    alone = len(args) == 1
    if alone and isinstance(args[0], (tuple, list)):
        args = tuple(args[0])
        alone = False
    for a in args:
        if type(a) is not int:
            return _convert(args, name, arg, alone)
    return args


def _convert(args: Iterable[Any], name: str, arg: str, alone: bool = False) -> tuple[int, ...]:
    out = []
    for k, a in enumerate(args):
        try:
            if isinstance(a, bool):
                raise TypeError
            out.append(as_int(a))
        except TypeError:
            if k:  # what a first element says of the others
                raise TypeError(
                    f"{name}(): argument '{arg}' failed to unpack the object at pos {k + 1} with error "
                    f'"type must be tuple of ints,but got {type(a).__name__}"'
                ) from None
            raise TypeError(
                f"{name}(): argument '{arg}' (position 1) must be tuple of ints, "
                + (f"not {type(a).__name__}" if alone else f"but found element of type {type(a).__name__} at pos {k}")
            ) from None
    return tuple(out)


def one_or_more(v: Any, name: str = "", arg: str = "dim") -> tuple[int, ...]:
    """An int, or several, or None for none, as a tuple."""
    return () if v is None else (v,) if type(v) is int else ints((v,), name, arg)


def infer_size(shape: tuple[int, ...], numel: int) -> tuple[int, ...]:
    """`shape` with its -1 worked out. Raises RuntimeError as PyTorch's `view` does."""
    hole = -1
    n = 1
    for k, s in enumerate(shape):
        if s == -1:
            if hole >= 0:
                raise RuntimeError("only one dimension can be inferred")
            hole = k
        elif s < 0:
            raise RuntimeError(f"invalid shape dimension {s} at index {k} of shape {list(shape)}")
        else:
            n *= s
    if hole < 0:
        if n == numel:
            return shape
    elif n > 0 and numel % n == 0:
        return (*shape[:hole], numel // n, *shape[hole + 1 :])
    elif n == 0 and numel == 0:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension size -1 "
            "can be any value and is ambiguous"
        )
    raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")


# ---- one Meta from another


@remembered
def viewed(m: Meta, shape: tuple[int, ...]) -> Meta:
    """`view`. Raises RuntimeError where the strides do not allow it."""
    r = reshaped(m, shape)
    if r is False:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead."
        )
    return r


@remembered
def reshaped(m: Meta, shape: tuple[int, ...]) -> Any:
    """`view`, or False where it takes a copy. The size is worked out and checked."""
    full = infer_size(shape, m.numel)
    strides = view_strides(m, full)
    return False if strides is None else m.view(full, strides, m.offset)


@remembered
def transposed(m: Meta, dim0: int, dim1: int) -> Meta:
    a, b = wrap_dim(dim0, m.ndim), wrap_dim(dim1, m.ndim)
    if a == b:
        return m
    shape, strides = list(m.shape), list(m.strides)
    shape[a], shape[b] = shape[b], shape[a]
    strides[a], strides[b] = strides[b], strides[a]
    return m.view(tuple(shape), tuple(strides), m.offset)


@remembered
def permuted(m: Meta, dims: tuple[int, ...]) -> Meta:
    if len(dims) != m.ndim:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {m.ndim} is not equal to len(dims) = {len(dims)}"
        )
    order = tuple(wrap_dim(d, m.ndim) for d in dims)
    if len(set(order)) != len(order):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return m.view(tuple(m.shape[d] for d in order), tuple(m.strides[d] for d in order), m.offset)


@remembered
def expanded(m: Meta, shape: tuple[int, ...]) -> Meta:
    """`expand`: -1 keeps a size, new dimensions have stride 0. RuntimeError as PyTorch's."""
    lead = len(shape) - m.ndim
    if lead < 0:
        name = type_name(m.dtype)
        kind = (
            f"torch.{name}Tensor"
            if name in _lazy.tape.OLD_TYPES
            else f"{'CPU' if m.device.type == 'cpu' else 'WebGPU'}{name}Type"
        )
        raise RuntimeError(
            f"expand({kind}{{{list(m.shape)}}}, size={list(shape)}): the number of sizes provided "
            f"({len(shape)}) must be greater or equal to the number of dimensions in the tensor ({m.ndim})"
        )
    size: list[int] = []
    strides: list[int] = []
    for d in range(len(shape) - 1, -1, -1):
        n = m.shape[d - lead] if d >= lead else 1
        if d >= lead:
            st = m.strides[d - lead]
        else:
            st = size[-1] * strides[-1] if size and m.ndim else 0
        want = shape[d]
        if want == -1:
            if d < lead:
                raise RuntimeError(
                    f"The expanded size of the tensor ({want}) isn't allowed in a leading, non-existing dimension {d}"
                )
            want = n
        elif n != want:
            if n != 1:
                raise RuntimeError(
                    f"The expanded size of the tensor ({want}) must match the existing size ({n}) at non-singleton "
                    f"dimension {d}.  Target sizes: {list(shape)}.  Tensor sizes: {list(m.shape)}"
                )
            if want < 0:
                raise RuntimeError(
                    f"The expanded size of the tensor ({want}) must match the existing size ({n}) at non-singleton "
                    f"dimension {d}.  Target sizes: {list(shape)}.  Tensor sizes: {list(m.shape)}"
                )
            st = 0
        size.append(want)
        strides.append(st)
    return m.view(tuple(reversed(size)), tuple(reversed(strides)), m.offset)


@remembered
def squeezed(m: Meta, dims: tuple[int, ...] | None) -> Meta:
    drop = range(m.ndim) if dims is None else wrap_dims(dims, m.ndim)
    keep = [d for d in range(m.ndim) if d not in drop or m.shape[d] != 1]
    return m.view(tuple(m.shape[d] for d in keep), tuple(m.strides[d] for d in keep), m.offset)


@remembered
def unsqueezed(m: Meta, dim: int) -> Meta:
    d = wrap_dim(dim, m.ndim + 1)
    st = m.shape[d] * m.strides[d] if d < m.ndim else 1
    return m.view((*m.shape[:d], 1, *m.shape[d:]), (*m.strides[:d], st, *m.strides[d:]), m.offset)


@remembered
def flat_shape(m: Meta, start: int, end: int) -> tuple[int, ...]:
    """The shape `flatten(start, end)` gives."""
    a, b = wrap_dim(start, m.ndim), wrap_dim(end, m.ndim)
    if a > b:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if m.ndim == 0:
        return (1,)
    return (*m.shape[:a], prod(m.shape[a : b + 1]), *m.shape[b + 1 :])


def unflat_shape(m: Meta, dim: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape `unflatten(dim, sizes)` gives."""
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    d = wrap_dim(dim, m.ndim)
    n = m.shape[d] if m.ndim else 1
    try:
        full = infer_size(sizes, n)
    except RuntimeError as e:
        if "only one" in str(e):
            raise
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {d} ({n}) in the input tensor"
        ) from None
    return (*m.shape[:d], *full, *m.shape[d + 1 :])


@remembered
def selected(m: Meta, dim: int, i: int) -> Meta:
    if m.ndim == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = wrap_dim(dim, m.ndim)
    n = m.shape[d]
    if not -n <= i < n:
        raise IndexError(f"select(): index {i} out of range for tensor of size {list(m.shape)} at dimension {d}")
    k = i + n if i < 0 else i
    return m.view(m.shape[:d] + m.shape[d + 1 :], m.strides[:d] + m.strides[d + 1 :], m.offset + k * m.strides[d])


def slice_bounds(n: int, start: int | None, stop: int | None, step: int) -> tuple[int, int]:
    """(first index, length) of a slice of a dimension of size n, clamped as Python does."""
    a = 0 if start is None else start + n if start < 0 else start
    b = n if stop is None else stop + n if stop < 0 else stop
    a = min(max(a, 0), n)
    b = min(max(b, a), n)
    return a, -(-(b - a) // step)


@remembered
def sliced(m: Meta, dim: int, start: int | None, stop: int | None, step: int) -> Meta:
    if m.ndim == 0:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    d = wrap_dim(dim, m.ndim)
    a, n = slice_bounds(m.shape[d], start, stop, step)
    return m.view(
        (*m.shape[:d], n, *m.shape[d + 1 :]),
        (*m.strides[:d], m.strides[d] * step, *m.strides[d + 1 :]),
        m.offset + a * m.strides[d],
    )


@remembered
def narrowed(m: Meta, dim: int, start: int, length: int) -> Meta:
    if m.ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    n = m.shape[wrap_dim(dim, m.ndim)]
    if not -n <= start <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got {start})")
    if start < 0:
        start += n
    if start + length > n:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return sliced(m, dim, start, start + length, 1)


@remembered
def unfolded(m: Meta, dim: int, size: int, step: int) -> Meta:
    d = wrap_dim(dim, m.ndim)
    n = m.shape[d] if m.ndim else 1
    st = m.strides[d] if m.ndim else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {n} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if m.ndim == 0:
        return m.view((size,), (1,), m.offset)
    return m.view(
        (*m.shape[:d], (n - size) // step + 1, *m.shape[d + 1 :], size),
        (*m.strides[:d], st * step, *m.strides[d + 1 :], st),
        m.offset,
    )


@remembered
def diagonal_of(m: Meta, offset: int, dim1: int, dim2: int) -> Meta:
    a, b = wrap_dim(dim1, m.ndim), wrap_dim(dim2, m.ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, cols = m.shape[a], m.shape[b]
    n = max(min(rows, cols - offset) if offset >= 0 else min(rows + offset, cols), 0)
    at = m.offset
    if n:
        at += offset * m.strides[b] if offset >= 0 else -offset * m.strides[a]
    keep = [d for d in range(m.ndim) if d not in (a, b)]
    return m.view((*(m.shape[d] for d in keep), n), (*(m.strides[d] for d in keep), m.strides[a] + m.strides[b]), at)


@remembered
def restrided(m: Meta, storage: int, size: tuple[int, ...], stride: tuple[int, ...], offset: int | None) -> Meta:
    """`as_strided` on a storage of that many bytes."""
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    at = m.offset if offset is None else offset
    if at < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {at}")
    if prod(size):
        need = (at + 1 + sum((n - 1) * s for n, s in zip(size, stride))) * m.dtype.itemsize
        if need > storage:
            raise RuntimeError(
                f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {at}, and itemsize "
                f"{m.dtype.itemsize} requiring a storage size of {need} are out of bounds for storage of size {storage}"
            )
    return m.view(size, stride, at)


def moved(ndim: int, source: tuple[int, ...], destination: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that `movedim` makes."""
    if len(source) != len(destination):
        raise RuntimeError(
            "movedim: Invalid source or destination dims: source "
            f"({list(source)} dims) should contain the same number of dims as destination ({list(destination)} dims)"
        )
    src = [wrap_dim(d, ndim) for d in source]
    dst = [wrap_dim(d, ndim) for d in destination]
    for name, got, dims in (("source", source, src), ("destination", destination, dst)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(got)})")
    if ndim == 0:
        return ()
    order = [-1] * ndim
    for s, d in zip(src, dst):
        order[d] = s
    rest = iter(d for d in range(ndim) if d not in src)
    return tuple(next(rest) if o < 0 else o for o in order)


# ---- sections


def split_sizes(n: int, size: int) -> tuple[int, ...]:
    """Lengths of pieces of `size`, the last one possibly shorter."""
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    if size == 0:
        if n:
            raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {n}")
        return (0,)
    k = max(-(-n // size), 1)
    return (*(size,) * (k - 1), n - size * (k - 1))


@remembered
def pieces(m: Meta, dim: int, sizes: tuple[int, ...]) -> tuple[Meta, ...]:
    """Neighbouring slices of these lengths along `dim`, which is not negative."""
    out = []
    at = 0
    for n in sizes:
        out.append(narrowed(m, dim, at, n))
        at += n
    return tuple(out)


def dense_strides(m: Meta) -> tuple[int, ...]:
    """Strides of a new tensor like `m` (`preserve_format`): the same order of dimensions, without gaps or overlap."""
    if m.contiguous:
        return m.strides
    dense = sorted((st, n) for n, st in zip(m.shape, m.strides) if n != 1)
    expect = 1
    for st, n in dense:
        if st != expect:
            break
        expect *= n
    else:
        return m.strides
    # as at::infer_dense_strides does: a stable sort by stride, where 0 says nothing
    order = list(range(m.ndim - 1, -1, -1))
    for i in range(1, m.ndim):
        at = i
        for j in range(i - 1, -1, -1):
            c = _compare(m, order[j], order[at])
            if c > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif c < 0:
                break
    return ordered_strides(m.shape, order[::-1])


def _compare(m: Meta, a: int, b: int) -> int:
    sa, sb = m.strides[a], m.strides[b]
    if sa == 0 or sb == 0 or sa == sb:
        if sa == sb and sa and m.shape[a] > m.shape[b]:
            return 1
        return 0
    return -1 if sa < sb else 1
