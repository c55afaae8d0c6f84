"""Second derivatives that are zero everywhere, where PyTorch says zero and not "no gradient".

The backward formula of `relu` depends on its input, but with slope 0. PyTorch's formula for it is a tensor of zeros, so the
gradient requires grad, and what its own gradient reaches has zeros. Here nothing is computed for that: the edge is kept,
and what only such edges lead to is filled at the end of the pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tabtorch.autograd.grad_mode import no_grad
from tabtorch.autograd.tape import LEAF, GradFn, OpFn, grad_class, next_seq
from tabtorch.base.thread_state import STATE
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery import registry

#: functions whose gradient has slope 0 in what they were given
FLAT = frozenset(
    f"{name}Backward{form}"
    for form in (0, 1)  # 1: of the in-place form, where that has another
    for name in (
        "Relu LeakyRelu PreluKernel RreluWithNoise Threshold Softshrink Hardshrink Hardtanh NllLoss NllLoss2D "
        "MaxPool2DWithIndices MaxPool3DWithIndices AvgPool2D AvgPool3D AdaptiveAvgPool2D AdaptiveAvgPool3D AdaptiveMaxPool2D "
        "AdaptiveMaxPool3D FractionalMaxPool2D FractionalMaxPool3D ReflectionPad1D ReflectionPad2D ReflectionPad3D "
        "ReplicationPad1D ReplicationPad2D ReplicationPad3D"
    ).split()
)


def is_flat(fn: GradFn) -> bool:
    """Whether it is one of `FLAT`, or a pooling over one dimension, which is shown as the squeeze that ends it."""
    name = type(fn).__name__
    return name in FLAT or (name == "SqueezeBackward1" and isinstance(fn, OpFn))


class _Flat(GradFn):
    """A gradient, which passes on what comes to it, and the input on which it depends with slope 0."""

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        edges = STATE.zeros
        if edges is not None and self.edges[1] is not None:
            edges.append(self.edges[1])
        return g, None


def keep_edges(fn: GradFn, results: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The gradients that `fn`, one of `FLAT`, has given, with their dependence on its inputs."""
    name = type(fn).__name__.replace("Relu", "Threshold", type(fn).__name__ == "ReluBackward0")
    name = name.replace("Backward1", "Backward0") if name in FLAT else name
    kept: list[Tensor | None] = []
    for d, e, m in zip(results, fn.edges, fn.metas, strict=True):
        if d is not None and e is not None:
            node: Any = grad_class(name.replace("Backward0", "BackwardBackward0"), _Flat)()
            node.edges = (d._tab_grad_fn or (d if d._tab_requires_grad else None), e)
            node.metas = (d._tab_meta, m)
            node.outs = d._tab_meta
            node.seq = next_seq()
            d = Tensor._view_of(d, d._tab_meta)
            d._tab_requires_grad = True
            d._tab_grad_fn = node
        kept.append(d)
    return kept


def reached(starts: list[Any]) -> set[Any]:
    """The leaves, and the (function, output) pairs, to which a gradient of zeros at `starts` would come."""
    found: set[Any] = set()
    stack = list(starts)
    while stack:
        e = stack.pop()
        if e is None:
            continue
        if e.edge_kind == LEAF:
            found.add(e)
            continue
        place = (e.fn, e.nr if e.is_port else 0)
        if place not in found:
            found.add(place)
            stack.extend(e.fn.edges)
    return found


def zeros(t: Tensor) -> Tensor:
    """A gradient of zeros for `t`."""
    make: Any = registry.function("zeros_like")
    with no_grad():
        result: Tensor = make(t)
    return result
