"""Scans of long rows whose elements lie side by side, on GPUs with workgroup memory: see wgsl/scan.wgsl."""

from __future__ import annotations

from typing import Any

from tabtorch.engine.expr import Complex, Expr, cast, fit, variable
from tabtorch.engine.lower import Kernel, Ref
from tabtorch.engine.plan import Lowering
from tabtorch.engine.template import Filled
from tabtorch.engine.wgsl import TYPES

#: elements that a workgroup takes a step, those of its padding included; its threads, and the states that it keeps: as in
#: wgsl/scan.wgsl
_BLOCK, _PADDED, _THREADS, _STATES = 2048, 2112, 256, 352
#: rows shorter than this are one thread's each; chunks that are scanned at most
_SHORT, _CHUNKS = 512, 2048


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

    def serves(self) -> bool:
        """Whether a workgroup should walk rows of neighbours, and has the memory for it."""
        t = self.low.target
        state = _size(self.types)
        most = _PADDED * max(8 if self.value.startswith("vec2") else 4, state) + _STATES * state
        return (
            t.barriers
            and self.n >= _SHORT
            and self.rows <= 65535
            and t.invocations >= _THREADS
            and most <= t.workgroup_bytes
        )

    def lower(self, state_of: dict[str, Any]) -> None:
        blocks = -(-self.n // _BLOCK)
        length = _BLOCK * -(-blocks // _CHUNKS)
        chunks = -(-self.n // length)
        if chunks == 1 or self.rows >= 256 or (chunks <= 4 and self.rows >= 64):
            self.launch(None, 1, blocks * _BLOCK, False)
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

    def staged(self, filled: Filled, alike: bool) -> None:
        """Results by way of workgroup memory, where they have the type of values."""
        filled.function(
            "stage_out",
            "i: u32, result: Result",
            None,
            lambda: filled.k.r.line("stage[i] = result;") if alike else None,
        )
        filled.function("staged", "i: u32", "Result", lambda: "stage[i]" if alike else "Result()")

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

        def place() -> Expr:
            """Element `i` of the scan among those of the tensor."""
            at = n - 1 - i if self.i.static[1] else i
            return k.let(row * n + at, "at")

        def fetch() -> Any:
            v = cast(k.load(self.low.input(0), self.low.index(k, m, place(), 0)), self.i.compute)
            return f"vec2<f32>({k.r.text(v.re)}, {k.r.text(v.im)})" if isinstance(v, Complex) else v

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

        filled.function("fetch", "row: u32, i: u32", "Value", fetch)
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
        alike = self.value == self.result
        self.staged(filled, alike)
        self.low.dispatch(
            k, filled.source("scan", {"TOTALS": int(totals), "STAGED": int(alike)}), [chunks, self.rows, 1]
        )

    def over_chunks(self, refs: list[Ref], chunks: int) -> None:
        """The chunks' states become those of all up to them: a workgroup a row."""
        k, filled = self.begin(self.i.op.name + " over chunks")
        self.type_names(k, "State", "State")
        n = k.dim(chunks, "chunks")
        filled.number("size_N", n)
        filled.number("size_chunk", k.dim(-(-chunks // _BLOCK) * _BLOCK, "length"))

        def place() -> Expr:
            return k.let(variable("row", "u32") * n + variable("i", "u32"), "at")

        filled.function("fetch", "row: u32, i: u32", "Value", lambda: self.get(k, refs, place()))
        filled.function("lifted", "value: Value, i: u32", "State", lambda: "value")
        filled.function("finish", "state: State", "Result", lambda: "state")
        filled.function(
            "keep", "row: u32, i: u32, result: Result", None, lambda: self.put(k, refs, place(), self.state("result"))
        )
        filled.function("before", "row: u32, chunk: u32", "State", lambda: "neutral()")
        filled.function("keep_total", "row: u32, chunk: u32, state: State", None, lambda: None)
        self.staged(filled, True)
        self.low.dispatch(k, filled.source("scan"), [1, self.rows, 1])
