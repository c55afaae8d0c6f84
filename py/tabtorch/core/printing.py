"""Printing tensors exactly as PyTorch prints them (`torch._tensor_str`, 2.13).

Only what is shown is read: a tensor that is summarized is cut down to its edges on its device, then read
once; the text is made from Python numbers. A tensor here is anything with `shape`, `dtype`, `device`,
`requires_grad`, `grad_fn`, `detach()`, `tolist()` and indexing by lists, so real PyTorch tensors print too.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from math import inf, isfinite, prod
from typing import Any

from tabtorch import _lazy
from tabtorch.base.thread_state import STATE
from tabtorch.ops.machinery.batching import batches


@dataclasses.dataclass
class _PrinterOptions:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


PRINT_OPTS = _PrinterOptions()

_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """`torch.set_printoptions`: digits, summarizing, line width, and a profile "default", "short" or "full".

    `sci_mode` goes back to None, the automatic choice, unless it is given: PyTorch does so too.
    """
    given = dict(_PROFILES.get(profile, {})) if profile is not None else {}
    named = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    given.update((name, value) for name, value in named.items() if value is not None)
    for name, value in given.items():
        setattr(PRINT_OPTS, name, value)
    PRINT_OPTS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The present options, as keyword arguments for `set_printoptions`."""
    return dataclasses.asdict(PRINT_OPTS)


@contextlib.contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """`torch.set_printoptions` for the length of a with block."""
    old = get_printoptions()
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        set_printoptions(**old)


# ---- numbers -> text


def _plain_format(value: Any) -> str:
    return str(value)


def _float_formatter(values: list[float]) -> tuple[Callable[[float], str], int]:
    """The format that fits every value shown, and its width. `values` are the doubles of the elements."""
    nonzero = [v for v in values if v != 0 and isfinite(v)]
    if not nonzero:
        return (lambda v: f"{v:.0f}" + ("." if isfinite(v) else "")), 1
    smallest = min(map(abs, nonzero))
    largest = max(map(abs, nonzero))
    sci = PRINT_OPTS.sci_mode
    if sci is None:
        sci = largest / smallest > 1000.0 or largest > 1.0e8 or smallest < 1.0e-4
    digits = PRINT_OPTS.precision
    if sci:
        spec = f".{digits}e"
        return (lambda v: format(v, spec)), max(1, *(len(format(v, spec)) for v in nonzero))
    if all(v.is_integer() for v in nonzero):
        # one more than the digits: a point follows them
        width = max(len(f"{v:.0f}") + 1 for v in nonzero)
        return (lambda v: f"{v:.0f}" + ("." if isfinite(v) else "")), width
    spec = f".{digits}f"
    return (lambda v: format(v, spec)), max(1, *(len(format(v, spec)) for v in nonzero))


def _formatter(values: list[Any], dtype: Any) -> tuple[Callable[[Any], str], int]:
    """One element -> its text, padded; and the width a line has to reckon with."""
    if dtype.is_complex:
        real, real_width = _float_formatter([v.real for v in values])
        imag, imag_width = _float_formatter([v.imag for v in values])

        def complex_format(v: complex) -> str:
            left = real(v.real).rjust(real_width)
            # stripped of its padding: only the real parts are lined up
            right = imag(v.imag) + "j"
            return left + right if right[0] in "+-" else left + "+" + right

        return complex_format, real_width + imag_width + 1
    if dtype.is_floating_point:
        text, width = _float_formatter(values)
    else:
        text, width = _plain_format, max([1, *(len(str(v)) for v in values)])
    return (lambda v: text(v).rjust(width)), width


# ---- nested lists -> text


def _flat(nested: Any, dims: int) -> list[Any]:
    if dims == 0:
        return [nested]
    for _ in range(dims - 1):
        nested = [item for part in nested for item in part]
    return list(nested)


def _vector(row: list[Any], cut: bool, indent: int, text: Callable[[Any], str], width: int) -> str:
    items = [text(v) for v in row]
    if cut:
        edge = PRINT_OPTS.edgeitems
        items[edge:edge] = [" ..."]
    per_line = max(1, (PRINT_OPTS.linewidth - indent) // (width + 2))
    lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _nested(data: Any, cut: list[bool], indent: int, text: Callable[[Any], str], width: int) -> str:
    if not cut:
        return text(data)
    if len(cut) == 1:
        return _vector(data, cut[0], indent, text, width)
    parts = [_nested(part, cut[1:], indent + 1, text, width) for part in data]
    if cut[0]:
        edge = PRINT_OPTS.edgeitems
        parts[edge:edge] = ["..."]
    return "[" + ("," + "\n" * (len(cut) - 1) + " " * (indent + 1)).join(parts) + "]"


def _contents(t: Any, indent: int) -> str:
    """The part in brackets. Reads, once, the elements that are shown."""
    shape = tuple(t.shape)
    edge = PRINT_OPTS.edgeitems
    t = t.detach()
    cut = [False] * len(shape)
    if shape and prod(shape) > PRINT_OPTS.threshold:
        if not edge:
            return "[...]"
        cut = [size > 2 * edge for size in shape]
        ends = [*range(edge), *range(-edge, 0)]
        for dim, is_cut in enumerate(cut):
            if is_cut:
                t = t[(slice(None),) * dim + (ends,)]
    data = t.tolist()
    text, width = _formatter(_flat(data, len(shape)), t.dtype)
    return _nested(data, cut, indent, text, width)


# ---- suffixes


def _tensor_str(self: Any, indent: int) -> str:
    """The numbers as `print` shows them, without what stands around them."""
    return _contents(self, indent)


def _default_dtype() -> Any:
    return _lazy.dtypes.get_default_dtype()


def _device_suffix(t: Any) -> str | None:
    """`device='webgpu:0'` of a tensor that is neither on the cpu, which PyTorch never shows, nor on the default device."""
    if t.device.type != "meta" and t.device.type in ("cpu", _lazy.device.default_device().type):
        return None
    return f"device='{t.device}'"


def _grad_suffix(t: Any) -> str | None:
    try:
        grad_fn = t.grad_fn
    except RuntimeError:
        # a view made and then changed in no-grad mode cannot say where it comes from
        return "grad_fn=<Invalid>"
    if grad_fn is not None:
        return f"grad_fn=<{type(grad_fn).__name__}>"
    return "requires_grad=True" if t.requires_grad else None


def _tangent_suffix(t: Any) -> str | None:
    if not STATE.duals:
        return None
    tangent = _lazy.forward_ad.unpack_dual(t).tangent
    return None if tangent is None else f"tangent={tangent}"


def _dtype_shown(t: Any) -> bool:
    name = str(t.dtype)
    default = str(_default_dtype())
    if t.device.type == "meta" or 0 in tuple(t.shape):
        return name != default  # with no elements to tell int64 or bool by
    default_complex = "torch.complex128" if default == "torch.float64" else "torch.complex64"
    return name not in (default, default_complex, "torch.int64", "torch.bool")


def _add_suffixes(text: str, suffixes: list[str], indent: int) -> str:
    parts = [text]
    last_line = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if last_line + len(suffix) + 2 > PRINT_OPTS.linewidth:
            parts.append(",\n" + " " * indent + suffix)
            last_line = indent + len(suffix)
        else:
            parts.append(", " + suffix)
            last_line += len(suffix) + 2
    return "".join(parts) + ")"


def tensor_repr(t: Any, *, tensor_contents: str | None = None) -> str:
    """`repr(t)` of a tensor; `tensor_contents` replaces the numbers.

    A subclass prints under its own name, a Parameter's `repr` is `parameter_repr`.
    """
    if batches[0]:
        if _lazy.batch.is_batched(t):
            return _lazy.batch.shown(t)
    kind = type(t)
    plain = kind.__name__ in ("Tensor", "Parameter") and kind.__module__.partition(".")[0] in ("tabtorch", "torch")
    prefix = "tensor(" if plain else kind.__name__ + "("
    shape = tuple(t.shape)
    indent = len(prefix)
    suffixes = [_device_suffix(t)]
    if t.device.type == "meta":
        contents = "..."
        suffixes.append(f"size={shape}")
    elif 0 in shape:
        contents = "[]"
        if len(shape) != 1:
            suffixes.append(f"size={shape}")
    else:
        contents = "" if tensor_contents is not None else _contents(t, indent)
        if not PRINT_OPTS.edgeitems:
            suffixes.append(f"size={shape}")
    if _dtype_shown(t):
        suffixes.append(f"dtype={t.dtype}")
    suffixes.append(_grad_suffix(t))
    suffixes.append(_tangent_suffix(t))
    if tensor_contents is not None:
        contents = tensor_contents
    text = _add_suffixes(prefix + contents, [s for s in suffixes if s], indent)
    is_parameter = getattr(t, "_is_param", False) or any(base.__name__ == "Parameter" for base in kind.__mro__)
    return f"Parameter({text})" if is_parameter and not plain else text


def parameter_repr(t: Any) -> str:
    """`repr(p)` of an `nn.Parameter`."""
    return "Parameter containing:\n" + tensor_repr(t)
