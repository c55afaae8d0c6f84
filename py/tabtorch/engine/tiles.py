"""Contractions by the tuned kernels of `wgsl/`: the engine writes their loads and stores, so views, conversions, what comes
before the operands and what follows the result are part of the kernel."""

from __future__ import annotations

import re
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from tabtorch.base.dtypes import float32
from tabtorch.base.package_files import kernel

from . import matvec
from .contractions import FOURS, contraction, finish, four_at, joined, quads, rows_first, sizes
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


def does(t: Target, compute: str, batch: int, m: int, n: int, k: int) -> bool:
    """The same of what is to be a contraction of these sizes."""
    if t.serial:
        return compute in ("f32", "f64") and n >= 4 and k >= 4
    least = 4 if t.software else 16
    return compute == "f32" and m >= least and n >= least and k >= 4 and batch <= 65535 and m < 2**21 and n < 2**21


#: workgroups of 256 threads that a large GPU has at a time: two on each of 132 processors. WebGPU does not tell how many there are
_RESIDENT = 264


def parts(t: Target, inst: Any) -> tuple[int, int, int, int]:
    """(threads of a workgroup along x and along y, in how many parts k is cut, how long one is) on a GPU.

    A thread makes 8 x 8 results. Where that is too little work to fill a device, k is cut: results as few as a weight's, sums
    as long as a batch of images.
    """
    batch, m, n, k = sizes(inst)
    if t.software:
        return 4, 4, 1, k
    most = min(k // 128, 65535 // batch, 64)  # parts
    for side, wanted, full in ((16, 96, _RESIDENT), (8, 192, 384)):
        tiles = -(-m // (8 * side)) * -(-n // (8 * side)) * batch
        cut = 1 if tiles >= wanted else min(full // tiles, most)
        # a little more than the device has at a time: the rest would keep it waiting as long as the first
        late = cut <= 1 and _RESIDENT < tiles <= _RESIDENT * 8 // 5
        if side == 8 or (tiles * max(cut, 1) >= wanted and m > 64 and n > 64 and not late):
            break
    if cut <= 2:  # half as long is not worth another launch
        return side, side, 1, k
    length = -(-k // cut // 8) * 8
    return side, side, -(-k // length), length


#: products from which on loads of four neighbours are worth that sizes which are no multiples of four have schedules of their own
_LARGE = 1 << 24


def emit(b: Builder, g: Group) -> None:
    """One dispatch for the contraction and its epilogue."""
    inst = b.nodes[contraction(b, g)].inst
    if matvec.serves(b.target, inst):
        matvec.emit(b, g)
    elif not b.target.barriers or prod(sizes(inst)) < _LARGE or not _emit(b, g, True):
        _emit(b, g, False)


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

    wx, wy, cut, length = (1, 1, 1, kk) if k.r.serial else parts(b.target, inst)
    dims = {"M": k.dim(m), "N": k.dim(n), "K": k.dim(kk)}
    if k.r.serial:
        dims["B"] = k.dim(batch)
    for x, e in dims.items():
        if x != "K" or not b.target.barriers:  # there each workgroup has its part of k
            filled.number(f"size_{x}", e)
    if b.target.barriers:
        z = variable("z", "u32")
        of_batch, first, last = z, U0, dims["K"]
        if cut > 1:
            each, part = k.dim(batch), k.dim(length)
            of_batch, first = imod(z, each), idiv(z, each) * part
            last = minimum(first + part, last)
        for name, e in (("batch_of", of_batch), ("first_k", first), ("last_k", last)):
            function(name, "z: u32", "u32", lambda e=e: e)  # type: ignore[misc]

    own_dims = (nb, nb + nm), (nb + nm, len(inst.ins[1].shape) - nk)
    B, M, N, K = (kb, batch, "b"), (km, m, "m"), (kn, n, "n"), (kd, kk, "k")
    no_b, no_m, no_n, no_k = ((U0, size, role) for _, size, role in (B, M, N, K))

    def operand(i: int, name: str, own: str, row: list[Factor]) -> None:
        """A place is the sum of what the row and what k contribute."""
        view = inst.ins[i]
        flat = meta(view.shape, view.strides, 0, view.dtype, view.device)
        function(f"row_{name}", f"b: u32, {own}: u32", "u32", lambda: index_of(k, view, row, (p0, i)))
        function(f"step_{name}", "k: u32", "u32", lambda: index_of(k, flat, [no_b, no_m, no_n, K], (p0, i)))
        if not b.target.barriers:
            function(f"load_{name}", "at: u32", real, lambda: loaded(i))
            return
        first = rows_first(view, *own_dims[i])
        source = b.nodes[p0].srcs[i]
        lie = fours and quads(view, *(own_dims[i] if first else (view.ndim - nk, view.ndim)))
        four = lie and view.dtype.name in FOURS and v.pending(source) not in v.virtual
        if four:
            ref = Ref(v.refs(source).key, view.dtype)
            function(f"load4_{name}", "at: u32", "vec4<f32>", lambda: four_at(k, ref, variable("at", "u32")))
            function(f"load_{name}", "at: u32", real, lambda: f"load4_{name}(at & ~3u)[at & 3u]")
        else:
            function(f"load_{name}", "at: u32", real, lambda: loaded(i))
            function(f"load4_{name}", "at: u32", "vec4<f32>", lambda: f"vec4<f32>(load_{name}(at))")  # is not called
        k.constants |= {f"{name.upper()}_ROWS": first, f"{name.upper()}_FOUR": int(four)}

    def loaded(i: int) -> Expr:
        k.r.inside = "load"  # the kernel has many copies of it: an exact quotient in each took compilers a minute
        return cast(v.element(p0, i, variable("at", "u32")), real)

    operand(0, "a", "m", [B, M, no_n, no_k])
    operand(1, "b", "n", [B, no_m, N, no_k])

    # where k is cut, or several results share a word of memory, a second kernel finishes the values
    packed = any(k.r.packs(b.nodes[p].inst.out.dtype.name) > 1 for p in g.nodes if p in b.stored)
    partial = Ref(b.temp(cut * g.O * 4), float32) if cut > 1 or packed else None

    def store() -> None:
        point: list[Factor] = [B, M, N]
        i = k.let((kb * dims["M"] + km) * dims["N"] + kn if batch * cut > 1 else km * dims["N"] + kn, "i")
        acc: Expr = variable("value", real)
        if partial:
            k.store(partial, i, acc)
            return
        finish(b, g, v, acc, point, lambda ref, x: k.store(ref, i, x))

    function("store_out", f"b: u32, m: u32, n: u32, value: {real}", None, store)
    if k.r.serial:
        b.launch(k, k.source([algorithm("matmul." + k.r.language)]), [1, 1, 1])
        return True
    if b.target.barriers:
        k.constants |= {
            "WG_X": wx,
            "WG_Y": wy,
            "RAGGED": int(kk % 8 != 0),
            "DIRECT": int(length >= 256 and (partial is not None or len(g.nodes) == 1)),
        }
    if len(k.bindings) > b.target.buffers and fours:
        return False
    grid = [-(-n // (wx * 8)), -(-m // (wy * 8)), batch * cut]
    stem = "matmul" if b.target.barriers else "matmul_registers"
    b.launch(k, filled.source(stem), grid)
    if partial:
        b.emit_map(g, {p0: lambda k, i: joined(k, partial, cut, g.O, i)})
    return True
