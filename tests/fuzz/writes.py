"""The writes that a program can make next, in place and with `out=`: what `moves` draws of them."""

from __future__ import annotations

from typing import Any

import torch

from .draws import GRADS, Draw, tensors_in
from .views import view_args


def write(g: Draw, i: int, name: str, *args: Any, fills: bool = False, pointwise: bool = True, **kw: Any) -> Any:
    if g.tensors[i].is_inference() and not torch.is_inference_mode_enabled():
        name, args, kw, fills = "zero_", (), {}, True
    return g.do(["method", name, [["T", i], *args], kw], writes=i, fills=fills, pointwise=pointwise)


_BINARY = [
    "add_", "add_", "sub_", "mul_", "mul_", "div_", "remainder_", "fmod_", "copysign_", "eq_", "lt_", "gt_", "ne_",
    "logical_and_", "bitwise_or_", "bitwise_and_", "arctan2_", "true_divide_", "multiply_", "subtract_", "hypot_",
]  # fmt: skip
_DIVISIONS = ("remainder_", "fmod_")
_UNARY = [
    "neg_", "abs_", "sin_", "cos_", "sigmoid_", "tanh_", "relu_", "square_", "floor_", "round_", "ceil_", "sign_",
    "trunc_", "logical_not_", "bitwise_not_", "atan_", "erf_", "sgn_", "frac_", "nan_to_num_", "reciprocal_",
    "negative_", "absolute_",
]  # fmt: skip


def arithmetic(g: Draw, i: int, t: Any) -> None:
    name = g.pick(_BINARY)
    if name.startswith("bitwise") and (t.is_floating_point() or t.is_complex()):
        name = "add_"
    if (
        name in _DIVISIONS and not t.is_floating_point()
    ):  # that integers are divided by zero a device says when it is read
        write(g, i, name, g.pick([1, 2, 3]))
        return
    if name.startswith("bitwise"):
        write(g, i, name, True if t.dtype is torch.bool else g.up_to(3) if g.chance(50) else g.like(t))
        return
    if t.dtype is torch.bool and name.startswith("sub"):
        return
    kw = {"alpha": g.pick([2, -1])} if name in ("add_", "sub_") and g.chance(15) else {}
    write(g, i, name, g.operand(t), **kw)


def unary(g: Draw, i: int, t: Any) -> None:
    write(g, i, g.pick(_UNARY))


_ACTIVATIONS = {
    "relu": [], "relu6": [], "elu": [1.0, 0.5, -1.0], "celu": [1.0, 2.0], "selu": [], "leaky_relu": [0.25, -0.5], "silu": [], "mish": [],
    "hardtanh": [-0.5], "hardswish": [],
}  # fmt: skip


def activation(g: Draw, i: int, t: Any) -> None:
    """A function of `torch.nn.functional`, mostly in place."""
    if str(t.dtype) not in ("torch.float32", "torch.float64") or not t.numel():
        return  # how nothing is laid out is not worth saying
    name = g.pick(list(_ACTIVATIONS))
    numbers = _ACTIVATIONS[name]
    args = [["T", i], *([g.pick(numbers)] if numbers and g.chance(60) else [])]
    if g.chance(20) or (t.is_inference() and not torch.is_inference_mode_enabled()):
        g.do(["functional", name, args, {}])
    else:
        g.do(["functional", name, args, {"inplace": True}], writes=i)


def more_pointwise(g: Draw, i: int, t: Any) -> None:
    c = g.up_to(8)
    if t.dtype is torch.bool and c in (0, 1, 5):
        return
    if c == 0:
        whole = not t.is_floating_point() and not t.is_complex()
        kw = {g.pick(["min", "max"]): g.up_to(3) if whole else g.number(t)}
        write(g, i, "clamp_", **kw)
    elif c == 1:
        write(g, i, g.pick(["clamp_min_", "clamp_max_"]), g.up_to(3))
    elif c == 2:
        write(g, i, "pow_", g.pick([2, 2, 3, 1]))
    elif c == 3:
        write(g, i, "addcmul_", g.operand(t, False), g.operand(t, False), **({"value": 2} if g.chance(30) else {}))
    elif c == 4:
        write(g, i, "lerp_", g.like(t), 0.5 if g.chance(60) else g.like(t))
    elif c == 5:
        write(g, i, "clamp_", 0, 3)
    elif c == 6 and not t.requires_grad and t.is_floating_point():
        write(
            g,
            i,
            "addcdiv_",
            g.operand(t, False),
            ["T", g.new((), str(t.dtype)[6:], values=[2.0])],
        )
    elif c == 7:
        write(g, i, g.pick(["triu_", "tril_"]), *([] if g.chance(50) else [g.pick([-1, 1])]))
    else:
        write(g, i, "exp2_")


def filling(g: Draw, i: int, t: Any) -> None:
    c = g.up_to(4)
    if c == 0:
        write(g, i, "zero_", fills=True)
    elif c < 3:
        write(g, i, "fill_", g.number(t), fills=True)
    elif c == 3:
        write(
            g,
            i,
            "fill_",
            ["T", g.new((), str(t.dtype)[6:], requires_grad=str(t.dtype)[6:] in GRADS and g.chance(20))],
            fills=True,
        )
    else:
        other = g.of(lambda u: u.dim() == 0 and u.dtype is t.dtype)
        write(g, i, "fill_", ["T", g.new((), str(t.dtype)[6:]) if other is None else other], fills=True)


def copying(g: Draw, i: int, t: Any) -> None:
    write(g, i, "copy_", g.operand(t, numbers=False))


def masking(g: Draw, i: int, t: Any) -> None:
    c = g.up_to(3)
    if c < 2:
        write(
            g,
            i,
            "masked_fill_",
            g.mask(t, t.shape if g.chance(70) else t.shape[1:]),
            g.number(t) if g.chance(80) else ["T", g.new((), str(t.dtype)[6:])],
            pointwise=False,
        )
    elif c == 2:
        write(g, i, "masked_scatter_", g.mask(t), ["T", g.new((t.numel(),), str(t.dtype)[6:])], pointwise=False)
    else:
        write(g, i, "masked_fill_", g.operand(t, False), g.number(t), pointwise=False)


def places(g: Draw, i: int, t: Any) -> None:
    """Writes along a dimension, or at flat places, that a vector of indices names."""
    if not t.numel() or not t.dim():  # where PyTorch has no rule for what it looks at first
        return
    d = g.dim(t)
    n = (t.shape[d] if -t.dim() <= d < t.dim() else 1) if t.dim() else 1
    k = g.up_to(2) + 1
    shape = [k if a == (d + t.dim() if d < 0 else d) else s for a, s in enumerate(t.shape)]
    name = g.pick(["index_add_", "index_copy_", "index_fill_", "put_", "index_reduce_:"])
    if name == "index_fill_":
        v = g.number(t) if g.chance(70) else ["T", g.new((), str(t.dtype)[6:])]
        write(g, i, name, d, ["T", g.index_values((k,), n)], v, pointwise=False)
    elif name == "put_":
        k = min(k, t.numel())  # a place that is named twice gets either value, on a GPU
        write(
            g,
            i,
            name,
            ["T", g.index_values((k,), t.numel(), unique=True)],
            ["T", g.new((k,), str(t.dtype)[6:])],
            g.chance(50),
            pointwise=False,
        )
    elif name == "index_copy_":
        write(
            g,
            i,
            name,
            d,
            ["T", g.index_values((min(k, n),), n, low=False, unique=True)],
            g.like(
                t,
                [min(k, n) if a == (d + t.dim() if d < 0 else d) else s for a, s in enumerate(t.shape)],
            ),
            pointwise=False,
        )
    else:
        write(
            g,
            i,
            "index_add_",
            d,
            ["T", g.index_values((k,), n, low=False)],
            g.like(t, shape),
            pointwise=False,
            **({"alpha": 2} if g.chance(30) else {}),
        )


def scattering(g: Draw, i: int, t: Any) -> None:
    d = g.dim(t)
    if not t.numel():
        return
    dd = d + t.dim() if d < 0 else d
    n = (t.shape[dd] if dd < t.dim() else 1) if t.dim() else 1
    shape = [g.up_to(s) for s in t.shape]
    name = g.pick(["scatter_", "scatter_", "scatter_add_", "scatter_add_" if t.requires_grad else "scatter_reduce_"])
    unique = name == "scatter_"
    if unique and t.dim() and 0 <= dd < t.dim():
        shape[dd] = min(shape[dd], 1)  # two values for one place: which one wins is not said
    index = ["T", g.index_values(tuple(shape), n, low=False)]
    if name == "scatter_" and g.chance(50):
        write(g, i, name, d, index, g.number(t), pointwise=False)
        return
    src = g.like(t, shape if g.chance(50) else t.shape)
    if name == "scatter_reduce_" and g.tensors[src[1]].requires_grad:  # what it saves of itself is its own affair
        return
    if name == "scatter_reduce_":
        write(g, i, name, d, index, src, g.pick(["sum", "amax", "amin"]), pointwise=False, include_self=True)
    else:
        write(g, i, name, d, index, src, pointwise=False)


def set_item(g: Draw, i: int, t: Any) -> None:
    if g.chance(70):
        index = g.index(t)
        part = torch.zeros(t.shape)
        try:
            shape = part[g.p.decode(index)].shape
        except Exception:
            shape = t.shape
        c = g.up_to(9)
        if c < 4:
            value = g.number(t)
        elif c < 7:
            u = torch.empty(shape, dtype=t.dtype)
            value = g.operand(u, numbers=False)
        else:
            value = g.like(t, shape)
    else:
        index = g.fancy(t)
        value = g.number(t) if g.chance(60) else ["T", g.new((), str(t.dtype)[6:])]
        if g.chance(20):
            try:
                shape = t.detach()[g.p.decode(index)].shape
                value = ["T", g.new(shape, str(t.dtype)[6:], values=None)]
                if "T" in str(index) or "list" in str(index):  # places that are named twice must get one value
                    value = ["T", g.new((), str(t.dtype)[6:])]
            except Exception:
                pass
    fills = type(value) is not list and "T" not in str(index) and "list" not in str(index)
    g.do(["setitem", "", [["T", i], index, value], {}], writes=i, fills=fills, pointwise=False)


def index_put(g: Draw, i: int, t: Any) -> None:
    if not t.dim():
        return
    k = g.up_to(2) + 1
    many = t.dim() > 1 and g.chance(50)
    if not many:
        k = min(k, t.shape[0]) or k
    index = ["tuple", ["T", g.index_values((k,), t.shape[0], unique=not many)]]
    if many:
        index.append(["T", g.index_values((k,), t.shape[1])])
    accumulate = many or g.chance(40)
    rest = t.shape[2 if many else 1 :]
    value = g.like(t, [k, *rest] if g.chance(70) else [1])
    write(g, i, "index_put_", index, value, accumulate, pointwise=False)


def augmented(g: Draw, i: int, t: Any) -> None:
    name = g.pick(["iadd", "isub", "imul", "itruediv"])
    if t.dtype in (torch.bool, torch.uint8) and g.chance(40):
        g.do(["operator", g.pick(["iand", "ior", "ixor"]), [["T", i], g.like(t)], {}], writes=i)
    elif g.chance(60):
        g.do(["operator", name, [["T", i], g.operand(t)], {}], writes=i)
    else:
        g.do(["augmented", name, [["T", i], g.index(t), g.number(t)], {}], writes=i)


def matrices(g: Draw, i: int, t: Any) -> None:
    if t.dtype is torch.bool:
        return
    c = g.up_to(4)
    if c == 0 and t.dim() == 2:
        k = g.up_to(2) + 1
        write(g, i, "addmm_", g.like(t, [t.shape[0], k]), g.like(t, [k, t.shape[1]]), pointwise=False)
    elif c == 1 and t.dim() == 2:
        write(g, i, "addr_", g.like(t, [t.shape[0]]), g.like(t, [t.shape[1]]), pointwise=False)
    elif c == 2 and t.dim() == 1:
        k = g.up_to(2) + 1
        write(g, i, "addmv_", g.like(t, [t.shape[0], k]), g.like(t, [k]), pointwise=False)
    elif c == 3 and t.dim() >= 2:
        write(g, i, "fill_diagonal_", g.number(t), fills=True)
    elif t.dim():
        write(g, i, g.pick(["cumsum_", "cumsum_" if t.requires_grad else "cumprod_"]), g.dim(t), pointwise=False)


def replayed(t: Any) -> bool:
    """Whether PyTorch takes this view once more to find its history, for it shows other values than its storage holds."""
    return t._is_view() and (t.is_conj() or t.is_neg() or t.is_complex() != t._base.is_complex())


def geometry(g: Draw, i: int, t: Any) -> None:
    """In-place forms of views."""
    if t.retains_grad or (t.requires_grad and not torch.is_grad_enabled()):  # its gradient has another shape then
        return
    if any(replayed(u) for u in g.tensors if u is t or u._base is t):  # their history would have another shape too
        return
    c = g.up_to(8)
    args = view_args(g, t)
    if c < 2:
        write(g, i, g.pick(["transpose_", "swapdims_", "swapaxes_"]), *args["transpose"](), fills=True)
    elif c == 2:
        write(g, i, "t_", fills=True)
    elif c == 3:
        write(g, i, "squeeze_", *args["squeeze"](), fills=True)
    elif c == 4:
        write(g, i, "unsqueeze_", *args["unsqueeze"](), fills=True)
    elif c == 5:
        write(g, i, "as_strided_", *args["as_strided"](), fills=True)
    elif c == 6:
        write(g, i, "detach_", fills=True)
    elif c == 7:
        write(g, i, "requires_grad_", *([] if g.chance(80) else [False]), fills=True)
    else:
        resize(g, i, t)


def resize(g: Draw, i: int, t: Any) -> None:
    shape = g.factors(t.numel()) if g.chance(50) else [g.up_to(3) for _ in range(g.up_to(2) + 1)]
    room = t.untyped_storage().nbytes() // t.element_size()
    n = 1
    for s in shape:
        n *= s
    if g.is_tainted(t):
        return
    r = g.do(["method", "resize_", [["T", i], *g.ints(shape)], {}])
    if r[0] == "ok" and n + t.storage_offset() > room:  # what is new is not defined until it is written
        g.do(["method", "fill_", [["T", i], 1], {}], writes=i, fills=True, heals=True)


def setting(g: Draw, i: int, t: Any) -> None:
    """`.data =`, `set_`, `real =`."""
    j = g.of(lambda u: u.dtype is t.dtype and u is not t)
    j = g.any() if j is None else j
    c = g.up_to(3)
    if torch.is_inference_mode_enabled() or (
        c < 2 and any(u is not t and g.storage(u) == g.storage(t) for u in g.tensors)
    ):
        return  # a tensor's versions are counted with those of its views; here with its memory, which it would leave
    if c == 0 and (not t.requires_grad or t.shape == g.tensors[j].shape and t.dtype is g.tensors[j].dtype):
        g.do(["set", "data", [["T", i], ["T", j]], {}])
    elif c == 1 and not t.requires_grad and not g.tensors[j].requires_grad:
        g.do(["method", "set_", [["T", i], ["T", j]], {}])
    elif c == 2:
        g.do(["set", "requires_grad", [["T", i], g.chance(70)], {}])
    elif t.is_complex():
        g.do(
            ["set", g.pick(["real", "imag"]), [["T", i], ["T", g.new(t.shape, "float32")]], {}],
            writes=i,
        )


# ---- out=


def out_pointwise(g: Draw, i: int, t: Any) -> None:
    name = g.pick(
        [
            "add",
            "mul",
            "sub",
            "maximum",
            "neg",
            "sin",
            "exp2",
            "abs",
            "clamp",
            "where",
            "pow",
            "square",
            "logical_not",
            "eq",
            "lerp",
            "addcmul",
        ]
    )
    j = g.of(
        lambda u: u.dtype is t.dtype and (u.shape == t.shape or (g.chance(20) and g.apart(u) and not u.requires_grad))
    )
    if j is None or (name == "eq" and g.tensors[j].requires_grad) or (name == "sub" and t.dtype is torch.bool):
        return
    out = ["T", j]
    if name in ("neg", "sin", "exp2", "abs", "square", "logical_not"):
        args: list[Any] = [["T", i]]
    elif name == "clamp":
        if t.dtype is torch.bool:
            return
        args = [["T", i], g.up_to(3)]
    elif name == "pow":
        args = [["T", i], 2]
    elif name == "where":
        args = [g.mask(t), ["T", i], g.like(t)]
    elif name == "lerp":
        args = [["T", i], g.like(t), 0.5]
    elif name == "addcmul":
        args = [["T", i], g.like(t), g.like(t)]
    else:
        args = [["T", i], g.operand(t, numbers=name not in ("maximum",))]
    growing(g, ["function", name, args, {"out": out}], out[1])


def out_other(g: Draw, i: int, t: Any) -> None:
    name = g.pick(
        ["sum", "cumsum", "cat", "stack", "mm", "matmul", "index_select", "gather", "mean", "amax", "take", "cumprod"]
    )
    j = g.of(lambda u: u.dtype is t.dtype and not u.requires_grad and u is not t)
    if (
        not t.numel()
        or not t.dim()
        or j is None
        or not g.apart(g.tensors[j])
        or (t.dtype is torch.bool and name.startswith("cum"))
    ):
        return
    out = ["T", j]
    d = g.dim(t)
    if name in ("sum", "mean", "amax"):
        args: list[Any] = [["T", i], ["tuple", d]]
    elif name in ("cumsum", "cumprod"):
        args = [["T", i], d]
    elif name in ("cat", "stack"):
        args = [["list", ["T", i], g.like(t)], d]
        out = ["T", g.new((2,), str(t.dtype)[6:])]  # they resize `out` before they look whether it lies where they read
    elif name in ("mm", "matmul"):
        if t.dim() != 2:
            return
        args = [["T", i], g.like(t, [t.shape[1], g.up_to(2) + 1])]
    elif name == "index_select":
        n = (t.shape[d] if -t.dim() <= d < t.dim() else 1) if t.dim() else 1
        args = [["T", i], d, ["T", g.index_values((2,), n, low=False)]]
    elif name == "gather":
        n = (t.shape[d] if -t.dim() <= d < t.dim() else 1) if t.dim() else 1
        args = [["T", i], d, ["T", g.index_values(tuple(t.shape), n, low=False)]]
    elif name == "take":
        args = [["T", i], ["T", g.index_values((2,), t.numel())]]
    else:
        return
    growing(g, ["function", name, args, {"out": out}], out[1], pointwise=False)


def growing(g: Draw, step: Any, out: int, pointwise: bool = True) -> None:
    """A step with `out=`. Where it makes `out` larger than its storage was, what it shared with others is not defined."""
    # an argument that is `out` itself is met by operations that are not pointwise
    step_args = set(tensors_in(step[2]))
    g.do(step, writes=out, pointwise=pointwise, rereads=not pointwise and out in step_args)
