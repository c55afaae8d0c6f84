"""The storage of a packed weight, which has no value of its own: whoever reads it reads an expression over the packed bytes.

Each time its node is asked for there is a new one, which nobody but the reader holds. So the engine takes it for what it is, a
cheap map that its readers compute for themselves (engine/virtual.py), whatever views, gradients or modules hold the weight.
"""

from __future__ import annotations

from typing import Any

from tabtorch.core.storage import Storage
from tabtorch.engine.expr import cast, idiv, imod, minimum, where
from tabtorch.engine.graph import Inst, Map, Node
from tabtorch.engine.kinds import Blocks
from tabtorch.engine.view import Meta
from tabtorch.packed.formats import FORMATS, Block, Format, u
from tabtorch.packed.schemes import SEPARATE, unpacking


class Unpack(Map):
    """A map from packed bytes to weights. It counts as no work: it is done where it is read, never by itself."""

    __slots__ = ("blocks",)
    weight = 0

    def __init__(self, name: str, expr: Any, blocks: Blocks | None = None) -> None:
        """cost: one, so that what a reader does before it multiplies (a conversion under autocast) leaves it what is computed again"""
        super().__init__(name, expr, indexed=True, cost=1, sized=True)
        self.blocks = blocks


class PackedStorage(Storage):
    """Weights that are computed from what lies in the storages `sources`, as `inst` says."""

    __slots__ = ("inst", "sources", "what")

    def __init__(self, inst: Inst, sources: tuple[Storage, ...], what: str) -> None:
        self.inst = inst
        self.sources = sources
        self.what = what
        self.version = 0
        self.views = None

    @property
    def node(self) -> Node:
        n = Node(self.inst, tuple([s.node for s in self.sources]), ())
        self.inst.queue.nodes.append(n)  # not `emit`: where that sends the window, the weights would be stored
        return n

    @node.setter
    def node(self, value: Node) -> None:
        self.refuse()

    def refuse(self) -> None:
        raise RuntimeError(
            f"a weight that is packed as {self.what} cannot be written to: its values are computed from the packed bytes. "
            "Write to `weight.dequantize()`, or pack the new values"
        )

    written = refuse

    @property
    def out(self) -> Meta:
        return self.inst.out

    @property
    def root(self) -> Storage:
        return self.sources[0].root

    def untracked(self) -> Storage:
        return self

    @property
    def nbytes(self) -> int:
        return self.inst.out.numel * self.inst.out.dtype.itemsize


def _at(f: Format) -> Any:
    """The expression of a weight of blocks, which lie one behind the other, in one buffer or in several that follow each other."""

    def expr(p: Any) -> Any:
        n = len(p.inst.ins) // 2  # buffers, each seen as bytes and as halves
        index = p.k.let(p.index, "e")
        block = idiv(index, u(f.weights))
        if n == 1:
            here = Block(
                lambda at: cast(p.at(0, [at]), "u32"), lambda at: p.at(1, [at]), p.k.let(block * f.nbytes, "begin")
            )
            return f.value(here, p.k.let(imod(index, u(f.weights)), "w"))
        starts: list[Any] = []  # the first block of each buffer but the first
        done = 0
        for m in p.inst.ins[: n - 1]:
            done += m.numel // f.nbytes
            starts.append(p.dim(done, ("blocks", len(starts))))
        first: Any = u(0)
        for s in starts:
            first = where(block >= s, s, first)
        begin = p.k.let((block - first) * f.nbytes, "begin")

        def read(offset: int, at: Any) -> Any:
            found = None
            for k in range(n):
                last = p.dim(p.inst.ins[offset + k].numel - 1, ("last", offset + k))
                v = p.at(offset + k, [minimum(at, last)])
                found = v if found is None else where(block >= starts[k - 1], v, found)
            return found

        several = Block(lambda at: cast(read(0, at), "u32"), lambda at: read(n, at), begin)
        return f.value(several, p.k.let(imod(index, u(f.weights)), "w"))

    return expr


BLOCKS = {name: Unpack("unpack " + name, _at(f), Blocks(f.weights, f.nbytes, f.value)) for name, f in FORMATS.items()}
#: of the schemes of several parts
SEPARATED = {name: Unpack("unpack " + name, unpacking(s)) for name, s in SEPARATE.items()}
