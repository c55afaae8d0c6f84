"""The functions of FlexAttention inside the attention kernels: score_mod, its derivative by the score, and mask_mod.

`trace` calls them once, in `vmap` over one example, with a score and a place that have no values yet. What they record are nodes
of one element, which `Values` computes where a kernel has a score; the derivative is what the tape makes of the same nodes. A
function that does anything else (reads a value, reduces, writes, looks up what nothing proves to be in range) is not traced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tabtorch import _lazy
from tabtorch.autograd.edges import read_by
from tabtorch.base import dtypes
from tabtorch.base.thread_state import next_seq
from tabtorch.core.tensor import Tensor
from tabtorch.engine import lower
from tabtorch.engine.expr import Expr
from tabtorch.engine.graph import Inst, Map, Node, queue_of
from tabtorch.engine.lower import U0, Kernel, Ref, index_of, shown
from tabtorch.engine.lowering import Lowering
from tabtorch.engine.symbols import fixed, is_number
from tabtorch.engine.target import target
from tabtorch.ops.machinery.integer_bounds import Proof, bounded, limits

#: what the functions are given: the score, and the places of batch, head, query and key
GIVEN = 5
#: places are of int32 in kernels, as in PyTorch's, and of int64 in the formula: what might differ is not traced
_MAY_OVERFLOW = frozenset("add sub mul neg square _pow bitwise_left_shift".split())


class Constant(NamedTuple):
    """A number that is no size."""

    value: int


def _constants(x: Any) -> Any:
    """What an operation whose numbers are no sizes was told, with those told apart."""
    if type(x) is tuple:
        return tuple(map(_constants, x))
    return Constant(fixed(x)) if type(x) is int or is_number(x) else x


def _numbers(x: Any) -> Any:
    if type(x) is tuple:
        return tuple(map(_numbers, x))
    return x.value if type(x) is Constant else x


class Step(NamedTuple):
    """What a kernel has to know of an instruction. Views, and what the operation was told, hang on sizes."""

    op: Any
    scalars: tuple[str, ...]
    compute: str
    ins: tuple[Any, ...] = ()
    out: Any = None
    static: Any = None

    @classmethod
    def of(cls, i: Inst) -> Step:
        return cls(i.op, i.scalars, i.compute, i.ins, i.out, i.static if i.op.sized else _constants(i.static))

    @property
    def told(self) -> Any:
        """As the operation was told it."""
        return self.static if self.op.sized else _numbers(self.static)


class Functions(NamedTuple):
    """What was traced, as structure. A value has a number: below GIVEN it was given, then they are the results of `steps`.

    sources: of each of `steps` the numbers of its inputs; -1 - j is captured tensor j.
    score, slope (its derivative by the score), kept: the results' numbers; None where there is no such function.
    """

    steps: tuple[Step, ...]
    sources: tuple[tuple[int, ...], ...]
    score: int | None
    slope: int | None
    kept: int | None

    def sizes(self) -> tuple[Any, ...]:
        """What of it hangs on sizes, for schedules.py."""
        return tuple([s[3:] for s in self.steps])

    def rest(self) -> Functions:
        """What does not."""
        return self._replace(steps=tuple([Step(*s[:3]) for s in self.steps]))

    def with_sizes(self, sizes: tuple[Any, ...]) -> Functions:
        """What `rest` gave, with these sizes."""
        return self._replace(steps=tuple([Step(*s[:3], *x) for s, x in zip(self.steps, sizes, strict=True)]))


class Traced(NamedTuple):
    """Functions, the tensors that they have captured, and their numbers. wanted: what stands for those of the tensors whose
    gradients are wanted."""

    functions: Functions
    captured: list[Tensor]
    scalars: list[Any]
    types: list[str]
    wanted: list[Tensor]


class _Untraceable(Exception):
    pass


class _Trace:
    """Follows results back to what was given and captured."""

    def __init__(self, given: list[Node], made: list[Node]) -> None:
        self.made = {id(n) for n in made}
        self.numbers = {id(n): i for i, n in enumerate(given)}
        self.device = given[0].inst.out.device
        self.insts: list[Inst] = []
        self.sources: list[tuple[int, ...]] = []
        self.captured: list[Node] = []
        self.scalars: list[Any] = []
        self.types: list[str] = []

    def number(self, n: Node) -> int:
        found = self.numbers.get(id(n))
        if found is None:
            found = self._captured(n) if id(n) not in self.made else self._computed(n)
            self.numbers[id(n)] = found
        return found

    def _captured(self, n: Node) -> int:
        if n.inst.out.device.number != self.device.number:
            raise _Untraceable
        self.captured.append(n)
        return -len(self.captured)

    def _computed(self, n: Node) -> int:
        i = n.inst
        real = not any(m.dtype.is_complex for m in (i.out, *i.ins))
        if type(i.op) is not Map or i.out.numel != 1 or not real:
            raise _Untraceable
        if i.out.dtype is dtypes.int32 and i.op.name in _MAY_OVERFLOW and Proof().interval(n) == limits(dtypes.int32):
            raise _Untraceable
        sources = tuple([self.number(s) for s in n.srcs])
        if any(s >= 0 and m.dtype is not x.inst.out.dtype for s, m, x in zip(sources, i.ins, n.srcs, strict=True)):
            raise _Untraceable
        self.insts.append(i)
        self.sources.append(sources)
        self.scalars += n.scalars
        self.types += i.scalars
        return GIVEN - 1 + len(self.insts)


def trace(
    sizes: tuple[int, ...], device: Any, score_mod: Callable[..., Any] | None, mask_mod: Any, gradient: bool
) -> Traced | None:
    """The functions of an attention of (batches, heads, queries, keys), or None where they are not to be traced.

    gradient: whether the derivative is wanted; it is, too, where a captured tensor wants one.
    """
    try:
        return _traced(sizes, device, score_mod, mask_mod, gradient)
    except Exception:  # the formula calls the functions again, and tells
        return None


def _traced(sizes: tuple[int, ...], device: Any, score_mod: Any, mask_mod: Any, gradient: bool) -> Traced:
    zeros, vmap = _lazy.creation.zeros, _lazy.func.vmap
    waiting = queue_of(device).waiting()
    start, first = len(waiting), next_seq()
    score = zeros((1,), dtype=dtypes.float32, device=device)
    place = [bounded(zeros((1,), dtype=dtypes.int32, device=device), 0, n - 1) for n in sizes]
    given = [t._tab_storage.node for t in (score, *place)]
    score.requires_grad_(gradient)
    results: list[Any] = [None] * 3
    wanted: list[Tensor] = []
    if score_mod is not None:
        out = results[0] = vmap(score_mod)(score, *place).to(dtypes.float32)
        wanted = [t for t in read_by(out, first) if t is not score]
        if wanted and not gradient:
            return _traced(sizes, device, score_mod, mask_mod, True)
        if gradient:
            one = out.detach().new_ones(1)
            slope = _lazy.autograd.grad(out, score, one, allow_unused=True)[0] if out._tab_requires_grad else None
            results[1] = zeros((1,), device=device) if slope is None else slope
    if mask_mod is not None:
        kept = results[2] = vmap(mask_mod)(*place)
        if kept._tab_meta.dtype is not dtypes.bool_ or kept._tab_requires_grad:
            raise _Untraceable
    made = waiting[start:]
    if not made or made[0] is not given[0] or any(n.buf is not None or type(n.inst.op) is not Map for n in made):
        raise _Untraceable  # something was read, asserted or drawn
    t = _Trace(given, made)
    numbers: list[int | None] = []
    for r in results:
        if r is not None and r._tab_meta.shape != (1,):
            raise _Untraceable
        numbers.append(None if r is None else t.number(r._tab_storage.node))
    if any(n is not None and n < 0 for n in numbers):
        raise _Untraceable
    if 8 + len(t.captured) > target(0).buffers:  # seven of the kernels' own, and the table of blocks
        raise _Untraceable
    functions = Functions(tuple(map(Step.of, t.insts)), tuple(t.sources), *numbers)
    return Traced(functions, [Tensor._wrap(n, n.inst.out) for n in t.captured], t.scalars, t.types, wanted)


class _Numbers:
    """A kernel, as the values of traced nodes ask it for scalars and the beginnings of views."""

    def __init__(self, k: Kernel, low: Lowering, steps: tuple[Step, ...], first: int) -> None:
        self.kernel = k
        self.low = low
        self.steps = steps
        self.starts = [first + sum(len(x.scalars) for x in steps[:i]) for i in range(len(steps))]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def scalar(self, key: tuple[int, int], type: str) -> Any:
        return self.low.scalar(self.kernel, self.starts[key[0]] + key[1])

    def offset(self, key: tuple[int, int]) -> Expr:
        return self.kernel.dim(self.steps[key[0]].ins[key[1]].offset, ("begin", key))


class Values(lower.Values):
    """The values of traced functions at one place of a kernel. given: GIVEN expressions, of the types of what the functions take.

    input, scalar: the numbers of the first captured tensor and scalar among those of the kernel's operation.
    """

    def __init__(self, k: Kernel, low: Lowering, f: Functions, given: list[Expr], input: int, scalar: int) -> None:
        self.k: Any = _Numbers(k, low, f.steps, scalar)
        self.low = low
        self.f = f
        self.input = input
        self.point = None
        self.only = [(U0, 1, "traced")]  # the one point of what has one element
        self.found: dict[int, Any] = dict(enumerate(given))
        self.nodes = [_Node(x._replace(static=x.told), s) for x, s in zip(f.steps, f.sources, strict=True)]

    def of(self, number: int) -> Any:
        """The value with that number."""
        if number not in self.found:
            self.found[number] = self.k.let(self.compute(number - GIVEN, self.only), "x")
        return self.found[number]

    def source(self, pos: int, i: int, factors: Any) -> Any:
        return self.element(pos, i, index_of(self.k, self.f.steps[pos].ins[i], factors, ("traced", pos, i)))

    def element(self, pos: int, i: int, at: Expr) -> Any:
        m, s = self.f.steps[pos].ins[i], self.f.sources[pos][i]
        if s >= 0:  # it has one element
            return shown(self.of(s), m.dtype, m.mark)
        return self.k.load(Ref(self.low.input(self.input - 1 - s).key, m.dtype, m.mark), at)


class _Node(NamedTuple):
    inst: Step
    srcs: tuple[int, ...]


__all__ = ["Functions", "Traced", "Values", "trace"]
