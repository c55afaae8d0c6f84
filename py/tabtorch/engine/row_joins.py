"""How the threads that walk a row join what each of them found.

By subgroups where there are such: each thread takes the states of others from their registers, and what the subgroups found is
joined in shared memory, with one barrier, and none where a row is one subgroup's. How large those are is known only to the
shader. Without them all goes through shared memory, in two steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .expr import Expr, variable, where
from .wgsl import TYPES

if TYPE_CHECKING:
    from .kernel import Kernel
    from .plan import Builder
    from .row_kernel import RowKernel

#: so many threads' states are joined in one step in shared memory
_ONE_STEP = 8

States = dict[int, tuple]


class Joiner:
    """The joins of one kernel. `threads` of them walk a row, the first of which is number `first` of the workgroup. It does not
    know the writer of that, which knows it: in a circle they would keep the nodes of the window."""

    def __init__(self, b: Builder, k: Kernel) -> None:
        self.b = b
        self.k = k
        self.times = 0
        self.pools: tuple[dict[str, list[str]], ...] = ({}, {})

    def join(self, states: States, threads: int, first: str = "0u") -> States:
        """The states of all threads of each row. `threads`: a power of two."""
        if self.b.target.subgroups:
            return self._by_subgroups(states, threads, first)
        return self._by_steps(states, threads, first)

    def arrays(self, states: States) -> dict[int, list[str]]:
        """Names of shared arrays for these states. Every other time they are the same ones: no thread comes to the barrier of one
        time before all have read what they joined the time before."""
        pool = self.pools[self.times % 2]
        self.times += 1
        used: dict[str, int] = {}
        arrays: dict[int, list[str]] = {}
        for p, state in states.items():
            arrays[p] = []
            for type in (TYPES[x.type] for x in state):
                at = used[type] = used.get(type, -1) + 1
                names = pool.setdefault(type, [])
                if at == len(names):
                    names.append(self.k.shared_array(type))
                arrays[p].append(names[at])
        return arrays

    def put(self, names: list[str], at: str, state: tuple) -> None:
        """Writes a state to these arrays."""
        for name, x in zip(names, state, strict=True):
            self.k.r.line(f"{name}[{at}] = {self.k.r.text(x)};")

    def get(self, names: list[str], at: str, like: tuple) -> tuple:
        """The state that is there, with the types of another."""
        return tuple(self.k.let_copy(variable(f"{n}[{at}]", x.type)) for n, x in zip(names, like, strict=True))

    def update(self, p: int, state: tuple, new: tuple) -> None:
        """Joins a state to that in variables."""
        mine = tuple(self.k.let_copy(x) for x in state)
        joined = self.b.nodes[p].inst.op.combine(mine, new)
        for var, x in zip(state, tuple(self.k.let(x, "s") for x in joined), strict=True):
            self.k.assign(var, x)

    def _by_subgroups(self, states: States, threads: int, first: str) -> States:
        k, r = self.k, self.k.r
        k.subgroups = True
        out = {p: tuple(k.var(x) for x in state) for p, state in states.items()}
        mask = r.name("m")
        r.push(f"for (var {mask} = 1u; {mask} < min(sgs, {threads}u); {mask} <<= 1u)")
        for p, state in out.items():
            self._update_in_order(p, state, tuple(self._of_other(x, mask) for x in state), mask)
        r.pop()
        arrays = self.arrays(states)
        r.push(f"if (sgs < {threads}u)")  # all threads take the same way: a subgroup's size is no secret of a thread
        r.push("if (sgi == 0u)")
        for p, state in out.items():
            self.put(arrays[p], "lid / sgs", state)
        r.pop()
        r.line("workgroupBarrier();")
        begin = k.let(variable(f"({first}) / sgs", "u32"), "first").value if first != "0u" else "0u"
        for p, state in out.items():
            for var, x in zip(state, self.get(arrays[p], begin, state), strict=True):
                k.assign(var, x)
        at = r.name("j")
        r.loop(at, f"{begin} + 1u", f"{begin} + {threads}u / sgs", "1u")
        for p, state in out.items():
            self.update(p, state, self.get(arrays[p], at, state))
        r.pop()
        r.pop()
        return out

    def _of_other(self, x: Expr, mask: str) -> Expr:
        """What the thread whose number in the subgroup differs in one bit has."""
        if x.type == "bool":
            return self.k.let_copy(variable(f"(subgroupShuffleXor(u32({x.value}), {mask}) != 0u)", "bool"))
        return self.k.let_copy(variable(f"subgroupShuffleXor({x.value}, {mask})", x.type))

    def _update_in_order(self, p: int, state: tuple, other: tuple, mask: str) -> None:
        """Both threads join the two states in one order, so that what they get is the same, to the last bit."""
        k = self.k
        op = self.b.nodes[p].inst.op
        mine = tuple(k.let_copy(x) for x in state)
        if not op.sums:
            lower = k.let_copy(variable(f"(sgi & {mask}) == 0u", "bool"))
            mine, other = (
                tuple(k.let(where(lower, x, y), "c") for x, y in zip(*pair, strict=True))
                for pair in ((mine, other), (other, mine))
            )
        joined = self.b.nodes[p].inst.op.combine(mine, other)
        for var, x in zip(state, tuple(k.let(x, "s") for x in joined), strict=True):
            k.assign(var, x)

    def _by_steps(self, states: States, threads: int, first: str) -> States:
        """Some threads join the states of several each, then every thread joins theirs: two barriers, whatever there is to join."""
        k, r = self.k, self.k.r
        arrays = self.arrays(states)

        def joined(p: int, begin: str, start: str, end: str, step: int) -> tuple:
            state = tuple(k.var(x) for x in self.get(arrays[p], begin, states[p]))
            at = r.name("j")
            r.loop(at, start, end, f"{step}u")
            self.update(p, state, self.get(arrays[p], at, state))
            r.pop()
            return state

        for p, state in states.items():
            self.put(arrays[p], "lid", state)
        r.line("workgroupBarrier();")
        some = threads
        if threads > _ONE_STEP:
            some = 1 << threads.bit_length() // 2
            r.push(f"if (lid - {first} < {some}u)")
            for p in states:
                self.put(arrays[p], "lid", joined(p, "lid", f"lid + {some}u", f"{first} + {threads}u", some))
            r.pop()
            r.line("workgroupBarrier();")
        return {p: joined(p, first, f"{first} + 1u", f"{first} + {some}u", 1) for p in states}


def fresh(w: RowKernel, reduces: list[int]) -> States:
    """Neutral states, in variables."""
    return {p: tuple(w.k.var(x) for x in w.reduce_state(p)[0]) for p in reduces}


def together(w: RowKernel, lanes: list[States]) -> States:
    """The states of several lanes of a thread as one."""
    out = lanes[0]
    for other in lanes[1:]:
        out = {p: tuple(w.k.let(x, "s") for x in w.reduce_state(p)[2](out[p], other[p])) for p in out}
    return out
