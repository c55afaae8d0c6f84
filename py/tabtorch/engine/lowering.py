"""What an operation with kernels of its own writes them with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .expr import Expr, variable
from .lower import Kernel, Ref, index_of
from .share import Part, alone
from .steps import Access, Binding, Patch, ScalarKey
from .view import Meta

if TYPE_CHECKING:
    from .builder import Builder

#: maps of at most so many elements may share a launch with others
MOST_SHARED = 1 << 20


class Lowering:
    """What a custom operation uses to write its launches."""

    def __init__(self, b: Builder, pos: int) -> None:
        self.b = b
        self.pos = pos
        self.inst = b.graph.nodes[pos].inst
        self.device = b.target.number
        self.target = b.target
        self.output = b.ref_of(b.graph.nodes[pos])

    def input(self, j: int) -> Ref:
        """Buffer of input `j`; its layout is `inst.ins[j]`."""
        n = self.b.graph.nodes[self.pos]
        m = n.inst.ins[j]
        return Ref(self.b.ref_of(n.srcs[j]).key, m.dtype, m.mark)

    def temp(self, nbytes: int, dtype: Any) -> Ref:
        return Ref(self.b.temp(nbytes), dtype)

    def copy(self, src: Ref, dst: Ref, nbytes: int) -> None:
        self.b.copy(src.key, dst.key, nbytes)

    def clear(self, ref: Ref) -> None:
        self.b.clear(ref.key)

    @staticmethod
    def index(k: Kernel, m: Meta, i: Expr, role: Any) -> Expr:
        """Flat logical index of view `m` -> place in its storage."""
        return index_of(k, m, [(i, m.numel, ("flat", m.numel if m.ndim > 1 else 0))], ("x", role))

    def scalar(self, k: Kernel, j: int) -> Any:
        return k.scalar((self.pos, j), self.inst.scalars[j])

    def launch(self, name: str, threads: int, body: Any, apart: bool = False) -> None:
        """One dispatch; `body(k, i)` writes the statements of thread i. On the cpu device threads run one after another. apart: it
        shares no launch."""
        if threads == 0:
            return
        if not self.target.serial:
            part = Part(name, threads, "i", body)
            if threads <= MOST_SHARED and not apart:
                self.b.parts.add(part)
            else:
                self.b.launch(*alone(self.device, part))
            return
        k = Kernel(self.device, name)
        n = k.dim(threads, "threads")
        k.r.loop("i", "0", k.r.text(n))
        body(k, variable("i", "u32"))
        k.r.pop()
        self.b.launch(k, k.source([]), [1, 1, 1])

    def kernel(self, name: str) -> Kernel:
        """A kernel for the operation to write; then `dispatch` launches it."""
        return Kernel(self.device, name)

    def dispatch(self, k: Kernel, source: str, grid: list[int]) -> None:
        self.b.launch(k, source, grid)

    def host(
        self, name: str, source: str, refs: list[tuple[Ref, Access]], words: list[int], patches: list[Patch]
    ) -> None:
        """A launch of JavaScript text as it is (cpu device). Patches name scalars of the node by their number."""
        if not self.target.serial:
            raise AssertionError(f"{name} is JavaScript")
        k = Kernel(self.device, name)
        for r, access in refs:
            k.bindings.append(Binding(r.key, r.dtype.store if not isinstance(r.dtype, str) else r.dtype, access))
        k.words = list(words)
        k.patches = [Patch(p.word, ScalarKey(self.pos, p.scalar), p.type) for p in patches]
        self.b.launch(k, source, [1, 1, 1])
