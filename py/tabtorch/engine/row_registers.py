"""Rows of moderate length on GPUs: each thread of a workgroup has some elements of the row, whose values stay in its registers.

The elements are written out one by one, in one scope. So no load waits for another, and what one pass over the row has loaded
or computed has a name in those after it: nothing is read twice, and no `exp` computed twice. Which of the names are kept in
registers, and which computed again, is left to the driver's compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .expr import Expr, const, idiv, imod, minimum, variable
from .row_kernel import RowKernel, initial, neighbours

if TYPE_CHECKING:
    from .fuse import Group
    from .lower import Kernel
    from .plan import Builder

#: longest row -> threads, elements of each: several rows to a workgroup
_SHORT = ((16, 2, 8), (32, 4, 8), (64, 8, 8), (96, 8, 12), (127, 8, 16))
#: threads of a workgroup at least. Rows of which all have fewer elements than `_FEW` are a thread's each: they fit in more launches
_THREADS, _FEW = 64, 1 << 16
#: the same for longer ones. These forms were the fastest on an H100: 6 to 8 elements a thread, or more where else many threads
#: have to be joined. Where the text would be too long twice the threads have half of them each
_FORMS = (
    (128, 8, 16), (192, 16, 12), (256, 16, 16), (384, 64, 6), (512, 64, 8), (768, 128, 6), (1024, 128, 8), (1536, 256, 6),
    (2048, 256, 8), (3072, 256, 12), (4096, 256, 16),
)  # fmt: skip
#: values that are written out for each thread at most: longer text takes compilers long
_MOST = 400


def form(b: Builder, g: Group) -> tuple[int, int, int] | None:
    """For rows that fit: threads, elements of each, and how many of those are within every row of that class."""
    if not b.target.barriers or g.K < 9 or g.K > _FORMS[-1][0] or not neighbours(b, g):
        return None
    if g.K < 128 and g.O * g.K < _FEW:
        return None
    forms = _SHORT if g.K < 128 else _FORMS
    at = next(i for i, (longest, _, _) in enumerate(forms) if g.K <= longest)
    _, threads, turns = forms[at]
    shortest = forms[at - 1][0] + 1 if at else 9 if forms is _SHORT else 128
    values = sum(g.level[p] == "full" or g.phase[p] > 0 for p in g.nodes)
    while values * turns > _MOST and turns > 2 and threads < 256:
        threads, turns = threads * 2, -(-turns // 2)
    reduces = [p for p in g.nodes if b.nodes[p].inst.op.reduces]
    states = sum(8 if x.type == "i64" else 4 for p in reduces for x in initial(b, p))  # bytes for each thread
    if values * turns > _MOST or threads > b.target.invocations or states * threads > b.target.workgroup_bytes:
        return None
    return threads, turns, shortest // threads


class RegisterKernel(RowKernel):
    """A row a workgroup, or a few, held in registers."""

    exact = True

    def __init__(self, b: Builder, g: Group, k: Kernel, threads: int, turns: int, certain: int) -> None:
        super().__init__(b, g, k)
        self.wide = True
        self.threads = threads
        self.size = max(threads, _THREADS)
        self.rows = self.size // threads
        self.lane: Expr = variable("lid", "u32")
        if self.rows > 1:
            self.item = "batch"
            self.items = -(-g.O // self.rows)
        self.turns = turns
        self.certain = certain
        #: of each turn the element, whether it is one, and the values of full level that are known of it
        self.elements: list[tuple[Expr, Expr | None, dict[int, Any]]] = []

    def body(self, item: Expr) -> None:
        if self.rows == 1:
            super().body(item)
            return
        k = self.k
        rows = k.dim(self.g.O, "rows")
        o = k.let(item * self.rows + idiv(self.lane, const(self.threads, "u32")), "o")
        self.exists = k.let(o < rows, "exists")
        self.lane = k.let(imod(self.lane, const(self.threads, "u32")), "lane")
        first = k.r.text(k.let(variable("lid", "u32") - self.lane, "first"))
        self.several = first, f"{first} + {self.threads}u"
        super().body(k.let(minimum(o, rows - 1), "o"))

    def leader(self) -> str:
        return (
            "lid == 0u" if self.exists is None else f"{self.k.r.text(self.lane)} == 0u && {self.k.r.text(self.exists)}"
        )

    def walk(self, o: Expr, reduces: list[int], full: list[int], start: Expr, end: Expr) -> dict[int, tuple]:
        for p in reduces:
            self.hoist(p, (o, self.g.O, "o"), (self.g.K, "k"))
        if not self.elements:
            self._name_elements(end)
        states = {p: self.reduce_state(p)[0] for p in reduces}
        for ke, counts, known in self.elements:
            states = self.element(o, ke, states, full, counts, known)
        return self.join_threads(states) if states else {}

    def _name_elements(self, end: Expr) -> None:
        k = self.k
        last = k.let(end - 1, "last")
        for j in range(self.turns):
            at = k.let(self.lane + const(j * self.threads, "u32"), "k")
            if j < self.certain:
                self.elements.append((at, None, {}))
            else:  # those beyond the end are the last one again, and do not count
                self.elements.append((k.let(minimum(at, last), "k"), k.let(at < end, "counts"), {}))
