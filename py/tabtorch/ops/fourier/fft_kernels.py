"""Fourier transforms along the last dimension of a view: one custom operation, `FFT`, and the chirp for lengths with large primes.

Stockham's passes (no bit reversal): a pass of radix r takes n / r threads a row, each of which loads r values, turns them, and makes a
transform of r out of them in registers. The sizes are parameters, so there is a kernel a radix, not a length. A prime factor
too large for registers is a loop over a table of roots; the last resort, for primes above `LARGEST`, is Bluestein's chirp.
On GPUs with workgroup memory rows of up to `_IN_WORKGROUP` values go through all their passes in one dispatch.

    y[k] = scale · v[k] · sum over j < n_in of u[j] · x[j] · exp(∓2πi jk / n),  k < n_out

x and y may be real (then the real part is stored), n_in and n_out anything up to n, and u, v 2 wherever an element of half a
spectrum stands for its mirror image too. So the adjoint of every transform is a transform of the same kind.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from tabtorch.base import dtypes
from tabtorch.engine.expr import (
    Complex,
    Expr,
    bitcast,
    call,
    cast,
    const,
    cos,
    idiv,
    imod,
    minimum,
    sin,
    variable,
    where,
)
from tabtorch.engine.graph import Custom, Inst
from tabtorch.engine.lower import Kernel, Ref, grid_for, groups_head, index_of
from tabtorch.engine.plan import Lowering
from tabtorch.engine.view import meta
from tabtorch.ops.machinery.batching import Call, Examples

#: the largest prime factor that is a sum of so many terms
LARGEST = 127
_REGISTERS = 16
#: the longest row that stays in workgroup memory, and threads of a workgroup for each 1,024 values there
_IN_WORKGROUP, _THREADS = 2048, 64


def radices(n: int) -> list[int] | None:
    """The radices of the passes for length `n`: large primes first, whose tables are the smaller the fewer passes went before.
    None where a prime is above LARGEST."""
    primes = []
    rest = n
    for p in (2, 3, 5, 7):
        while rest % p == 0:
            rest //= p
    smooth = n // rest
    p = 11
    while rest > 1:
        if p > LARGEST:
            return None
        while rest % p == 0:
            primes.append(p)
            rest //= p
        p += 2
    while smooth > 1:
        r = max(d for d in range(2, _REGISTERS + 1) if smooth % d == 0)
        primes.append(r)
        smooth //= r
    return primes or [1]


def _in_registers(r: int) -> bool:
    """Whether a pass of that radix is written out."""
    return r <= _REGISTERS and r not in (11, 13)


def _root(k: Kernel, a: Expr, d: int, real: str) -> Complex:
    """exp(-2πi a / d) for 0 <= a < d. The angle is brought into an eighth of a turn while it is an integer: no precision is lost."""
    e = k.dim(d, ("root", d))
    eight = k.let(a * 8, "a")
    o = k.let(idiv(eight, e), "o")
    b = k.let(eight - o * e, "b")
    b = where((o & 1) == 1, e - b, b)
    if k.r.doubles:
        angle = cast(b, real) * (const(math.pi / 4, real) / cast(e, real))
    else:
        unit = k.dim(struct.unpack("<I", struct.pack("<f", math.pi / 4 / d))[0], ("unit", d))
        angle = cast(b, real) * bitcast(unit, real)
    angle = k.let(angle, "angle")
    c, s = k.let(cos(angle), "c"), k.let(sin(angle), "s")
    turned = ((o + 1) & 2) == 2
    re, im = where(turned, s, c), where(turned, c, s)
    return k.let(Complex(where(((o + 2) & 4) == 4, -re, re), where(o < 4, -im, im)), "w")


def _roots(k: Kernel, a: Expr, d: int, r: int, real: str) -> list[Complex]:
    """The powers 1 to r - 1 of exp(-2πi a / d). In float32 those with a power of two are made anew, so that few roundings add up."""
    w: list[Any] = [None]
    for t in range(1, r):
        top = 1 << (t.bit_length() - 1)
        if t == 1 or (t == top and not k.r.doubles):
            w.append(_root(k, k.let(a * t, "a"), d, real))
        else:
            other = t - top or t // 2
            w.append(k.let(w[t - other] * w[other], "w"))
    return w[1:]


def _turned(k: Kernel, x: Complex, e: int, n: int) -> Complex:
    """x · exp(-2πi e / n)."""
    e %= n
    if e == 0:
        return x
    if 4 * e == n:
        return Complex(x.im, -x.re)
    if 8 * e in (n, 3 * n):
        h = math.sqrt(0.5)
        return k.let(
            Complex((x.im + x.re) * h, (x.im - x.re) * h)
            if 8 * e == n
            else Complex((x.im - x.re) * h, (x.im + x.re) * -h),
            "x",
        )
    c, s = math.cos(2 * math.pi * e / n), math.sin(2 * math.pi * e / n)
    return k.let(Complex(x.re * c + x.im * s, x.im * c - x.re * s), "x")


def _dft(k: Kernel, x: list[Complex]) -> list[Complex]:
    """The transform of a few values, written out: Cooley and Tukey's for a product, pairs t and p - t for a prime."""
    n = len(x)
    p = next((p for p in (2, 3, 5, 7) if n % p == 0), 1)
    if p < n:
        m = n // p
        parts = [_dft(k, x[q::p]) for q in range(p)]
        columns = [_dft(k, [_turned(k, part[j], q * j, n) for q, part in enumerate(parts)]) for j in range(m)]
        return [columns[i % m][i // m] for i in range(n)]
    if n == 1:
        return x
    if n == 2:
        return [k.let(x[0] + x[1], "x"), k.let(x[0] - x[1], "x")]
    half = range(1, n // 2 + 1)
    plus = [k.let(x[t] + x[n - t], "x") for t in half]
    minus = [k.let(x[t] - x[n - t], "x") for t in half]
    out = [x[0]] * n
    for v in plus:
        out[0] = out[0] + v
    out[0] = k.let(out[0], "x")
    for s in half:
        a, b = x[0], Complex(const(0, x[0].re.type), const(0, x[0].re.type))
        for t, u, v in zip(half, plus, minus, strict=True):
            angle = 2 * math.pi * (t * s % n) / n
            a = Complex(a.re + u.re * math.cos(angle), a.im + u.im * math.cos(angle))
            term = Complex(v.re * math.sin(angle), v.im * math.sin(angle))
            b = term if t == 1 else b + term
        a, b = k.let(a, "x"), k.let(b, "x")
        out[s] = k.let(Complex(a.re + b.im, a.im - b.re), "x")
        out[n - s] = k.let(Complex(a.re - b.im, a.im + b.re), "x")
    return out


class _Passes:
    """One transform being lowered. `static` = (n, inverse, half a spectrum in, half out, strides of the output as the row and
    the transformed dimension see it)."""

    def __init__(self, i: Inst, low: Lowering) -> None:
        self.n, self.inverse, self.half_in, self.half_out, strides = i.static
        self.low = low
        self.m = i.ins[0]
        shape = i.out.shape
        self.seen = meta(shape, strides, 0, i.out.dtype, i.out.device)
        self.rows = math.prod(shape[:-1])
        self.real = i.compute
        self.work = dtypes.complex64 if i.compute == "f32" else dtypes.complex128
        self.out_real = not i.out.dtype.is_complex
        self.first_row: Expr | None = None  # of a workgroup's

    def lower(self) -> None:
        if not self.rows:
            return
        low, n = self.low, self.n
        plan = radices(n)
        assert plan is not None
        if len(plan) > 1 and self.fits(plan):
            self.in_workgroup(plan)
            return
        temps = [low.temp(self.rows * n * self.work.itemsize, self.work) for _ in plan[1:3]]
        source: Ref | None = None
        done = 1
        for s, r in enumerate(plan):
            to = temps[s % 2] if s < len(plan) - 1 else None
            if _in_registers(r):
                low.launch(
                    f"fft radix {r}",
                    self.rows * n // r,
                    lambda k, t, r=r, done=done, source=source, to=to: self.radix(k, t, r, done, source, to),
                )
            else:
                d = done * r
                table = low.temp(d * self.work.itemsize, self.work)
                low.launch("fft roots", d, lambda k, t, d=d, table=table: k.store(table, t, _root(k, t, d, self.real)))
                low.launch(
                    "fft prime",
                    self.rows * n,
                    lambda k, t, r=r, done=done, table=table, source=source, to=to: self.prime(
                        k, t, r, done, table, source, to
                    ),
                )
            source = to
            done *= r

    def fits(self, plan: list[int]) -> bool:
        """Whether a workgroup has memory for a row, twice where there are more than two passes."""
        t, size = self.low.target, self.values()
        return (
            t.barriers
            and self.n <= _IN_WORKGROUP
            and all(map(_in_registers, plan))
            and t.invocations >= _THREADS * 2
            and t.workgroup_bytes >= size * 8 * min(len(plan) - 1, 2)
        )

    def values(self) -> int:
        """How many values a workgroup keeps: those of a long row, or of several short ones."""
        return 1024 if self.n <= 1024 else _IN_WORKGROUP

    def in_workgroup(self, plan: list[int]) -> None:
        """All passes in one dispatch: between them the rows lie in workgroup memory."""
        k = self.low.kernel("fft of rows")
        size = self.values()
        k.workgroup = (threads := _THREADS * size // 1024, 1, 1)
        arrays = [f"stage{j}" for j in range(min(len(plan) - 1, 2))]
        k.globals += [f"var<workgroup> {a}: array<vec2<f32>, {size}>;" for a in arrays]
        each = size // self.n
        count = -(-self.rows // each)
        head = groups_head(k, k.dim(count, "groups"), "group")
        row = k.let(variable("group", "u32") * k.dim(each, "each"), "row")
        here = k.let(minimum(k.dim(self.rows, "rows") - row, k.dim(each, "each")), "here")
        self.first_row = row
        source: str | None = None
        done = 1
        for s, r in enumerate(plan):
            to = arrays[s % 2] if s < len(plan) - 1 else None
            if s:
                k.r.line("workgroupBarrier();")
            end = here * k.dim(self.n // r, ("m", r))
            with k.loop(end, variable("lid", "u32"), "t", const(threads, "u32")) as t:
                self.radix(k, t, r, done, source, to)
            source = to
            done *= r
        self.low.dispatch(k, k.source(head), grid_for(count, 1))

    def swapped(self, k: Kernel, z: Complex) -> Complex:
        """The inverse transform is the forward one with real and imaginary parts swapped before and after."""
        inverse = k.let(k.dim(int(self.inverse), "inverse") == 1, "inverse")
        return Complex(where(inverse, z.im, z.re), where(inverse, z.re, z.im))

    def weight(self, k: Kernel, j: Expr) -> Expr:
        one = const(1, self.real)
        return where((j == 0) | (j + j == k.dim(self.n, "n")), one, one + one)

    def load(self, k: Kernel, source: Ref | str | None, row: Expr, j: Expr) -> Complex:
        """Element j of a row: of the work of the last pass (a buffer, or an array of the workgroup), or (None) of the input."""
        n = k.dim(self.n, "n")
        if isinstance(source, str):
            name = k.r.name("x")
            k.r.line(f"let {name} = {source}[{k.r.text(row * n + j)}];")
            return Complex(variable(f"{name}.x", "f32"), variable(f"{name}.y", "f32"))
        if source is not None:
            return k.let(k.load(source, k.let(row * n + j, "at")), "x")
        m = self.m
        count = m.shape[-1]
        short = count < self.n
        at = minimum(j, k.dim(count - 1, "last")) if short else j
        row = self.row_of_all(k, row)
        place = index_of(k, m, [(row, self.rows, "row"), (k.let(at, "at"), count, "at")], ("x", 0))
        z: Any = k.load(self.low.input(0), k.let(place, "at"))
        z = cast(cast(z, self.real) if not isinstance(z, Complex) else z, self.work.compute)
        if self.half_in:
            w = self.weight(k, j)
            z = Complex(z.re * w, z.im * w)
        if short:
            inside, zero = j < k.dim(count, "count"), const(0, self.real)
            z = Complex(where(inside, z.re, zero), where(inside, z.im, zero))
        return k.let(self.swapped(k, z), "x")

    def row_of_all(self, k: Kernel, row: Expr) -> Expr:
        """The number of a row, where `row` is one of those of a workgroup."""
        return row if self.first_row is None else k.let(self.first_row + row, "row")

    def store(self, k: Kernel, to: Ref | str | None, row: Expr, j: Expr, z: Complex) -> None:
        if isinstance(to, str):
            at, value = row * k.dim(self.n, "n") + j, f"vec2<f32>({k.r.text(z.re)}, {k.r.text(z.im)})"
            k.r.line(f"{to}[{k.r.text(at)}] = {value};")
            return
        if to is not None:
            k.store(to, k.let(row * k.dim(self.n, "n") + j, "to"), z)
            return
        count = self.seen.shape[-1]
        j = k.let(j, "j")
        if count < self.n:
            with k.when(j < k.dim(count, "kept")):
                self.put(k, row, j, z)
        else:
            self.put(k, row, j, z)

    def put(self, k: Kernel, row: Expr, j: Expr, z: Complex) -> None:
        scale = self.low.scalar(k, 0)
        if self.half_out:
            scale = scale * self.weight(k, j)
        z = self.swapped(k, Complex(z.re * scale, z.im * scale))
        row = self.row_of_all(k, row)
        place = index_of(k, self.seen, [(row, self.rows, "to row"), (j, self.seen.shape[-1], "to")], ("y", 0))
        k.store(self.low.output, k.let(place, "to"), z.re if self.out_real else z)

    def radix(self, k: Kernel, t: Expr, r: int, done: int, source: Ref | str | None, to: Ref | str | None) -> None:
        m = k.dim(self.n // r, ("m", r))
        row = k.let(idiv(t, m), "row")
        j = k.let(t - row * m, "j")
        x = [self.load(k, source, row, j if q == 0 else k.let(j + m * q, "j")) for q in range(r)]
        step = k.dim(done, ("done", done))
        if source is None:  # nothing is done yet
            first = j * r
        else:
            i = j if to is None else k.let(imod(j, step), "i")
            w = _roots(k, i, done * r, r, self.real)
            x = [x[0], *(k.let(a * b, "x") for a, b in zip(x[1:], w, strict=True))]
            first = i if to is None else (j - i) * r + i
        first = k.let(first, "to")
        for q, y in enumerate(_dft(k, x)):
            self.store(k, to, row, first if q == 0 else k.let(first + step * q, "to"), y)

    def prime(self, k: Kernel, t: Expr, r: int, done: int, table: Ref, source: Ref | None, to: Ref | None) -> None:
        n, m, step = k.dim(self.n, "n"), k.dim(self.n // r, "m"), k.dim(done, "done")
        row = k.let(idiv(t, n), "row")
        o = k.let(t - row * n, "o")
        s = k.let(idiv(o, m), "s")
        j = k.let(o - s * m, "j")
        i = k.let(imod(j, step), "i")
        turn, turns = k.let(i + s * step, "turn"), k.dim(done * r, "turns")
        at = k.var(const(0, "u32"), "at")
        re, im = k.var(const(0, self.real)), k.var(const(0, self.real))
        with k.loop(k.dim(r, "radix")) as q:
            v = self.load(k, source, row, k.let(j + q * m, "j")) * k.let(k.load(table, at), "w")
            k.assign(re, re + v.re)
            k.assign(im, im + v.im)
            k.assign(at, at + turn)
            k.assign(at, where(at >= turns, at - turns, at))
        self.store(k, to, row, k.let((j - i) * k.dim(r, "radix") + turn, "to"), Complex(re, im))


def _of_examples(e: Examples) -> Call:
    *head, strides = e.static
    return Call((*head, (e.node.inst.out.numel, *strides)), e.ins)


FFT = Custom("fft", lambda i, low: _Passes(i, low).lower(), batched=_of_examples)


def _chirp(i: Inst, low: Lowering) -> None:
    """exp(±πi j² / n) at the places j and -j of a circle. `static` = (n, how many, inverse)."""
    n, count, inverse = i.static
    real, size = i.compute, i.out.numel

    def body(k: Kernel, t: Expr) -> None:
        j = k.let(minimum(t, k.dim(size, "size") - t), "j")
        turns = k.dim(2 * n, "turns")
        if k.r.doubles:  # exact up to 2^53
            a = call("fmod", "f64", cast(j, "f64") * cast(j, "f64"), cast(turns, "f64"))
        else:
            a = imod(cast(j, "i64") * cast(j, "i64"), cast(turns, "i64"))
        z = _root(k, k.let(cast(a, "u32"), "a"), 2 * n, real)
        inside, zero = j < k.dim(count, "count"), const(0, real)
        im = where(k.dim(int(inverse), "inverse") == 1, z.im, -z.im)
        k.store(low.output, t, Complex(where(inside, z.re, zero), where(inside, im, zero)))

    low.launch("chirp", size, body)


CHIRP = Custom("chirp", _chirp)

__all__ = ["CHIRP", "FFT", "radices"]
