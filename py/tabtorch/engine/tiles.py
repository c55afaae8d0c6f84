"""Contractions by the tuned kernels of `wgsl/`: the engine writes their loads and stores, so views, conversions, what comes
before the operands and what follows the result are part of the kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from ..files import kernel
from .expr import Expr, cast, fit, variable
from .lower import PACKED, U0, Factor, Kernel, index_of
from .view import meta

if TYPE_CHECKING:
    from .fuse import Group
    from .plan import Builder


@cache
def algorithm(name: str) -> str:
    """The text of a kernel's file, without comments."""
    return re.sub(r"^\s*//.*\n", "", kernel(name), flags=re.M).rstrip()


def sizes(inst: Any) -> tuple[int, int, int, int]:
    """(batch, M, N, K) of a contraction."""
    shape = inst.ins[0].shape
    nb, nm, nn, _ = inst.static
    a, b, c = nb, nb + nm, nb + nm + nn
    return prod(shape[:a]), prod(shape[a:b]), prod(shape[b:c]), prod(shape[c:])


def contraction(b: Builder, g: Group) -> int:
    """Position of the contraction in its group."""
    return next(p for p in g.nodes if b.nodes[p].inst.op.kind == "contract")


def fits(b: Builder, g: Group) -> bool:
    """Whether a tile kernel serves this group: real arithmetic, and results enough to fill tiles."""
    i = b.nodes[contraction(b, g)].inst
    batch, m, n, k = sizes(i)
    if b.target.serial:
        return i.compute in ("f32", "f64") and n >= 4 and k >= 4
    if i.compute != "f32":
        return False
    if any(b.nodes[p].inst.out.dtype.name in PACKED for p in g.nodes if p in b.stored):
        return False
    least = 4 if b.target.software else 16
    return m >= least and n >= least and k >= 4 and batch <= 65535 and m < 2**21 and n < 2**21


def emit(b: Builder, g: Group) -> None:
    """One dispatch for the contraction and its epilogue."""
    p0 = contraction(b, g)
    inst = b.nodes[p0].inst
    batch, m, n, kk = sizes(inst)
    k = Kernel(b.target.number, b.label(g))
    real = inst.compute
    v = b.values(k)
    kb, km, kn, kd = (variable(x, "u32") for x in ("b", "m", "n", "k"))
    texts: list[str] = []

    def function(name: str, args: str, result: str | None, body: Callable[[], Expr | None]) -> None:
        """A function of the kernel's language whose body is rendered like a kernel's."""
        main = k.r
        k.r = type(main)()
        k.r.functions = main.functions
        k.r.count = main.count
        value = body()
        if value is not None:
            k.r.line(f"return {k.r.text(value)};")
        if k.js:
            head = f"const {name} = ({', '.join(a.split(':')[0] for a in args.split(', '))}) =>"
        else:
            head = f"fn {name}({args})" + (f" -> {result}" if result else "")
        texts.append("\n".join([head + " {", *k.r.lines, "};" if k.js else "}"]))
        main.count = k.r.count
        k.r = main

    dims = {"M": k.dim(m), "N": k.dim(n), "K": k.dim(kk)}
    if k.js:
        dims["B"] = k.dim(batch)
    for x, e in dims.items():
        function(f"size_{x}", "", "u32", lambda e=e: e)  # type: ignore[misc]

    B, M, N, K = (kb, batch, "b"), (km, m, "m"), (kn, n, "n"), (kd, kk, "k")
    no_b, no_m, no_n, no_k = ((U0, size, role) for _, size, role in (B, M, N, K))

    def operand(i: int, name: str, own: str, row: list[Factor]) -> None:
        """A place is the sum of what the row and what k contribute."""
        view = inst.ins[i]
        flat = meta(view.shape, view.strides, 0, view.dtype, view.device)
        function(f"row_{name}", f"b: u32, {own}: u32", "u32", lambda: index_of(k, view, row, (p0, i)))
        function(f"step_{name}", "k: u32", "u32", lambda: index_of(k, flat, [no_b, no_m, no_n, K], (p0, i)))
        function(f"load_{name}", "at: u32", real, lambda: cast(v.element(p0, i, variable("at", "u32")), real))

    operand(0, "a", "m", [B, M, no_n, no_k])
    operand(1, "b", "n", [B, no_m, N, no_k])

    def store() -> None:
        point: list[Factor] = [B, M, N]
        i = k.let((kb * dims["M"] + km) * dims["N"] + kn if batch > 1 else km * dims["N"] + kn, "i")
        v.home = point
        acc: Expr = variable("value", real)
        v.inside[p0] = k.let(fit(cast(acc, inst.out.dtype.compute), inst.out.dtype.name), "x")
        for p in sorted(g.nodes):
            if p != p0:
                v.inside[p] = k.let(v.compute(p, point), "x")
            if p in b.stored:
                k.store(b.ref_of(b.nodes[p]), i, v.inside[p])

    function("store_out", f"b: u32, m: u32, n: u32, value: {real}", None, store)
    k.globals = texts
    if k.js:
        b.launch(k, k.source([algorithm("matmul.js")], len(k.words)), [1, 1, 1])
        return
    if b.target.software:
        stem, wx, wy, rows, cols = "matmul_registers", 4, 4, 8, 8
    else:
        # a tile of 128 x 128 wants enough of them to fill the device
        big = -(-m // 128) * -(-n // 128) * batch >= 96
        stem, wx, wy, rows, cols = "matmul", (16 if big else 8), (16 if big else 8), 8, 8
        k.constants = {"WG_X": wx, "WG_Y": wy}
    grid = [-(-n // (wx * cols)), -(-m // (wy * rows)), batch]
    b.launch(k, k.source([algorithm(stem + ".wgsl").removesuffix("}")], len(k.words)), grid)
