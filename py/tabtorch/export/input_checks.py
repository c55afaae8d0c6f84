"""Whether inputs are such as a program was exported for: their nesting, sizes, and constants; PyTorch's errors where they are not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.export.expressions import Expression
from tabtorch.export.fields import bad, field, integer, table, text
from tabtorch.export.graphs import Ref, TensorMeta
from tabtorch.utils._pytree import MappingKey, SequenceKey, TreeSpec, keystr, tree_flatten_with_path


class ValueRanges:
    """The numbers from `lower` to `upper`, both included."""

    __slots__ = ("lower", "upper")

    def __init__(self, lower: Any, upper: Any) -> None:
        self.lower = lower
        self.upper = upper

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ValueRanges) and (self.lower, self.upper) == (other.lower, other.upper)

    def __hash__(self) -> int:
        return hash((self.lower, self.upper))

    def __repr__(self) -> str:
        low, high = (
            ("-int_oo" if v == -math.inf else "int_oo" if v == math.inf else str(v)) for v in (self.lower, self.upper)
        )
        return f"VR[{low}, {high}]"


def read_ranges(x: Any) -> dict[str, ValueRanges]:
    """The ranges of symbols of a program's JSON."""
    found = {}
    for name, r in table(x, "range_constraints").items():
        low, high = field(r, "min_val"), field(r, "max_val")
        found[Expression(name).symbol or name] = ValueRanges(
            -math.inf if low is None else integer(low), math.inf if high is None else integer(high)
        )
    return found


def read_guards(x: Any) -> list[Expression]:
    return [Expression(text(g, "a guard")) for g in x] if isinstance(x, list) else []


class InputChecks:
    """What a program asks of its inputs. Calling it with the leaves raises PyTorch's error, or does nothing.

    AssertionError ("Guard failed: …") for sizes and constants, as `ExportedProgram.module()` has it; RuntimeError for what is no
    tensor, or one of another number of dimensions.
    """

    def __init__(
        self,
        metas: Sequence[Any],
        paths: Sequence[str],
        ranges: Mapping[str, ValueRanges],
        guards: Sequence[Expression],
        sources: Sequence[Any],
    ) -> None:
        """metas: of each leaf, a TensorMeta, an Expression (a size), or a constant. paths: what each is called.
        sources: of each, its path in `L`, the inputs by name."""
        self.metas = metas
        self.paths = paths
        self.ranges = ranges
        self.guards = guards
        self.sources = sources

    def __call__(self, leaves: Sequence[Any]) -> None:
        if len(leaves) != len(self.metas):
            raise RuntimeError(f"Unexpected number of inputs (expected {len(self.metas)}, got {len(leaves)})")
        known: dict[str, Any] = {}  # symbol -> its value
        first: dict[str, str] = {}  # symbol -> where it was met
        derived: list[tuple[str, Expression, Any]] = []
        for meta, path, x in zip(self.metas, self.paths, leaves, strict=True):
            if isinstance(meta, TensorMeta):
                if not isinstance(x, Tensor):
                    raise RuntimeError(f"Expected input at {path} to be a tensor, but got {type(x)}")
                if len(meta.sizes) != x.dim():
                    raise RuntimeError(
                        f"Unexpected number of dimensions in input at {path}.shape "
                        f"(expected {list(meta.sizes)}, got {list(x.shape)})"
                    )
                for d, (want, have) in enumerate(zip(meta.sizes, x.shape, strict=True)):
                    self._size(want, have, f"{path}.size()[{d}]", known, first, derived)
            elif isinstance(meta, Expression):
                if isinstance(x, bool) or not isinstance(x, int):
                    raise RuntimeError(f"Expected input at {path} to be an int, but got {type(x)}")
                self._size(meta, x, path, known, first, derived)
            elif meta is not None:
                self._constant(meta, x, path)
        for path, want, have in derived:
            self._derived(path, want, have, known)
        if self.guards:
            values = {**known, "L": _Named(self.sources, leaves)}
            for guard in self.guards:
                if not guard(values):
                    raise AssertionError(f"Guard failed: {str(guard).replace('L[', '[')}")

    def _size(self, want: Any, have: Any, path: str, known: Any, first: Any, derived: Any) -> None:
        if not isinstance(want, Expression):
            if have != want:
                raise AssertionError(f"Guard failed: {path} == {want}")
            return
        symbol = want.symbol
        if symbol is None:
            derived.append((path, want, have))
            return
        if symbol in known:
            if have != known[symbol]:
                raise AssertionError(f"Guard failed: {path} == {first[symbol]}")
            return
        known[symbol] = have
        first[symbol] = path
        r = self.ranges.get(symbol)
        if r is None:
            return
        if r.lower > 2 and have < r.lower:  # sizes of 0 and 1 are let through, as PyTorch does
            raise AssertionError(f"Guard failed: {path} >= {r.lower}")
        if have > r.upper:
            raise AssertionError(f"Guard failed: {path} <= {r.upper}")

    def _derived(self, path: str, want: Expression, have: Any, known: Any) -> None:
        unknown = [n for n in want.names if n not in known]
        if len(unknown) == 1 and len(want.names) == 1:
            (symbol,) = unknown
            found = want.solved(int(have))
            if found is None:
                raise RuntimeError(
                    f"Expected input {path} = {have} to be of the form {want}, where {symbol} is an integer"
                )
            known[symbol] = found
            r = self.ranges.get(symbol)
            if r is not None and not (r.lower <= found or r.lower <= 2) or r is not None and found > r.upper:
                raise AssertionError(f"Guard failed: {r.lower} <= {symbol} <= {r.upper}, where {path} == {want}")
        elif not unknown and want(known) != have:
            raise AssertionError(f"Guard failed: {path} == {want}")

    def _constant(self, want: Any, have: Any, path: str) -> None:
        if isinstance(want, float) and math.isnan(want):
            if not (isinstance(have, float) and math.isnan(have)):
                raise AssertionError(f"Guard failed: math.isnan({path})")
        elif isinstance(have, Tensor) or type(have) is not type(want) or have != want:
            raise AssertionError(f"Guard failed: {path} == {want!r}")


class _Named:
    """`L[…][…]`: the inputs by the path that leads to them."""

    def __init__(self, sources: Sequence[Any], leaves: Sequence[Any], path: tuple[Any, ...] = ()) -> None:
        self.sources = sources
        self.leaves = leaves
        self.path = path

    def __getitem__(self, key: Any) -> Any:
        path = (*self.path, key)
        if len(path) == 2 and not any(s[:1] == path[:1] for s in self.sources):  # of `*args` or `**kwargs`
            path = (f"{path[0]}_{key}",) if isinstance(key, int) else (key,)
        if path[0] == "flat_args" and len(path) == 2:
            return self.leaves[int(key)]
        for source, x in zip(self.sources, self.leaves, strict=True):
            if source == path:
                return x
        if len(path) > 64:
            raise bad("a guard asks for what is no input")
        return _Named(self.sources, self.leaves, path)


def paths_of(spec: TreeSpec, names: Sequence[str] | None) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Of each leaf of (args, kwargs) what it is called in messages, and by which keys it is found."""
    tree = spec.unflatten(range(spec.num_leaves))
    args = spec.child(0).num_children
    names = names or [f"args_{i}" for i in range(args)]
    shown, found = [], []
    for path, _ in tree_flatten_with_path(tree)[0]:
        part, first, *rest = path
        if isinstance(part, SequenceKey) and part.idx == 0:
            head = names[first.idx] if first.idx < len(names) else f"args_{first.idx}"
        else:
            head = str(first.key if isinstance(first, MappingKey) else first)
        shown.append(head + keystr(tuple(rest)))
        found.append((head, *[_key(k) for k in rest]))
    return shown, found


def _key(k: Any) -> Any:
    return k.idx if isinstance(k, SequenceKey) else k.key if isinstance(k, MappingKey) else k.name


def meta_of(x: Any, metas: Mapping[str, Any]) -> Any:
    """What an input of the graph is held to: a TensorMeta, an Expression, a constant."""
    return metas.get(x.name) if isinstance(x, Ref) else x
