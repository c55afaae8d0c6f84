"""What an operation is to the engine: one class for each kind, which says how nodes of it are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tabtorch import _lazy

from .view import Meta, contiguous_meta, started

if TYPE_CHECKING:
    from .instructions import Inst
    from .lowering import Lowering


class Over(NamedTuple):
    """An operation over examples, in the place of one over an example: see `Op.over_examples`."""

    op: Op
    ins: tuple[Meta, ...]
    static: Any
    out: Meta | None = None  # None: that of an example, with the examples before it
    turned: bool = False  # the operands in the other order


class Blocks(NamedTuple):
    """What a map that unpacks blocks of `size` elements in `nbytes` bytes says of itself (`Op.blocks`).

    value(block, place) is an element as an expression: `block.u8(at)` and `block.f16(at)` are its numbers, u32 and f32.
    """

    size: int
    nbytes: int
    value: Callable[[Any, Any], Any]


class Op:
    """What a node does, and how the engine treats it: see the subclasses. `kind`: the name of that.

    `sized`: the numbers in the `static` of its instructions are sizes, and its kernels take them as parameters. A schedule then
    holds for others too (schedules.py), and a kernel must not look them up in a dict or set together with other numbers.
    """

    __slots__ = ("name",)
    kind = ""
    #: the kind of group that it begins, see fuse.py
    group = ""
    sized = False
    #: it may stand in a kernel with what it reads: its value needs no buffer of its own, as long as nobody keeps it
    fused = False
    #: it has an element of its inputs for each element of its output, and may be computed again by who reads it
    elementwise = False
    #: its expression is given the point (`lower.Point`), and computes where it reads
    indexed = False
    #: equal nodes of it have equal values, and are one
    pure = False
    #: it goes through many elements of its input for each of its output
    reduces = False
    #: how many maps it is made of, see `Map`
    joined = 1
    #: it reads elements of its inputs many times
    rereads = False
    #: where its views begin are numbers of the run, and no part of its structure
    sliding = True
    #: the output starts as input 0, in whose place it is written where nobody else reads that
    in_place = False
    #: of a map that unpacks bytes: its elements come in blocks (`Blocks`)
    blocks: Any = None
    #: how much work an element is, in elements of a map
    weight = 1

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"

    def views(self, i: Inst) -> tuple[Meta, ...]:
        """The views of an instruction whose beginnings vary: those of the inputs, in the first place."""
        return i.ins

    def started(self, static: Any) -> Any:
        """`static` of the instruction that stands for all that differ in where views begin."""
        return static

    def takes_own_point(self, i: Inst, k: int, numel: int) -> bool:
        """Whether input `k`, a whole value of so many elements, is read at the point that is computed alone."""
        return False

    def wants_buffer(self, k: int) -> bool:
        """Whether input `k` has to lie in a buffer, as a whole."""
        return False

    def points(self, i: Inst) -> tuple[int, int]:
        """(elements of the output, elements that are gone through for each)."""
        return i.out.numel, 1

    def over_examples(self, i: Inst, size: int, ins: tuple[Meta, ...], own: tuple[int | None, ...]) -> Over:
        """The rule of `vmap`: what does this for `size` examples at once.

        ins: the views with the examples as their first dimension. own: elements of each input's example, None where all share it.
        """
        raise NotImplementedError(f"{self!r} has no rule for examples")


class Map(Op):
    """Element by element: `expr(*values)` in the node's compute type, inputs broadcast to the output's shape.

    With `indexed`, `expr(ctx)` gets the lowering context instead: coordinates, and loads at computed places.
    `cost` is a rough count of operations: cheap maps are recomputed where they are used rather than stored. `joined`: how many maps
    it is made of; forms that are chosen by the number of values count these, so that they are the same however maps are joined.
    """

    __slots__ = ("cost", "expr", "indexed", "joined", "sized")
    kind = group = "map"
    fused = elementwise = pure = True

    def __init__(
        self,
        name: str,
        expr: Callable[..., Any],
        *,
        indexed: bool = False,
        cost: int = 1,
        sized: bool = False,
        joined: int = 1,
    ) -> None:
        super().__init__(name)
        self.joined = joined
        self.sized = sized
        self.expr = expr
        self.indexed = indexed
        self.cost = cost

    def takes_own_point(self, i: Inst, k: int, numel: int) -> bool:
        return not self.indexed and i.ins[k].numel == numel

    def over_examples(self, i: Inst, size: int, ins: tuple[Meta, ...], own: tuple[int | None, ...]) -> Over:
        return Over(self, ins, i.static)


class Reduce(Op):
    """A monoid over the trailing dimensions of its input (the view puts them last; `static` = how many are kept).

    `lift(x, k)` makes a state (tuple of expressions) of an element and its index, `combine` joins two, `result` ends it.
    `init(type)` is the neutral state. `sums`: joining adds the states' parts. `operands`: so many values make an `element`.
    """

    __slots__ = ("combine", "init", "lift", "result", "sums")
    kind = "reduce"
    group = "row"
    fused = pure = reduces = True
    operands = 1

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

    @staticmethod
    def element(x: Any) -> Any:
        return x

    def takes_own_point(self, i: Inst, k: int, numel: int) -> bool:
        return True

    def points(self, i: Inst) -> tuple[int, int]:
        return i.out.numel, i.ins[0].numel // max(1, i.out.numel)

    def over_examples(self, i: Inst, size: int, ins: tuple[Meta, ...], own: tuple[int | None, ...]) -> Over:
        return Over(self, ins, i.static + 1)


class Contract(Op):
    """Sum of products. Both inputs are views of shape (batch…, m…, n…, k…) with stride 0 where they do not vary;
    `static` = (batch, m, n, k) numbers of dimensions. The output is (batch…, m…, n…)."""

    __slots__ = ()
    kind = group = "contract"
    pure = reduces = rereads = True
    weight = 8  # what is contracted takes longer: it is read, multiplied and added

    # the monoid, as Reduce has it
    operands = 2
    sums = True

    @staticmethod
    def init(type: str) -> tuple:
        zero = _lazy.expr.const(0, type)
        return (zero.re, zero.im) if isinstance(zero, _lazy.expr.Complex) else (zero,)

    @staticmethod
    def element(x: Any, y: Any) -> Any:
        return x * y

    @staticmethod
    def lift(v: Any, k: Any) -> tuple:
        return (v.re, v.im) if isinstance(v, _lazy.expr.Complex) else (v,)

    @staticmethod
    def combine(a: tuple, b: tuple) -> tuple:
        return tuple(x + y for x, y in zip(a, b, strict=True))

    @staticmethod
    def result(state: tuple) -> Any:
        return _lazy.expr.Complex(*state) if len(state) == 2 else state[0]

    def points(self, i: Inst) -> tuple[int, int]:
        m = i.ins[0]
        k = 1
        for n in m.shape[m.ndim - i.static[3] :]:
            k *= n
        return i.out.numel, k

    def over_examples(self, i: Inst, size: int, ins: tuple[Meta, ...], own: tuple[int | None, ...]) -> Over:
        batch, left, right, summed = i.static
        if not batch and own[0] is None and own[1] is not None and (not left or not right):
            # the second operand alone has examples: they are rows of a matrix as the first
            static = (0, 1 + right, 0, summed) if not left else (0, 1, left, summed)
            return Over(self, ins[::-1], static, turned=True)
        if not batch and own[1] is None:
            return Over(self, ins, (0, left + 1, right, summed))
        return Over(self, ins, (batch + 1, left, right, summed))


class Write(Op):
    """`base` with a region replaced by `value` (already broadcast to it). `static` = the region's Meta.

    Done in place where nobody else reads `base`.
    """

    __slots__ = ()
    kind = group = "write"
    in_place = True

    def views(self, i: Inst) -> tuple[Meta, ...]:
        return (*i.ins, i.static)

    def started(self, static: Any) -> Any:
        return started(static)

    def wants_buffer(self, k: int) -> bool:
        return k == 0

    def over_examples(self, i: Inst, size: int, ins: tuple[Meta, ...], own: tuple[int | None, ...]) -> Over:
        length, region = i.ins[0].numel, i.static
        flat = contiguous_meta((size * length,), i.out.dtype, i.out.device)
        static = region.view((size, *region.shape), (length, *region.strides), region.offset)
        return Over(self, (flat, ins[1]), static, flat)


class Custom(Op):
    """Anything else: `lower(inst, low)` makes its own launches. All inputs are in buffers, all as `inst.ins` says.

    `batched`: its rule for `vmap`, see ops/machinery/batching.py; without one it is called for one example after the other.
    """

    __slots__ = ("batched", "in_place", "lower", "sized", "sliding")
    kind = group = "custom"

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

    def wants_buffer(self, k: int) -> bool:
        return True
