"""The views that a program can take next: what `moves` draws of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from .draws import Draw, broadcasts


def method(g: Draw, i: int, name: str, *args: Any, **kw: Any) -> Any:
    return g.do(["method", name, [["T", i], *args], kw])


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
        "resolve_neg": list,
        "type_as": another,
        "positive": list,
        "to": lambda: type_args(),
        "clone": list,
    }


_EASY = [
    "transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis", "t", "select", "narrow", "unfold", "diagonal", "expand",
    "broadcast_to", "expand_as", "as_strided", "view", "view", "reshape", "reshape", "view_as", "reshape_as", "flatten", "unflatten",
    "ravel", "squeeze", "squeeze", "unsqueeze", "detach", "contiguous", "view:dtype", "adjoint", "narrow_copy", "positive", "type_as",
    "resolve_conj", "resolve_neg", "to", "clone",
]  # fmt: skip


def a_view(g: Draw, i: int, t: Any) -> None:
    name = g.pick(_EASY)
    if name in ("to", "type_as", "clone", "detach") and t.is_inference():
        return
    if name == "view:dtype" and t.dtype is torch.bool:  # in which there might be other bits than those of 0 and 1
        return
    if name == "adjoint" and t.is_complex() and torch.is_inference_mode_enabled():  # see `modes`
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
    names = ["T", "mT", "H", "mH", "real", "imag", "data", "real", "imag", "data"]
    if t.is_complex() and torch.is_inference_mode_enabled():  # see `modes`
        names = names[:2] + names[4:]
    g.do(["get", g.pick(names), [["T", i]], {}])


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
    if name == "view_as_complex" and t.dtype is torch.float16:  # complex32, which tabtorch does not have
        return
    if name == "detach" and t.is_inference():
        return
    if name == "broadcast_tensors":
        g.do(["function", name, [["T", i], g.operand(t, numbers=False)], {}])
        return
    g.do(["function", name, [["T", i]], {}])


def a_conjugate(g: Draw, i: int, t: Any) -> None:
    if torch.is_inference_mode_enabled():  # see `modes`
        return
    if t.is_complex():
        method(g, i, g.pick(["conj", "conj", "conj", "conj_physical", "conj_physical_", "resolve_conj", "_neg_view"]))
    elif t.dtype is not torch.bool:
        method(g, i, g.pick(["_neg_view", "_neg_view", "resolve_neg", "conj"]))
