"""Arithmetic of shapes, on the host: `Shape -> Gather -> Concat -> Reshape` never waits for a device.

A function here has the name of an operator, takes its inputs as `Known`s and its attributes by name, and gives a Known, several,
or NotImplemented: then the operator itself is run. Numbers of types that no device has (texts, uint16) are computed here only.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

from tabtorch.onnx.values import BOOL, DTYPES, FLOAT, INT64, INTEGERS, LIMIT, STRING, Known, mapped, places, wrap

FOLDS: dict[str, Callable[..., Any]] = {}


def fold(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def keep(f: Callable[..., Any]) -> Callable[..., Any]:
        FOLDS.update(dict.fromkeys(names, f))
        return f

    return keep


def _whole(a: int, b: int) -> int:
    """The quotient, cut towards zero."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _divide(a: Any, b: Any) -> Any:
    return _whole(a, b) if isinstance(a, int) else a / b


def _remainder(a: Any, b: Any, fmod: int = 0) -> Any:
    return (math.fmod(a, b) if isinstance(a, float) else a - _whole(a, b) * b) if fmod else a % b


def _power(a: Any, b: Any) -> Any:
    return a**b if isinstance(a, float) or b >= 0 else 0


def _elementwise(name: str, f: Callable[..., Any], type: int | None = None) -> None:
    def run(*inputs: Known, **attributes: Any) -> Any:
        try:
            return mapped(lambda *v: f(*v, **attributes), type, *inputs)
        except (ZeroDivisionError, ValueError, OverflowError, TypeError):
            return NotImplemented

    FOLDS[name] = run


_NUMBERS: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": _divide,
    "Mod": _remainder,
    "Pow": _power,
    "Neg": operator.neg,
    "Abs": abs,
    "Sqrt": math.sqrt,
    "Floor": lambda x: math.floor(x) if math.isfinite(x) else x,
    "Ceil": lambda x: math.ceil(x) if math.isfinite(x) else x,
    "Min": lambda *v: math.nan if any(x != x for x in v) else min(v),
    "Max": lambda *v: math.nan if any(x != x for x in v) else max(v),
    "BitwiseAnd": operator.and_,
    "BitwiseOr": operator.or_,
    "BitwiseXor": operator.xor,
    "BitwiseNot": operator.invert,
    "BitShift": lambda x, n, direction: x << min(n, 64) if direction == "LEFT" else x >> min(n, 64),
}
_TRUTHS: dict[str, Callable[..., Any]] = {
    "Equal": operator.eq,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "And": lambda a, b: a and b,
    "Or": lambda a, b: a or b,
    "Xor": operator.ne,
    "Not": operator.not_,
}
for _name, _f in _NUMBERS.items():
    _elementwise(_name, _f)
for _name, _f in _TRUTHS.items():
    _elementwise(_name, _f, BOOL)


@fold("Where")
def _where(condition: Known, x: Known, y: Known) -> Any:
    return mapped(lambda c, a, b: a if c else b, x.type, condition, x, y)


@fold("Shape")
def _shape(x: Any, start: int = 0, end: int | None = None) -> Known:
    shape = list(x.shape)[start:end]
    return Known(shape, (len(shape),), INT64)


@fold("Size")
def _size(x: Any) -> Known:
    return Known([math.prod(x.shape)], (), INT64)


@fold("Identity")
def _identity(x: Known) -> Known:
    return x


@fold("Cast")
def _cast(x: Known, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    if to == x.type:
        return x
    if to == STRING:
        return NotImplemented
    if x.type == STRING:
        read = float if to in (FLOAT, 10, 11, 16) else int
        return Known([wrap(to, read(v)) for v in x.values], x.shape, to)
    if to != BOOL and to not in INTEGERS and to not in (FLOAT, 10, 11):
        return NotImplemented
    if to in INTEGERS and any(isinstance(v, float) and not math.isfinite(v) for v in x.values):
        return NotImplemented
    return Known([wrap(to, v) for v in x.values], x.shape, to)


@fold("CastLike")
def _cast_like(x: Known, like: Known, saturate: int = 1, round_mode: str = "up") -> Any:
    return _cast(x, like.type)


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front. IndexError out of range."""
    if not -rank <= axis < rank:
        raise IndexError(f"axis {axis} is out of range for {rank} dimensions")
    return axis % rank


@fold("Gather")
def _gather(x: Known, indices: Known, axis: int = 0) -> Any:
    axis = axis_of(axis, len(x.shape))
    before, n, after = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    if before * len(indices.values) * after > LIMIT:
        return NotImplemented
    for i in indices.values:
        axis_of(i, n)
    found = [(b * n + i % n) * after + a for b in range(before) for i in indices.values for a in range(after)]
    return x.take(found, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


@fold("Concat")
def _concat(*inputs: Known, axis: int = 0) -> Any:
    axis = axis_of(axis, len(inputs[0].shape))
    first = inputs[0].shape
    if any(k.shape[:axis] != first[:axis] or k.shape[axis + 1 :] != first[axis + 1 :] for k in inputs):
        return NotImplemented  # the error is the operator's
    parts = [(k.values, math.prod(k.shape[axis:])) for k in inputs]
    values = [v for b in range(math.prod(first[:axis])) for vs, n in parts for v in vs[b * n : b * n + n]]
    return Known(values, (*first[:axis], sum(k.shape[axis] for k in inputs), *first[axis + 1 :]), inputs[0].type)


@fold("Unsqueeze")
def _unsqueeze(x: Known, axes: Any) -> Known:
    wanted = axes.values if isinstance(axes, Known) else axes
    rank = len(x.shape) + len(wanted)
    shape = list(x.shape)
    for a in sorted(axis_of(a, rank) for a in wanted):
        shape.insert(a, 1)
    return Known(x.values, shape, x.type)


@fold("Squeeze")
def _squeeze(x: Known, axes: Any = None) -> Any:
    given = axes.values if isinstance(axes, Known) else axes
    out = (
        {axis_of(a, len(x.shape)) for a in given} if given is not None else {i for i, n in enumerate(x.shape) if n == 1}
    )
    if any(x.shape[a] != 1 for a in out):
        return NotImplemented
    return Known(x.values, [n for i, n in enumerate(x.shape) if i not in out], x.type)


@fold("Reshape")
def _reshape(x: Known, shape: Any, allowzero: int = 0) -> Any:
    given = shape.values if isinstance(shape, Known) else shape
    sizes = [x.shape[i] if n == 0 and not allowzero and i < len(x.shape) else n for i, n in enumerate(given)]
    rest = math.prod(n for n in sizes if n != -1)
    if -1 in sizes and rest:
        sizes[sizes.index(-1)] = len(x.values) // rest
    if min(sizes, default=0) < 0 or math.prod(sizes) != len(x.values):
        return NotImplemented
    return Known(x.values, sizes, x.type)


@fold("Flatten")
def _flatten(x: Known, axis: int = 1) -> Known:
    axis = axis_of(axis, len(x.shape) + 1)
    return Known(x.values, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), x.type)


def _pick(x: Known, ranges: list[range]) -> Known:
    """The values whose index along each axis is in its range."""
    found = [0]
    for n, chosen in zip(x.shape, ranges):
        found = [at * n + i for at in found for i in chosen]
    return x.take(found, [len(r) for r in ranges])


@fold("Slice")
def _slice(x: Known, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    given = [v.values if isinstance(v, Known) else v for v in (starts, ends, axes, steps)]
    return _pick(x, slices(x.shape, *given))


def slices(shape: tuple[int, ...], starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> list[range]:
    """Which indices along each axis `Slice` takes. ValueError for a step of 0."""
    found = [range(n) for n in shape]
    axes = range(len(starts)) if axes is None else axes
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        a = axis_of(axes[i], len(shape))
        step, n = (steps[i] if steps else 1), shape[a]
        if step == 0:
            raise ValueError("Slice: a step is 0")
        low, high = (0, n) if step > 0 else (-1, n - 1)
        start, end = (min(max(v + n if v < 0 else v, low), high) for v in (start, end))
        found[a] = range(start, end, step)
    return found


@fold("Transpose")
def _transpose(x: Known, perm: list[int] | None = None) -> Known:
    order = perm if perm is not None else list(range(len(x.shape)))[::-1]
    if sorted(order) != list(range(len(x.shape))):
        raise ValueError(f"Transpose: perm {list(order)} is no order of {len(x.shape)} axes")
    steps = [math.prod(x.shape[i + 1 :]) for i in range(len(x.shape))]
    found = [0]
    for a in order:
        found = [at + i * steps[a] for at in found for i in range(x.shape[a])]
    return x.take(found, [x.shape[a] for a in order])


@fold("Split")
def _split(x: Known, split: Any = None, axis: int = 0, num_outputs: int | None = None, outputs: int = 1) -> Any:
    axis = axis_of(axis, len(x.shape))
    sizes = split.values if isinstance(split, Known) else split
    sizes = sizes if sizes is not None else split_evenly(x.shape[axis], num_outputs or outputs)
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        return NotImplemented
    ends = list(itertools.accumulate(sizes))
    every = [range(n) for n in x.shape]
    return tuple(_pick(x, [*every[:axis], range(e - n, e), *every[axis + 1 :]]) for e, n in zip(ends, sizes))


def split_evenly(size: int, parts: int) -> list[int]:
    """Sizes of so many parts, the last one the smallest."""
    each = -(-size // max(parts, 1))
    return [min(each, max(0, size - i * each)) for i in range(parts)]


@fold("Range")
def _range(start: Known, limit: Known, delta: Known) -> Any:
    (a,), (b,), (d,) = start.values, limit.values, delta.values
    n = max(0, math.ceil((b - a) / d)) if d else LIMIT + 1
    return NotImplemented if n > LIMIT else Known([wrap(start.type, a + i * d) for i in range(n)], (n,), start.type)


@fold("ConstantOfShape")
def _constant_of_shape(shape: Known, value: Known | None = None) -> Any:
    n = math.prod(shape.values)
    filled, of = (value.values[0], value.type) if value is not None else (0.0, FLOAT)
    return (
        NotImplemented
        if not 0 <= n <= LIMIT or min(shape.values, default=0) < 0
        else Known([filled] * n, shape.values, of)
    )


@fold("Expand")
def _expand(x: Known, shape: Known) -> Any:
    pairs = list(itertools.zip_longest(x.shape[::-1], tuple(shape.values)[::-1], fillvalue=1))
    sizes = tuple(b if a == 1 else a for a, b in reversed(pairs))
    if math.prod(sizes) > LIMIT or any(a != b and 1 not in (a, b) for a, b in pairs):
        return NotImplemented
    return x.take(places(x.shape, sizes), sizes)


@fold("Tile")
def _tile(x: Known, repeats: Known) -> Any:
    if len(repeats.values) != len(x.shape) or math.prod(repeats.values) * len(x.values) > LIMIT:
        return NotImplemented
    found = [0]
    for n, r in zip(x.shape, repeats.values):
        found = [at * n + i for at in found for _ in range(r) for i in range(n)]
    return x.take(found, [n * r for n, r in zip(x.shape, repeats.values)])


@fold("NonZero")
def _non_zero(x: Known) -> Known:
    found = [i for i, v in enumerate(x.values) if v]
    rows = []
    for a in range(len(x.shape)):
        step = math.prod(x.shape[a + 1 :])
        rows += [i // step % x.shape[a] for i in found]
    return Known(rows, (len(x.shape), len(found)), INT64)


@fold("ScatterElements")
def _scatter_elements(x: Known, indices: Known, updates: Known, axis: int = 0, reduction: str = "none") -> Any:
    if reduction != "none" or len(x.shape) != 1:
        return NotImplemented
    values = list(x.values)
    for i, v in zip(indices.values, updates.values):
        values[axis_of(i, len(values))] = v
    return Known(values, x.shape, x.type)


def _reduction(name: str, f: Callable[[list[Any]], Any]) -> None:
    def run(x: Known, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        given = axes.values if isinstance(axes, Known) else axes
        rank = len(x.shape)
        out = sorted(axis_of(a, rank) for a in given) if given else list(range(rank))
        if (not given and noop_with_empty_axes) or x.type == BOOL or not len(x.values):
            return NotImplemented
        kept = [i for i in range(rank) if i not in out]
        moved = _transpose(x, kept + out)
        n = math.prod(x.shape[a] for a in out)
        values = [wrap(x.type, f(moved.values[i : i + n])) for i in range(0, len(moved.values), n)]
        return Known(values, [1 if i in out else m for i, m in enumerate(x.shape) if keepdims or i in kept], x.type)

    FOLDS[name] = run


_reduction("ReduceProd", math.prod)
_reduction("ReduceSum", sum)
_reduction("ReduceMax", max)
_reduction("ReduceMin", min)


def foldable(x: Any) -> bool:
    """Whether the host computes with `x`: small, or of a type that no device has."""
    return isinstance(x, Known) and (len(x.values) <= LIMIT or x.type not in DTYPES)
