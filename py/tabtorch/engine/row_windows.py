"""Products over short windows, of a convolution by groups: a thread for each result.

All elements are written out, and where each lies beside the first is a constant: what would be asked of a division for each of them
is worked out here. So a window's sizes stand in the text, and are guards of the schedule: they are a layer's, and no data's.
Other short rows, whose lengths may be data's, have no such form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .expr import Expr, const
from .lower import Kernel, split_dims
from .row_kernel import RowKernel
from .symbols import fixed

if TYPE_CHECKING:
    from .fuse import Group
    from .plan import Builder

#: elements of a row at most; rows at least, for a thread each
_MOST = 64
_ROWS = 1 << 16


def serves(b: Builder, g: Group) -> bool:
    """Whether a group is such a product."""
    if not b.target.barriers or g.K > _MOST or g.O < _ROWS:
        return False
    for p in g.nodes:
        n = b.nodes[p].inst
        for m in n.ins if n.op.rereads else ():
            parts = None if m.flat else split_dims(m.shape, m.strides, [g.O, g.K])
            if parts is not None and any(
                size * step != before for (_, before), (size, step) in zip(parts[1], parts[1][1:])
            ):
                return True
    return False


class WindowKernel(RowKernel):
    """A result a thread."""

    def __init__(self, b: Builder, g: Group, k: Kernel) -> None:
        super().__init__(b, g, k)
        self.wide = False
        self.use_lanes(None)

    def walk(self, o: Expr, reduces: list[int], full: list[int], start: Expr, end: Expr) -> dict[int, tuple]:
        for p in reduces:
            self.hoist(p, (o, self.g.O, "o"), (self.g.K, "k"))
        states: list[dict[int, Any]] = [{p: self.reduce_state(p)[0] for p in reduces}]
        for j in range(fixed(self.g.K)):
            states = self.elements(o, const(j, "u32"), states, full)
        return states[0]
