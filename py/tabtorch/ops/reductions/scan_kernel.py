"""Scans of long rows whose elements lie side by side, on GPUs with workgroup memory: see wgsl/scan.wgsl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch.engine.expr import Complex, Expr, cast, fit, minimum, variable
from tabtorch.engine.lower import Kernel, Ref
from tabtorch.engine.plan import Lowering
from tabtorch.engine.template import Filled
from tabtorch.engine.wgsl import TYPES

#: threads of a workgroup, results that it has room for on their way out, and the states that it keeps: as in wgsl/scan.wgsl
_THREADS, _ROOM, _STATES = 256, 2112, 352
#: rows shorter than this are one thread's each; those up to this are a block of half the size; chunks that are scanned at most
_SHORT, _MIDDLE, _CHUNKS = 512, 2048, 4096


def _size(types: list[str]) -> int:
    """Bytes of a structure of these compute types."""
    wide = any(t == "i64" for t in types)
    n = sum(8 if t == "i64" else 4 for t in types)
    return -(-n // 8) * 8 if wide else n


class ScanKernel:
    """The kernels of one scan. `monoid`: a `Scan`; `refs` hold the states of chunks."""

    def __init__(self, monoid: Any, i: Any, low: Lowering, n: int) -> None:
        self.monoid = monoid
        self.i = i
        self.low = low
        self.n = n
        self.rows = i.ins[0].numel // n
        self.types = [x.type for x in monoid.init(i.compute)]
        self.value = TYPES.get(i.compute, "vec2<f32>")
        out = i.out.dtype
        # float64 is only of the cpu device, which `serves` refuses
        self.result = "vec2<f32>" if out.is_complex else TYPES.get(out.compute, "")
        self.run = 8 if n <= _MIDDLE else 16  # elements of a thread
        self.block = _THREADS * self.run

    def serves(self) -> bool:
        """Whether a workgroup should walk rows of neighbours, and has the memory for it."""
        t = self.low.target
        return (
            t.barriers
            and self.n >= _SHORT
            and self.rows <= 65535
            and t.invocations >= _THREADS
            and _STATES * _size(self.types) <= t.workgroup_bytes
        )

    def lower(self, state_of: dict[str, Any]) -> None:
        blocks = -(-self.n // self.block)
        length = self.block * -(-blocks // _CHUNKS)
        chunks = -(-self.n // length)
        if chunks == 1 or self.rows >= 256 or (chunks <= 4 and self.rows >= 64):
            self.launch(None, 1, blocks * self.block, False)
            return
        refs = [self.low.temp(self.rows * chunks * (8 if t in ("i64", "f64") else 4), state_of[t]) for t in self.types]
        self.launch(refs, chunks, length, True)
        self.over_chunks(refs, chunks)
        self.launch(refs, chunks, length, False)

    # ---- states

    def state(self, name: str) -> tuple[Expr, ...]:
        return tuple(variable(f"{name}.s{j}", t) for j, t in enumerate(self.types))

    def made(self, k: Kernel, state: Any) -> str:
        return f"State({', '.join(k.r.text(x) for x in state)})"

    def begin(self, name: str) -> tuple[Kernel, Filled]:
        """A kernel with the type of states, and how they are joined."""
        k = self.low.kernel(name)
        filled = Filled(k)
        members = ", ".join(f"s{j}: {TYPES[t]}" for j, t in enumerate(self.types))
        k.globals.append(f"struct State {{ {members} }}")
        filled.function("neutral", "", "State", lambda: self.made(k, self.monoid.init(self.i.compute)))
        filled.function(
            "join",
            "a: State, b: State",
            "State",
            lambda: self.made(k, self.monoid.combine(self.state("a"), self.state("b"))),
        )
        return k, filled

    def put(self, k: Kernel, refs: list[Ref], at: Expr, state: tuple[Expr, ...]) -> None:
        for ref, x in zip(refs, state, strict=True):
            k.store(ref, at, cast(x, ref.dtype.compute))

    def get(self, k: Kernel, refs: list[Ref], at: Expr) -> str:
        return self.made(k, [cast(k.load(r, at), t) for r, t in zip(refs, self.types, strict=True)])

    def type_names(self, k: Kernel, value: str, result: str) -> None:
        k.globals += [f"alias Value = {value};", f"alias Result = {result};"]

    def source(self, filled: Filled, run: int, totals: bool, staged: bool) -> str:
        constants = {"TOTALS": int(totals), "STAGED": int(staged), "RUN": run, "ROOM": _ROOM if staged else 1}
        return filled.source("scan", constants)

    def fetch4(self, filled: Filled, one: Callable[[Expr], str], four: Callable[[], str] | None = None) -> None:
        """`one` gives the value at a place, `four` those from i on, a multiple of four, of rows whose lengths are."""

        def body() -> str:
            if four is not None:
                filled.k.r.line("let begin = min(i, last - 3u);")
                return four()
            i, last = variable("i", "u32"), variable("last", "u32")
            each = [one(filled.k.let(minimum(i + j if j else i, last), "at")) for j in range(4)]
            return f"array<Value, 4>({', '.join(each)})"

        filled.function("fetch4", "row: u32, i: u32, last: u32", "array<Value, 4>", body)

    # ---- kernels

    def launch(self, refs: list[Ref] | None, chunks: int, length: int, totals: bool) -> None:
        """One dispatch over the elements: the chunks' states (`totals`), or the results, after what `refs` say of the chunks."""
        name = self.i.op.name
        k, filled = self.begin(name + " of chunks" if totals else name)
        self.type_names(k, self.value, self.result)
        m, out = self.i.ins[0], self.i.out.dtype
        row, i = variable("row", "u32"), variable("i", "u32")
        n = k.dim(self.n, "n")
        filled.number("size_N", n)
        filled.number("size_chunk", k.dim(length, "length"))

        def place(i: Expr = i) -> Expr:
            """Element `i` of the scan among those of the tensor."""
            at = n - 1 - i if self.i.static[1] else i
            return k.let(row * n + at, "at")

        def value(v: Any) -> str:
            v = cast(v, self.i.compute)
            return f"vec2<f32>({k.r.text(v.re)}, {k.r.text(v.im)})" if isinstance(v, Complex) else str(k.r.text(v))

        def one(i: Expr) -> str:
            return value(k.load(self.low.input(0), self.low.index(k, m, place(i), 0)))

        def four() -> str:
            at = variable("begin", "u32")
            ref = self.low.input(0)
            name = k.bind_vector(ref)
            k.r.line(f"let four = {name}[{k.r.text((row * n + (n - 4 - at if self.i.static[1] else at)) >> 2)}];")
            each = [value(variable(f"four.{c}", ref.dtype.compute)) for c in ("wzyx" if self.i.static[1] else "xyzw")]
            return f"array<Value, 4>({', '.join(each)})"

        def lifted() -> str:
            v: Any = variable("value", self.i.compute)
            if self.i.compute == "c64":
                v = Complex(variable("value.x", "f32"), variable("value.y", "f32"))
            return self.made(k, self.monoid.lift(v, k.let(n - 1 - i, "j") if self.i.static[1] else i))

        def finish() -> Any:
            v = fit(cast(self.monoid.result(self.state("state")), out.compute), out.name)
            return f"vec2<f32>({k.r.text(v.re)}, {k.r.text(v.im)})" if isinstance(v, Complex) else v

        def keep() -> None:
            if totals:
                return
            v: Any = variable("result", out.compute)
            if out.is_complex:
                v = Complex(variable("result.x", "f32"), variable("result.y", "f32"))
                k.store(self.low.output, place(), v)
            else:
                k.store_bits(self.low.output, place(), v)

        def chunk() -> Expr:
            return k.let(row * k.dim(chunks, "chunks") + variable("chunk", "u32"), "at")

        def before() -> str:
            if totals or refs is None:
                return "neutral()"
            k.r.line("if (chunk == 0u) { return neutral(); }")
            return self.get(k, refs, chunk() - 1)

        # of short rows, whose lengths differ from call to call, one kernel serves all
        vectors = self.n > _MIDDLE and m.whole and m.dtype.name in ("float32", "int32") and self.n % 4 == 0
        self.fetch4(filled, one, four if vectors else None)
        filled.function("lifted", "value: Value, i: u32", "State", lifted)
        filled.function("finish", "state: State", "Result", finish)
        filled.function("keep", "row: u32, i: u32, result: Result", None, keep)
        filled.function("before", "row: u32, chunk: u32", "State", before)
        filled.function(
            "keep_total",
            "row: u32, chunk: u32, state: State",
            None,
            lambda: self.put(k, refs, chunk(), self.state("state")) if totals and refs else None,
        )
        room = _ROOM * (8 if self.result.startswith("vec2") else 4) + _STATES * _size(self.types)
        staged = not totals and room <= self.low.target.workgroup_bytes
        self.low.dispatch(k, self.source(filled, self.run, totals, staged), [chunks, self.rows, 1])

    def over_chunks(self, refs: list[Ref], chunks: int) -> None:
        """The chunks' states become those of all up to them: a workgroup a row."""
        k, filled = self.begin(self.i.op.name + " over chunks")
        self.type_names(k, "State", "State")
        run = 8 if chunks <= _MIDDLE else 16
        block = _THREADS * run
        n = k.dim(chunks, "chunks")
        filled.number("size_N", n)
        filled.number("size_chunk", k.dim(-(-chunks // block) * block, "length"))

        def place(i: Expr) -> Expr:
            return k.let(variable("row", "u32") * n + i, "at")

        self.fetch4(filled, lambda i: self.get(k, refs, place(i)))
        filled.function("lifted", "value: Value, i: u32", "State", lambda: "value")
        filled.function("finish", "state: State", "Result", lambda: "state")
        filled.function(
            "keep",
            "row: u32, i: u32, result: Result",
            None,
            lambda: self.put(k, refs, place(variable("i", "u32")), self.state("result")),
        )
        filled.function("before", "row: u32, chunk: u32", "State", lambda: "neutral()")
        filled.function("keep_total", "row: u32, chunk: u32, state: State", None, lambda: None)
        self.low.dispatch(k, self.source(filled, run, False, False), [1, self.rows, 1])
