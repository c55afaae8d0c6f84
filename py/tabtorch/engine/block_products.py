"""A vector times a matrix whose rows are packed in blocks, on GPUs: each thread reads whole words of a block, once.

`wgsl/matvec_blocks.wgsl` is the algorithm. Here are the functions that it calls: what the weights of a block are comes of the
expression of the map that unpacks them, at each of the block's places, with its bytes in registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .expr import Expr, cast, fit, variable
from .kernel import U0, Kernel, Ref
from .lower import Factor, index_of
from .template import Filled, const
from .tiles import contraction, sizes

if TYPE_CHECKING:
    from .fuse import Group
    from .plan import Builder

#: results of a workgroup, and weights of a block: of the algorithm
_ROWS, _BLOCK = 4, 32


def _rows(b: Builder, g: Group) -> tuple[int, int] | None:
    """Of a group that this is for: position of its contraction, and which operand is the matrix."""
    if not b.target.barriers or g.kind != "contract" or b.target.workgroup_bytes < 64 * (_BLOCK + 1) * 4 + 64 * 16:
        return None
    p = contraction(b, g)
    inst = b.nodes[p].inst
    if inst.compute != "f32" or any(g.level[q] != "row" for q in g.nodes if q != p):
        return None
    if any(b.nodes[q].inst.op.reduces for q in g.nodes if q != p):
        return None
    batch, m, n, k = sizes(inst)
    if batch != 1 or k < 8 * _BLOCK or k % _BLOCK:
        return None
    for i, (rows, others) in enumerate(((m, n), (n, m))):
        node, view = b.nodes[p].srcs[i], inst.ins[i]
        if others != 1 or rows < 64 or rows > 65535 * _ROWS or node.buf is not None:
            continue
        if node.pos not in b.graph.virtual or node.inst.op.blocks is None or node.inst.op.blocks.size != _BLOCK:
            continue
        out = node.inst.out
        # one buffer, seen as bytes and as halves, that is there; and all of the matrix, row after row
        whole = len(node.srcs) == 2 and node.srcs[0].buf is not None
        dense = not view.offset and not view.mark and view.dtype is out.dtype and out.numel == rows * k
        step = 1
        for size, stride in reversed(list(zip(view.shape, view.strides, strict=True))):
            dense = dense and (size == 1 or stride == step or not stride)
            step *= size if stride else 1
        if whole and dense and step == rows * k:
            return p, i
    return None


class _Words:
    """A block whose bytes are in the variables `names`, as words: its numbers at known places."""

    def __init__(self, k: Kernel, names: list[str]) -> None:
        self.k = k
        self.words = [variable(n, "u32") for n in names]
        self.halves: dict[int, Expr] = {}

    def u8(self, at: Any) -> Any:
        n = _known(at)
        return (self.words[n >> 2] >> (n % 4 * 8)) & 255

    def i8(self, at: Any) -> Any:
        return cast((cast(self.u8(at), "i32") ^ 128) - 128, "f32")

    def f16(self, at: Any) -> Any:
        n = _known(at)
        if n not in self.halves:
            bits = self.k.r.text((self.words[n >> 2] >> (n % 4 * 8)) & 0xFFFF)
            self.k.r.line(f"let half{n} = tt_h2f({bits});")
            self.halves[n] = variable(f"half{n}", "f32")
        return self.halves[n]


def _known(at: Any) -> int:
    """The number that an expression of constants is."""
    if isinstance(at, int):
        return at
    if at.op != "const":
        raise AssertionError(f"the place of a byte in a block depends on {at!r}")
    return int(at.value)


def emit(b: Builder, g: Group) -> bool:
    """Writes the launch of a `contract` group, if it is a vector times packed rows."""
    found = _rows(b, g)
    if found is None:
        return False
    p0, which = found
    inst = b.nodes[p0].inst
    _, m, n, length = sizes(inst)
    rows = max(m, n)
    k = Kernel(b.target.number, b.label(g))
    v = b.values(k)
    filled = Filled(k)
    filled.number("size_rows", k.dim(rows, "rows"))
    filled.number("size_blocks", k.dim(length // _BLOCK, "blocks"))

    def load_x() -> Expr:
        k.r.inside = "load"
        point: list[Factor] = [(U0, 1, "b"), (U0, m, "m"), (U0, n, "n"), (variable("k", "u32"), length, "k")]
        x = v.element(p0, 1 - which, index_of(k, inst.ins[1 - which], point, (p0, 1 - which)))
        real: Expr = cast(x, "f32")
        return real

    def dot_block() -> Expr:
        r = k.r
        node = b.nodes[p0].srcs[which]
        blocks, out = node.inst.op.blocks, node.inst.out.dtype
        source = node.srcs[0]
        name = k.bind(Ref(b.ref_of(source).key, node.inst.ins[0].dtype))
        count = -(-blocks.nbytes // 4)
        r.line(f"let begin = block * {blocks.nbytes}u;")
        if blocks.nbytes % 4 == 0:
            names = [f"word{i}" for i in range(count)]
            for i, word in enumerate(names):
                r.line(f"let {word} = {name}[(begin >> 2u) + {i}u];")
        else:  # words of the buffer, and those of the block, which lie across them
            names = [f"word{i}" for i in range(count)]
            r.line("let shift = (begin & 3u) * 8u;")
            for i in range(count + 1):
                r.line(f"let raw{i} = {name}[(begin >> 2u) + {i}u];")
            for i, word in enumerate(names):
                r.line(f"let {word} = (raw{i} >> shift) | ((raw{i + 1} << 1u) << (31u - shift));")
        block = _Words(k, names)
        r.line("var sum = 0.0;")
        for j in range(_BLOCK):
            value = fit(cast(blocks.value(block, const(j, "u32")), out.compute), out.name)
            r.line(f"sum = fma({r.text(cast(value, 'f32'))}, xs[at + {j}u], sum);")
        return variable("sum", "f32")

    def store_out() -> None:
        o = variable("n", "u32")
        point: list[Factor] = [(o, g.O, "o")]
        v.point = point
        v.inside[p0] = k.let(fit(cast(variable("value", "f32"), inst.out.dtype.compute), inst.out.dtype.name), "x")
        for p in sorted(g.nodes):
            if p != p0:
                v.inside[p] = k.let(v.compute(p, point), "x")
            if p in b.stored:
                k.store_bits(b.ref_of(b.nodes[p]), o, v.inside[p])

    filled.function("load_x", "k: u32", "f32", load_x)
    filled.function("dot_block", "block: u32, at: u32", "f32", dot_block)
    filled.function("store_out", "n: u32, value: f32", None, store_out)
    k.workgroup = (64, 1, 1)
    b.launch(k, filled.source("matvec_blocks"), [-(-rows // _ROWS), 1, 1])
    return True
