"""Sorts by digits on GPUs with workgroup memory: see wgsl/sort.wgsl. Of keys of up to 32 bits; other sorts merge."""

from __future__ import annotations

from typing import Any

from tabtorch.base import dtypes
from tabtorch.engine.expr import Expr, cast, idiv, variable
from tabtorch.engine.lower import Kernel, Ref
from tabtorch.engine.plan import Lowering
from tabtorch.engine.template import Filled

#: elements of a block: those of a row that a workgroup sorts at once; its threads, and the digits of a pass: as in wgsl/sort.wgsl
_BLOCK, _THREADS, _DIGITS = 2048, 256, 256
#: rows up to this length are ranked by counting
_SHORT = 64
#: bits of a key; of dtypes that are not here 32
_BITS = {"bool": 8, "uint8": 8, "int8": 8, "int16": 16}


class SortKernel:
    """The kernels of one sort. `keys`: how it reads, see `sort._Keys`."""

    def __init__(self, keys: Any, low: Lowering) -> None:
        self.keys = keys
        self.low = low
        self.n, self.rows = keys.n, keys.rows
        self.dtype = keys.m.dtype
        self.bits = _BITS.get(self.dtype.name, 32)

    def serves(self) -> bool:
        """Whether rows are long enough, keys short enough, and workgroup memory is there."""
        t = self.low.target
        return (
            t.barriers
            and not self.keys.width
            and self.dtype.name not in ("int64", "float64")
            and _SHORT < self.n
            and self.rows <= 65535
            and -(-self.n // _BLOCK) <= 65535
            and t.invocations >= _THREADS
            and t.workgroup_bytes >= 3 * _BLOCK * 4 + _THREADS * 4
        )

    def lower(self) -> None:
        low, n, rows = self.low, self.n, self.rows
        if n <= _BLOCK:
            k, filled = self.begin("sort")
            self.first(k, filled)
            self.fill(filled, "offset", "row digit block", "0u")
            self.fill(filled, "digits", "row digit", "0u")
            self.fill(filled, "shift", "", "0u")
            self.result(k, filled)
            run = next(r for r in (1, 2, 4, 8) if r * _THREADS >= n)
            low.dispatch(k, filled.source("sort", {"WHOLE": 1, "BITS": self.bits, "RUN": run}), [1, rows, 1])
            return
        blocks = -(-n // _BLOCK)
        counts = low.temp(rows * _DIGITS * blocks * 4, dtypes.int32)
        totals = low.temp(rows * _DIGITS * 4, dtypes.int32)
        passes = self.bits // 8
        pairs = [[low.temp(rows * n * 4, dtypes.int32) for _ in range(2)] for _ in range(min(passes - 1, 2))]
        for p in range(passes):
            source = pairs[(p + 1) % 2] if p else None
            self.count(p * 8, source, counts, blocks)
            self.bins(counts, totals, blocks)
            self.scatter(p * 8, source, pairs[p % 2] if p < passes - 1 else None, counts, totals, blocks)

    # ---- functions

    def begin(self, name: str) -> tuple[Kernel, Filled]:
        k = self.low.kernel(name)
        filled = Filled(k)
        filled.number("size_N", k.dim(self.n, "n"))
        return k, filled

    def fill(self, filled: Filled, name: str, args: str, body: Any, result: str | None = "u32") -> None:
        """A function of u32s."""
        typed = ", ".join(f"{a}: u32" for a in args.split())
        filled.function(name, typed, result, body if callable(body) else lambda: body)

    def first(self, k: Kernel, filled: Filled, items: bool = True) -> None:
        """Keys as the tensor has them, and their positions."""

        def key() -> str:
            r = k.r
            row, i = variable("row", "u32"), variable("i", "u32")
            at = k.let(self.base(k, row) + i * k.dim(self.keys.inner, "inner"), "at")
            x = k.load(self.low.input(0), self.low.index(k, self.keys.m, at, 0))
            name = self.dtype.name
            if x.type == "f32":
                r.line(f"var bits = bitcast<u32>({r.text(x)});")
                r.line("if ((bits & 0x7fffffffu) > 0x7f800000u) { bits = 0x7fffffffu; }")  # all NaN are one, and last
                r.line("if (bits == 0x80000000u) { bits = 0u; }")
                text = "(bits ^ select(0x80000000u, 0xffffffffu, (bits >> 31u) == 1u))"
            elif name in ("bool", "uint8"):
                text = r.text(cast(x, "u32"))
            else:
                least = {"int8": "128u", "int16": "32768u"}.get(name, "0x80000000u")
                text = f"((bitcast<u32>({r.text(x)}) + {least}) & {hex((1 << self.bits) - 1)}u)"
            return f"({text} ^ {hex((1 << self.bits) - 1)}u)" if self.keys.descending else text

        self.fill(filled, "key_of", "row i", key)
        if items:
            self.fill(filled, "item_of", "row i", "i")

    def base(self, k: Kernel, row: Expr) -> Expr:
        """Flat index of a row's first element."""
        if self.keys.inner == 1:
            return row * k.dim(self.n, "n")
        inner = k.dim(self.keys.inner, "inner")
        o = k.let(idiv(row, inner), "o")
        return k.let(o * (k.dim(self.n, "n") * inner) + (row - o * inner), "base")

    def sorted_so_far(self, k: Kernel, filled: Filled, source: list[Ref] | None, items: bool = True) -> None:
        """Keys and items of a pass: what the pass before has left."""
        if source is None:
            self.first(k, filled, items)
            return
        n = k.dim(self.n, "n")
        place = variable("row", "u32") * n + variable("i", "u32")
        for name, ref in zip(("key_of", "item_of")[: 1 + items], source):
            self.fill(filled, name, "row i", lambda ref=ref: cast(k.load(ref, place), "u32"))

    def result(self, k: Kernel, filled: Filled) -> None:
        """The last pass leaves the permutation."""

        def keep() -> None:
            at = self.base(k, variable("row", "u32")) + variable("i", "u32") * k.dim(self.keys.inner, "inner")
            k.store(self.low.output, k.let(at, "at"), cast(variable("item", "u32"), "i64"))

        self.fill(filled, "keep", "row i key item", keep, None)

    def bin(self, k: Kernel, blocks: int) -> Expr:
        """Place of the count of a digit in a block."""
        row, digit, block = (variable(x, "u32") for x in ("row", "digit", "block"))
        return k.let((row * _DIGITS + digit) * k.dim(blocks, "blocks") + block, "at")

    # ---- the three kernels of a pass

    def count(self, shift: int, source: list[Ref] | None, counts: Ref, blocks: int) -> None:
        k, filled = self.begin("sort count")
        filled.number("shift", k.dim(shift, "shift"))
        self.sorted_so_far(k, filled, source, items=False)

        def keep() -> None:
            k.store(counts, self.bin(k, blocks), cast(variable("count", "u32"), "i32"))

        self.fill(filled, "keep", "row digit block count", keep, None)
        self.low.dispatch(k, filled.source("sort_count"), [blocks, self.rows, 1])

    def bins(self, counts: Ref, totals: Ref, blocks: int) -> None:
        k = self.low.kernel("sort bins")
        filled = Filled(k)
        filled.number("size_blocks", k.dim(blocks, "blocks"))
        self.fill(filled, "count_of", "row digit block", lambda: cast(k.load(counts, self.bin(k, blocks)), "u32"))

        def keep() -> None:
            k.store(counts, self.bin(k, blocks), cast(variable("before", "u32"), "i32"))

        def keep_total() -> None:
            at = variable("row", "u32") * _DIGITS + variable("digit", "u32")
            k.store(totals, k.let(at, "at"), cast(variable("count", "u32"), "i32"))

        self.fill(filled, "keep", "row digit block before", keep, None)
        self.fill(filled, "keep_total", "row digit count", keep_total, None)
        self.low.dispatch(k, filled.source("sort_bins"), [_DIGITS, self.rows, 1])

    def scatter(
        self, shift: int, source: list[Ref] | None, to: list[Ref] | None, counts: Ref, totals: Ref, blocks: int
    ) -> None:
        """`to`: keys and items for the next pass; None: this is the last."""
        k, filled = self.begin("sort")
        filled.number("shift", k.dim(shift, "shift"))
        self.sorted_so_far(k, filled, source)
        self.fill(filled, "offset", "row digit block", lambda: cast(k.load(counts, self.bin(k, blocks)), "u32"))
        total = variable("row", "u32") * _DIGITS + variable("digit", "u32")
        self.fill(filled, "digits", "row digit", lambda: cast(k.load(totals, total), "u32"))
        if to is None:
            self.result(k, filled)
        else:

            def keep() -> None:
                at = k.let(variable("row", "u32") * k.dim(self.n, "n") + variable("i", "u32"), "at")
                for ref, name in zip(to, ("key", "item"), strict=True):
                    k.store(ref, at, cast(variable(name, "u32"), "i32"))

            self.fill(filled, "keep", "row i key item", keep, None)
        self.low.dispatch(k, filled.source("sort"), [blocks, self.rows, 1])


__all__ = ["SortKernel"]
