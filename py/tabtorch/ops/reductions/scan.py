"""Running reductions along a dimension: each element becomes the reduction of those up to it.

One thread walks a row where rows are short or many. A long row is cut into chunks: each chunk's state, then the states'
running combination, then each chunk again from what came before it. So the error of a sum grows with the number of chunks
and the length of one, not with the length of the row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import record
from tabtorch.base import dtypes
from tabtorch.core.shapes import remembered, wrap_dim
from tabtorch.core.tensor import Tensor
from tabtorch.engine import functions as fn
from tabtorch.engine.expr import Expr, cast, const, exp, fit, idiv, isnan, log, minimum, where
from tabtorch.engine.graph import Custom, inst
from tabtorch.engine.lower import Kernel, Ref
from tabtorch.engine.plan import Lowering
from tabtorch.engine.view import Meta, contiguous_meta
from tabtorch.ops.machinery.batching import Call, Examples
from tabtorch.ops.machinery.operation import in_place, into, into_two, named, operation, run
from tabtorch.ops.machinery.out_types import EXACT, SCALAR_TYPE
from tabtorch.ops.machinery.promotion import FLOATING_COMPLEX, REAL, check_kernel
from tabtorch.ops.machinery.registry import function
from tabtorch.ops.reductions.reduce import _add, _highest, _lowest, _parts, _whole, greater, less, quiet
from tabtorch.ops.reductions.scan_kernel import ScanKernel
from tabtorch.ops.rows.row_helpers import logaddexp

_STATE = {
    "f32": dtypes.float32,
    "f64": dtypes.float64,
    "i32": dtypes.int32,
    "u32": dtypes.int32,
    "i64": dtypes.int64,
    "bool": dtypes.int32,
}


def _of_examples(e: Examples) -> Call:
    dim, reverse = e.static
    return Call((dim + 1, reverse), e.ins)


class Scan:
    """A monoid, as `engine.graph.Reduce` has it; `result` ends the state at every element.

    exact: the same, precise for float32, where arithmetic is no wider than that.
    """

    def __init__(
        self, name: str, init: Any, lift: Any, combine: Any, result: Any, exact: dict[str, Scan] | None = None
    ) -> None:
        self.exact = exact or {}
        self.init = init
        self.lift = lift
        self.combine = combine
        self.result = result
        self.op = Custom(name, self.lower, batched=_of_examples)

    def lower(self, i: Any, low: Lowering) -> None:
        """`static` = (dimension, whether from the end)."""
        if not low.target.doubles and i.compute in self.exact:
            self.exact[i.compute].lower(i, low)
            return
        dim, reverse = i.static
        m: Meta = i.ins[0]
        n = m.shape[dim]
        inner = math.prod(m.shape[dim + 1 :])
        rows = m.numel // max(n, 1)
        if m.numel == 0:
            return
        if inner == 1 and m.strides[dim] == 1:
            tuned = ScanKernel(self, i, low, n)
            if tuned.serves():
                tuned.lower(_STATE)
                return
        if low.target.serial or n <= 256 or rows >= 4096:
            low.launch(i.op.name, rows, lambda k, t: self._walk(k, t, i, low, n, inner, None))
            return
        length = max(64, 1 << (math.isqrt(n).bit_length()))
        chunks = -(-n // length)
        start = self.init(i.compute)
        state = [low.temp(rows * chunks * (8 if x.type in ("i64", "f64") else 4), _STATE[x.type]) for x in start]
        types = [x.type for x in start]
        cut = (chunks, length, state, types)
        low.launch(i.op.name + " of chunks", rows * chunks, lambda k, t: self._total(k, t, i, low, n, inner, cut))
        low.launch(i.op.name + " over chunks", rows, lambda k, t: self._carry(k, t, i, cut))
        low.launch(i.op.name, rows * chunks, lambda k, t: self._walk(k, t, i, low, n, inner, cut))

    def _place(self, k: Kernel, r: Expr, n: int, inner: int) -> tuple[Expr, Expr, Expr]:
        """(flat index of the row's first element, distance of neighbours, length)."""
        en, ei = k.dim(n, "n"), k.dim(inner, "inner")
        o = k.let(idiv(r, ei), "o")
        return k.let(o * (en * ei) + (r - o * ei), "base"), ei, en

    def _chunk(self, k: Kernel, t: Expr, n: int, cut: Any) -> tuple[Expr, Expr, Expr]:
        """(row, first, end) of a chunk."""
        chunks, length, _, _ = cut
        ec, el = k.dim(chunks, "chunks"), k.dim(length, "length")
        r = k.let(idiv(t, ec), "r")
        start = k.let((t - r * ec) * el, "start")
        return r, start, k.let(minimum(start + el, k.dim(n, "n")), "end")

    def _step(
        self, k: Kernel, i: Any, low: Lowering, state: list[Expr], base: Expr, step: Expr, n: Expr, j: Expr
    ) -> tuple[Expr, tuple]:
        if i.static[1]:
            j = k.let(n - 1 - j, "j")
        at = k.let(base + j * step, "at")
        m = i.ins[0]
        v = cast(k.load(low.input(0), low.index(k, m, at, 0)), i.compute)
        new = tuple(k.let(x, "s") for x in self.combine(tuple(state), self.lift(k.let(v, "v"), j)))
        for var, x in zip(state, new, strict=True):
            k.assign(var, x)
        return at, new

    def _total(self, k: Kernel, t: Expr, i: Any, low: Lowering, n: int, inner: int, cut: Any) -> None:
        r, start, end = self._chunk(k, t, n, cut)
        base, step, en = self._place(k, r, n, inner)
        state = [k.var(x) for x in self.init(i.compute)]
        with k.loop(end, start) as j:
            self._step(k, i, low, state, base, step, en, j)
        self._put(k, cut[2], t, state)

    def _put(self, k: Kernel, refs: list[Ref], at: Expr, state: list[Expr]) -> None:
        for ref, x in zip(refs, state, strict=True):
            k.store(ref, at, cast(x, ref.dtype.compute))

    def _get(self, k: Kernel, refs: list[Ref], types: list[str], at: Expr) -> tuple:
        return tuple(k.let(cast(k.load(ref, at), t), "c") for ref, t in zip(refs, types, strict=True))

    def _carry(self, k: Kernel, t: Expr, i: Any, cut: Any) -> None:
        """Each chunk's state becomes that of all before it."""
        chunks, _, refs, types = cut
        ec = k.dim(chunks, "chunks")
        base = k.let(t * ec, "base")
        state = [k.var(x) for x in self.init(i.compute)]
        with k.loop(ec) as c:
            at = k.let(base + c, "at")
            got = self._get(k, refs, types, at)
            new = tuple(k.let(x, "s") for x in self.combine(tuple(state), got))
            self._put(k, refs, at, state)
            for var, x in zip(state, new, strict=True):
                k.assign(var, x)

    def _walk(self, k: Kernel, t: Expr, i: Any, low: Lowering, n: int, inner: int, cut: Any) -> None:
        before: tuple | None = None
        if cut is None:
            r, start, end = t, const(0, "u32"), k.dim(n, "n")
        else:
            r, start, end = self._chunk(k, t, n, cut)
            before = self._get(k, cut[2], cut[3], t)
        base, step, en = self._place(k, r, n, inner)
        state = [k.var(x) for x in self.init(i.compute)]
        out = i.out.dtype
        with k.loop(end, start) as j:
            at, new = self._step(k, i, low, state, base, step, en, j)
            if (
                before is not None
            ):  # joined anew at every element: the chunk's own state stays small, and so does its error
                new = tuple(k.let(x, "s") for x in self.combine(before, new))
            k.store_bits(low.output, at, fit(cast(self.result(new), out.compute), out.name))


def _log_add(a: tuple, b: tuple) -> tuple:
    """(largest, sum of exp(x - largest))."""
    m = where(greater(b[0], a[0]), b[0], a[0])
    one = const(1, m.type)
    return m, a[1] * where(a[0] == m, one, exp(a[0] - m)) + b[1] * where(b[0] == m, one, exp(b[0] - m))


def _last_extreme(beyond: Callable[[Expr, Expr], Expr]) -> Any:
    def combine(a: tuple, b: tuple) -> tuple:
        keep = beyond(a[0], b[0])
        return where(keep, a[0], b[0]), where(keep, a[1], b[1])

    return combine


def _extreme(name: str, start: Any, beyond: Any, part: int) -> Scan:
    return Scan(
        name,
        lambda t: (start(t), const(0, "u32")),
        lambda v, j: (v, j),
        _last_extreme(beyond),
        lambda s: s[part],
    )


def _two_sums(a: tuple, b: tuple) -> tuple:
    """Sums, then their errors (Knuth's two-sum): PyTorch runs sums of float32 in float64."""
    n = len(a) // 2
    totals, errors = [], []
    for x, y, cx, cy in zip(a[:n], b[:n], a[n:], b[n:], strict=True):
        t = x + y
        part = t - x
        totals.append(t)
        errors.append((cx + cy) + ((x - (t - part)) + (y - part)))
    return (*totals, *errors)


def _two_product(a: tuple, b: tuple) -> tuple:
    """A product and its error (Dekker's: heads of 12 bits have exact products)."""
    x, y = a[0], b[0]
    p = fn.kept(x * y)
    xh, yh = fn.head(x), fn.head(y)
    xl, yl = x - xh, y - yh
    return p, (x * b[1] + a[1] * y) + (((xh * yh - p) + xh * yl + xl * yh) + xl * yl)


def _corrected(s: tuple) -> Any:
    """The value with its error, which is NaN where that is infinite."""
    n = len(s) // 2
    return _whole(tuple([where(isnan(c), x, x + c) for x, c in zip(s[:n], s[n:], strict=True)]))


def _zeros(t: str) -> tuple:
    return _parts(const(0, t))


_EXACT_SUM = Scan("cumsum", lambda t: _zeros(t) * 2, lambda v, j: (*_parts(v), *_zeros(v.type)), _two_sums, _corrected)
_EXACT_PROD = Scan(
    "cumprod", lambda t: (const(1, t), const(0, t)), lambda v, j: (v, const(0, v.type)), _two_product, _corrected
)
SUM = Scan("cumsum", _zeros, lambda v, j: _parts(v), _add, _whole, {"f32": _EXACT_SUM, "c64": _EXACT_SUM})
PROD = Scan(
    "cumprod",
    lambda t: _parts(const(1, t)),
    lambda v, j: _parts(v),
    lambda a, b: _parts(_whole(a) * _whole(b)),
    _whole,
    {"f32": _EXACT_PROD},
)
LOG_SUM_EXP = Scan(
    "logcumsumexp",
    lambda t: (const(-math.inf, t), const(0, t)),
    lambda v, j: (v, const(1, v.type)),
    _log_add,
    lambda s: log(s[1]) + s[0],
)
# a complex logarithm is one of many: PyTorch's comes of adding the elements one by one
COMPLEX_LOG_SUM_EXP = Scan(
    "logcumsumexp",
    lambda t: _parts(const(-math.inf, t)),
    lambda v, j: _parts(v),
    lambda a, b: _parts(logaddexp(_whole(b), _whole(a))),
    _whole,
)
MAX, MAX_AT = (_extreme("cummax", _lowest, greater, k) for k in (0, 1))
MIN, MIN_AT = (_extreme("cummin", _highest, less, k) for k in (0, 1))


@remembered
def _plan(op: Custom, m: Meta, dim: int, reverse: bool, dtype: Any, compute: str) -> Any:
    shape = m.shape if m.ndim else (1,)
    if not m.ndim:
        m = m.view((1,), (1,), m.offset)
    out = contiguous_meta(shape, dtype, m.device)
    return inst(op, (m,), out, static=(dim, reverse), compute=compute)


def scan(op: Scan, x: Tensor, dim: int, reverse: bool = False, dtype: Any = None, compute: str | None = None) -> Tensor:
    """`op` along `dim`, not recorded."""
    m = x._tab_meta
    d = dtype or m.dtype
    i = _plan(op.op, m, wrap_dim(dim, m.ndim), reverse, d, compute or d.compute)
    return run(i, contiguous_meta(m.shape, d, m.device), x)


def _with_dtype(name: str, x: Tensor, dtype: Any, out: Any) -> Any:
    d = dtypes.given_dtype(name, dtype)
    if out is not None:
        d = d or out._tab_meta.dtype
    if d is dtypes.bool_:
        raise NotImplementedError(f"\"{name}_out_cpu\" not implemented for 'Bool'")
    if d is not None:
        return d
    return dtypes.int64 if x._tab_meta.dtype.category < 2 else x._tab_meta.dtype


# ---- sums and products


def _cumsum(x: Tensor, dim: int, dtype: Any, reverse: bool) -> Tensor:
    r = scan(SUM, x, dim, reverse, dtype)
    record("CumsumBackward0", (x,), r, lambda g: _cumsum(g, dim, g.dtype, not reverse))
    return r


@operation("cumsum")
def cumsum(input: Tensor, dim: int, *, dtype: Any = None, out: Any = None) -> Tensor:
    """Running sums along `dim`. Integers and bools are summed in int64."""
    if isinstance(dim, (str, float)):
        raise TypeError(f"cumsum(): argument 'dim' (position 2) must be int, not {type(dim).__name__}")
    return into(out, _cumsum(input, _now(dim), _with_dtype("cumsum", input, dtype, out), False), rule=EXACT)


def _now(dim: Any) -> Any:
    """A `dim` argument; of a tensor the number that it is now, as it may be written to before backward."""
    return dim.__index__() if isinstance(dim, Tensor) else dim


@operation("cumprod")
def cumprod(input: Tensor, dim: int, *, dtype: Any = None, out: Any = None) -> Tensor:
    """Running products along `dim`."""
    dim = _now(dim)
    r = scan(PROD, input, dim, False, _with_dtype("cumprod", input, dtype, out))
    record("CumprodBackward0", (input,), r, lambda g, x, r: _cumprod_back(g, x, r, dim), (input, r))
    return into(out, r, rule=EXACT)


def _cumprod_back(g: Any, x: Any, r: Any, dim: int) -> Any:
    """Before the first zero: what follows, over x. At it: the products with it left out. After it: nothing."""
    if x.ndim == 0 or not x._tab_meta.numel:
        return g
    conj = x.is_complex()
    select = function("where")
    assert select is not None
    if STATE.grad and (g._tab_requires_grad or x._tab_requires_grad):
        return _cumprod_back_twice(g, x.conj() if conj else x, wrap_dim(dim, x.ndim))
    zero = x.detach() == 0
    zeros: Any = _cumsum(zero, dim, dtypes.int64, False)
    first = zero & (zeros == 1)
    one = x.new_ones(())
    others = cumprod(select(first, one, x), dim)
    safe = select(zero, one, x)
    before: Any = _cumsum(g * (r.conj() if conj else r), dim, g.dtype, True) / (safe.conj() if conj else safe)
    at = _cumsum(g * (others.conj() if conj else others), dim, g.dtype, True)
    nothing = g.new_zeros(())
    return select(first, at, select(zeros == 0, before, nothing))


def _cumprod_back_twice(g: Any, x: Any, dim: int) -> Any:
    """The same with no division and no cases, so that it has all derivatives; takes a matrix a row, as in PyTorch."""
    x, g = x.movedim(dim, -1), g.movedim(dim, -1)
    n = x.shape[-1]
    after = x.new_ones((n, n), dtype=dtypes.bool_).triu(1)  # [k, i]: i comes after k
    select: Any = function("where")
    one = x.new_ones(())
    follow = cumprod(select(after, x.unsqueeze(-2), one), -1)  # [k, j]: the product of x[k + 1 : j + 1]
    here = (follow * g.unsqueeze(-2)).triu(0).sum(-1)
    before = cumprod(function("cat")([x.new_ones((*x.shape[:-1], 1)), x.narrow(-1, 0, n - 1)], -1), -1)  # type: ignore[misc]
    return (before * here).movedim(-1, dim)


@operation("logcumsumexp")
def logcumsumexp(input: Tensor, dim: int, *, out: Any = None) -> Tensor:
    """Running log(sum(exp(x))) along `dim`."""
    check_kernel("logcumsumexp_out_cpu", input._tab_meta.dtype, FLOATING_COMPLEX)
    return into(out, _logcumsumexp(input, _now(dim), False), rule=SCALAR_TYPE)


def _logcumsumexp(x: Any, dim: int, reverse: bool) -> Any:
    r = scan(COMPLEX_LOG_SUM_EXP if x.is_complex() else LOG_SUM_EXP, x, dim, reverse)
    back = lambda g, x, r: _weighted_sum(g, x.conj(), r.conj(), dim, not reverse) if g.ndim else g  # noqa: E731
    record("LogcumsumexpBackward0", (x,), r, back, (x, r))
    return r


def _weighted_sum(g: Any, x: Any, r: Any, dim: int, reverse: bool) -> Any:
    """Running sum of g exp(x - r), x being that of the place where the sum is, so that nothing overflows.

    It is linear in g, which the logarithms that it is made of do not show; so it has a gradient of its own.
    """
    x0, r0 = x, r
    with quiet():
        if g.is_complex():
            result = (_logcumsumexp(g.log() - r, dim, reverse) + x).exp()
        else:
            select: Any = function("where")
            if x.numel():  # only differences of x and r count, and those of small numbers are exact
                top = x.amax(dim, True)
                top = select(top.isfinite(), top, 0)
                x, r = x - top, r - top
            low = g.new_full((), dtypes.finfo(g.dtype).min)  # not -inf, whose differences are NaN
            up, down = select(g > 0, g.log(), low), select(g < 0, (-g).log(), low)
            plus = (_logcumsumexp(up - r, dim, reverse) + x).exp()
            result = plus - (_logcumsumexp(down - r, dim, reverse) + x).exp()

    def back(h: Tensor, g: Tensor, x: Tensor, r: Tensor, result: Tensor) -> tuple[Tensor, ...]:
        to_g = _weighted_sum(h, -r.conj(), -x.conj(), dim, not reverse)
        return to_g, h * result.conj(), -g.conj() * to_g

    record("ExpBackward0", (g, x0, r0), result, back, (g, x0, r0, result))
    return result


def _in_its_type(f: Any) -> Any:
    """`f` as it is computed in place: integers too in the type of the tensor that is written."""

    @wraps(f)
    def g(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        r: Tensor = f(input, dim, dtype=dtype or input._tab_meta.dtype)
        return r

    return g


for _f in (cumsum, cumprod):
    in_place(_in_its_type(_f))


# ---- extremes

CummaxResult = named("cummax", "values", "indices")
CumminResult = named("cummin", "values", "indices")


def _running_extreme(op: Scan, at: Scan, name: str, kind: Any, x: Tensor, dim: int, out: Any) -> Any:
    m = x._tab_meta
    check_kernel(f"{name}_cpu", m.dtype, REAL)
    d = wrap_dim(dim, m.ndim)
    c = "i32" if m.dtype.name == "bool" else m.dtype.compute
    values = scan(op, x, d, compute=c)
    indices = scan(at, x, d, False, dtypes.int64, c)
    shape = m.shape

    def back(g: list[Any], indices: Tensor) -> Tensor:
        if not shape:
            return g[0]
        return g[0].new_zeros(shape).scatter_add(d, indices, g[0])

    record(name.capitalize() + "Backward0", (x,), (values, indices), back, (indices,), (x,))
    return into_two(out, kind(values, indices), rule=SCALAR_TYPE)


@operation("cummax")
def cummax(input: Tensor, dim: int, *, out: Any = None) -> Any:
    """(largest so far, its last place) along `dim`."""
    return _running_extreme(MAX, MAX_AT, "cummax", CummaxResult, input, dim, out)


@operation("cummin")
def cummin(input: Tensor, dim: int, *, out: Any = None) -> Any:
    """(smallest so far, its last place) along `dim`."""
    return _running_extreme(MIN, MIN_AT, "cummin", CumminResult, input, dim, out)


# ---- differences and integrals


@operation("diff")
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None, *, out: Any = None
) -> Tensor:
    """Differences of neighbours along `dim`, n times."""
    if input.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if n == 0:
        return into(out, input.clone(), rule=SCALAR_TYPE)
    x = input
    parts = [t for t in (prepend, x, append) if t is not None]
    if len(parts) > 1:
        cat = function("cat")
        assert cat is not None
        x = cat(parts, dim)
    d = wrap_dim(dim, x.ndim)
    size = x.shape[d]
    n = min(n, size)
    for _ in range(n):
        size = x.shape[d]
        a, b = x.narrow(d, 1, size - 1), x.narrow(d, 0, size - 1)
        x = a != b if x.dtype is dtypes.bool_ else a - b
    return into(out, x.clone() if x is input else x)


def _trapezoid_parts(y: Tensor, x: Any, dx: Any, dim: int) -> Tensor:
    d = wrap_dim(dim, y.ndim)
    n = y.shape[d]
    if n == 0:
        return y
    s = y.narrow(d, 1, n - 1) + y.narrow(d, 0, n - 1)
    if x is None:
        return s * (dx / 2)
    if x.ndim == 1:
        if x.shape[0] != n:
            raise RuntimeError("trapezoid: There must be one `x` value for each sample point")
        shape = [1] * y.ndim
        shape[d] = n
        x = x.reshape(shape)
    while x.ndim < y.ndim:
        x = x.unsqueeze(0)
    k = x.shape[d]
    return s * (x.narrow(d, 1, k - 1) - x.narrow(d, 0, k - 1)) / 2


def trapezoid(y: Tensor, x: Any = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """The integral of `y` along `dim` by the trapezoidal rule, over places `x` or at distance `dx`."""
    return _trapezoid_parts(y, x, dx, dim).sum(dim)


operation("trapezoid", method=False, aliases=("trapz",))(trapezoid)


@operation("cumulative_trapezoid", method=False)
def cumulative_trapezoid(y: Tensor, x: Any = None, *, dx: Any = 1, dim: int = -1) -> Tensor:
    """Running integrals of `y` along `dim`."""
    return cumsum(_trapezoid_parts(y, x, dx, dim), dim)
