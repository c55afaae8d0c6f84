"""What a program can do next: the views, writes and other steps that `draws` chooses from, with their weights."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from .draws import GRADS, Draw, broadcasts, tensors_in

Move = Callable[[Draw, int, Any], None]


def method(g: Draw, i: int, name: str, *args: Any, **kw: Any) -> Any:
    return g.do(["method", name, [["T", i], *args], kw])


# ---- views


_SPLITS = [
    "chunk", "split", "split", "split_with_sizes", "tensor_split", "unbind", "hsplit", "vsplit", "dsplit", "unsafe_split",
    "unsafe_chunk",
]  # fmt: skip


def some_split(g: Draw, t: Any) -> tuple[str, list[Any]]:
    d = g.dim(t)
    n = t.shape[d] if t.dim() and -t.dim() <= d < t.dim() else 2
    k = g.up_to(3) + 1
    cut = g.up_to(n)
    sizes = [cut, n - cut] if g.chance(95) else [1, 1]
    name = g.pick(_SPLITS)
    if name == "unbind":
        return name, [] if g.chance(40) else [d]
    if name == "split_with_sizes" or (name == "split" and g.chance(40)):
        return name, [["list", *sizes], d]
    if name == "tensor_split":
        return name, [k if g.chance(60) else ["tuple", cut], d]
    if name in ("hsplit", "vsplit", "dsplit"):
        return name, [k if g.chance(70) else ["list", cut]]
    return name, [k, d]


def flat(args: list[Any]) -> list[Any]:
    return args[0][1:] if args and type(args[0]) is list else args


def view_args(g: Draw, t: Any) -> dict[str, Callable[[], list[Any]]]:
    """name -> what makes the arguments of that method."""
    d = lambda: g.dim(t)  # noqa: E731
    n = lambda k: t.shape[k] if -t.dim() <= k < t.dim() else 1  # noqa: E731

    def narrow() -> list[Any]:
        k = d()
        a = g.up_to(n(k))
        return [k, a - n(k) if g.chance(15) else a, g.up_to(max(n(k) - a, 0)) + (g.chance(3))]

    def unfold() -> list[Any]:
        k = d()
        return [k, g.up_to(n(k)) if g.chance(95) else n(k) + 1, g.up_to(2) + 1 if g.chance(97) else 0]

    def expand() -> list[Any]:
        shape: list[int] = [g.pick([2, 3, 1, -1]) if s == 1 else g.pick([s, s, -1]) for s in t.shape]
        if g.chance(40):
            shape.insert(0, g.pick([1, 2, 3]))
        if g.chance(3):
            shape.append(2)
        return g.ints(shape)

    def strided() -> list[Any]:
        k = g.up_to(3)
        size = [g.pick([0, 1, 2, 2, 3]) for _ in range(k)]
        stride = [g.pick([0, 1, 1, 2, 3, 4]) for _ in range(k)]
        room = t.untyped_storage().nbytes() // t.element_size()
        while g.chance(90) and sum((a - 1) * b for a, b in zip(size, stride)) >= room and k:
            size.pop()
            stride.pop()
            k -= 1
        args: list[Any] = [["tuple", *size], ["tuple", *stride]]
        if g.chance(60):
            args.append(g.pick([0, 0, 1, 2]))
        return args

    def moved() -> list[Any]:
        if g.chance(50) or not t.dim():
            return [d(), d()]
        a, b = g.dims(t), g.dims(t)
        k = g.up_to(len(a))
        return [["tuple", *a[:k]], ["tuple", *b[:k]]]

    def unflat() -> list[Any]:
        k = d()
        sizes = g.factors(n(k))
        if sizes and g.chance(30):
            sizes[g.up_to(len(sizes) - 1)] = -1
        return [k, ["tuple", *sizes]]

    def diag() -> list[Any]:
        return [] if g.chance(30) else [g.pick([0, 0, 1, -1, 2]), *([d(), d()] if g.chance(50) else [])]

    def another() -> list[Any]:
        return [["T", g.any()]]

    def reshape_as() -> list[Any]:
        i = g.of(lambda u: u.numel() == t.numel())
        return [["T", g.any() if i is None else i]]

    def squeezed() -> list[Any]:
        c = g.up_to(3)
        return [] if c == 0 else [d()] if c < 3 else [["tuple", *g.some_dims(t)]]

    def type_args() -> list[Any]:
        names = ["int32", "int16", "uint8", "int64", "int8"]
        if (
            t.is_floating_point() or t.is_complex()
        ):  # bits of integers may be those of no number, whose payload is not kept
            names += ["float32", "complex64", *(["float64"] if g.wide else [])]
        return [["dtype", g.pick(names)]]

    return {
        "transpose": lambda: [d(), d()],
        "swapaxes": lambda: [d(), d()],
        "swapdims": lambda: [d(), d()],
        "permute": lambda: g.ints(g.dims(t)),
        "movedim": moved,
        "moveaxis": moved,
        "t": list,
        "adjoint": list,
        "select": lambda: [(k := d()), g.rng.randrange(-n(k) or -1, n(k) or 1) if g.chance(97) else 9],
        "narrow": narrow,
        "narrow_copy": narrow,
        "unfold": unfold,
        "diagonal": diag,
        "expand": expand,
        "broadcast_to": lambda: [["tuple", *flat(expand())]],
        "expand_as": lambda: [
            ["T", g.any() if (i := g.of(lambda u: broadcasts(tuple(t.shape), tuple(u.shape)))) is None else i]
        ],
        "as_strided": strided,
        "view": lambda: g.ints(g.shape_for(t)),
        "reshape": lambda: g.ints(g.shape_for(t)),
        "view_as": reshape_as,
        "reshape_as": reshape_as,
        "flatten": lambda: g.pick([[], [d()], [0, d()]]),
        "unflatten": unflat,
        "ravel": list,
        "squeeze": squeezed,
        "unsqueeze": lambda: [g.dim(t, 1)],
        "detach": list,
        "contiguous": list,
        "view:dtype": type_args,
        "resolve_conj": list,
        "type_as": another,
        "positive": list,
        "to": lambda: type_args(),
        "clone": list,
    }


_EASY = [
    "transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis", "t", "select", "narrow", "unfold", "diagonal", "expand",
    "broadcast_to", "expand_as", "as_strided", "view", "view", "reshape", "reshape", "view_as", "reshape_as", "flatten", "unflatten",
    "ravel", "squeeze", "squeeze", "unsqueeze", "detach", "contiguous", "view:dtype", "adjoint", "narrow_copy", "positive", "type_as",
    "resolve_conj", "to", "clone",
]  # fmt: skip


def a_view(g: Draw, i: int, t: Any) -> None:
    name = g.pick(_EASY)
    if name in ("to", "type_as", "clone", "detach") and t.is_inference():
        return
    if name == "adjoint" and t.is_complex():
        name = "transpose"
    args = view_args(g, t)[name]()
    if name == "narrow_copy" and type(args[1]) is int and args[1] < 0:  # whose gradient PyTorch loses
        return
    method(g, i, name.partition(":")[0], *args)


def a_split(g: Draw, i: int, t: Any) -> None:
    if t.dim() and max(t.shape) > 6:
        return
    name, args = some_split(g, t)
    if name.startswith("unsafe") and torch.is_inference_mode_enabled():
        return
    method(g, i, name, *args)


def an_item(g: Draw, i: int, t: Any) -> None:
    g.do(["getitem", "", [["T", i], g.index(t)], {}])


def an_advanced_item(g: Draw, i: int, t: Any) -> None:
    index = g.fancy(t)
    with torch.no_grad(), contextlib.suppress(Exception):
        if not t[g.p.decode(index)].numel():  # how nothing is laid out is not worth saying
            return
    g.do(["getitem", "", [["T", i], index], {}])


def an_attribute(g: Draw, i: int, t: Any) -> None:
    if t.is_complex():
        g.do(["get", g.pick(["T", "mT", "real", "imag", "data"]), [["T", i]], {}])
        return
    g.do(["get", g.pick(["T", "mT", "H", "mH", "real", "imag", "data", "real", "imag", "data"]), [["T", i]], {}])


def a_function_view(g: Draw, i: int, t: Any) -> None:
    name = g.pick(
        [
            "view_as_real",
            "view_as_complex",
            "atleast_2d",
            "atleast_3d",
            "real",
            "imag",
            "atleast_1d",
            "broadcast_tensors",
            "detach",
        ]
    )
    if name == "view_as_real" and not t.is_complex() and g.chance(80):
        name = "atleast_3d"
    if name == "detach" and t.is_inference():
        return
    if name == "broadcast_tensors":
        g.do(["function", name, [["T", i], g.operand(t, numbers=False)], {}])
        return
    g.do(["function", name, [["T", i]], {}])


def a_conjugate(g: Draw, i: int, t: Any) -> None:
    if t.is_complex() and t.numel():
        method(g, i, "conj_physical")


# ---- writes


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
                [
                    min(k, n) if s is k and False else s
                    for s in [min(k, n) if a == (d + t.dim() if d < 0 else d) else s for a, s in enumerate(t.shape)]
                ],
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
                if "T" in str(index):  # places that are named twice must get one value
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
    index = ["tuple", ["T", g.index_values((k,), t.shape[0], unique=not many)]]
    if many:
        index.append(["T", g.index_values((k,), t.shape[1])])
    accumulate = many or g.chance(40)
    rest = t.shape[2 if many else 1 :]
    value = g.like(t, [k, *rest] if g.chance(70) else [1])
    write(g, i, "index_put_", index, value, accumulate, pointwise=False)


def augmented(g: Draw, i: int, t: Any) -> None:
    name = g.pick(["iadd", "isub", "imul", "itruediv"])
    if g.chance(60):
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


def geometry(g: Draw, i: int, t: Any) -> None:
    """In-place forms of views."""
    if t.retains_grad or (t.requires_grad and not torch.is_grad_enabled()):  # its gradient has another shape then
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
            ["set", g.pick(["real", "imag"]), [["T", i], 0.5 if False else ["T", g.new(t.shape, "float32")]], {}],
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


# ---- the rest


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
        elif name == "slice_scatter" and t.dim():
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


def modes(g: Draw, i: int, t: Any) -> None:
    if g.p.modes and g.chance(70):
        g.do(["leave", "", [], {}])
    elif g.chance(60):
        g.do(["enter", g.pick(["no_grad", "no_grad", "enable_grad"]), [], {}])
    else:
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
    else:
        g.do(["backward", "", [["list", ["T", i]]], {"retain_graph": True}])


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
    (a_conjugate, 0.6),
    (arithmetic, 9),
    (unary, 4),
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
    (modes, 5),
    (hooks, 1.5),
    (leaves, 1),
    (gradients, 2),
    (probing, 1),
    (property_of, 1),
]
