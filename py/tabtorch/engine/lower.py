"""From grouped nodes to kernel text: index maps, the values of nodes, and kernels of maps.

`kernel.py` is what a kernel is written with; `row_kernel.py` and `tiles.py` write the other kernels; `builder.py` decides which,
and launches them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from .expr import Expr, cast, const, fit, idiv, imod, where
from .kernel import U0, Kernel, Ref, shown
from .symbols import fixed
from .view import Meta

# ---- index maps

Factor = tuple[Expr, int, Any]  # index, size, role: a domain is a list of them, slowest first


def linear(k: Kernel, factors: list[Factor]) -> Expr:
    """The flat index of a point of the domain."""
    out: Expr | None = None
    for e, n, role in factors:
        out = e if out is None else out * k.dim(n, ("n", role)) + e
    return U0 if out is None else out


def _coordinate(k: Kernel, e: Expr, role: Any, total: int, hi: int, lo: int) -> Expr:
    """(e / lo) % (hi / lo) where lo < hi are trailing products of a factor's dimensions."""
    if e.op == "const":  # one of the elements of a short row, which are written out
        return const(e.value // fixed(lo) % fixed(hi // lo) if e.value else 0, "u32")
    q = e if lo == 1 else idiv(e, k.dim(lo, ("T", role, lo)))
    return q if hi == total else imod(q, k.dim(hi // lo, ("M", role, hi, lo)))


def split_dims(
    shape: tuple[int, ...], strides: tuple[int, ...], sizes: list[int]
) -> list[list[tuple[int, int]]] | None:
    """Deals dimensions out to factors of the given sizes, or None where a dimension straddles two."""
    out: list[list[tuple[int, int]]] = []
    d = 0
    for n in sizes:
        got: list[tuple[int, int]] = []
        p = 1
        while p < n and d < len(shape):
            if shape[d] != 1:
                got.append((shape[d], strides[d]))
                p *= shape[d]
            d += 1
        if p != n:
            return None
        out.append(got)
    if any(s != 1 for s in shape[d:]):
        return None
    return out


def index_of(k: Kernel, m: Meta, factors: list[Factor], role: Any) -> Expr:
    """Where in its storage the element of view `m` at a point of the domain lies. `role` names this access; a pair of ints is
    a view of a node, whose beginning may differ from run to run."""
    if m.flat or m.numel == 0:
        return linear(k, factors)
    parts = split_dims(m.shape, m.strides, [n for _, n, _ in factors])
    if parts is None:
        n = prod(x for _, x, _ in factors)
        factors = [(k.let(linear(k, factors), "i"), n, ("all", *(r for _, _, r in factors)))]
        parts = split_dims(m.shape, m.strides, [n])
        assert parts is not None, (m, n)
    out: Expr = U0
    if m.offset:
        out = k.offset(role) if isinstance(role, tuple) and type(role[0]) is int else k.dim(m.offset, ("O", role))
    for f, (dims, (e, n, frole)) in enumerate(zip(parts, factors, strict=True)):
        merged: list[list[int]] = []
        for size, step in dims:
            if merged and merged[-1][1] == size * step:
                merged[-1][0] *= size
                merged[-1][1] = step
            else:
                merged.append([size, step])
        lo = 1
        terms: list[Expr] = []
        for d in range(len(merged) - 1, -1, -1):
            size, step = merged[d]
            hi = lo * size
            if step:
                c = _coordinate(k, e, frole, n, hi, lo)
                terms.append(c if step == 1 else c * k.dim(step, ("S", role, f, d)))
            lo = hi
        for t in reversed(terms):
            out = out + t
    return out


def coordinates(k: Kernel, shape: tuple[int, ...], factors: list[Factor], role: Any) -> list[Expr]:
    """The coordinate along every dimension of `shape` at a point of the domain."""
    sizes = [n for _, n, _ in factors]
    parts = split_dims(shape, shape, sizes)
    if parts is None:
        n = prod(sizes)
        factors = [(k.let(linear(k, factors), "i"), n, ("all", *(r for _, _, r in factors)))]
    out: list[Expr] = []
    d = 0
    for e, n, frole in factors:
        mine: list[int] = []
        p = 1
        while d < len(shape) and (p < n or (shape[d] == 1 and p == n)):
            mine.append(shape[d])
            p *= shape[d]
            d += 1
        lo = p
        for s in mine:
            hi, lo = lo, lo // s if s else 1
            out.append(U0 if s == 1 else _coordinate(k, e, frole, n, hi, lo))
    while d < len(shape):
        out.append(U0)
        d += 1
    return out


class Point:
    """What an indexed map's `expr` sees: where it is, and its inputs, at its own place or at others."""

    def __init__(self, values: Values, pos: int, node: Any, factors: list[Factor]) -> None:
        self.values = values
        self.k = values.k
        self.pos = pos
        self.inst = node.inst
        self.static = node.inst.static
        self.factors = factors
        self._coords: list[Expr] | None = None

    @property
    def coords(self) -> list[Expr]:
        """u32 coordinates in the output's shape."""
        if self._coords is None:
            self._coords = [
                self.k.let(c, "c") for c in coordinates(self.k, self.inst.out.shape, self.factors, ("c", self.pos))
            ]
        return self._coords

    @property
    def index(self) -> Expr:
        return linear(self.k, self.factors)

    def value(self, i: int) -> Any:
        """Input `i` at this point (its view has the output's shape)."""
        return self.values.source(self.pos, i, self.factors)

    def at(self, i: int, coords: list[Expr]) -> Any:
        """Input `i` at other coordinates of its own view. They must be inside; `where` does not guard a load on the cpu device."""
        m = self.inst.ins[i]
        e: Expr = U0
        for d, c in enumerate(coords):
            if m.shape[d] != 1 and m.strides[d]:
                e = e + (c if m.strides[d] == 1 else c * self.dim(m.strides[d], ("at", i, d)))
        if m.offset:
            e = e + self.k.offset((self.pos, i))
        return self.values.element(self.pos, i, e)

    def dim(self, v: int, role: Any) -> Expr:
        return self.k.dim(v, (self.pos, role))

    def scalar(self, i: int) -> Any:
        return self.k.scalar((self.pos, i), self.inst.scalars[i])


class Values:
    """The value of each node of a group at a point, computed on demand, loads included.

    `inside` holds names of values that the kernel has computed already (in the scopes that are open);
    `refs(node)` says how to reach what lies in a buffer; `virtual` are recomputed wherever they are used.
    """

    def __init__(self, k: Kernel, nodes: list[Any], refs: Callable[[Any], Ref], pending: Callable[[Any], int]) -> None:
        self.k = k
        self.nodes = nodes
        self.refs = refs  # node -> Ref of its buffer
        self.pending = pending  # node -> position in the window, or -1 for an input
        self.inside: dict[int, Any] = {}
        self.point: Any = None  # where the values in `inside` were computed: the very list of factors
        self.virtual: set[int] = set()

    def source(self, pos: int, i: int, factors: list[Factor]) -> Any:
        """Input `i` of node `pos` at a point of that node's domain."""
        n = self.nodes[pos]
        src, m = n.srcs[i], n.inst.ins[i]
        p = self.pending(src)
        if factors is self.point and p in self.inside:
            return shown(self.inside[p], m.dtype, m.mark)  # grouping made sure that this view reads the same point
        if p in self.virtual and m.flat and m.numel == src.inst.out.numel:
            return shown(self.compute(p, factors), m.dtype, m.mark)
        return self.element(pos, i, index_of(self.k, m, factors, (pos, i)))

    def element(self, pos: int, i: int, at: Expr) -> Any:
        """Input `i` of node `pos` at flat place `at` of its storage."""
        n = self.nodes[pos]
        src, m = n.srcs[i], n.inst.ins[i]
        p = self.pending(src)
        if p in self.virtual:
            at = self.k.let(at, "j")
            size = src.inst.out.numel
            return shown(self.compute(p, [(at, size, ("at", pos, i))]), m.dtype, m.mark)
        r = self.refs(src)
        return self.k.load(Ref(r.key, m.dtype, m.mark), at)

    def compute(self, pos: int, factors: list[Factor]) -> Any:
        """The value of map node `pos`, fitted to its dtype."""
        n = self.nodes[pos]
        ins = n.inst
        op = ins.op
        if factors is self.point and pos in self.inside:
            return self.inside[pos]
        if op.indexed:
            v = op.expr(Point(self, pos, n, factors))
        else:
            args = [cast(self.source(pos, i, factors), ins.compute) for i in range(len(n.srcs))]
            args += [self.k.scalar((pos, i), t) for i, t in enumerate(ins.scalars)]
            v = op.expr(*args)
        out = ins.out.dtype
        return fit(cast(v, out.compute), out.name)


# ---- map kernels


def threads_head(k: Kernel, n: Expr | None, *, name: str = "i") -> list[str]:
    """The first lines of an entry point whose threads are numbered in one row, however the grid is folded."""
    x, y, z = k.workgroup
    head = [
        f"@compute @workgroup_size({x}, {y}, {z})",
        "fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>) {",
        f"  let {name} = (gid.z * nwg.y + gid.y) * (nwg.x * {x}u) + gid.x;",
    ]
    if n is not None:
        head.append(f"  if ({name} >= {k.r.text(n)}) {{ return; }}")
    return head


def groups_head(k: Kernel, n: Expr, name: str) -> list[str]:
    """The same where each workgroup has a number: `lid` is the thread's in its workgroup."""
    return [
        f"@compute @workgroup_size({k.workgroup[0]}, 1, 1)",
        "fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, "
        "@builtin(local_invocation_index) lid: u32) {",
        f"  let {name} = (wg.z * nwg.y + wg.y) * nwg.x + wg.x;",
        f"  if ({name} >= {k.r.text(n)}) {{ return; }}",
    ]


def grid_for(threads: int, workgroup: int) -> list[int]:
    """Workgroups for that many threads, folded over y and z where x would pass 65,535. The folds are equal: 65,536 workgroups as
    two rows of 65,535 were as many without work (64 M elements times two, on an H200: 0.18 ms, not 0.13)."""
    n = -(-threads // workgroup) or 1
    if n <= 65535:
        return [n, 1, 1]
    y = -(-n // 65535)
    if y <= 65535:
        return [-(-n // y), y, 1]
    z = -(-y // 65535)
    return [65535, -(-y // z), z]


__all__ = ["Kernel", "Point", "Ref", "Values", "const", "grid_for", "where"]
