"""`torch.fft`: Fourier transforms of any length, on the device, along one or several dimensions."""

from __future__ import annotations

import math
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import record
from tabtorch.base import dtypes
from tabtorch.core.creation import finished
from tabtorch.core.layout import suggested_order
from tabtorch.core.shapes import ints, remembered, type_name, wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import Inst, inst
from tabtorch.engine.view import Meta, contiguous_meta, contiguous_strides, meta, ordered_strides
from tabtorch.ops.fourier.fft_kernels import CHIRP, FFT, radices
from tabtorch.ops.machinery.operation import into, no_grad_with_out, run
from tabtorch.ops.reductions.reduce import quiet


def _ops() -> Any:
    return _lazy.ops


_COMPLEX = {dtypes.float32: dtypes.complex64, dtypes.float64: dtypes.complex128}
_REAL = {c: r for r, c in _COMPLEX.items()}


# ---- one transform along one dimension


@remembered
def _plan(m: Meta, dim: int, n: int, count: int, inverse: bool, half: Any, dtype: Any, order: Any) -> tuple[Inst, Meta]:
    """(instruction, Meta of the result). `order`: the layout of the result, outermost dimension first; None is PyTorch's: the
    transformed one innermost, the others as they lie."""
    others = [d for d in range(m.ndim) if d != dim]
    shape = tuple([count if d == dim else s for d, s in enumerate(m.shape)])
    if order is None:
        order = (*sorted(others, key=lambda d: -m.strides[d]), dim)
    step = ordered_strides(shape, order)
    rows = (*[d for d in order if d != dim], dim)
    source = m.view(tuple([m.shape[d] for d in rows]), tuple([m.strides[d] for d in rows]), m.offset)
    out = contiguous_meta(tuple([shape[d] for d in rows]), dtype, m.device)
    real = "f32" if dtype in (dtypes.float32, dtypes.complex64) else "f64"
    static = (n, inverse, *half, tuple([step[d] for d in rows]))
    i = inst(FFT, (source,), out, (real,), static, real)
    return i, meta(shape, step, 0, dtype, m.device)


def _forward(
    x: Tensor, dim: int, n: int, count: int, inverse: bool, scale: float, half: Any, dtype: Any, order: Any = None
) -> Tensor:
    m = x._tab_meta
    if not m.shape[dim]:
        return _ops().zeros(
            tuple([count if d == dim else s for d, s in enumerate(m.shape)]), dtype=dtype, device=m.device
        )
    if radices(n) is None:
        return _bluestein(x, dim, n, count, inverse, scale, half, dtype)
    i, shown = _plan(m, dim, n, count, inverse, half, dtype, order)
    return run(i, shown, x, scalars=(scale,))


def _bluestein(x: Any, dim: int, n: int, count: int, inverse: bool, scale: float, half: Any, dtype: Any) -> Tensor:
    """jk = (j² + k² - (k - j)²) / 2: a convolution with a chirp, by transforms of a power of two.
    Bluestein, A linear filtering approach to the computation of discrete Fourier transform (1970)."""
    wide = _COMPLEX.get(dtype, dtype)
    real = _REAL[wide]
    with quiet():
        x = x.movedim(dim, -1)
        most = max(x.shape[-1], count)
        size = 1 << (2 * most - 2).bit_length()
        made = contiguous_meta((size,), wide, x.device)
        chirp: Any = run(inst(CHIRP, (), made, (), (n, most, inverse), real.compute), made)

        def weighted(y: Any, doubled: bool) -> Any:
            return y * _half_weights(n, y.shape[-1], real, x.device) if doubled else y

        def transform(y: Any, count: int, inverse: bool) -> Any:
            return _forward(y, y.ndim - 1, size, count, inverse, 1.0, (False, False), wide)

        a = transform(weighted(x, half[0]) * chirp[: x.shape[-1]].conj(), size, False)
        y = transform(a * transform(chirp, size, False), count, True) * (chirp[:count].conj() * (scale / size))
        y = weighted(y, half[1])
        return (y if dtype.is_complex else y.real.contiguous()).movedim(-1, dim)


def _half_weights(n: int, count: int, dtype: Any, device: Any) -> Any:
    """2 for the elements of half a spectrum that stand for their mirror image too, else 1."""
    ops = _ops()
    k = ops.arange(count, device=device)
    return ops.where((k == 0) | (2 * k == n), 1, 2).to(dtype)


def _transform(
    x: Tensor,
    dim: int,
    n: int,
    count: int,
    inverse: bool,
    scale: float,
    half: tuple[bool, bool] = (False, False),
    real: bool = False,
    order: Any = None,
) -> Tensor:
    """`count` values of the transform of length `n` of `x`, which has up to `n`: see fft_kernels.py. Its adjoint is another one."""
    kind = _result_type(x)
    have, complex_input = x.shape[dim], x.is_complex()
    r = _forward(x, dim, n, count, inverse, scale, half, _REAL[kind] if real else kind, order)
    name = "FftC2RBackward0" if real else "FftC2CBackward0" if complex_input else "FftR2CBackward0"
    back = lambda g: _transform(g, dim, n, have, not inverse, scale, half[::-1], not complex_input)  # noqa: E731
    record(name, (x,), r, back)
    return r


# ---- arguments


def _result_type(x: Tensor) -> Any:
    """The complex type of a transform. Integers count as the default type; RuntimeError for halves."""
    d = x._tab_meta.dtype
    if d.category < 2:
        d = dtypes.get_default_dtype()
    if d.is_complex:
        return d
    if d not in _COMPLEX:
        raise RuntimeError(f"Unsupported dtype {type_name(d)}")
    return _COMPLEX[d]


def _scale(norm: Any, n: int, inverse: bool) -> float:
    if norm not in (None, "backward", "forward", "ortho"):
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if inverse == (norm != "forward") else 1.0


def _wrapped(dim: int, ndim: int) -> int:
    if ndim == 0:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return wrap_dim(dim, ndim)


def _points(n: int) -> int:
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return n


def _is_int(v: Any) -> bool:
    return hasattr(type(v), "__index__") and not isinstance(v, bool)


def _check_tensor(name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")


def _check_out(name: str, x: Tensor, out: Any, real: bool) -> None:
    if out is None:
        return
    if real and not out.dtype.is_floating_point:
        raise RuntimeError(f"{name} expects a floating point output tensor, but got {type_name(out.dtype)}")
    if not real and not out.is_complex():
        # PyTorch's message calls these two by the names of the forward transforms
        shown = name.removeprefix("i") if name in ("ifft2", "ifftn") else name
        raise RuntimeError(f"{shown} expects a complex output tensor, but got {type_name(out.dtype)}")


#: kinds of transforms: all of a spectrum; half of it, of a real input; a real output, of half a spectrum
FULL, TO_HALF, FROM_HALF = range(3)


def along(x: Any, kind: int, inverse: bool, n: int, d: int, norm: Any, order: Any = None) -> Tensor:
    """A transform of `n` points along dimension `d`, the input cut or padded with zeros to it."""
    scale = _scale(norm, n, inverse)
    used = n // 2 + 1 if kind == FROM_HALF else n
    if x.shape[d] > used:
        x = x.narrow(d, 0, used)
    count = n // 2 + 1 if kind == TO_HALF else n
    if order is None and x.shape[d] < used:
        st = _resized_strides(x._tab_meta, {d: used})
        order = (*sorted((k for k in range(x.ndim) if k != d), key=lambda k: -st[k]), d)
    return _transform(x, d, n, count, inverse, scale, (kind == FROM_HALF, False), kind == FROM_HALF, order)


def _resized_strides(m: Meta, points: dict[int, int]) -> tuple[int, ...]:
    """Strides of the input as PyTorch transforms it: cut to so many points, it stays where it is; padded, it is a new tensor."""
    if all(n <= m.shape[d] for d, n in points.items()):
        return m.strides
    part = m.view(tuple([min(n, points.get(d, n)) for d, n in enumerate(m.shape)]), m.strides, m.offset)
    shape = tuple([points.get(d, n) for d, n in enumerate(m.shape)])
    order = suggested_order(part)
    return ordered_strides(shape, order) if order else contiguous_strides(shape)


def _one(short: str, kind: int, inverse: bool, doc: str) -> Any:
    """The function of a transform along one dimension."""
    name = "fft_" + short

    def f(input: Any, n: Any = None, dim: Any = -1, norm: Any = None, *, out: Any = None) -> Tensor:
        _check_tensor(name, input)
        for key, v in (("n", n), ("dim", dim)):
            if not (_is_int(v) or (v is None and key == "n")):
                raise TypeError(f"{name}(): argument '{key}' must be int, not {type(v).__name__}")
        if kind == TO_HALF and input.is_complex():
            raise RuntimeError(f"{short} expects a real input tensor, but got {type_name(input.dtype)}")
        _check_out(short, input, out, kind == FROM_HALF)
        _result_type(input)
        d = _wrapped(dim, input.ndim)
        if n is None:
            n = 2 * (input.shape[d] - 1) if kind == FROM_HALF else input.shape[d]
        keeps = short in ("ifft", "ihfft")
        return _written(name, input, out, along(input, kind, inverse, _points(int(n)), d, norm), keeps)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = (
        doc + " `n` points (the input cut or padded with zeros), along `dim`; `norm` backward, ortho or forward."
    )
    return f


def _written(name: str, input: Tensor, out: Any, result: Tensor, keeps: bool = False) -> Tensor:
    """The result, in `out` if there is one. keeps: an empty `out` is laid out as the result is."""
    if out is not None:
        no_grad_with_out(name, result, out)
        if not keeps:
            result = result.contiguous()  # as an empty out= becomes
    return into(out, result)


def _dims(x: Tensor, s: Any, dim: Any) -> tuple[list[int], list[int]]:
    """(dimensions, numbers of points, -1 where none is given)."""
    if dim is not None:
        dims = [_wrapped(d, x.ndim) for d in dim]
        if len(set(dims)) < len(dims):
            raise RuntimeError("FFT dims must be unique")
        if s is not None and len(s) != len(dims):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
    elif s is not None:
        if len(s) > x.ndim:
            raise RuntimeError(f"Got shape with {len(s)} values but input tensor only has {x.ndim} dimensions.")
        dims = list(range(x.ndim - len(s), x.ndim))
    else:
        dims = list(range(x.ndim))
    return dims, list(s) if s is not None else [-1] * len(dims)


def _several(short: str, kind: int, inverse: bool, default: Any, doc: str) -> Any:
    """The function of a transform along several dimensions. Half a spectrum is one along the last of them."""
    name = "fft_" + short
    several = short.replace("2", "n")

    def f(input: Any, s: Any = None, dim: Any = default, norm: Any = None, *, out: Any = None) -> Tensor:
        _check_tensor(name, input)
        given: list[Any] = []
        for key, v in (("s", s), ("dim", dim)):
            if v is None or _is_int(v):
                given.append(v if v is None else (int(v),))
            elif isinstance(v, (tuple, list)):
                given.append(ints(tuple(v)))
            else:
                raise TypeError(f"{name}(): argument '{key}' must be tuple of ints, not {type(v).__name__}")
        if kind == TO_HALF and input.is_complex():
            raise RuntimeError(
                f"rfftn expects a real-valued input tensor, but got {type_name(input.dtype)}"
                if several == "rfftn"
                else f"Only supports floating-point dtypes, but found: {type_name(input.dtype)}"
            )
        _check_out(several, input, out, kind == FROM_HALF)
        wide = _result_type(input)
        dims, points = _dims(input, *given)
        if kind != FULL and not dims:
            raise RuntimeError(f"{several} must transform at least one axis")
        for k, d in enumerate(dims):
            if points[k] == -1:
                points[k] = _points(input.shape[d])
                if kind == FROM_HALF and k == len(dims) - 1:
                    points[k] = 2 * (points[k] - 1)
            _points(points[k])
        count = dict(zip(dims, points, strict=True))
        used = dict(count)
        if kind == FROM_HALF:
            used[dims[-1]] = used[dims[-1]] // 2 + 1
        x, st = input, _resized_strides(input._tab_meta, used)
        first = dims if kind == FULL else dims[:-1]
        first = sorted(first, key=lambda d: -st[d])
        if kind == TO_HALF:
            x = along(x, kind, inverse, count[dims[-1]], dims[-1], norm)
        for d in first:
            # PyTorch does all of rfftn at once, and half the spectrum stays innermost
            order = None if several != "rfftn" else tuple(_sorted_rest(x, dims) + first + dims[-1:])
            x = along(x, FULL, inverse, count[d], d, norm, order)
        if kind == FROM_HALF:
            x = along(x, kind, inverse, count[dims[-1]], dims[-1], norm)
        if not dims:
            x = input.to(wide, copy=True)
            _scale(norm, 1, inverse)
        return _written(name, input, out, x)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc + " `s` points along `dim`, several dimensions; `norm` backward, ortho or forward."
    return f


def _sorted_rest(x: Tensor, dims: list[int]) -> list[int]:
    return sorted((d for d in range(x.ndim) if d not in dims), key=lambda d: -x._tab_meta.strides[d])


_KINDS = {
    "fft": (FULL, False, "The discrete Fourier transform."),
    "ifft": (FULL, True, "The inverse transform."),
    "rfft": (TO_HALF, False, "The first half, n // 2 + 1 values, of the transform of a real signal."),
    "irfft": (FROM_HALF, True, "The real signal of which the input is the first half of the transform."),
    "hfft": (FROM_HALF, False, "The real transform of a signal that is Hermitian, given by its first half."),
    "ihfft": (TO_HALF, True, "The first half of the inverse transform of a real signal."),
}
for _name, (_kind, _inverse, _doc) in _KINDS.items():
    globals()[_name] = _one(_name, _kind, _inverse, _doc)
    globals()[_name + "2"] = _several(_name + "2", _kind, _inverse, (-2, -1), _doc)
    globals()[_name + "n"] = _several(_name + "n", _kind, _inverse, None, _doc)


# ---- frequencies, shifts


def _frequencies(name: str, n: int, count: int, span: float, out: Any, requires_grad: bool, options: Any) -> Tensor:
    kind = options.get("dtype") or (out.dtype if out is not None else dtypes.get_default_dtype())
    if kind.category < 2:
        raise RuntimeError(f"{name} requires a floating point or complex dtype")
    if kind.is_complex:
        raise NotImplementedError(f"\"arange_cpu\" not implemented for '{type_name(kind)}'")
    options["dtype"] = kind
    ops = _ops()
    k = ops.arange(count, **options) if count > 0 else ops.empty((count,), **options)
    with quiet():
        if name == "fftfreq":
            k = ops.where(k < (n + 1) // 2, k, k - n)
        # a product, as in PyTorch, with what a double makes of 1 / span
        k = k * (1 / span if span else math.copysign(math.inf, span))
    return finished(into(out, k), requires_grad)


def fftfreq(n: int, d: float = 1.0, *, out: Any = None, requires_grad: bool = False, **options: Any) -> Tensor:
    """The frequencies of the elements of `fft`, in cycles a unit, of `n` samples `d` apart: 0, 1, …, -2, -1 over n · d."""

    return _frequencies("fftfreq", n, n, n * d, out, requires_grad, options)


def rfftfreq(n: int, d: float = 1.0, *, out: Any = None, requires_grad: bool = False, **options: Any) -> Tensor:
    """The frequencies of the elements of `rfft` of `n` samples `d` apart: 0, 1, …, n // 2 over n · d."""
    return _frequencies("rfftfreq", n, int(n / 2) + 1, n * d, out, requires_grad, options)


def _shift(input: Tensor, dim: Any, before: int) -> Tensor:
    if dim is None:
        dims = tuple(range(input.ndim))
    else:
        dims = (dim,) if _is_int(dim) else tuple(dim)
    sizes = [input.shape[wrap_dim(d, input.ndim)] for d in dims]
    r: Tensor = _ops().roll(input, tuple([(n + before) // 2 for n in sizes]), dims)
    return r


def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The frequency 0 moved to the middle, along `dim` (None: all dimensions)."""
    _check_tensor("fft_fftshift", input)
    return _shift(input, dim, 0)


def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The inverse of `fftshift`."""
    _check_tensor("fft_ifftshift", input)
    return _shift(input, dim, 1)


NAMES = [k + end for k in _KINDS for end in ("", "2", "n")] + ["fftfreq", "rfftfreq", "fftshift", "ifftshift"]

__all__ = ["NAMES"]
