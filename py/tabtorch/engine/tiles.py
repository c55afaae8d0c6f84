"""Contractions by the tuned kernels of `wgsl/`: the engine writes their loads and stores, so views, conversions, what comes
before the operands and what follows the result are part of the kernel."""

from __future__ import annotations

import re
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from tabtorch.base.dtypes import float32
from tabtorch.base.package_files import kernel

from . import matvec
from .contractions import FOURS, contraction, finish, four_at, joined, quads, rows_first, shared, sizes
from .expr import Expr, cast, idiv, imod, minimum, variable
from .lower import U0, Factor, Kernel, Ref, index_of
from .template import Filled
from .view import meta

if TYPE_CHECKING:
    from .fuse import Group
    from .plan import Builder
    from .target import Target


@cache
def algorithm(name: str) -> str:
    """The text of a kernel's file, without comments."""
    return re.sub(r"^\s*//.*\n", "", kernel(name), flags=re.M).rstrip()


def serves(t: Target, inst: Any) -> bool:
    """Whether a tuned kernel does this contraction: real arithmetic, and results enough to fill tiles, or few rows by many columns."""
    return matvec.serves(t, inst) or does(t, inst.compute, *sizes(inst))


#: rows, or columns, of which a grid has workgroups enough: 65535 in each direction
_MOST = 1 << 21


def does(t: Target, compute: str, batch: int, m: int, n: int, k: int) -> bool:
    """The same of what is to be a contraction of these sizes."""
    if t.serial:
        return compute in ("f32", "f64") and n >= 4 and k >= 4
    least = 4 if t.software else 16
    return compute == "f32" and m >= least and n >= least and k >= 4 and batch <= 65535 and m < _MOST and n < _MOST


#: what a large GPU has. WebGPU does not tell how many; a smaller device is given more workgroups than it needs
_PROCESSORS = 132
#: from this length on a sum is cut so that the last round of workgroups is full, too: below it another launch, and what the parts
#: take to be written and read, cost more
_LONG = 2048
#: tiles, so few that this pays more than what `_in_rounds` weighs
_FEW_TILES = 64


class Parts(NamedTuple):
    """How a product is laid out: threads of a workgroup along x and along y, in how many parts k is cut, how long one is."""

    x: int
    y: int
    cut: int
    length: int


def _laid_out(batch: int, m: int, n: int, k: int) -> tuple[int, int, int]:
    """(threads along x, along y, parts of k) on a large GPU.

    A thread makes 8 x 8 results, and a workgroup of 16 x 16 threads, or half of that, keeps a processor busy. Where there are fewer
    of them than processors k is cut: results as few as a weight's, sums as long as a batch of images. The thresholds were found
    by timing all layouts of 25 products on an H200. What is compared here makes another schedule of a window.
    """
    most = min(k // 128, 65535 // batch, 64)  # parts
    x, y = 16 if n > 64 else 8, 16 if m > 64 else 8
    tiles = -(-m // (8 * y)) * -(-n // (8 * x)) * batch
    halves = x == y == 16
    if tiles >= 4 * _PROCESSORS:  # halves: where rows lie along k up to a twentieth faster, else no slower
        return x, 8 if halves else y, 1
    if tiles < _FEW_TILES and k >= _LONG and (not halves or tiles * most >= _PROCESSORS):
        return x, y, min((3 if k >= 4 * _LONG else 2) * _PROCESSORS // tiles, most)
    if halves and tiles > _PROCESSORS // 4:
        return _in_rounds(tiles, k)
    if tiles > _PROCESSORS // 2:
        return x, y, 1
    cut = min(_PROCESSORS // tiles, most)
    if halves and tiles * cut < _PROCESSORS * 3 // 4:
        small = -(-m // 64) * -(-n // 64) * batch
        x = y = 8
        cut = min(2 * _PROCESSORS // small, k // (64 if k >= 512 else 128), 65535 // batch, 64)
    return x, y, 1 if cut == 2 else cut  # half as long is not worth another launch


def _in_rounds(tiles: int, k: int) -> tuple[int, int, int]:
    """The same for some rounds of workgroups, of which the last may leave most processors without work: tiles half as large, whole or
    in parts, fill it better, and parts have to be added.

    The unit is a twelfth of what a processor takes for a step of k of a whole tile, 8 ns on an H200; what parts cost besides is
    as measured there: 2048 x 768 of 768 takes 100 µs in whole tiles, 94 in halves, 87 in halves of two parts; 3072 x 768 of 2048
    takes 300 in halves and 265 in halves of three parts. What gains less than a twentieth is not worth a launch.
    """
    ways = [
        (-(-tiles // _PROCESSORS) * 12 * k, (16, 16, 1)),
        (-(-2 * tiles // _PROCESSORS) * 6 * k, (16, 8, 1)),
        (-(-4 * tiles // _PROCESSORS) * 3 * k + 8 * tiles + 300, (16, 8, 2)),
        (-(-6 * tiles // _PROCESSORS) * 2 * k + 11 * tiles + 300, (16, 8, 3)),
    ]
    best = ways[0]
    for way in ways[1:]:
        if 20 * way[0] < 19 * best[0] and way[1][2] * 256 <= k:
            best = way
    return best[1]


#: threads of a workgroup along x and along y, and in how many parts k is cut
Layout = tuple[int, int, int]


def parts(t: Target, batch: int, m: int, n: int, k: int, layout: Layout | None = None) -> Parts:
    """How a contraction is laid out on a device. layout: the one that is wanted (tuning.py)."""
    if t.software:
        return Parts(4, 4, 1, k)
    x, y, cut = layout or _laid_out(batch, m, n, k)
    if cut < 2:
        return Parts(x, y, 1, k)
    length = -(-k // cut // _STEP) * _STEP
    return Parts(x, y, -(-k // length), length)


def folded(t: Target, inst: Any) -> tuple[int | None, tuple[int, int, int]]:
    """Which operand is more rows, or columns, because all of a batch read the same of the other one, as many as a grid has room for;
    (batch, rows, columns) as the kernel counts them then."""
    batch, m, n, _ = sizes(inst)
    if batch > 1 and t.barriers:
        if shared(inst.ins[0], inst.static[0]) and batch * n < _MOST:
            return 1, (1, m, batch * n)
        if shared(inst.ins[1], inst.static[0]) and batch * m < _MOST:
            return 0, (1, batch * m, n)
    return None, (batch, m, n)


def _by_matrices(t: Target, real: str, batch: int, m: int, n: int, k: int) -> Parts | None:
    """How it is laid out where subgroups multiply matrices, and may: None where tiles would be empty for the most part."""
    if not t.matrices or real != "f32" or m < 64 or n < 64 or k < 64:
        return None
    tiles = -(-m // 128) * -(-n // 128) * batch
    cut = 1 if tiles > _PROCESSORS // 2 else min(_PROCESSORS // tiles, k // 256, 65535 // batch)
    if cut < 2:
        return Parts(16, 16, 1, k)
    length = -(-k // cut // _STEP) * _STEP
    return Parts(16, 16, -(-k // length), length)


#: what a text with such matrices begins with. How wide a subgroup is, and that all of it goes one way, compilers do not see
_MATRICES = (
    "diagnostic(off, chromium.subgroup_matrix_uniformity);",
    "enable f16;",
    "enable subgroups;",
    "enable chromium_experimental_subgroup_matrix;",
)
#: columns and rows that a step brings; half of them where operands come one by one and k is shorter than this
_STEP = 16
_SHORT = 512


#: products from which on loads of four neighbours are worth that sizes which are no multiples of four have schedules of their own
_LARGE = 1 << 24


def emit(b: Builder, g: Group) -> None:
    """One dispatch for the contraction and its epilogue."""
    inst = b.nodes[contraction(b, g)].inst
    if matvec.serves(b.target, inst):
        matvec.emit(b, g)
    elif not b.target.barriers or prod(sizes(inst)) < _LARGE or not _emit(b, g, True):
        _emit(b, g, False)


def _divides(e: Expr) -> bool:
    """Whether there is a division in it, which GPUs have no instruction for."""
    return e.op in ("idiv", "imod") or any(_divides(x) for x in e.args)


def _reads_others(b: Builder, g: Group, p0: int) -> bool:
    """Whether what is done with the results reads another value for each of them, and nothing else."""
    own = set(g.nodes)
    read = [
        m
        for p in own - {p0}
        for m, s in zip(b.nodes[p].inst.ins, b.nodes[p].srcs)
        if s.buf is not None or s.pos not in own
    ]
    return bool(read) and all(m.numel == g.O and 0 not in m.strides for m in read)


def _both_ways(k: Kernel) -> bool:
    """Whether a buffer is written and bound a second time, as elements or as vectors of them: WebGPU has no such thing."""
    written = {x.key for x in k.bindings if x.access == "rw"}
    return sum(x.key in written for x in k.bindings) > len(written)


def _emit(b: Builder, g: Group, fours: bool) -> bool:
    """The same by tiles, with or without loads of four neighbours. False, and nothing, if that binds too many buffers: one that is
    read both ways is bound twice."""
    p0 = contraction(b, g)
    inst = b.nodes[p0].inst
    batch, m, n, kk = sizes(inst)
    nb, nm, _, nk = inst.static
    k = Kernel(b.target.number, b.label(g))
    real = inst.compute
    v = b.values(k)
    kb, km, kn, kd = (variable(x, "u32") for x in ("b", "m", "n", "k"))
    filled = Filled(k)
    function = filled.function

    fold, (copies, rows, columns) = folded(b.target, inst)
    matrices = _by_matrices(b.target, real, copies, rows, columns, kk)
    serial = Parts(1, 1, 1, kk) if k.r.serial else None
    laid = matrices or serial or parts(b.target, copies, rows, columns, kk, b.layouts.get(p0))
    cut, length = laid.cut, laid.length
    dims = {"M": k.dim(m), "N": k.dim(n), "K": k.dim(kk)}
    counted = {"M": dims["M"] if fold != 0 else k.dim(rows), "N": dims["N"] if fold != 1 else k.dim(columns)}
    if not b.target.barriers:  # there each workgroup has its part of k
        counted["K"] = dims["K"]
    if k.r.serial:
        counted["B"] = k.dim(batch)
    for x, e in counted.items():
        filled.number(f"size_{x}", e)
    if b.target.barriers:
        z = variable("z", "u32")
        of_batch, first, last = z, U0, dims["K"]
        if cut > 1:
            each, part = k.dim(copies), k.dim(length)
            of_batch, first = imod(z, each), idiv(z, each) * part
            last = minimum(first + part, last)
        for name, e in (("batch_of", of_batch), ("first_k", first), ("last_k", last)):
            function(name, "z: u32", "u32", lambda e=e: e)  # type: ignore[misc]

    own_dims = (nb, nb + nm), (nb + nm, len(inst.ins[1].shape) - nk)
    K: Factor = (kd, kk, "k")
    no_b, no_m, no_n, no_k = (U0, batch, "b"), (U0, m, "m"), (U0, n, "n"), (U0, kk, "k")

    def place(row: Expr, column: Expr) -> tuple[Factor, Factor, Factor]:
        """The batch, row and column of a result, of which the kernel counts these."""
        of, x, y = kb, row, column
        if fold == 0:
            of, x = k.let(idiv(row, dims["M"]), "of"), k.let(imod(row, dims["M"]), "m")
        elif fold == 1:
            of, y = k.let(idiv(column, dims["N"]), "of"), k.let(imod(column, dims["N"]), "n")
        return (of, batch, "b"), (x, m, "m"), (y, n, "n")

    def row(i: int) -> Expr:
        """The place in memory of what row or column `i` contributes."""
        if fold == 1 - i:
            at = [no_b, (km, m, "m"), no_n] if i == 0 else [no_b, no_m, (kn, n, "n")]
        elif i == 0:
            at = [*place(km, U0)[:2], no_n]
        else:
            at = list(place(U0, kn))
            at[1] = no_m
        return index_of(k, inst.ins[i], [*at, no_k], (p0, i))

    by_fours = [False, False]

    def operand(i: int, name: str, own: str) -> None:
        """A place is the sum of what the row and what k contribute."""
        view = inst.ins[i]
        flat = meta(view.shape, view.strides, 0, view.dtype, view.device)
        function(f"row_{name}", f"b: u32, {own}: u32", "u32", lambda: row(i))
        step = index_of(k, flat, [no_b, no_m, no_n, K], (p0, i))
        function(f"step_{name}", "k: u32", "u32", lambda: step)
        if not b.target.barriers:
            function(f"load_{name}", "at: u32", real, lambda: loaded(i))
            return
        first = rows_first(view, *own_dims[i])
        source = b.nodes[p0].srcs[i]
        lie = fours and quads(view, *(own_dims[i] if first else (view.ndim - nk, view.ndim)))
        by_fours[i] = four = lie and view.dtype.name in FOURS and v.pending(source) not in v.virtual
        if four:
            ref = Ref(v.refs(source).key, view.dtype)
            function(f"load4_{name}", "at: u32", "vec4<f32>", lambda: four_at(k, ref, variable("at", "u32")))
            function(f"load_{name}", "at: u32", real, lambda: f"load4_{name}(at & ~3u)[at & 3u]")
        else:
            function(f"load_{name}", "at: u32", real, lambda: loaded(i))
            function(f"load4_{name}", "at: u32", "vec4<f32>", lambda: f"vec4<f32>(load_{name}(at))")  # is not called
        k.constants |= {
            f"{name.upper()}_ROWS": first,
            f"{name.upper()}_FOUR": int(four),
            f"{name.upper()}_TABLE": int(_divides(step)),
        }

    def loaded(i: int) -> Expr:
        k.r.inside = "load"  # the kernel has many copies of it: an exact quotient in each took compilers a minute
        return cast(v.element(p0, i, variable("at", "u32")), real)

    operand(0, "a", "m")
    operand(1, "b", "n")

    # where k is cut, or several results share a word of memory, a second kernel finishes the values
    stored = [b.nodes[p].inst.out.dtype for p in g.nodes if p in b.stored]
    vectors = fours and n % 4 == 0 and not any(d.is_complex or d.compute == "i64" for d in stored)
    packed = not vectors and any(k.r.packs(d.name) > 1 for d in stored)
    partial = Ref(b.temp(cut * g.O * 4), float32) if cut > 1 or packed else None

    def result(value: Expr, column: Expr) -> tuple[Expr, list[tuple[Ref, Any]]]:
        """Where a result goes, and what is stored there."""
        B, M, N = place(km, column)
        i = k.let((B[0] * dims["M"] + M[0]) * dims["N"] + N[0] if batch * cut > 1 else km * dims["N"] + column, "i")
        if partial:
            if fold is not None and cut > 1:  # `b` is the part
                i = k.let(kb * k.dim(g.O, "total") + i, "i")
            return i, [(partial, value)]
        found: list[tuple[Ref, Any]] = []
        finish(b, g, v, value, [B, M, N], lambda ref, x: found.append((ref, x)))
        return i, found

    def store() -> None:
        i, found = result(variable("value", real), kn)
        for ref, x in found:
            k.store(ref, i, x)

    def store_four() -> None:
        if vectors:
            lanes = [result(variable(f"value.{c}", real), k.let(kn + j, "n")) for j, c in enumerate("xyzw")]
            for j, (ref, _) in enumerate(lanes[0][1]):
                k.store_lanes(ref, lanes[0][0], [found[j][1] for _, found in lanes])
            return
        with k.loop(minimum(counted["N"] - kn, 4), hint="lane") as lane:
            i, found = result(variable(f"value[{lane.value}]", real), k.let(kn + lane, "n"))
            for ref, x in found:
                k.store(ref, i, x)

    if not b.target.barriers:
        function("store_out", f"b: u32, m: u32, n: u32, value: {real}", None, store)
    else:
        function("store4_out", "b: u32, m: u32, n: u32, value: vec4<f32>", None, store_four)
    if k.r.serial:
        b.launch(k, k.source([algorithm("matmul." + k.r.language)]), [1, 1, 1])
        return True
    if fours and (len(k.bindings) > b.target.buffers or _both_ways(k)):
        return False
    grid = [-(-columns // (laid.x * 8)), -(-rows // (laid.y * 8)), copies * cut]
    if matrices:
        k.directives += _MATRICES
        k.constants["RAGGED"] = int(kk % _STEP != 0)
        source = filled.source("matmul_matrices")
    elif b.target.barriers:
        large = b.target.workgroup_bytes > 16384 and (all(by_fours) or kk >= _SHORT)
        step = _STEP if large else _STEP // 2
        k.constants["RAGGED"] = int(kk % step != 0)
        stores = 0 if partial or len(g.nodes) == 1 else 2 if _reads_others(b, g, p0) else 1
        own = {"WG_X": laid.x, "WG_Y": laid.y, "STEP": step, "STORES": stores}
        source = filled.source("matmul", own)
    else:
        k.constants |= {"WG_X": laid.x, "WG_Y": laid.y}
        source = filled.source("matmul_registers")
    b.launch(k, source, grid)
    if partial:
        b.emit_map(g, {p0: lambda k, i: joined(k, partial, cut, g.O, i)})
    return True
