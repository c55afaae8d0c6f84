"""Instructions: what of a node is structure, the same object for equal structure."""

from __future__ import annotations

from typing import Any

from tabtorch.base.device import check_has

from .kinds import Op
from .queues import known_queues, queue_of
from .symbols import concrete, given, is_number
from .view import Meta, concrete_meta, started


class Inst:
    """An operation with everything that does not vary from call to call: input views, output, static arguments.

    Interned by the operation tables, so a plan's key can be made of identities. Where a view begins does not belong to that
    structure: `base` is the same instruction with every offset but 0 as 1, and `offsets` are the real ones, which a plan takes
    as it takes scalars. So a window that slides over data, or a position that grows, schedules nothing anew.
    """

    __slots__ = (
        "asked",
        "base",
        "compute",
        "concrete",
        "ins",
        "offsets",
        "op",
        "out",
        "queue",
        "scalars",
        "static",
        "structure",
        "work",
    )
    work: int

    def __init__(
        self,
        op: Op,
        ins: tuple[Meta, ...],
        out: Meta,
        scalars: tuple[str, ...] = (),
        static: Any = None,
        compute: str | None = None,
    ) -> None:
        on = out.device
        check_has(on, out.dtype, op.name)
        for m in ins:
            if m.device is not on and m.device.number != on.number:
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"{on.public} and {m.device.public}!"
                )
        self.op = op
        self.ins = ins
        self.out = out
        self.scalars = scalars  # compute types of the node's scalars
        self.static = static
        self.compute = compute or out.dtype.compute
        self.queue = known_queues.get(on) or queue_of(on)
        self.structure: Any = None  # see schedules.py
        self.base: Inst = self
        self.offsets: tuple[int, ...] = ()
        #: where sizes are Symbols of a capture (compiled/dynamic.py), the same with those at hand
        self.concrete: Inst | None = None
        if given[0] and (known := _known(op, ins, out, static)) is not None:
            at_hand: Inst = inst(op, known[0], known[1], scalars, known[2], compute)
            self.concrete = at_hand
            self.work, self.base, self.offsets = at_hand.work, at_hand.base, at_hand.offsets
            self.asked = compute  # what `inst` was given
            return
        most = out.numel
        for m in ins:
            if m.numel > most:
                most = m.numel
        self.work = op.weight * most  # roughly what it is for a device, in elements of a map
        if op.sliding and (offsets := [m.offset for m in op.views(self) if m.offset]):
            self.offsets = tuple(offsets)
            if offsets.count(1) != len(offsets):
                begun = tuple([started(m) for m in ins])
                self.base = inst(op, begun, out, scalars, op.started(static), compute)

    def views(self) -> tuple[Meta, ...]:
        """The views whose beginnings vary: those of the inputs, and the region of a write."""
        return self.op.views(self)


def _known(op: Op, ins: tuple[Meta, ...], out: Meta, static: Any) -> tuple[tuple[Meta, ...], Meta, Any] | None:
    """Views and `static` with the numbers that their Symbols have; None where there are none. Where numbers in `static` are
    no parameters of kernels, those become guards."""
    shown = tuple([concrete_meta(m) for m in ins]), concrete_meta(out), _known_static(static, op.sized)
    if shown[1] is out and shown[2] is static and all(a is b for a, b in zip(shown[0], ins, strict=True)):
        return None
    return shown


def _known_static(x: Any, sized: bool) -> Any:
    if type(x) is Meta:
        return concrete_meta(x)
    if type(x) is tuple:
        found = tuple([_known_static(y, sized) for y in x])
        return x if all(a is b for a, b in zip(x, found, strict=True)) else found
    if hasattr(x, "of_parts"):
        sizes = x.sizes()
        found = _known_static(sizes, True)
        return x if found is sizes else type(x).of_parts(found, x.rest())
    if is_number(x):
        return concrete(x) if sized else x.pinned()
    return x


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
