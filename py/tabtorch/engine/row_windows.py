"""Short rows whose elements lie in several dimensions, such as the windows of a convolution by groups: a thread for each row.

All elements are written out, and where each lies beside the first is a constant: what would be asked of a division for each of them
is worked out here. So the lengths of the dimensions along a row are constants of the kernel, and guards of the schedule.
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
    """Whether the rows of a group are such."""
    if not b.target.barriers or g.K > _MOST or g.O < _ROWS:
        return False
    for p in g.nodes:
        n = b.nodes[p].inst
        for m in n.ins if n.op.reduces else ():
            parts = None if m.flat else split_dims(m.shape, m.strides, [g.O, g.K])
            if parts is not None and any(
                size * step != before for (_, before), (size, step) in zip(parts[1], parts[1][1:])
            ):
                return True
    return False


class WindowKernel(RowKernel):
    """A row a thread."""

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
