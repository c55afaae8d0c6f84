"""The kernels of attention: what the engine writes into wgsl/attention*.wgsl, for masks, grouped heads, dropout and functions."""

from __future__ import annotations

import math
from math import prod
from typing import Any, NamedTuple

from tabtorch.engine import philox
from tabtorch.engine.expr import Expr, cast, const, idiv, imod, minimum, variable, where
from tabtorch.engine.graph import Custom, Inst
from tabtorch.engine.lower import U0, Factor, Kernel, Ref, index_of
from tabtorch.engine.plan import Lowering
from tabtorch.engine.target import Target
from tabtorch.engine.template import Filled, Rows
from tabtorch.engine.view import Meta, contiguous_meta, contiguous_strides, meta, ordered_strides
from tabtorch.engine.wgsl import PACKED, Wgsl
from tabtorch.ops.neural.attention_functions import Functions, Values

#: bytes of workgroup memory with which a workgroup makes 64 rows rather than 32
_WIDE = 32768
#: workgroups from which on a device is thought busy
_BUSY = 128
#: rows from which on tiles are filled well enough
FEW = 16
#: operations of FlexAttention's functions from which on a kernel has them 4 times rather than 16: compilers take long otherwise
_LONG = 12
#: types of the scalars that dropout adds, the last ones: see `dropout_numbers`
DROPOUT_TYPES = (*philox.SCALARS, "u32", "f32")
#: elements that one word can number
_COUNTERS = 2**32


class Static(NamedTuple):
    """What a kernel is written for, beside its views. q, k and v come as (batch…, rows, columns).

    group: how many heads of queries a head of keys serves. lse: whether the logarithms of the totals are wanted too.
    functions: of FlexAttention. block: the queries and keys of a block, where there is a table of blocks. dropout: whether there is
    some. summed: of each dimension of (batch…, queries, keys), whether all of it shares an element of the mask, whose gradient is
    to be made. turned: whether the result has rows before heads.
    """

    causal: bool
    masked: bool
    group: int
    lse: bool
    functions: Functions | None = None
    block: tuple[int, int] | None = None
    dropout: bool = False
    summed: tuple[bool, ...] = ()
    turned: bool = False

    def sizes(self) -> tuple[Any, ...]:
        """What of it hangs on sizes, for schedules.py."""
        return () if self.functions is None else self.functions.sizes()

    def rest(self) -> Static:
        """What does not."""
        return self if self.functions is None else self._replace(functions=self.functions.rest())

    @classmethod
    def of_parts(cls, sizes: tuple[Any, ...], rest: Static) -> Static:
        """The one with these sizes and this rest."""
        return rest if rest.functions is None else rest._replace(functions=rest.functions.with_sizes(sizes))


def words(numel: int, dtype: Any) -> int:
    """Words of 32 bits that hold `numel` elements."""
    return numel * dtype.itemsize // 4


def _tile(constants: dict[str, int]) -> int:
    """Rows that a workgroup makes."""
    return 4 * constants["Y"]


class _Writer:
    """What the kernels share: the functions that say which rows, keys and scores there are."""

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

        def kept() -> Expr:
            if not self.static.dropout:
                return const(1.0, "f32")
            b, m, n = (x for x, _, _ in self.factors())
            first = len(self.inst.scalars) - len(DROPOUT_TYPES)
            numbers = [self.low.scalar(k, first + j) for j in range(len(DROPOUT_TYPES))]
            row = b * k.dim(self.M, "M") + m
            if (
                self.batch * self.M * self.N < _COUNTERS
            ):  # the counter of this element of the scores, were they in memory
                counter = row * k.dim(self.N, "N") + n, const(0, "u32")
            else:
                counter = n, row + 1
            drawn = philox.first_word(*counter, numbers[2], numbers[3], numbers[0], numbers[1])
            return where(drawn < numbers[4], numbers[5], const(0.0, "f32"))

        self.function("kept", "b m n", kept, "f32")

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
        """Which rows a workgroup makes (those that see most keys first), which keys they see."""
        k = self.kernel
        g, row = variable("g", "u32"), variable("row", "u32")
        causal = self.static.causal
        last = k.dim(-(-self.M // rows) - 1, "last")
        self.function("first_row", "g", lambda: (last - g if causal else g) * rows)
        self.function("last_key", "row", lambda: minimum(k.dim(self.N, "N"), row + 1) if causal else k.dim(self.N, "N"))
        self.keys_of()

    def keys_of(self) -> None:
        """Which batch of keys serves one of queries."""
        b, group = variable("b", "u32"), self.static.group
        self.function("keys_of", "b", lambda: b if group == 1 else idiv(b, self.kernel.dim(group, "group")))

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

    def launch(self, stem: str, constants: dict[str, int], *grid: int) -> None:
        f = self.static.functions
        maps: list[Any] = [x.op for x in f.steps] if f is not None else []
        if stem != "attention_few":  # whose scores are in a loop anyway
            constants["ROLLED"] = int(self.static.dropout or sum(op.cost for op in maps if not op.indexed) > _LONG)
        self.low.dispatch(self.kernel, self.filled.source(stem, constants), [*grid, 1, 1][:3])


def _forward(i: Inst, low: Lowering) -> None:
    w = _Writer(i, low, "attention")
    k = w.kernel
    few = w.M < FEW
    if few:
        values = next(n for n in (32, 64, 128, 256) if n >= w.v.shape[-1])
        constants, rows = {"WIDTH": -(-w.q.shape[-1] // 4) * 4, "VALUES": values}, 1
    else:
        constants = w.form(w.M, w.batch)
        rows = _tile(constants)
    w.common()
    w.keys(rows)
    w.operands()
    shown = result_view(w.q, w.v, w.static.turned)
    w.store("out", "m", shown)

    def lse() -> None:
        if w.static.lse:
            b, m, _ = w.factors()
            at = k.let(b[0] * k.dim(w.M, "M") + m[0] + k.dim(words(shown.numel, shown.dtype), "lse"), "at")
            value = variable("value", "f32")
            n = k.bind(Ref(low.output.key, shown.dtype), "rw")
            word = "value" if shown.dtype.name not in PACKED else f"bitcast<u32>({value.value})"
            k.r.line(f"{n}[{k.r.text(at)}] = {word};")

    w.function("store_lse", "b m value", lse, None)
    constants["DROPOUT"] = int(w.static.dropout)
    w.launch("attention_few" if few else "attention", constants, -(-w.M // rows), w.batch)


def _query(i: Inst, low: Lowering) -> None:
    """Inputs: q, k, v, (mask,) g, lse, delta."""
    w = _Writer(i, low, "attention_query")
    constants = w.form(w.M, w.batch, True)
    w.common()
    w.unscored()
    w.keys(_tile(constants))
    w.operands()
    w.gradient()
    w.store("q", "m", gradient_view(w.q))
    w.launch("attention_query", constants, -(-w.M // _tile(constants)), w.batch)


def _key(i: Inst, low: Lowering) -> None:
    """Inputs: q, k, v, (mask,) g, lse, delta. The gradients of k and v lie one after the other."""
    w = _Writer(i, low, "attention_key")
    constants = w.form(w.N, w.own, True)
    w.common()
    w.unscored()
    w.queries()
    w.operands()
    w.gradient()
    w.store("k", "n", gradient_view(w.k))
    w.store("v", "n", gradient_view(w.v, w.k.numel))
    w.launch("attention_key", constants, -(-w.N // _tile(constants)), w.own)


def spread(shape: tuple[int, ...], summed: tuple[bool, ...]) -> tuple[int, ...]:
    """The shape of what `MASK` gives for scores of `shape`. Where rows or keys are summed, there are `TILE` sums."""
    inner = [TILE if every else n for n, every in zip(shape[-2:], summed[-2:], strict=True)]
    if any(summed[-2:]):
        return (*shape[:-2], *inner)
    return (*[1 if every else n for n, every in zip(shape[:-2], summed, strict=False)], *inner)


def _mask(i: Inst, low: Lowering) -> None:
    """Inputs: q, k, v, (mask,) g, lse, delta. Its output is float32, see `spread`."""
    w = _Writer(i, low, "attention_mask")
    k, static = w.kernel, w.static
    depth = 32
    width, values = (-(-n // depth) * depth for n in (w.q.shape[-1], w.v.shape[-1]))
    w.common()
    w.keys_of()
    w.operands()
    w.gradient()
    lead = w.q.shape[:-2]
    *own, rows, columns = spread((*lead, w.M, w.N), static.summed)
    # batches as (those that have elements of their own, those that share these)
    order = sorted(range(len(lead)), key=lambda d: own[d] != lead[d])
    strides = contiguous_strides(lead)
    batches = meta(tuple([lead[d] for d in order]), tuple([strides[d] for d in order]), 0, w.q.dtype, w.q.device)
    apart, turns = prod(own), prod(n for n, m in zip(lead, own, strict=True) if n != m)
    b, turn, m, n = (variable(x, "u32") for x in ("b", "i", "m", "n"))
    w.filled.number("size_T", k.dim(turns, "turns"))
    w.function("batch_of", "b i", lambda: index_of(k, batches, [(b, apart, "apart"), (turn, turns, "turn")], "batch"))
    w.filled.number("rows", k.dim(rows, "rows"))
    w.filled.number("columns", k.dim(columns, "columns"))

    def store() -> None:
        at = (b * k.dim(rows, "rows") + m) * k.dim(columns, "columns") + n
        k.store(low.output, at, variable("value", "f32"))

    w.function("store_mask", "b m n value", store, None)
    constants = {"WIDTH": width, "VALUES": values}
    w.launch("attention_mask", constants, -(-columns // TILE), -(-rows // TILE), apart)


ATTENTION = Custom("attention", _forward)
QUERY = Custom("attention_query", _query)
KEY = Custom("attention_key", _key)
MASK = Custom("attention_mask", _mask)
#: rows and keys of a workgroup of that
TILE = 32


def result_view(q: Meta, v: Meta, turned: bool) -> Meta:
    """The result, at the beginning of its storage."""
    shape = (*q.shape[:-1], v.shape[-1])
    return (
        gradient_view(meta(shape, shape, 0, q.dtype, q.device)) if turned else contiguous_meta(shape, q.dtype, q.device)
    )


def gradient_view(m: Meta, offset: int = 0) -> Meta:
    """A gradient as PyTorch lays it out: rows before heads where there are four dimensions."""
    strides = ordered_strides(m.shape, (0, 2, 1, 3)) if m.ndim == 4 else contiguous_strides(m.shape)
    return meta(m.shape, strides, offset, m.dtype, m.device)
