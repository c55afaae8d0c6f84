"""`Dim`, and which sizes of the inputs `dynamic_shapes` makes symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tabtorch.core.tensor import Tensor


class UserError(RuntimeError):
    """What was asked of `torch.export.export` and cannot be had."""


class _DimHint:
    """How a size that has no name is treated: AUTO and DYNAMIC may vary, STATIC does not."""

    def __init__(self, kind: str, min: int | None = None, max: int | None = None) -> None:
        self.kind = kind
        self.min = min
        self.max = max

    def __call__(self, min: int | None = None, max: int | None = None) -> _DimHint:
        return _DimHint(self.kind, min, max)

    def __repr__(self) -> str:
        return f"DimHint({self.kind})"


class Dim:
    """A size that varies, by name; the same name is the same size. `2 * dim + 1` is one that depends on it.

    https://docs.pytorch.org/docs/stable/export.html#torch.export.Dim
    """

    AUTO = _DimHint("AUTO")
    DYNAMIC = _DimHint("DYNAMIC")
    STATIC = _DimHint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        low = 0 if min is None else min
        if max is not None and max <= low:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__ = name
        self.min = low
        self.max: int | float = float("inf") if max is None else max
        self.root = self
        self.factor, self.offset = 1, 0

    def _derived(self, factor: int, offset: int) -> Dim:
        found = object.__new__(Dim)
        found.root, found.factor, found.offset = self.root, factor, offset
        found.__name__ = f"{factor}*{self.root.__name__}" + (f"{offset:+}" if offset else "")
        found.min, found.max = self.root.min * factor + offset, self.root.max * factor + offset
        return found

    def __add__(self, other: int) -> Dim:
        if type(other) is not int:
            raise NotImplementedError(f"Attempted to add {other} to {self.__name__}, where an integer was expected.")
        return self._derived(self.factor, self.offset + other)

    __radd__ = __add__

    def __sub__(self, other: int) -> Dim:
        if type(other) is not int:
            raise NotImplementedError(
                f"Attempted to subtract {other} from {self.__name__}, where an integer was expected."
            )
        return self._derived(self.factor, self.offset - other)

    def __mul__(self, other: int) -> Dim:
        if type(other) is not int or other <= 0:
            raise NotImplementedError(
                f"Attempted to multiply {other} with {self.__name__}, where a positive integer was expected."
            )
        return self._derived(self.factor * other, self.offset * other)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"Dim('{self.__name__}', min={self.min}, max={self.max})"


class Axis:
    """One symbol: its value in the example, its bounds, and the sizes it makes: (leaf, dimension, factor, offset)."""

    def __init__(self, name: str, value: int, low: int, high: int | float, auto: bool) -> None:
        self.name = name
        self.value = value
        self.low = low
        self.high = high
        self.auto = auto
        self.places: list[tuple[int, int, int, int]] = []


def axes(
    leaves: Sequence[Any],
    specs: Sequence[Any],
    static: set[tuple[int, int]],
    same: Mapping[tuple[int, int], tuple[int, int]],
) -> list[Axis]:
    """The symbols of an export. static: sizes (leaf, dimension) that AUTO has found to be constants; same: those that it has found to
    be an earlier one. UserError."""
    found: dict[Any, Axis] = {}
    for i, (x, spec) in enumerate(zip(leaves, specs, strict=True)):
        if not isinstance(x, Tensor) or spec is None:
            continue
        by_dim: Mapping[int, Any] = spec if isinstance(spec, Mapping) else dict(enumerate(spec))
        for d, dim in by_dim.items():
            if not isinstance(d, int) or not -x.dim() <= d < x.dim():
                raise UserError(f"dynamic_shapes has the dimension {d!r} of an input of shape {list(x.shape)}")
            d %= x.dim()
            n = int(x.shape[d])
            if isinstance(dim, Dim):
                root = (n - dim.offset) // dim.factor
                if root * dim.factor + dim.offset != n:
                    raise UserError(f"Expected input size {n} to be of the form {dim.__name__}")
                if not dim.min <= n <= dim.max:
                    raise UserError(
                        f"Constraints violated ({dim.root.__name__})! the size {n} is not in [{dim.min}, {dim.max}]"
                    )
                if root < 2:
                    raise UserError(
                        f"Constraints violated ({dim.root.__name__})! You marked {dim.root.__name__} as dynamic, but its example has "
                        f"the size {root}: sizes of 0 and 1 are constants. Give an example of a size of at least 2."
                    )
                key: Any = dim.root.__name__
                axis = found.setdefault(key, Axis(key, root, dim.root.min, dim.root.max, False))
                if axis.value != root:
                    raise UserError(
                        f"Constraints violated ({key})! the inputs have the sizes {axis.value} and {root} for it"
                    )
                axis.places.append((i, d, dim.factor, dim.offset))
            elif isinstance(dim, _DimHint):
                place = (i, d)
                while place in same:
                    place = same[place]
                if dim.kind == "STATIC" or place in static:
                    continue
                if n < 2 and dim.kind == "DYNAMIC":
                    raise UserError(f"a size is marked DYNAMIC, but its example has the size {n}, which is a constant")
                if n >= 2:
                    high = float("inf") if dim.max is None else dim.max
                    low = 2 if dim.min is None else dim.min
                    axis = found.setdefault(place, Axis(f"s{i}_{d}", n, low, high, dim.kind == "AUTO"))
                    axis.low, axis.high = max(axis.low, low), min(axis.high, high)
                    axis.places.append((i, d, 1, 0))
            elif type(dim) is int:
                if dim != n:
                    raise UserError(f"Static shape constraint of {dim} does not match input size of {n}")
            elif dim is not None:
                raise UserError(f"Unexpected dimension in dynamic_shapes: {dim!r}")
    return list(found.values())


def leaf_specs(value: Any, spec: Any) -> Iterator[Any]:
    """Of each leaf of `value`, in the order of a pytree's, its part of `dynamic_shapes`."""
    if isinstance(value, Tensor):
        if spec is not None and not isinstance(spec, (Mapping, list, tuple)):
            raise UserError(f"Unexpected dynamic_shapes of a tensor: {spec!r}")
        yield spec
    elif isinstance(value, (list, tuple)):
        inner = list(spec) if isinstance(spec, (list, tuple)) else [None] * len(value)
        if len(inner) != len(value):
            raise UserError(f"dynamic_shapes has {len(inner)} entries for {len(value)} values")
        for x, s in zip(value, inner):
            yield from leaf_specs(x, s)
    elif isinstance(value, dict):
        given = spec if isinstance(spec, Mapping) else {}
        if set(given) - set(value):
            raise UserError(f"dynamic_shapes has {sorted(set(given) - set(value))}, which are no keys of the input")
        for k, x in value.items():
            yield from leaf_specs(x, given.get(k))
    else:
        yield None
