"""`torch._foreach_NAME`: an operation on every tensor of a list. Each is a node of its own; the engine packs them together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch import ops
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery.registry import register

_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt "
    "sigmoid sign sin sinh sqrt tan tanh trunc"
)
_BINARY = "add sub mul div pow maximum minimum clamp_max clamp_min lerp addcdiv addcmul"


def _each(tensors: Any, args: tuple[Any, ...]) -> list[list[Any]]:
    """The arguments for each tensor: lists go along, anything else is for all."""
    for a in args:
        if isinstance(a, (tuple, list)) and len(a) != len(tensors):
            what = "Tensor lists must have the same number of tensors" if a and isinstance(a[0], Tensor) else None
            if what is None:
                what = "Tensor list must have same number of elements as scalar list"
            raise RuntimeError(f"{what}, got {len(tensors)} and {len(a)}")
    return [[a[k] if isinstance(a, (tuple, list)) else a for a in args] for k in range(len(tensors))]


def _register(name: str, one: Callable[..., Any], doc: str, in_place: bool) -> None:
    def f(self: Any, *args: Any, **kw: Any) -> Any:
        if name == "pow" and isinstance(self, (int, float, complex)):  # a number to the power of every tensor
            return tuple(ops.pow(self, t) for t in args[0])
        results = [one(t, *rest, **kw) for t, rest in zip(self, _each(self, args), strict=True)]
        return None if in_place else tuple(results)

    f.__name__ = f.__qualname__ = "_foreach_" + name
    f.__doc__ = doc
    register(f.__name__, f)


def _like(name: str) -> Callable[..., Any]:
    bound = {"maximum": "clamp_min", "minimum": "clamp_max"}.get(name.removesuffix("_"))

    def one(t: Tensor, *args: Any, **kw: Any) -> Any:
        if bound is not None:  # of a number too, and in place, which `maximum` itself is not
            return getattr(t, bound + name[7:])(*args, **kw)
        if name.startswith("addc") and len(args) == 3:
            *args, kw["value"] = args  # type: ignore[assignment]
        return getattr(t, name)(*args, **kw)

    return one


for _name in (_UNARY + " " + _BINARY).split():
    _register(_name, _like(_name), f"`{_name}` of every tensor.", False)
    _register(_name + "_", _like(_name + "_"), f"`{_name}` of every tensor, in place.", True)
for _name in ("clone", "max"):
    _register(_name, _like(_name), f"`{_name}` of every tensor.", False)
for _name in ("zero_", "copy_"):
    _register(_name, _like(_name), f"`{_name}` of every tensor.", True)
_register("norm", lambda t, ord=2, **kw: ops.norm(t, ord, **kw), "The norm of every tensor.", False)
