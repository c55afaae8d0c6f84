"""Sorts on GPUs with workgroup memory: blocks in workgroup memory, then runs of blocks merged. See wgsl/sort_block.wgsl, sort_merge.wgsl.

Of long rows of which few places are wanted, blocks keep their first elements alone, and those are sorted in their turn.

What is compared are unsigned words, of a float or an integer, in whose order the elements have to stand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch.base import dtypes
from tabtorch.engine.expr import Expr, cast, idiv, variable
from tabtorch.engine.lower import Kernel, Ref, grid_for
from tabtorch.engine.plan import Lowering
from tabtorch.engine.template import Filled

#: keys of elements, and the numbers that these have in their rows
Pair = tuple[Ref, Ref]

#: elements of a thread, as in both templates; of a block of a short row, of a long one, and of a step of a merge
_RUN, _SHORT, _LONG, _MERGED = 8, 512, 2048, 1024
#: where at most this part of a block is wanted, the rest of it is left
_FEW = 8
#: rows up to this length are ranked by counting
_COUNTED = 64


class SortKernel:
    """The kernels of one sort. `keys`: what it reads, see `sort._Keys`."""

    def __init__(self, keys: Any, low: Lowering) -> None:
        self.keys = keys
        self.low = low
        self.n, self.rows = keys.n, keys.rows  # n: of the elements that are still there
        self.wide = keys.compute == "i64"
        self.type = "i64" if self.wide else "u32"

    def serves(self) -> bool:
        """Whether rows are long enough, a key is one element, and workgroup memory is there."""
        t = self.low.target
        return (
            t.barriers
            and not self.keys.width
            and self.keys.compute in ("f32", "i32", "i64")
            and self.n > _COUNTED
            and t.invocations >= _SHORT // _RUN * 4
            and t.workgroup_bytes >= self.bytes(_MERGED)
        )

    def bytes(self, block: int) -> int:
        """Workgroup memory for the keys and numbers of a block, with what pads them, and for the bounds of a merge."""
        return (block + block // 32) * (12 if self.wide else 8) + 16

    def lower(self) -> None:
        most = _LONG if self.low.target.workgroup_bytes >= self.bytes(_LONG) else _MERGED
        block = _SHORT
        while block < most and self.n > block:
            block *= 2
        source: Pair | None = None
        while self.n > block and self.keys.first * _FEW <= block:
            source = self.select(block, source)
        widths = []
        width = block
        while width < self.n:
            widths.append(width)
            width *= 2
        pairs = [self.pair(self.n) for _ in range(min(len(widths), 2))]

        def target(step: int) -> Pair | None:
            return pairs[step % 2] if step < len(widths) else None

        self.launch("sort blocks", "sort_block", block, source, target(0), 0)
        for s, width in enumerate(widths):
            self.launch("merge", "sort_merge", _MERGED, pairs[s % 2], target(s + 1), width)

    def pair(self, n: int) -> Pair:
        """Room for the keys and numbers of `n` elements a row."""
        kept = (dtypes.int64, 8) if self.wide else (dtypes.int32, 4)
        total = self.rows * n
        return self.low.temp(total * kept[1], kept[0]), self.low.temp(total * 4, dtypes.int32)

    def select(self, block: int, source: Pair | None) -> Pair:
        """The first elements of each block, which are the row from then on."""
        first, blocks = self.keys.first, -(-self.n // block)
        left = (blocks - 1) * first + min(first, self.n - (blocks - 1) * block)
        to = self.pair(left)
        self.launch("first of blocks", "sort_block", block, source, to, 0, left)
        self.n = left
        return to

    # ---- what the templates ask for

    def launch(
        self, name: str, stem: str, block: int, source: Pair | None, to: Pair | None, width: int, left: int = 0
    ) -> None:
        """One dispatch. source: keys and numbers as sorted so far; None: the input. to: the same for the next step; None: the
        output. width: of the runs to merge. left: how many elements of a row go to the next step, the first of each block."""
        k = self.low.kernel(name)
        filled = Filled(k)
        blocks = -(-self.n // block)
        k.globals.append(f"alias Key = {'vec2<u32>' if self.wide else 'u32'};")
        self.order(filled)
        filled.number("size_N", k.dim(self.n, "n"))
        filled.number("size_blocks", k.dim(blocks, "blocks"))
        filled.number("size_groups", k.dim(self.rows * blocks, "groups"))
        row, i = variable("row", "u32"), variable("i", "u32")
        if stem == "sort_block":
            last = "0xffffffffu"
            filled.function("last_key", "", "Key", lambda: f"Key({last}, {last})" if self.wide else last)
        else:
            filled.number("size_width", k.dim(width, "width"))
        item = variable("item", "u32")
        if source is None:
            filled.function("key_of", "row: u32, i: u32", "Key", lambda: self.key(k, row, i))
        else:
            keys, items = source
            flat = row * k.dim(self.n, "n") + i
            filled.function("key_of", "row: u32, i: u32", "Key", lambda: cast(k.load(keys, flat), self.type))
            if stem == "sort_block":  # which says what place in the row an element had
                item = cast(k.load(items, row * k.dim(self.n, "n") + item), "u32")
            else:
                filled.function("item_of", "row: u32, i: u32", "u32", lambda: cast(k.load(items, flat), "u32"))
        keep = self.keeper(k, row, i, item, to, block, left)
        filled.function("keep", "row: u32, i: u32, key: Key, item: u32", None, keep)
        self.low.dispatch(k, filled.source(stem, {"THREADS": block // _RUN}), grid_for(self.rows * blocks, 1))

    def order(self, filled: Filled) -> None:
        """`in_order`: equal ones stay as they are."""
        text = "a.y < b.y || (a.y == b.y && a.x <= b.x)" if self.wide else "a <= b"
        filled.function("in_order", "a: Key, b: Key", "bool", lambda: text)

    def place(self, k: Kernel, row: Expr, i: Expr, length: Expr) -> Expr:
        """Flat index of element `i` of a row of that length, of input or output."""
        if self.keys.inner == 1:
            return k.let(row * length + i, "at")
        inner = k.dim(self.keys.inner, "inner")
        o = k.let(idiv(row, inner), "o")
        return k.let(o * (length * inner) + (row - o * inner) + i * inner, "at")

    def key(self, k: Kernel, row: Expr, i: Expr) -> str:
        """An element of the input as unsigned words (the low one first) in the order that is wanted: all NaN are one, and last."""
        r = k.r
        x = cast(
            k.load(
                self.low.input(0), self.low.index(k, self.keys.m, self.place(k, row, i, k.dim(self.keys.n, "whole")), 0)
            ),
            self.keys.compute,
        )
        down = self.keys.descending
        if self.wide:
            r.line(f"let word = {r.text(x)};")
            text = "vec2<u32>(word.x, word.y ^ 0x80000000u)"
        else:
            r.line(f"var bits = bitcast<u32>({r.text(x)});")
            text = "(bits ^ 0x80000000u)"
            if self.keys.compute == "f32":
                r.line("if ((bits & 0x7fffffffu) > 0x7f800000u) { bits = 0x7fc00000u; }")
                r.line("if (bits == 0x80000000u) { bits = 0u; }")  # -0 is 0
                text = "(bits ^ select(0x80000000u, 0xffffffffu, bits >> 31u == 1u))"
        return f"~{text}" if down else text

    def keeper(
        self, k: Kernel, row: Expr, i: Expr, item: Expr, to: Pair | None, block: int, left: int
    ) -> Callable[[], None]:
        """The body of `keep`. item: the element's number in its row."""
        first = self.keys.first

        def put(to: Pair, at: Expr) -> None:
            keys, items = to
            k.store(keys, at, cast(variable("key", self.type), keys.dtype.compute))
            k.store(items, at, cast(item, "i32"))

        def keep() -> None:
            if to is None:
                length = k.dim(first, "first")
                with k.when(i < length):
                    k.store(self.low.output, self.place(k, row, i, length), cast(item, "i64"))
            elif left:
                number = k.let(i >> (block.bit_length() - 1), "number")
                within = k.let(i - number * block, "within")
                with k.when(within < k.dim(first, "first")):
                    put(to, k.let(row * k.dim(left, "left") + number * k.dim(first, "first") + within, "at"))
            else:
                put(to, k.let(row * k.dim(self.n, "n") + i, "at"))

        return keep
