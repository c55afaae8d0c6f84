"""What an operation is to the engine: one class for each kind, which says how nodes of it are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .instructions import Inst
    from .lowering import Lowering

#: kinds of operations whose values need no buffer of their own, as long as nobody keeps them
FUSED = frozenset({"map", "reduce"})


class Op:
    """What a node does. `kind` says how the engine treats it; see the subclasses.

    `sized`: the numbers in the `static` of its instructions are sizes, and its kernels take them as parameters. A schedule then
    holds for others too (schedules.py), and a kernel must not look them up in a dict or set together with other numbers.
    """

    __slots__ = ("name",)
    kind = ""
    sized = False

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


class Map(Op):
    """Element by element: `expr(*values)` in the node's compute type, inputs broadcast to the output's shape.

    With `indexed`, `expr(ctx)` gets the lowering context instead: coordinates, and loads at computed places.
    `cost` is a rough count of operations: cheap maps are recomputed where they are used rather than stored.
    """

    __slots__ = ("cost", "expr", "indexed", "sized")
    kind = "map"

    def __init__(
        self, name: str, expr: Callable[..., Any], *, indexed: bool = False, cost: int = 1, sized: bool = False
    ) -> None:
        super().__init__(name)
        self.sized = sized
        self.expr = expr
        self.indexed = indexed
        self.cost = cost


class Reduce(Op):
    """A monoid over the trailing dimensions of its input (the view puts them last; `static` = how many are kept).

    `lift(x, k)` makes a state (tuple of expressions) of an element and its index, `combine` joins two, `result` ends it.
    `init(type)` is the neutral state. `sums`: joining adds the states' parts.
    """

    __slots__ = ("combine", "init", "lift", "result", "sums")
    kind = "reduce"

    def __init__(
        self,
        name: str,
        init: Callable[[str], tuple],
        lift: Callable[[Any, Any], tuple],
        combine: Callable[[tuple, tuple], tuple],
        result: Callable[[tuple], Any],
        sums: bool = False,
    ) -> None:
        super().__init__(name)
        self.sums = sums
        self.init = init
        self.lift = lift
        self.combine = combine
        self.result = result


class Contract(Op):
    """Sum of products. Both inputs are views of shape (batch…, m…, n…, k…) with stride 0 where they do not vary;
    `static` = (batch, m, n, k) numbers of dimensions. The output is (batch…, m…, n…)."""

    __slots__ = ()
    kind = "contract"


class Write(Op):
    """`base` with a region replaced by `value` (already broadcast to it). `static` = the region's Meta.

    Done in place where nobody else reads `base`.
    """

    __slots__ = ()
    kind = "write"


class Custom(Op):
    """Anything else: `lower(inst, low)` makes its own launches. All inputs are in buffers, all as `inst.ins` says.

    `batched`: its rule for `vmap`, see ops/machinery/batching.py; without one it is called for one example after the other.
    """

    __slots__ = ("batched", "in_place", "lower", "sized", "sliding")
    kind = "custom"

    def __init__(
        self,
        name: str,
        lower: Callable[[Inst, Lowering], None],
        *,
        in_place: bool = False,
        sliding: bool = False,
        sized: bool = False,
        batched: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(name)
        self.sized = sized
        self.lower = lower
        self.batched = batched
        self.in_place = in_place  # the output starts as a copy of input 0
        self.sliding = sliding  # its kernels ask for where views begin (`Kernel.offset`), as those of maps do
