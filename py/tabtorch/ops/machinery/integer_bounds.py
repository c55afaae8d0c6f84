"""What the host can tell of integers without asking the device: their values, or bounds that they cannot leave.

`interval` follows how a value was made: bounds of data that came from the host, operations whose results are bounded
(`argmax`, `sort`, `randint`, a remainder), and arithmetic, joins, selections and lookups over those.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import inf, isnan
from typing import Any, NamedTuple

from tabtorch.engine.symbols import Symbol
from tabtorch.engine.view import Meta

Bounds = tuple[int, int]

#: values of a view of a small node that are picked out one by one, at most
_PICKED = 4096
#: how far back a proof goes
_DEPTH = 12
_BITS = {"int64": 63, "int32": 31, "int16": 15, "int8": 7}


class Range(NamedTuple):
    """The values that an operation takes: low <= v <= high, or v == exempt. Of reals NaN may be exempt, and nothing else."""

    low: Any
    high: Any
    exempt: Any = None

    def takes(self, v: Any) -> bool:
        return bool(self.low <= v <= self.high or v == self.exempt or (v != v and self.takes_nan))

    @property
    def takes_nan(self) -> bool:
        return self.exempt is not None and self.exempt != self.exempt

    def takes_all_of(self, other: Range) -> bool:
        """Whether nothing that `other` takes is bad here."""
        inside = self.low <= other.low and other.high <= self.high
        return inside and (other.exempt is None or self.takes(other.exempt))

    def first_bad(self, values: Any) -> Any:
        """The first of these values that is not taken, or None."""
        if not len(values):
            return None
        ordered = type(values[0]) is not float or not any(map(isnan, values))
        if ordered and self.low <= min(values) and max(values) <= self.high:
            return None
        return next((v for v in values if not self.takes(v)), None)

    def holds(self, node: Any, m: Meta) -> bool:
        """Whether the host can tell that it takes all of a view of a value that is in memory."""
        values = known(node, m)
        if values is not None:
            return self.first_bad(values) is None
        found = bounds_kept(node, m)
        return found is not None and self.low <= found[0] and found[1] <= self.high


class Facts:
    """In place of a node's `host`, where its values are not kept: their bounds, and which views were asserted to be in a range.

    seen: elements of a view -> (`epoch` of asserts.py, Range).
    """

    __slots__ = ("bounds", "seen")

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds
        self.seen: dict[Any, tuple[int, Range]] | None = None


def known(node: Any, m: Meta) -> Any:
    """The elements of a view of a value, flat, if the host has them, else None."""
    host = getattr(node, "host", None)
    if host is None or type(host) is Facts or node.inst.out.dtype is not m.dtype or m.mark:
        return None
    if m.whole and m.numel == len(host):
        return host
    if m.numel > _PICKED:
        return None
    places = [m.offset]
    for n, st in zip(m.shape, m.strides):
        places = [p + k * st for p in places for k in range(n)]
    return [host[p] for p in places]


def bounds_kept(node: Any, m: Meta) -> Bounds | None:
    """Bounds of a view of a value, if some are kept with it."""
    host = getattr(node, "host", None)
    if host is None or node.inst.out.dtype is not m.dtype or m.mark:
        return None
    if type(host) is Facts:
        return host.bounds
    return (min(host), max(host)) if len(host) else None


def facts(node: Any) -> Facts | None:
    """The Facts of a node that has no values on the host; made where there are none."""
    host = getattr(node, "host", None)
    if host is None:
        host = node.host = Facts()
    return host if type(host) is Facts else None


def carry(source: Any, copy: Any) -> None:
    """What the host can tell of a value, it can of its copy."""
    host = getattr(source, "host", None)
    if type(host) is not Facts:
        copy.host = host
    elif host.bounds is not None:
        copy.host = Facts(host.bounds)


def bounded(t: Any, low: int, high: int) -> Any:
    """`t`, of whose values it is kept that low <= v <= high: whoever makes them knows."""
    node = t._tab_storage.node
    if t._tab_meta.dtype.category == 1 and getattr(node, "host", None) is None and low <= high:
        node.host = Facts((low, high))
    return t


def bounds_of_data(data: Any, d: Any) -> Facts | None:
    """Bounds of integers on their way to the device (bytes-like, of dtype `d`): NumPy is fast; without it, of some only."""
    if d.category != 1 or d.itemsize < 4:
        return None
    np = sys.modules.get("numpy")
    view = memoryview(data).cast("B")
    if not len(view):
        return None
    if np is not None:
        a = np.frombuffer(view, d.name)
        return Facts((int(a.min()), int(a.max())))
    if len(view) <= 1 << 19:
        values = view.cast(d.format)
        return Facts((min(values), max(values)))
    return None


# ---- proofs


def limits(d: Any) -> Bounds:
    """What an integer or bool dtype can hold."""
    if d.name == "bool":
        return 0, 1
    if d.name == "uint8":
        return 0, 255
    n = 1 << _BITS[d.name]
    return -n, n - 1


def _as_stored(node: Any) -> bool:
    """Whether the first source of a node is read as what it is: as the same type, and with no mark."""
    m = node.inst.ins[0]
    return m.dtype is node.srcs[0].inst.out.dtype and not m.mark


class Proof:
    """Bounds of values. `leaves`: (node, its bounds) of the data that they were found from."""

    def __init__(self) -> None:
        self.leaves: list[tuple[Any, Bounds]] = []

    def of_reals(self, node: Any) -> tuple[Any, Any]:
        """Bounds of a value of real numbers: those that probabilities have, and classes that were converted."""
        name = node.inst.op.name
        if name == "sigmoid":
            return 0.0, 1.0
        if node.srcs and name == "to" and _as_stored(node):
            if node.inst.ins[0].dtype.category < 2:
                return self.interval(node.srcs[0])
            return self.of_reals(node.srcs[0])
        if name in ("full", "fill") and len(node.scalars) == 1 and type(node.scalars[0]) is float:
            return node.scalars[0], node.scalars[0]
        return -inf, inf

    def interval(self, node: Any, depth: int = _DEPTH) -> Bounds:
        """Bounds of all elements of a value of integers; those of its dtype where nothing else is known."""
        out = node.inst.out
        kept = bounds_kept(node, out)
        if kept is not None:
            self.leaves.append((node, kept))
            return kept
        low, high = limits(out.dtype)
        rule = _RULES.get(node.inst.op.name)
        if rule is None or not depth:
            return low, high
        found = rule(_Made(self, node, depth - 1))
        if found is None or found[0] < low or found[1] > high:
            return low, high
        made = facts(node)
        if made is not None:
            made.bounds = found
        return found


class _Made:
    """How a value was made, as rules see it. What has run has forgotten its sources and numbers: they are None then."""

    def __init__(self, proof: Proof, node: Any, depth: int) -> None:
        self.proof = proof
        self.node = node
        self.inst = node.inst
        self.depth = depth
        self.count = len(node.srcs)

    def of(self, k: int) -> Bounds | None:
        """Bounds of source `k`."""
        node = self.node
        if k >= len(node.srcs):
            return None
        m, source = self.inst.ins[k], node.srcs[k]
        if m.dtype.category > 1:
            return None
        if source.inst.out.dtype is not m.dtype or m.mark:
            return limits(m.dtype)
        return self.proof.interval(source, self.depth)

    def number(self, k: int) -> Bounds | None:
        """Scalar `k`, if it is a plain integer: one of a compiled function may change from call to call."""
        s = self.node.scalars
        if k < len(s) and type(s[k]) is Symbol:
            return s[k], s[k]
        return (int(s[k]), int(s[k])) if k < len(s) and type(s[k]) in (int, bool) else None

    @property
    def last(self) -> int:
        """The number of elements that a reduction takes together, less one."""
        n = 1
        for s in self.inst.ins[0].shape[self.inst.static :]:
            n *= s
        return n - 1


def _union(*parts: Bounds | None) -> Bounds | None:
    if not parts or any(p is None for p in parts):
        return None
    return min(p[0] for p in parts if p), max(p[1] for p in parts if p)


def _all(x: _Made, start: int = 0) -> Bounds | None:
    """Each element is one of the sources' from `start` on, or one of the numbers."""
    if not x.count:
        return None
    numbers = [x.number(k) for k in range(len(x.inst.scalars))]
    return _union(*[x.of(k) for k in range(start, x.count)], *numbers)


def _times(a: Bounds, b: Bounds) -> Bounds:
    ends = [p * q for p in a for q in b]
    return min(ends), max(ends)


def _operands(x: _Made) -> tuple[Bounds, Bounds] | None:
    """Both operands of a binary operation; the second may be a number, and may be multiplied by one."""
    a = x.of(0)
    b = x.of(1) if x.count == 2 else x.number(0)
    numbers = len(x.inst.scalars) - (x.count == 1)
    if a is None or b is None or numbers > 1:
        return None
    if numbers:
        alpha = x.number(len(x.inst.scalars) - 1)
        return None if alpha is None else (a, _times(alpha, b))
    return a, b


def _binary(f: Callable[[Bounds, Bounds], Bounds | None]) -> Callable[[_Made], Bounds | None]:
    def rule(x: _Made) -> Bounds | None:
        both = _operands(x)
        return None if both is None else f(*both)

    return rule


def _remainder(a: Bounds, b: Bounds) -> Bounds | None:
    if b[0] > 0:
        return 0, b[1] - 1
    return (b[0] + 1, 0) if b[1] < 0 else None


def _clamp(x: _Made) -> Bounds | None:
    a, low, high = x.of(0), x.number(0), x.number(1)
    if a is None or low is None or high is None:
        return None
    return min(max(a[0], low[0]), high[0]), min(max(a[1], low[0]), high[0])


def _arange(x: _Made) -> Bounds | None:
    start, step = x.number(0), x.number(1)
    n = x.inst.out.numel
    if start is None or step is None or not n:
        return None
    end = start[0] + step[0] * (n - 1)
    return min(start[0], end), max(start[0], end)


def _sum(x: _Made) -> Bounds | None:
    a = x.of(0)
    return None if a is None else (min(0, a[0] * (x.last + 1)), max(0, a[1] * (x.last + 1)))


def _put(x: _Made) -> Bounds | None:
    if not x.count or "set" not in x.inst.static[:3]:
        return None
    return _union(x.of(0), x.number(0) if x.inst.scalars else x.of(x.count - 1))


_first: Callable[[_Made], Bounds | None] = lambda x: x.of(0)  # noqa: E731
_indices: Callable[[_Made], Bounds | None] = lambda x: (0, x.last)  # noqa: E731

#: name of an operation -> bounds of its result
_RULES: dict[str, Callable[[_Made], Bounds | None]] = {
    "add": _binary(lambda a, b: (a[0] + b[0], a[1] + b[1])),
    "sub": _binary(lambda a, b: (a[0] - b[1], a[1] - b[0])),
    "rsub": lambda x: None if x.count != 1 else _binary(lambda a, b: (b[0] - a[1], b[1] - a[0]))(x),
    "mul": _binary(_times),
    "remainder": _binary(_remainder),
    "floor_divide": _binary(lambda a, b: (a[0] // b[0], a[1] // b[0]) if b[0] == b[1] > 0 else None),
    "bitwise_and": _binary(lambda a, b: (0, b[1]) if b[0] >= 0 else (0, a[1]) if a[0] >= 0 else None),
    "clamp_min": _binary(lambda a, b: (max(a[0], b[0]), max(a[1], b[1]))),
    "clamp_max": _binary(lambda a, b: (min(a[0], b[0]), min(a[1], b[1]))),
    "maximum": _binary(lambda a, b: (max(a[0], b[0]), max(a[1], b[1]))),
    "minimum": _binary(lambda a, b: (min(a[0], b[0]), min(a[1], b[1]))),
    "_clamp": _clamp,
    "neg": lambda x: None if (a := x.of(0)) is None else (-a[1], -a[0]),
    "abs": lambda x: None if (a := x.of(0)) is None else (max(0, a[0], -a[1]), max(-a[0], a[1])),
    "sign": lambda x: (-1, 1),
    "full": lambda x: x.number(0),
    "fill": lambda x: x.number(0),
    "arange": _arange,
    "_where": lambda x: _all(x, 1),
    "masked_fill": lambda x: _union(x.of(0), x.number(0)) if x.inst.scalars else _union(x.of(0), x.of(2)),
    "cat": _all,
    "constant_pad_nd": _all,
    "write": _all,
    "embed": lambda x: _union((0, 0), x.of(0)),
    "tril": lambda x: _union((0, 0), x.of(0)),
    "index_put": _put,
    "scatter": _put,
    **dict.fromkeys(["to", "flip", "roll", "repeat", "index", "gather", "amax", "amin"], _first),
    "sum": _sum,
    "argmax": _indices,
    "argmin": _indices,
    "sort": lambda x: (0, x.inst.ins[0].shape[x.inst.static[0]] - 1),
    "searchsorted": lambda x: (0, x.inst.ins[0].shape[-1]),
    "nonzero": lambda x: (0, max(x.inst.ins[0].shape) - 1),
}
