"""Instructions: what of a node is structure, the same object for equal structure."""

from __future__ import annotations

from typing import Any

from tabtorch.base.device import check_has

from .kinds import Op
from .queues import queue_of
from .view import Meta, started


class Inst:
    """An operation with everything that does not vary from call to call: input views, output, static arguments.

    Interned by the operation tables, so a plan's key can be made of identities. Where a view begins does not belong to that
    structure: `base` is the same instruction with every offset but 0 as 1, and `offsets` are the real ones, which a plan takes
    as it takes scalars. So a window that slides over data, or a position that grows, schedules nothing anew.
    """

    __slots__ = ("base", "compute", "ins", "offsets", "op", "out", "queue", "scalars", "static", "structure", "work")

    def __init__(
        self,
        op: Op,
        ins: tuple[Meta, ...],
        out: Meta,
        scalars: tuple[str, ...] = (),
        static: Any = None,
        compute: str | None = None,
    ) -> None:
        check_has(out.device, out.dtype, op.name)
        for m in ins:
            if m.device.number != out.device.number:
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"{out.device.public} and {m.device.public}!"
                )
        self.op = op
        self.ins = ins
        self.out = out
        self.scalars = scalars  # compute types of the node's scalars
        self.static = static
        self.compute = compute or out.dtype.compute
        self.queue = queue_of(out.device)
        self.work = _work(op, ins, out)
        self.structure: Any = None  # see schedules.py
        self.base: Inst = self
        self.offsets: tuple[int, ...] = ()
        if op.sliding:
            self.offsets = tuple(m.offset for m in self.views() if m.offset)
            if any(x != 1 for x in self.offsets):
                begun = tuple(started(m) for m in ins)
                self.base = inst(op, begun, out, scalars, op.started(static), compute)

    def views(self) -> tuple[Meta, ...]:
        """The views whose beginnings vary: those of the inputs, and the region of a write."""
        return self.op.views(self)


def _work(op: Op, ins: tuple[Meta, ...], out: Meta) -> int:
    """Roughly what it is for a device, in elements of a map."""
    return op.weight * max([out.numel, *(m.numel for m in ins)])


_insts: dict[tuple, Inst] = {}


def inst(
    op: Op,
    ins: tuple[Meta, ...],
    out: Meta,
    scalars: tuple[str, ...] = (),
    static: Any = None,
    compute: str | None = None,
) -> Inst:
    """The one Inst with these properties; for callers that keep no table of their own."""
    key = (op, ins, out, scalars, static, compute)
    r = _insts.get(key)
    if r is None:
        if len(_insts) > 200_000:
            _insts.clear()
        r = _insts.setdefault(key, Inst(op, ins, out, scalars, static, compute))
    return r
