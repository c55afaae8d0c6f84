"""A few rows times a matrix, on GPUs: a token of a language model, or one that looks at a cache of keys and values.

`wgsl/matvec.wgsl` is the algorithm. Here is which form of it a contraction takes, and the functions that it calls. Four
neighbours are loaded at once where they lie together at multiples of four; otherwise, or where the operand is computed by
who reads it, one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tabtorch.base.dtypes import float32

from .contractions import contraction, finish, four_at, joined, quads, rows_first, sizes
from .expr import Expr, cast, idiv, imod, minimum, variable
from .kernel import U0, Kernel, Ref
from .lower import Factor, index_of
from .template import Filled
from .view import Meta, collapse, meta

if TYPE_CHECKING:
    from .fuse import Group
    from .lower import Values
    from .plan import Builder
    from .target import Target

#: threads of a workgroup, as in the algorithm
_THREADS = 256
#: rows that there are kernels for: of others the next is taken
_FEW = (1, 2, 4, 8, 16)
#: columns and k from which on a workgroup has enough to do; numbers of the matrix from which on it is worth a launch of its own
_LEAST, _LARGE = 64, 1 << 17
#: threads that walk k together: how many threads add up their sums
_SHARES = {16: 4, 32: 8, 64: 8, 128: 16, 256: 16}


def _plain(view: Meta, start: int, end: int) -> bool:
    """Whether one stride walks these dimensions."""
    return len(collapse(view.shape[start:end], view.strides[start:end])[0]) <= 1


def _few(inst: Any) -> int | None:
    """Which operand has the few rows; the other is the matrix. A convolution's has dimensions within others, which tiles suit."""
    batch, m, n, k = sizes(inst)
    if k < _LEAST or batch > 65535:
        return None
    for i, (few, many) in enumerate(((m, n), (n, m))):
        if few <= _FEW[-1] and many >= _LEAST and batch * many * k >= _LARGE and many < 2**20:
            matrix, nk = inst.ins[1 - i], inst.static[3]
            start, own = inst.static[0] + (0 if i else inst.static[1]), inst.static[1 if i else 2]
            if _plain(matrix, start, start + own) and _plain(matrix, matrix.ndim - nk, matrix.ndim):
                return i
    return None


def serves(t: Target, inst: Any) -> bool:
    """Whether this kernel does a contraction."""
    return t.barriers and inst.compute == "f32" and t.invocations >= _THREADS and _few(inst) is not None


def team(few: int, many: int, batch: int, k: int, walk: bool) -> int:
    """How many threads walk k for the same four columns: more where workgroups would be too few to fill a large device."""

    def groups(team: int) -> int:
        """Workgroups."""
        return -(-many // (4 * _THREADS // team)) * batch

    if walk:
        wanted = 512 if few <= 4 else 256
        if k <= 128:
            return 16
        return next((x for x in (32, 64, 128) if groups(x) >= wanted or k <= 8 * x), 256)
    # side by side they read rows of 256 bytes, or less, but whole sectors of memory
    return next((x for x, wanted in ((16, 256), (32, 256), (64, 128)) if groups(x) >= wanted), 128)


def parts(many: int, batch: int, k: int, team: int) -> tuple[int, int]:
    """(in how many parts k is cut, how long one is)."""
    groups = -(-many // (4 * _THREADS // team)) * batch
    if k < 64 * team or groups >= 128:
        return 1, k
    cut = min(256 // groups, k // (8 * team), 65535 // batch)
    if cut <= 1:
        return 1, k
    length = -(-k // cut // 8) * 8
    return -(-k // length), length


class _Operand:
    """How elements of one operand are read. `own`: the name of what numbers its rows, or columns; `place`: a place there."""

    def __init__(self, v: Values, pos: int, which: int, inst: Any, own: str, lengths: dict[str, int]) -> None:
        self.v = v
        self.k = v.k
        self.pos = pos
        self.which = which
        self.view: Meta = inst.ins[which]
        self.own = own
        self.lengths = lengths

    def _point(self, given: dict[str, Expr]) -> list[Factor]:
        return [(given.get(x, U0), n, x) for x, n in self.lengths.items()]

    def begin(self) -> Expr:
        """The place where row `own` of batch `b` begins."""
        given = {x: variable(x, "u32") for x in ("b", self.own)}
        return index_of(self.k, self.view, self._point(given), (self.pos, self.which))

    def step(self, at: Expr) -> Expr:
        """How far element `at` of a row lies from its beginning."""
        m = self.view
        flat = meta(m.shape, m.strides, 0, m.dtype, m.device)
        return index_of(self.k, flat, self._point({"k": at}), (self.pos, self.which))

    def element(self, place: Expr) -> Expr:
        self.k.r.inside = "load"
        x: Expr = cast(self.v.element(self.pos, self.which, place), "f32")
        return x

    def four(self, place: Expr) -> str | None:
        """Four neighbours in memory, where they lie in a buffer."""
        n = self.v.nodes[self.pos].srcs[self.which]
        if self.v.pending(n) in self.v.virtual:
            return None
        return four_at(self.k, Ref(self.v.refs(n).key, self.view.dtype), place)


def _along_k(k: Kernel, x: _Operand, place: Expr, at: Expr, vector: bool) -> str:
    """Elements `at` to `at + 3` of a row that begins at `place`."""
    found = x.four(place + x.step(at)) if vector else None
    if found is None:
        each = [k.r.text(x.element(place + x.step(at + j if j else at))) for j in range(4)]
        found = f"vec4<f32>({', '.join(each)})"
    return found


def _across(k: Kernel, w: _Operand, at: Expr, vector: bool) -> str:
    """Element `at` of the four columns that begin at `places`."""
    step = k.let(w.step(at), "step")
    places = [variable(f"places.{c}", "u32") for c in "xyzw"]
    found = w.four(places[0] + step) if vector else None
    if found is None:
        found = f"vec4<f32>({', '.join(k.r.text(w.element(p + step)) for p in places)})"
    return found


def emit(b: Builder, g: Group) -> None:
    """Writes the launch of a contraction and its epilogue; where k is cut, two."""
    k, filled, constants, grid, partial = _written(b, g, True)
    if len(k.bindings) > b.target.buffers:  # one that is read both ways is bound twice
        k, filled, constants, grid, partial = _written(b, g, False)
    b.launch(k, filled.source("matvec", constants), grid)
    if partial:
        cut = grid[2] // sizes(b.nodes[contraction(b, g)].inst)[0]
        b.emit_map(g, {contraction(b, g): lambda k, i: joined(k, partial, cut, g.O, i)})


def _written(b: Builder, g: Group, vectors: bool) -> tuple[Kernel, Filled, dict[str, int], list[Any], Ref | None]:
    """The kernel: its functions and constants, its grid, and where the parts of k go."""
    p0 = contraction(b, g)
    inst = b.nodes[p0].inst
    batch, m, n, kk = sizes(inst)
    nb, nm, nn, nk = inst.static
    first = _few(inst)
    assert first is not None
    few, many = (m, n) if first == 0 else (n, m)
    spans = (nb, nb + nm), (nb + nm, nb + nm + nn)
    matrix, vector = inst.ins[1 - first], inst.ins[first]
    end = matrix.ndim
    walk = not rows_first(matrix, *spans[1 - first])
    w_vector = vectors and (quads(matrix, end - nk, end) if walk else quads(matrix, *spans[1 - first]))
    # a sequence that grows, of a batch, is not to change its kernel as it passes the multiples of four
    x_vector = vectors and (walk or batch == 1 or few > 1) and quads(vector, end - nk, end)
    rows = next(x for x in _FEW if few <= x)
    side = team(rows, many, batch, kk, walk)
    cut, length = parts(many, batch, kk, side)

    k = Kernel(b.target.number, b.label(g))
    filled = Filled(k)
    v = b.values(k)
    function = filled.function
    M, N = k.dim(few, "few"), k.dim(many, "many")
    filled.number("size_M", M)
    filled.number("size_N", N)
    z = variable("z", "u32")
    of_batch, begin, stop = z, U0, k.dim(kk, "length")
    if cut > 1:
        each, part = k.dim(batch, "each"), k.dim(length, "part")
        of_batch, begin = imod(z, each), idiv(z, each) * part
        stop = minimum(begin + part, stop)
    for name, e in (("batch_of", of_batch), ("first_k", begin), ("last_k", stop)):
        function(name, "z: u32", "u32", lambda e=e: e)  # type: ignore[misc]

    lengths = {"b": batch, "m": few, "n": many, "k": kk} if first == 0 else {"b": batch, "n": many, "m": few, "k": kk}
    x = _Operand(v, p0, first, inst, "m", lengths)
    w = _Operand(v, p0, 1 - first, inst, "n", lengths)
    at, place = variable("k", "u32"), variable("place", "u32")
    function("place_x", "b: u32, m: u32", "u32", x.begin)
    function("place_w", "b: u32, n: u32", "u32", w.begin)
    function("load_x", "place: u32, k: u32", "f32", lambda: x.element(place + x.step(at)))
    function("load4_x", "place: u32, k: u32", "vec4<f32>", lambda: _along_k(k, x, place, at, x_vector))
    function("line_w", "places: vec4<u32>, k: u32", "vec4<f32>", lambda: _across(k, w, at, w_vector and not walk))
    if walk:
        function("row_w", "place: u32, k: u32", "vec4<f32>", lambda: _along_k(k, w, place, at, w_vector))
        four = "transpose(mat4x4<f32>({}))".format(", ".join(f"row_w(places.{c}, k)" for c in "xyzw"))
    else:
        four = "mat4x4<f32>({})".format(", ".join(f"line_w(places, k + {j}u)" for j in range(4)))
    function("block_w", "places: vec4<u32>, k: u32", "mat4x4<f32>", lambda: four)
    filled.names.discard("row_w")  # which the file does not call

    partial = Ref(b.temp(cut * g.O * 4), float32) if cut > 1 else None

    def store() -> None:
        row, column = variable("m", "u32"), variable("n", "u32")
        names: list[Factor] = [(variable("b", "u32"), batch, "b"), (row, few, "m"), (column, many, "n")]
        i = row * N + column
        if first == 1:
            names[1:] = [names[2], names[1]]
            i = column * M + row
        i = k.let(variable("b", "u32") * (M * N) + i if batch * cut > 1 else i, "i")
        acc = variable("value", "f32")
        if partial:
            k.store(partial, i, acc)
        else:
            finish(b, g, v, acc, names, lambda ref, y: k.store_bits(ref, i, y))

    function("store_out", "b: u32, m: u32, n: u32, value: f32", None, store)
    constants = {
        "FEW": rows,
        "TEAM": side,
        "CHUNK": min(rows, 2),
        "AHEAD": 2 if rows <= 4 else 1,
        "SHARES": _SHARES[side],
        "WALK": int(walk),
        "RAGGED": int(not (x_vector or (walk and w_vector))),
    }
    return k, filled, constants, [-(-many // (4 * _THREADS // side)), 1, batch * cut], partial
