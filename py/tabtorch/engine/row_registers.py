"""Rows of moderate length on GPUs: each thread of a workgroup has some elements of the row, whose values stay in its registers.

The elements are written out one by one, in one scope. So no load waits for another, and what one pass over the row has loaded
or computed has a name in those after it: nothing is read twice, and no `exp` computed twice. Which of the names are kept in
registers, and which computed again, is left to the driver's compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .expr import Expr, const, minimum, variable
from .row_kernel import RowKernel, neighbours

if TYPE_CHECKING:
    from .fuse import Group
    from .lower import Kernel
    from .plan import Builder

#: longest row -> threads, elements of each. Where there are more elements than the length before, all threads have all but the last
_FORMS = (
    (128, 64, 2), (192, 64, 3), (256, 64, 4), (384, 64, 6), (512, 64, 8), (768, 64, 12), (1024, 128, 8), (1536, 128, 12),
    (2048, 256, 8), (3072, 256, 12), (4096, 256, 16),
)  # fmt: skip
#: values that are written out for each thread at most: longer text takes compilers long
_MOST = 400


def form(b: Builder, g: Group) -> tuple[int, int, int] | None:
    """For rows that fit: threads, elements of each, and how many of those are within every row of that class."""
    if not b.target.barriers or g.K < 128 or g.K > _FORMS[-1][0] or not neighbours(b, g):
        return None
    at = next(i for i, (longest, _, _) in enumerate(_FORMS) if g.K <= longest)
    _, threads, turns = _FORMS[at]
    shortest = _FORMS[at - 1][0] + 1 if at else 128
    values = sum(g.level[p] == "full" or g.phase[p] > 0 for p in g.nodes)
    if values * turns > _MOST or threads > b.target.invocations:
        return None
    return threads, turns, shortest // threads


class RegisterKernel(RowKernel):
    """A row a workgroup, held in registers."""

    exact = True

    def __init__(self, b: Builder, g: Group, k: Kernel, threads: int, turns: int, certain: int) -> None:
        super().__init__(b, g, k)
        self.size = threads
        self.turns = turns
        self.certain = certain
        #: of each turn the element, whether it is one, and the values of full level that are known of it
        self.elements: list[tuple[Expr, Expr | None, dict[int, Any]]] = []

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
            at = k.let(variable("lid", "u32") + const(j * self.size, "u32"), "k")
            if j < self.certain:
                self.elements.append((at, None, {}))
            else:  # those beyond the end are the last one again, and do not count
                self.elements.append((k.let(minimum(at, last), "k"), k.let(at < end, "counts"), {}))


__all__ = ["RegisterKernel", "form"]
