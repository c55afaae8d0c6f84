"""What a program can do next: the views, writes and other steps that `draws` chooses from, with their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .draws import GRADS, Draw
from .views import a_conjugate, a_function_view, a_split, a_view, an_advanced_item, an_attribute, an_item, method
from .writes import (
    activation,
    arithmetic,
    augmented,
    copying,
    filling,
    geometry,
    index_put,
    masking,
    matrices,
    more_pointwise,
    out_other,
    out_pointwise,
    places,
    scattering,
    set_item,
    setting,
    unary,
)

Move = Callable[[Draw, int, Any], None]


def fresh(g: Draw, i: int, t: Any) -> None:
    """Something new is computed."""
    if (
        t.is_inference() and not torch.is_inference_mode_enabled()
    ):  # PyTorch counts a version of what is made of it, or not
        return
    c = g.up_to(17)
    if c < 3:
        method(g, i, g.pick(["add", "mul", "sub"]), g.operand(t))
    elif c < 5:
        method(g, i, g.pick(["sin", "cos", "sigmoid", "tanh", "neg", "abs", "square", "relu", "exp2"]))
    elif c == 5:
        method(g, i, "clone")
    elif c == 6:
        method(g, i, "sum", *([] if g.chance(40) else [g.dim(t)]))
    elif c == 7:
        method(g, i, "mul", ["T", i])
    elif c == 8:
        method(g, i, "masked_fill", g.mask(t), g.number(t))
    elif c == 9:
        method(g, i, "flip", ["tuple", *g.some_dims(t)])
    elif c == 10:
        g.do(["function", g.pick(["cat", "stack"]), [["list", ["T", i], g.like(t)], g.dim(t)], {}])
    elif c == 11:
        method(g, i, "roll", 1, *([] if g.chance(50) else [g.dim(t)]))
    elif c == 12 and t.dim() == 2:
        g.do(["function", "mm", [["T", i], g.like(t, [t.shape[1], 2])], {}])
    elif c == 13:
        name = g.pick(["select_scatter", "slice_scatter", "diagonal_scatter"])
        d = g.dim(t)
        if name == "select_scatter" and t.dim() and -t.dim() <= d < t.dim() and t.shape[d]:
            rest = [s for k, s in enumerate(t.shape) if k != (d + t.dim() if d < 0 else d)]
            method(g, i, name, g.like(t, rest), d, 0)
        elif name == "slice_scatter" and t.dim() and not g.overlaps_itself(t):  # which value stays is not said
            method(g, i, name, g.like(t), d)
        elif t.dim() == 2:
            method(g, i, "diagonal_scatter", g.like(t, [min(t.shape)]))
    elif c == 14:
        method(g, i, "mean" if t.is_floating_point() else "sum", g.dim(t))
    elif c == 15 and t.dim():
        n = t.shape[0]
        method(g, i, "index_select", 0, ["T", g.index_values((2,), n, low=False)])
    elif c == 16:
        g.do(["function", "where", [g.mask(t), ["T", i], g.operand(t, False)], {}])
    else:
        g.do(["function", g.pick(["zeros_like", "ones_like", "clone"]), [["T", i]], {}])


def picked(g: Draw, i: int, t: Any) -> None:
    """Functions with two results, or with a choice among the elements."""
    if not t.dim() or not t.numel() or t.is_complex() or t.dtype is torch.bool or g.bits(t):
        return
    if len(set(t.detach().flatten().tolist())) < t.numel() or g.is_tainted(t):  # which of equal ones is not said
        return
    name = g.pick(["max", "min", "kthvalue", "median", "cummax", "amax", "topk", "logsumexp"])
    if name == "logsumexp" and not t.is_floating_point():
        return
    method(g, i, name, *([1] if name in ("kthvalue", "topk") else []), g.dim(t))


def laid_out(g: Draw, i: int, t: Any) -> None:
    """Copies of which it is said how they lie in memory."""
    if t.is_inference():
        return
    form = g.pick(["contiguous_format", "preserve_format", "channels_last"])
    if form == "channels_last" and t.dim() != 4:
        form = "contiguous_format"
    name = g.pick(["clone", "to", "contiguous"])
    if name == "to":
        method(g, i, "to", ["dtype", str(t.dtype)[6:]], copy=g.chance(50), memory_format=["dtype", form])
    elif name == "clone" or form != "preserve_format":
        method(g, i, name, memory_format=["dtype", form])


def modes(g: Draw, i: int, t: Any) -> None:
    if g.p.modes and g.chance(70):
        g.do(["leave", "", [], {}])
    elif g.chance(60):
        g.do(["enter", g.pick(["no_grad", "no_grad", "enable_grad"]), [], {}])
    elif g.chance(25):
        g.do(["enter", "set_grad_enabled", [g.chance(40)], {}])
    elif not any(
        t.is_conj() or t.is_neg() for t in g.tensors
    ):  # of which PyTorch's composite functions make copies there
        g.do(["enter", "inference_mode", [] if g.chance(80) else [False], {}])


def hooks(g: Draw, i: int, t: Any) -> None:
    if g.chance(50):
        g.do(["hook", "", [["T", i], g.pick([None, 2, 0.5])], {}])
    else:
        method(g, i, "retain_grad")


def leaves(g: Draw, i: int, t: Any) -> None:
    """Another tensor that requires grad, and what is computed of it."""
    shape = t.shape if g.chance(60) else g.pick([(4,), (2, 3), (3, 4), (2, 2, 2)])
    if g.main in GRADS:
        k = g.new(tuple(shape), g.main, requires_grad=True)
        if g.chance(70):
            method(g, k, "mul", 1)


def gradients(g: Draw, i: int, t: Any) -> None:
    """In the middle of a program."""
    if not t.requires_grad or g.chance(60):
        return
    sources = [k for k, u in enumerate(g.tensors) if u.requires_grad]
    source = g.pick(sources)
    kw: dict[str, Any] = {"allow_unused": g.chance(90), "retain_graph": g.chance(80)}
    if g.chance(30):
        kw["create_graph"] = True
        del kw["retain_graph"]
    if g.chance(70):
        g.do(["grad", "", [["list", ["T", i]], ["list", ["T", source]]], kw])
    elif g.chance(50):
        kw = {"retain_graph": True} if g.chance(60) else {"create_graph": True}
        if g.chance(50):
            kw["inputs"] = ["list", ["T", source]]
        g.do(["backward", "", [["list", ["T", i]]], kw])
    else:  # with `create_graph`, or a leaf's gradient may be the one that is given here, in the same memory
        g.do(["method", "backward", [["T", i], g.like(t)], {"create_graph": True}])


def probing(g: Draw, i: int, t: Any) -> None:
    g.do(["probe", "", [], {}])


def property_of(g: Draw, i: int, t: Any) -> None:
    g.do(["get", g.pick(["requires_grad", "is_leaf", "_version", "shape", "ndim", "output_nr"]), [["T", i]], {}])


MOVES: list[tuple[Move, float]] = [
    (a_view, 20),
    (a_split, 4),
    (an_item, 8),
    (an_advanced_item, 1.5),
    (an_attribute, 3),
    (a_function_view, 2),
    (a_conjugate, 3),
    (arithmetic, 9),
    (unary, 4),
    (activation, 1.5),
    (more_pointwise, 4),
    (filling, 5),
    (copying, 4),
    (masking, 2),
    (places, 2.5),
    (scattering, 2),
    (set_item, 7),
    (index_put, 1.5),
    (augmented, 3),
    (matrices, 2),
    (geometry, 3.5),
    (setting, 1),
    (out_pointwise, 2.5),
    (out_other, 1.5),
    (fresh, 7),
    (picked, 1.5),
    (laid_out, 1),
    (modes, 5),
    (hooks, 1.5),
    (leaves, 1),
    (gradients, 2),
    (probing, 1),
    (property_of, 1),
]
