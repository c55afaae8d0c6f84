"""Short-time Fourier transforms: `stft`, `istft`. Frames are a view of the signal; what overlaps is added by the adjoint of it."""

from __future__ import annotations

import warnings
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import record, type_string
from tabtorch.base import dtypes
from tabtorch.core.shapes import type_name
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Complex, Expr, cast, const, fit, idiv, minimum, where
from tabtorch.engine.graph import Custom, Inst, inst
from tabtorch.engine.lower import Kernel, index_of
from tabtorch.engine.plan import Lowering
from tabtorch.engine.view import contiguous_meta
from tabtorch.ops.fourier.transforms import FROM_HALF, FULL, TO_HALF, along
from tabtorch.ops.machinery.batching import as_for_one
from tabtorch.ops.machinery.operand_devices import together
from tabtorch.ops.machinery.operation import operation, run
from tabtorch.ops.shaping.pad import pad


def _shown(name: str, x: Any, **given: Any) -> str:
    """How PyTorch's messages begin: the call with its arguments."""
    kind = type_string(x)
    if name == "istft":
        kind = ("CPU" if x.device.type == "cpu" else "CUDA") + kind.rpartition(".")[2].replace("Tensor", "Type")

    def text(v: Any) -> str:
        if isinstance(v, Tensor):
            return f"{type_string(v)}{{{list(v.shape)}}}"
        return str(int(v) if isinstance(v, bool) else v)

    return f"{name}({kind}{list(x.shape)}, {', '.join(f'{k}={text(v)}' for k, v in given.items())}) "


def _no_window(tail: str) -> None:
    warnings.warn(
        f"A window was not provided. A rectangular window will be applied{tail}To suppress this warning and use a "
        "rectangular window, explicitly set `window=torch.ones(n_fft, device=<device>)`.",
        stacklevel=4,
    )


def _centred(window: Tensor | None, like: Any, win_length: int, n_fft: int) -> Any:
    """The window with zeros on both sides up to n_fft; ones where there is none (None if that is all)."""
    if win_length == n_fft:
        return window
    w: Any = like.new_ones((win_length,)) if window is None else window
    left = (n_fft - win_length) // 2
    return pad(w, (left, n_fft - win_length - left))


def _on_one_device(name: str, x: Tensor, window: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Input and window on one device. RuntimeError where two were named that differ."""
    if window is not None:
        if window._tab_meta.device.implicit or x._tab_meta.device.implicit:
            x, window = together((x, window))
        if window.device != x.device:
            raise RuntimeError(
                f"{name} input and window must be on the same device but got self on {x.device} and window on {window.device}"
            )
    return x, window


@operation("stft")
def stft(
    input: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The transforms of windows of `n_fft` elements, `hop_length` apart: (T) or (B, T) to (B, n_fft // 2 + 1 or n_fft, frames).

    `return_complex` must be given for real input; False gives real and imaginary parts as a last dimension.
    """
    x = input
    if center:
        if align_to_window is not None:
            raise RuntimeError("stft align_to_window should only be set when center = false")
        lead = x.reshape(*[1] * (3 - x.ndim), *x.shape)
        if pad_mode not in ("constant", "reflect", "replicate", "circular"):
            raise NotImplementedError(f"Unrecognised padding mode {pad_mode}")
        padded = pad(lead, (n_fft // 2, n_fft // 2), pad_mode)
        x = padded.reshape(padded.shape[padded.ndim - x.ndim :])
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    x, window = _on_one_device("stft", x, window)
    complex_input = x.is_complex() or (window is not None and window.is_complex())
    if return_complex is None:
        if not complex_input:
            raise RuntimeError(
                "stft requires the return_complex parameter be given for real inputs, and will further require that "
                "return_complex=True in a future PyTorch release."
            )
        return_complex = True
    elif not return_complex:
        warnings.warn(
            "stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex tensors "
            "for all inputs, and return_complex=False will raise an error.\nNote: you can still call torch.view_as_real on "
            "the complex output to recover the old return format.",
            stacklevel=3,
        )

    def refuse(why: str) -> None:
        call = _shown(
            "stft",
            x,
            n_fft=n_fft,
            hop_length=hop,
            win_length=length,
            window=window,
            normalized=normalized,
            onesided=onesided,
            return_complex=return_complex,
            align_to_window=align_to_window,
        )
        raise RuntimeError(call + why)

    if x.dtype.itemsize == 2 and x.dtype.category == 2:
        raise RuntimeError(f"MKL FFT doesn't support tensors of type: {type_name(x.dtype)}")
    if x.dtype.category < 2:
        refuse(": expected a tensor of floating point or complex values")
    if not 1 <= x.ndim <= 2:
        refuse(": expected a 1D or 2D tensor")
    total = x.shape[-1]
    aligned = bool(align_to_window) and not center
    least = length if aligned else n_fft
    if not 0 < least <= total:
        refuse(f": expected 0 < n_fft < {total}, but got n_fft={least}")
    if hop <= 0:
        refuse(f": expected hop_length > 0, but got hop_length={hop}")
    if not 0 < length <= n_fft:
        refuse(f": expected 0 < win_length <= n_fft, but got win_length={length}")
    if window is not None and tuple(window.shape) != (length,):
        refuse(
            f": expected a 1D window tensor of size equal to win_length={length}, but got window with size "
            f"{list(window.shape)}"
        )
    if window is None:
        _no_window(",which is known to cause spectral leakage. Other windows such as torch.hann_window or "
                   "torch.hamming_window are recommended to reduce spectral leakage.")  # fmt: skip
    if onesided is None:
        onesided = not complex_input
    elif onesided and complex_input:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if aligned:  # the first window begins where the signal does
        x = pad(x, ((n_fft - length) // 2, (n_fft - length + 1) // 2))
    frames = x.unfold(-1, n_fft, hop)
    w = _centred(window, x, length, n_fft)
    if w is not None:
        frames = frames * w
    r = along(frames, TO_HALF if onesided else FULL, False, n_fft, frames.ndim - 1, "ortho" if normalized else None)
    r = r.transpose(-2, -1)
    if return_complex:
        return r
    seen: Tensor = _lazy.ops.view_as_real(r)
    return seen


def _overlap(i: Inst, low: Lowering) -> None:
    """Every place of the signal is a thread and adds up what the frames around it have there. `static` = step."""
    m = i.ins[0]
    count, n, total = m.shape[-2], m.shape[-1], i.out.shape[-1]
    rows = i.out.numel // max(total, 1)

    def body(k: Kernel, t: Expr) -> None:
        hop, size = k.dim(i.static, "step"), k.dim(n, "size")
        length = k.dim(total, "total")
        row = k.let(idiv(t, length), "row")
        p = k.let(t - row * length, "p")
        first = k.let(where(p < size, const(0, "u32"), idiv(p - size, hop) + 1), "first")
        end = k.let(minimum(idiv(p, hop) + 1, k.dim(count, "frames")), "end")
        zero = const(0, i.compute)
        parts = [k.var(z) for z in ((zero.re, zero.im) if isinstance(zero, Complex) else (zero,))]
        with k.loop(end, first) as f:
            at = [(row, rows, "row"), (f, count, "frame"), (k.let(p - f * hop, "at"), n, "at")]
            v = cast(k.load(low.input(0), k.let(index_of(k, m, at, ("x", 0)), "at")), i.compute)
            for var, x in zip(parts, (v.re, v.im) if isinstance(v, Complex) else (v,), strict=True):
                k.assign(var, x + var)
        value: Any = Complex(parts[0], parts[1]) if len(parts) == 2 else parts[0]
        k.store_bits(low.output, t, fit(cast(value, i.out.dtype.compute), i.out.dtype.name))

    low.launch("overlap add", i.out.numel, body)


_OVERLAP = Custom("overlap_add", _overlap, sized=True, batched=as_for_one)


def overlap_add(frames: Any, hop: int, total: int) -> Any:
    """(*, F, n) to (*, total): the sum of the frames, of which number f begins at f · hop. The adjoint of `unfold`."""
    m = frames._tab_meta
    out = contiguous_meta((*m.shape[:-2], total), m.dtype, m.device)
    if not m.numel:
        return frames.new_zeros(out.shape)
    r = run(inst(_OVERLAP, (m,), out, (), hop), out, frames)
    record("UnfoldBackwardBackward0", (frames,), r, lambda g: g.unfold(-1, m.shape[-1], hop))
    return r


@operation("istft")
def istft(
    input: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal of which `input` (B, n_fft // 2 + 1 or n_fft, frames) is the `stft`: (B, T).

    RuntimeError where the windows leave a gap, on cpu; on webgpu, where asking would wait for the GPU, the signal is nan there.
    """
    x = input
    hop = n_fft // 4 if hop_length is None else hop_length
    size = n_fft if win_length is None else win_length
    x, window = _on_one_device("istft", x, window)
    if not x.is_complex():
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
        )
    shown = _shown(
        "istft",
        x,
        n_fft=n_fft,
        hop_length=hop,
        win_length=size,
        window=window,
        center=center,
        normalized=normalized,
        onesided=onesided,
        length=length,
        return_complex=return_complex,
    )
    if not x.numel():
        raise RuntimeError(shown + ": input tensor cannot be empty.")
    if not 2 <= x.ndim <= 3:
        raise RuntimeError(shown + f": expected a tensor with 3 or 4 dimensions, but got {x.ndim + 1}")
    bins, count = x.shape[-2:]
    if onesided is None:
        onesided = bins != n_fft
    if bins != (n_fft // 2 + 1 if onesided else n_fft):
        wanted = "n_fft / 2 + 1 when onesided=True" if onesided else "n_fft when onesided=False"
        raise RuntimeError(
            shown + ": expected the frequency dimension (3rd to the last) of the input tensor to match "
            f"{wanted}, but got {bins}"
        )
    if not 0 < hop <= size:
        raise RuntimeError(shown + ": expected 0 < hop_length <= win_length")
    if size > n_fft:
        raise RuntimeError(shown + ": expected 0 < win_length <= n_fft")
    if window is not None and tuple(window.shape) != (size,):
        raise RuntimeError(shown + ": Invalid window shape. window has to be 1D and length of `win_length`")
    if window is None:
        _no_window(".Please provide the same window used by stft to make the inversion lossless.")
    if return_complex and onesided:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if not return_complex and window is not None and window.is_complex():
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    batch = x if x.ndim == 3 else x.unsqueeze(0)
    kind = FULL if return_complex else FROM_HALF
    frames: Any = along(batch.transpose(1, 2), kind, True, n_fft, 2, "ortho" if normalized else None)
    real = dtypes.float32 if x.dtype is dtypes.complex64 else dtypes.float64
    w = _centred(window, x.real, size, n_fft)
    if w is None:
        w = x.new_ones((n_fft,), dtype=real)
    total = n_fft + hop * (count - 1)
    y = overlap_add(frames * w, hop, total)
    envelope = overlap_add((w * w).expand(1, count, n_fft), hop, total)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - start
    y, envelope = y[:, start:end], envelope[:, start:end]
    # ones that overlap leave no gap; of a window on the GPU it is not asked
    sure = envelope.numel() > 0 and (hop <= n_fft if window is None else y.device.type != "cpu")
    if not sure and bool(envelope.detach().abs().min() < 1e-11):
        raise RuntimeError(shown + "window overlap add min: 1\n[ CPUBoolType{} ]")
    y = y / envelope
    if end > total:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. "
            "Please check your center and hop_length settings.",
            stacklevel=3,
        )
        y = pad(y, (0, end - total))
    return y if x.ndim == 3 else y.squeeze(0)
