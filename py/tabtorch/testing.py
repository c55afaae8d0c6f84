"""torch.testing: when two results are the same, and tensors to try things with."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tabtorch as torch
from tabtorch.core.from_host import tensor
from tabtorch.core.tensor import Tensor

#: dtype -> (rtol, atol); every other type is compared exactly
_TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
}
_NUMBERS = {int: torch.int64, float: torch.float64, complex: torch.complex128}
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raises unless |actual - expected| <= atol + rtol |expected| everywhere, in tensors, arrays, numbers, or containers of them.

    AssertionError for values or attributes that differ, TypeError for two things that cannot be compared, ValueError
    where only one of rtol and atol is given. msg replaces the message, or is called with it.
    """
    checks = {"device": check_device, "dtype": check_dtype, "layout": check_layout, "stride()": check_stride}
    pairs = list(_pairs(actual, expected, (), allow_subclasses))
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
    given = None if rtol is None or atol is None else (rtol, atol)
    for a, b, place in pairs:
        why = _difference(a, b, given, equal_nan, checks)
        if why is None:
            continue
        if place:
            why += f"\n\nThe failure occurred for item {''.join(f'[{x!r}]' for x in place)}"
        raise AssertionError(msg if isinstance(msg, str) else msg(why) if msg is not None else why)


def _pairs(a: Any, b: Any, place: tuple[Any, ...], subclasses: bool) -> Any:
    """The tensors and numbers to compare, each with where it stands in the containers."""
    if all(isinstance(x, Sequence) and not isinstance(x, str) for x in (a, b)):
        if len(a) != len(b):
            raise AssertionError(f"The length of the sequences mismatch: {len(a)} != {len(b)}")
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _pairs(x, y, (*place, i), subclasses)
    elif isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            raise AssertionError(
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {sorted(b.keys() - a.keys())}\n"
                f"Additional keys in the actual mapping: {sorted(a.keys() - b.keys())}"
            )
        for k in a:
            yield from _pairs(a[k], b[k], (*place, k), subclasses)
    elif a is None or b is None or all(isinstance(x, (int, float, complex)) for x in (a, b)):
        yield a, b, place
    else:
        kin = isinstance(a, type(b)) or isinstance(b, type(a))
        known = all(isinstance(x, Tensor) or hasattr(x, "__array__") for x in (a, b))
        if not known or not (kin and (subclasses or type(a) is type(b))):
            at = f"\n\nThe failure occurred for item {''.join(f'[{x!r}]' for x in place)}" if place else ""
            raise TypeError(f"No comparison pair was able to handle inputs of type {type(a)} and {type(b)}.{at}")
        yield *(x if isinstance(x, Tensor) else torch.as_tensor(x) for x in (a, b)), place


def _difference(
    a: Any, b: Any, given: tuple[float, float] | None, equal_nan: bool, checks: dict[str, bool]
) -> str | None:
    """What is wrong with a value, or None."""
    if a is None or b is None:
        return None if a is b else f"None mismatch: {a} is not {b}"
    if isinstance(a, bool) and isinstance(b, bool):
        return None if a is b else f"Booleans mismatch: {a} is not {b}"
    if not isinstance(a, Tensor):
        if checks["dtype"] and type(a) is not type(b):
            return f"The (d)types do not match: {type(a)} != {type(b)}."
        tolerances = given or _default(_NUMBERS.get(type(a)), _NUMBERS.get(type(b)))
        return None if _close(a, b, tolerances, equal_nan) else _scalars(a, b, tolerances)
    for name, wanted in {"shape": True, **checks}.items():
        x, y = ((t.stride() if name == "stride()" else getattr(t, name)) for t in (a, b))
        if wanted and x != y:
            return f"The values for attribute '{name}' do not match: {x} != {y}."
    tolerances = given or _default(a.dtype, b.dtype)
    a, b = a.detach(), b.detach()
    if a.device != b.device:
        a, b = a.cpu(), b.cpu()
    if a.dtype != b.dtype:
        common = torch.promote_types(a.dtype, b.dtype)
        a, b = a.to(common), b.to(common)
    matches = torch.isclose(a, b, rtol=tolerances[0], atol=tolerances[1], equal_nan=equal_nan)
    if bool(matches.all()):
        return None
    return _tensors(a, b, matches, tolerances) if a.dim() else _scalars(a.item(), b.item(), tolerances)


def _default(*kinds: Any) -> tuple[float, float]:
    rtols, atols = zip(*(_TOLERANCES.get(k, (0.0, 0.0)) for k in kinds), strict=True)
    return max(rtols), max(atols)


def _close(a: Any, b: Any, tolerances: tuple[float, float], equal_nan: bool) -> bool:
    gap = abs(a - b)
    both = equal_nan and cmath.isnan(a) and cmath.isnan(b)
    return a == b or both or (cmath.isfinite(gap) and gap <= tolerances[1] + tolerances[0] * abs(b))


def _scalars(a: Any, b: Any, tolerances: tuple[float, float]) -> str:
    gap = abs(a - b)
    lines = [f"Expected {b} but got {a}."]
    return _report("Scalars", lines, tolerances, ("Absolute", gap), ("Relative", gap / abs(b) if b != 0 else math.inf))


def _tensors(a: Tensor, b: Tensor, matches: Tensor, tolerances: tuple[float, float]) -> str:
    wrong, n = int(matches.logical_not().sum()), a.numel()
    if not (a.is_floating_point() or a.is_complex()):
        a, b = a.to(torch.int64), b.to(torch.int64)
    found = []
    gap = torch.sub(a, b).abs().masked_fill(matches, 0)
    for title, d in (("Greatest absolute", gap), ("Greatest relative", (gap / b.abs()).masked_fill(matches, 0))):
        value, at = d.flatten().max(0)
        place: list[int] = []
        at = int(at)
        for size in reversed(d.shape):
            at, i = divmod(at, size)
            place.insert(0, i)
        found.append((title, f"{value.item()} at index {tuple(place)}"))
    return _report("Tensor-likes", [f"Mismatched elements: {wrong} / {n} ({wrong / n:.1%})"], tolerances, *found)


def _report(what: str, lines: list[str], tolerances: tuple[float, float], *gaps: tuple[str, Any]) -> str:
    exact = tolerances == (0, 0)
    lines = [f"{what} are not {'equal' if exact else 'close'}!", "", *lines]
    for (title, gap), allowed in zip(gaps, reversed(tolerances), strict=True):
        lines.append(f"{title} difference: {gap}" + ("" if exact else f" (up to {allowed} allowed)"))
    return "\n".join(lines)


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """assert_close as it was called before: types and devices may differ."""
    if not isinstance(actual, Tensor):
        actual = tensor(actual)
    if not isinstance(expected, Tensor):
        expected = tensor(expected, dtype=actual.dtype)
    if rtol is None and atol is None:
        rtol, atol = _default(actual.dtype, expected.dtype)
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=True,
        check_dtype=False,
        msg=msg or None,
    )


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of values drawn uniformly from [low, high): by default [-9, 9), [-9, 10) of integers, [0, 2) of bool.

    ValueError for bounds that are empty, nan or outside the type, or a gradient asked of integers.
    """
    whole = dtype in _INTEGERS
    size = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, "
            f"but got {noncontiguous=} and {memory_format=}"
        )
    if requires_grad and whole:
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got {dtype=}")
    least: float
    most: float
    default: tuple[float, float]
    if dtype is torch.bool:
        least, most, default = 0, 2, (0, 2)
    elif whole:
        info = torch.iinfo(dtype)
        least, most, default = info.min, info.max + (dtype is not torch.int64), (-9, 10)
    else:
        least, most, default = torch.finfo(dtype).min, torch.finfo(dtype).max, (-9, 9)
    low, high = (d if x is None else x for x, d in zip((low, high), default, strict=True))
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low > high or low == high and whole:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    if high < least or low >= most:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), "
            f"but {dtype} only supports [{least}, {most})"
        )
    low, high = (min(max(x, least), most) for x in (low, high))
    double = noncontiguous and math.prod(size) > 1
    if double:
        size = (*size[:-1], 2 * size[-1])
    if whole:
        result = torch.randint(math.ceil(low), math.ceil(high), size, device=device, dtype=dtype)
    else:
        result = torch.empty(size, device=device, dtype=dtype)
        drawn = torch.view_as_real(result) if dtype.is_complex else result
        if high - low >= most:
            drawn.uniform_(low / 2, high / 2).mul_(2)
        else:
            drawn.uniform_(low, high)
    if double:
        result = result[..., 1::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    if exclude_zero:
        result[result == 0] = 1 if whole else torch.finfo(dtype).tiny
    return result.requires_grad_() if requires_grad else result
