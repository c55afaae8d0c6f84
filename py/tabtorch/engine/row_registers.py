"""Rows of moderate length on GPUs: each thread of a workgroup has some elements of the row, whose values stay in its registers.

The elements are written out one by one, in one scope. So no load waits for another, and what one pass over the row has loaded
or computed has a name in those after it: nothing is read twice, and no `exp` computed twice. Which of the names are kept in
registers, and which computed again, is left to the driver's compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .expr import Expr, const, idiv, imod, minimum, variable
from .row_joins import together
from .row_kernel import RowKernel, initial, neighbours
from .row_lanes import LANES, Served, sites

if TYPE_CHECKING:
    from .fuse import Group
    from .lower import Kernel
    from .plan import Builder

#: (longest row, threads a row, elements a thread); short rows are several to a workgroup. These forms were the fastest on an H100:
#: 6 to 8 elements a thread, or more where else many threads have to be joined. Where the text would be too long twice the threads
#: have half of them each
_SHORT = ((16, 2, 8), (32, 4, 8), (64, 8, 8), (96, 8, 12), (127, 8, 16))
_FORMS = (
    (128, 8, 16), (192, 16, 12), (256, 16, 16), (384, 64, 6), (512, 64, 8), (768, 128, 6), (1024, 128, 8), (1536, 256, 6),
    (2048, 256, 8), (3072, 256, 12), (4096, 256, 16),
)  # fmt: skip
#: the same in vectors of four: (longest row, threads a row, vectors a thread). Up to 1024 elements a row is 32 threads': on most GPUs
#: those are a subgroup, or a part of one, and join what they have without waiting for others
_VECTORS = (
    (16, 4, 1), (32, 8, 1), (64, 16, 1), (128, 32, 1), (256, 32, 2), (384, 32, 3), (512, 32, 4), (768, 32, 6), (1024, 32, 8),
    (1536, 64, 6), (2048, 64, 8), (3072, 128, 6), (4096, 128, 8), (6144, 256, 6), (8192, 256, 8),
)  # fmt: skip
#: least threads of a workgroup. Where all rows together have fewer elements than `_FEW`, a row is one thread's: such a kernel can share
#: more launches (share.py)
_THREADS, _FEW = 64, 1 << 16
#: rows so few that the time of one is what counts: more threads have shorter text each (one row of 768, on an H200: layer_norm 4.8 µs
#: with 256 threads, 5.7 with 32, softmax 4.7 and 7.1)
_FEW_ROWS = 128
#: values that are written out for each thread at most: longer text takes compilers long
_MOST = 400

Forms = tuple[tuple[int, int, int], ...]


def form(b: Builder, g: Group) -> tuple[int, int, int, Served | None] | None:
    """For rows that fit: threads, elements of each or vectors, how many of those are within every row of that class, and the reads
    that vector loads serve."""
    if not b.target.barriers or g.K < 9 or g.K > _VECTORS[-1][0] or not neighbours(b, g):
        return None
    if g.K < 128 and g.O * g.K < _FEW:
        return None
    served = sites(b, g, 1)
    found = None if served is None else _fitting(b, g, _VECTORS, LANES)
    if found is not None:
        return *found, served
    if g.K > _FORMS[-1][0]:
        return None
    found = _fitting(b, g, _SHORT if g.K < 128 else _FORMS, 1)
    return None if found is None else (*found, None)


def _fitting(b: Builder, g: Group, forms: Forms, width: int) -> tuple[int, int, int] | None:
    """Which of the forms, whose elements are vectors of `width`; None where the text would be too long for any."""
    at = next(i for i, (longest, _, _) in enumerate(forms) if g.K <= longest)
    _, threads, turns = forms[at]
    while width == LANES and turns > 1 and threads < 256 and g.O <= _FEW_ROWS:
        threads, turns = threads * 2, -(-turns // 2)
    shortest = forms[at - 1][0] + width if at else 128 if forms is _FORMS else 9
    values = b.graph.maps(p for p in g.nodes if g.level[p] == "full" or g.phase[p] > 0) * width
    while values * turns > _MOST and turns * width > 2 and turns > 1 and threads < 256:
        threads, turns = threads * 2, -(-turns // 2)
    reduces = [p for p in g.nodes if b.nodes[p].inst.op.reduces]
    states = sum(8 if x.type == "i64" else 4 for p in reduces for x in initial(b, p))  # bytes for each thread
    bytes_shared = states * max(threads, _THREADS)
    if values * turns > _MOST or threads > b.target.invocations or bytes_shared > b.target.workgroup_bytes:
        return None
    return threads, turns, shortest // (threads * width)


class RegisterKernel(RowKernel):
    """A row a workgroup, or a few, held in registers."""

    exact = True

    def __init__(
        self, b: Builder, g: Group, k: Kernel, threads: int, turns: int, certain: int, served: Served | None
    ) -> None:
        super().__init__(b, g, k)
        self.wide = True
        self.use_lanes(served)
        self.threads = threads
        self.size = max(threads, _THREADS)
        self.rows = self.size // threads
        self.lane: Expr = variable("lid", "u32")
        if self.rows > 1:
            self.item = "batch"
            self.items = -(-g.O // self.rows)
        self.turns = turns
        self.certain = certain
        #: of each turn its first element, whether that is one, and the values of full level that are known of each lane
        self.turned: list[tuple[Expr, Expr | None, list[dict[int, Any]]]] = []

    def body(self, item: Expr) -> None:
        if self.rows == 1:
            super().body(item)
            return
        k = self.k
        rows = k.dim(self.g.O, "rows")
        o = k.let(item * self.rows + idiv(self.lane, const(self.threads, "u32")), "o")
        self.exists = k.let(o < rows, "exists")
        self.lane = k.let(imod(self.lane, const(self.threads, "u32")), "lane")
        self.several = self.threads, k.r.text(k.let(variable("lid", "u32") - self.lane, "first"))
        super().body(k.let(minimum(o, rows - 1), "o"))

    def leader(self) -> str:
        return (
            "lid == 0u" if self.exists is None else f"{self.k.r.text(self.lane)} == 0u && {self.k.r.text(self.exists)}"
        )

    def walk(self, o: Expr, reduces: list[int], full: list[int], start: Expr, end: Expr) -> dict[int, tuple]:
        for p in reduces:
            self.hoist(p, (o, self.g.O, "o"), (self.g.K, "k"))
        if not self.turned:
            self._name_elements(end)
        states = [{p: self.reduce_state(p)[0] for p in reduces} for _ in range(self.width)]
        for ke, counts, known in self.turned:
            states = self.elements(o, ke, states, full, counts, known)
        return self.join_threads(together(self, states)) if reduces else {}

    def _name_elements(self, end: Expr) -> None:
        k, width = self.k, self.width
        last = k.let(end - width, "last")
        begin = k.let(self.lane * width, "k") if width > 1 else self.lane
        for j in range(self.turns):
            at = k.let(begin + const(j * self.threads * width, "u32"), "k") if j else begin
            known: list[dict[int, Any]] = [{} for _ in range(width)]
            if j < self.certain:
                self.turned.append((at, None, known))
            else:  # those beyond the end are the last ones again, and do not count
                self.turned.append((k.let(minimum(at, last), "k"), k.let(at < end, "counts"), known))
