"""Attention by tuned kernels, on GPUs with workgroup memory: one pass over the keys forward, and two kernels and a sum of
products backward, which make the scores again from the logarithms of their totals. Scores are never in memory.

Views are read as they are, halves computed in float32. `served` says what this is for; all else is the formula of
`nn.functional`, which is also what derivatives of gradients are made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import record
from tabtorch.base import dtypes
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import Expr, cast, const, idiv, imod, minimum, variable, where
from tabtorch.engine.graph import Custom, Inst, inst
from tabtorch.engine.lower import PACKED, U0, Factor, Kernel, Ref, index_of
from tabtorch.engine.plan import Lowering
from tabtorch.engine.target import Target, target
from tabtorch.engine.template import Filled, Rows
from tabtorch.engine.view import Meta, broadcast_strides, contiguous_meta, contiguous_strides, meta, ordered_strides
from tabtorch.engine.wgsl import Wgsl
from tabtorch.ops.machinery.batching import batches
from tabtorch.ops.machinery.operation import run
from tabtorch.ops.neural.attention_functions import Functions, Traced, Values
from tabtorch.ops.reductions.reduce import quiet

#: bytes of workgroup memory without which the formula serves, and with which a workgroup makes 64 rows rather than 32
_LEAST, _WIDE = 16384, 32768
#: rows from which on tiles are filled well enough
_ROWS = 16
_WIDEST = 256
#: workgroups from which on a device is thought busy
_BUSY = 128
#: operations of FlexAttention's functions from which on a kernel has them 4 times rather than 16: compilers take long otherwise
_LONG = 12


class Static(NamedTuple):
    """What a kernel is written for, beside its views. q, k and v come as (batch…, rows, columns).

    group: how many heads of queries a head of keys serves. lse: whether the logarithms of the totals are wanted too.
    functions: of FlexAttention. block: the queries and keys of a block, where there is a table of blocks.
    """

    causal: bool
    masked: bool
    group: int
    lse: bool
    functions: Functions | None = None
    block: tuple[int, int] | None = None


def _words(numel: int, dtype: Any) -> int:
    """Words of 32 bits that hold `numel` elements."""
    return numel * dtype.itemsize // 4


def served(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, grouped: bool) -> bool:
    """Whether the kernels do this attention (with no dropout)."""
    m, mk, mv = q._meta, k._meta, v._meta
    if m.device.type != "webgpu" or batches[0]:
        return False
    t = target(0)
    if not t.barriers or t.workgroup_bytes < _LEAST or m.dtype.name not in ("float32", "float16", "bfloat16"):
        return False
    if not (mk.ndim == mv.ndim == m.ndim >= 2) or mk.device is not m.device or mv.device is not m.device:
        return False
    rows, width = m.shape[-2:]
    keys, values = mv.shape[-2:]
    if mk.shape[-2:] != (keys, width) or not (
        _ROWS <= rows and keys and 0 < width <= _WIDEST and 0 < values <= _WIDEST
    ):
        return False
    if m.dtype.itemsize == 2 and (width % 2 or values % 2):
        return False  # an element would share its word with one of another row
    lead = m.shape[:-2]
    if mk.shape[:-2] != mv.shape[:-2] or (
        mk.shape[:-2] != lead if not grouped else (len(lead) < 1 or mk.shape[:-3] != lead[:-1] or not mk.shape[-3])
    ):
        return False
    if not 0 < prod(lead) <= 65535:
        return False
    if mask is None:
        return True
    d = mask._meta
    shape = (*lead, rows, keys)
    return (
        not mask._rg
        and d.device is m.device
        and (d.dtype.name == "bool" or (d.dtype.category == 2 and d.dtype.itemsize < 8))
        and d.ndim <= len(shape)
        and all(n in (1, want) for n, want in zip(reversed(d.shape), reversed(shape)))
    )


def _tile(constants: dict[str, int]) -> int:
    """Rows that a workgroup makes."""
    return 4 * constants["Y"]


class _Writer:
    """What the three kernels share: the functions that say which rows, keys and scores there are."""

    def __init__(self, i: Inst, low: Lowering, name: str) -> None:
        self.inst = i
        self.static: Static = i.static
        self.low = low
        self.q, self.k, self.v = i.ins[:3]
        self.mask = i.ins[3] if self.static.masked else None
        self.table = i.ins[3] if self.static.block else None
        self.M, self.N = self.q.shape[-2], self.k.shape[-2]
        self.batch = prod(self.q.shape[:-2])
        self.own = prod(self.k.shape[:-2])  # batches of keys
        self.kernel: Kernel = low.kernel(name)
        self.filled = Filled(self.kernel)

    def form(self, rows: int, batch: int, gradient: bool = False) -> dict[str, int]:
        """The constants of a template that makes `rows` rows of each of `batch`. Those of gradients can keep an operand in
        workgroup memory: then their tiles are 4 Y² + 128 Y vectors."""
        t: Target = self.low.target
        wide = t.workgroup_bytes >= _WIDE and rows > 32 and -(-rows // 64) * batch >= _BUSY
        depth = 64 if wide else 32
        width, values = (-(-n // depth) * depth for n in (self.q.shape[-1], self.v.shape[-1]))
        found = {"Y": depth // 4, "WIDTH": width, "VALUES": values}
        if gradient:
            y = found["Y"]
            found["KEPT"] = int(width == values == depth and 16 * y * (4 * y + 128) <= t.workgroup_bytes)
        return found

    def function(self, name: str, args: str, body: Any, result: str | None = "u32") -> None:
        typed = ", ".join(f"{a}: {'f32' if a in ('value', 'd') else 'u32'}" for a in args.split())
        self.filled.function(name, typed, result, body)

    def factors(self) -> tuple[Factor, Factor, Factor]:
        b, m, n = (variable(x, "u32") for x in "bmn")
        return (b, self.batch, "b"), (m, self.M, "m"), (n, self.N, "n")

    def common(self) -> None:
        """Sizes, and what a score is."""
        k = self.kernel
        self.filled.number("size_M", k.dim(self.M, "M"))
        self.filled.number("size_N", k.dim(self.N, "N"))

        def score() -> Expr:
            b, m, n = self.factors()
            r = self.scaled()
            if self.static.functions is not None:
                f, kept = self.traced(r)
                r = r if f.f.score is None else f.of(f.f.score)
                return where(kept, r, const(-math.inf, "f32"))
            if self.mask is not None:
                seen = index_of(k, self.mask, [b, m, n], "mask")
                got = k.load(self.low.input(3), k.let(seen, "at"))
                r = where(got, r, const(-math.inf, "f32")) if got.type == "bool" else r + cast(got, "f32")
            if self.static.causal:
                r = where(n[0] <= m[0], r, const(-math.inf, "f32"))
            return r

        self.function("score", "b m n value", score, "f32")

        def skipped() -> Expr:
            aligned = self.static.block is not None and all(size % 64 == 0 for size in self.static.block)
            return self.block() == 0 if aligned else const(False, "bool")  # a tile has at most 64 rows, and 64 keys

        self.function("skipped", "b m n", skipped, "bool")

    def scaled(self) -> Expr:
        return self.kernel.let(variable("value", "f32") * self.low.scalar(self.kernel, 0), "score")

    def block(self) -> Expr:
        """What the table says of the block of a score: 1, where the mask decides, or 2, where all take part, or both, or 0."""
        assert self.table is not None and self.static.block is not None
        k = self.kernel
        b, m, n = self.factors()
        at = [
            (idiv(x[0], k.dim(size, ("block", role))), length, ("block", role))
            for x, size, length, role in zip((m, n), self.static.block, self.table.shape[-2:], "mn", strict=True)
        ]
        return k.let(k.load(self.low.input(3), index_of(k, self.table, [b, *at], "table")), "block")

    def traced(self, score: Expr) -> tuple[Values, Expr]:
        """The values of FlexAttention's functions for a score, and whether it takes part."""
        k, f = self.kernel, self.static.functions
        assert f is not None
        (b, _, _), (m, _, _), (n, _, _) = self.factors()
        heads = k.dim(self.q.shape[-3], "heads")
        place = [k.let(cast(x, "i32"), "at") for x in (idiv(b, heads), imod(b, heads), m, n)]
        values = Values(k, self.low, f, [score, *place], 3 + (self.table is not None), 1)
        kept = const(True, "bool") if f.kept is None else values.of(f.kept)
        if self.table is not None:
            found = self.block()
            kept = ((found & 2) != 0) | ((found != 0) & kept)
        return values, kept

    def unscored(self) -> None:
        """The gradient of the score."""

        def body() -> Expr:
            d: Expr = variable("d", "f32") * self.low.scalar(self.kernel, 0)
            if self.static.functions is not None:
                f, kept = self.traced(self.scaled())
                d = where(kept, d if f.f.slope is None else d * f.of(f.f.slope), const(0, "f32"))
            return d

        self.function("unscored", "b m n value d", body, "f32")

    def keys(self, rows: int) -> None:
        """Which rows a workgroup makes (those that see most keys first), which keys they see, and of which batch."""
        k = self.kernel
        g, row, b = (variable(x, "u32") for x in ("g", "row", "b"))
        causal = self.static.causal
        last = k.dim(-(-self.M // rows) - 1, "last")
        self.function("first_row", "g", lambda: (last - g if causal else g) * rows)
        self.function("last_key", "row", lambda: minimum(k.dim(self.N, "N"), row + 1) if causal else k.dim(self.N, "N"))
        self.function(
            "keys_of", "b", lambda: b if self.static.group == 1 else idiv(b, k.dim(self.static.group, "group"))
        )

    def queries(self) -> None:
        """Which queries see the keys of a batch."""
        k = self.kernel
        b, i, key = (variable(x, "u32") for x in ("b", "i", "key"))
        group = k.dim(self.static.group, "group")
        self.filled.number("size_G", group)
        self.function("queries_of", "b i", lambda: b * group + i if self.static.group != 1 else b)
        first = idiv(key, const(32, "u32")) * 32
        self.function("first_query", "key", lambda: first if self.static.causal else U0)

    def lead(self, keys: bool) -> Factor:
        """The batch `b`: of keys, or of queries."""
        b = variable("b", "u32")
        return (b, self.own, "keys") if keys else (b, self.batch, "b")

    def rows(self, name: str, j: int) -> None:
        """Loads of operand `j`, of (batch…, rows, columns)."""
        Rows(self.filled, name, self.low.input(j), self.inst.ins[j], self.lead(name in "kv"), name)

    def operands(self) -> None:
        """Loads of queries, keys and values."""
        for j, name in enumerate("qkv"):
            self.rows(name, j)

    def gradient(self) -> None:
        """Loads of what only gradients read: the last three inputs."""
        at = len(self.inst.ins) - 3
        self.rows("g", at)
        self.row_values("lse", at + 1)
        self.row_values("delta", at + 2)

    def row_values(self, name: str, j: int) -> None:
        """Loads of a number for each row of queries."""

        def load() -> Expr:
            k = self.kernel
            b, row, _ = self.factors()
            return k.load(self.low.input(j), index_of(k, self.inst.ins[j], [b, row], name))

        self.function(f"load_{name}", "b m", load, "f32")

    def store(self, name: str, row: str, m: Meta) -> None:
        """Stores to the view `m` of the output, four columns at once. Halves are two words: each is one thread's."""
        k = self.kernel
        out = Ref(self.low.output.key, m.dtype)
        rows, columns = m.shape[-2:]

        def body() -> None:
            r = k.r
            lead = m.view(m.shape[:-1], m.strides[:-1], m.offset)
            at = index_of(k, lead, [self.lead(name in "kv"), (variable(row, "u32"), rows, row)], name)
            at = r.let(at + variable("column", "u32"), "at")
            width = r.text(k.dim(columns, (name, "columns")))
            packed = m.dtype.name in PACKED
            for i in range(0, 4, 2 if packed else 1):
                r.push(f"if (column + {i}u < {width})")
                if packed:
                    low, high = (Wgsl.bits(m.dtype.name, f"value.{c}") for c in "xyzw"[i : i + 2])
                    r.line(f"{k.bind(out, 'rw')}[{r.text((at + i) >> 1)}] = {low} | ({high} << 16u);")
                else:
                    k.store(out, at + i, variable(f"value.{'xyzw'[i]}", "f32"))
                r.pop()

        self.filled.function(f"store4_{name}", f"b: u32, {row}: u32, column: u32, value: vec4<f32>", None, body)

    def launch(self, stem: str, constants: dict[str, int], rows: int, batch: int) -> None:
        tiles = -(-rows // _tile(constants))
        f = self.static.functions
        maps: list[Any] = [x.op for x in f.insts] if f is not None else []
        constants["ROLLED"] = int(sum(op.cost for op in maps if not op.indexed) > _LONG)
        self.low.dispatch(self.kernel, self.filled.source(stem, constants), [tiles, batch, 1])


def _forward(i: Inst, low: Lowering) -> None:
    w = _Writer(i, low, "attention")
    k = w.kernel
    constants = w.form(w.M, w.batch)
    w.common()
    w.keys(_tile(constants))
    w.operands()
    shown = _out(w.q, w.v)
    w.store("out", "m", shown)

    def lse() -> None:
        if w.static.lse:
            b, m, _ = w.factors()
            at = k.let(b[0] * k.dim(w.M, "M") + m[0] + k.dim(_words(shown.numel, shown.dtype), "lse"), "at")
            value = variable("value", "f32")
            n = k.bind(Ref(low.output.key, shown.dtype), "rw")
            word = "value" if shown.dtype.name not in PACKED else f"bitcast<u32>({value.value})"
            k.r.line(f"{n}[{k.r.text(at)}] = {word};")

    w.function("store_lse", "b m value", lse, None)
    w.launch("attention", constants, w.M, w.batch)


def _query(i: Inst, low: Lowering) -> None:
    """Inputs: q, k, v, (mask,) g, lse, delta."""
    w = _Writer(i, low, "attention_query")
    constants = w.form(w.M, w.batch, True)
    w.common()
    w.unscored()
    w.keys(_tile(constants))
    w.operands()
    w.gradient()
    w.store("q", "m", _gradient(w.q))
    w.launch("attention_query", constants, w.M, w.batch)


def _key(i: Inst, low: Lowering) -> None:
    """Inputs: q, k, v, (mask,) g, lse, delta. The gradients of k and v lie one after the other."""
    w = _Writer(i, low, "attention_key")
    constants = w.form(w.N, w.own, True)
    w.common()
    w.unscored()
    w.queries()
    w.operands()
    w.gradient()
    w.store("k", "n", _gradient(w.k))
    w.store("v", "n", _gradient(w.v, w.k.numel))
    w.launch("attention_key", constants, w.N, w.own)


ATTENTION = Custom("attention", _forward)
QUERY = Custom("attention_query", _query)
KEY = Custom("attention_key", _key)


def _out(q: Meta, v: Meta) -> Meta:
    """The result, at the beginning of its storage."""
    return contiguous_meta((*q.shape[:-1], v.shape[-1]), q.dtype, q.device)


def _gradient(m: Meta, offset: int = 0) -> Meta:
    """A gradient as PyTorch lays it out: rows before heads where there are four dimensions."""
    strides = ordered_strides(m.shape, (0, 2, 1, 3)) if m.ndim == 4 else contiguous_strides(m.shape)
    return meta(m.shape, strides, offset, m.dtype, m.device)


def _flat(numel: int, like: Meta) -> Meta:
    return contiguous_meta((numel,), like.dtype, like.device)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    formula: Callable[..., Any],
    traced: Traced | None = None,
    blocks: tuple[Tensor, tuple[int, int]] | None = None,
    totals: bool = False,
) -> Any:
    """softmax(q kᵀ · scale + mask) v for what is `served`, recorded.

    `formula(g, q, k, v, mask)`: the gradients of q, k and v by operations that have gradients themselves.
    traced: FlexAttention's functions, in place of a mask. blocks: (batch, heads, rows, columns) of 0 to 3, see `_Writer.block`,
    and the size of one. totals: gives (result, logarithms of the sums of exp(score)), and `formula` a list of two gradients.
    """
    m, mk, mv = q._meta, k._meta, v._meta
    extra = [] if mask is None else [mask]
    views = [m, mk, mv]
    if mask is not None:
        shape = (*m.shape[:-1], mk.shape[-2])
        views.append(mask._meta.view(shape, broadcast_strides(mask._meta, shape), mask._meta.offset))
    if blocks is not None:
        extra.append(blocks[0])
        views.append(blocks[0]._meta)
    scalars: tuple[Any, ...] = (float(scale),)
    types: tuple[str, ...] = ("f32",)
    if traced is not None:
        extra += traced.captured
        views += [t._meta for t in traced.captured]
        scalars += tuple(traced.scalars)
        types += tuple(traced.types)
    group = m.shape[-3] // mk.shape[-3] if m.ndim > 2 else 1
    recording = STATE.grad and (q._rg or k._rg or v._rg)
    static = Static(
        bool(causal),
        mask is not None,
        group,
        recording or totals,
        traced and traced.functions,
        blocks and blocks[1],
    )
    shown = _out(m, mv)
    if not static.lse:
        i = inst(ATTENTION, tuple(views), shown, types, static)
        return run(i, shown, q, k, v, *extra, scalars=scalars)

    # the result, and behind it the logarithms, in one value: of words, where it is of halves
    rows = shown.numel // shown.shape[-1]
    start = _words(shown.numel, shown.dtype)
    word = dtypes.float32 if shown.dtype.itemsize == 4 else dtypes.int32
    i = inst(ATTENTION, tuple(views), contiguous_meta((start + rows,), word, m.device), types, static)
    out = run(i, shown, q, k, v, *extra, scalars=scalars)
    shown_totals = meta(m.shape[:-1], contiguous_strides(m.shape[:-1]), start, dtypes.float32, m.device)
    lse = Tensor._wrap(out._storage.node, shown_totals)

    def back(g: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *extra: Any) -> Any:
        given = g if totals else [g]
        saved = (*given, q, k, v, out, lse, *extra)
        if STATE.grad or batches[0] or any(t is not None and t._meta.device is not m.device for t in saved):
            return (*formula(g, q, k, v, extra[0] if mask is not None else None), None)
        g, more = (*given, None)[:2]
        with quiet():
            g = out.new_zeros(out.shape) if g is None else g
            delta = (g.float() * out.float()).sum(-1)
            if more is not None:
                delta = delta - more
        args = [q, k, v, *extra, g, lse, delta]
        seen = [t._meta for t in args]
        if mask is not None:
            seen[3] = views[3]
        metas = tuple(seen)
        plain = static._replace(lse=False)
        dq = run(inst(QUERY, metas, _flat(m.numel, m), types, plain), _gradient(seen[0]), *args, scalars=scalars)
        both = run(
            inst(KEY, metas, _flat(mk.numel + mv.numel, m), types, plain), _gradient(seen[1]), *args, scalars=scalars
        )
        return dq, both, Tensor._wrap(both._storage.node, _gradient(seen[2], mk.numel)), None

    name = "ScaledDotProductFlashAttentionForCpu" if m.ndim == 4 and m.shape[-1] == mv.shape[-1] else "UnsafeView"
    results = (out, lse) if totals else out
    record(name + "Backward0", (q, k, v, mask), results, back, (q, k, v, out, lse, *extra))
    return results


__all__ = ["attention", "served"]
