"""Functions for operations of AOTAutograd's graphs where a graph means something else by a name than an eager call does.

In a graph all is functional: a view is a value, and strides are nobody's business but `as_strided`'s. So `view` is `reshape`
here, as a tensor may lie in another way than the one that was traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tabtorch.core.creation import tensor
from tabtorch.core.tensor import Tensor
from tabtorch.ops import aten


def _reshaped(self: Tensor, size: Sequence[int]) -> Tensor:
    return self.reshape(tuple(size))


def _itself(self: Tensor) -> Tensor:
    return self


def _cast(self: Tensor, dtype: Any) -> Tensor:
    return self.to(dtype)


def _to_copy(self: Any, dtype: Any = None, device: Any = None) -> Tensor:
    if not isinstance(self, Tensor):  # a number that PyTorch has made a tensor of
        return tensor(self, dtype=dtype, device=device)
    return self.clone() if dtype is None or dtype is self.dtype else self.to(dtype)


def _copy(self: Tensor, src: Tensor) -> Tensor:
    """Functional `copy_`: the values of `src` in the type and sizes of `self`."""
    return src.to(self.dtype).expand(self.shape).clone()


#: name, or name.overload -> function, before the table of `ops.aten`
_OWN: dict[str, Callable[..., Any]] = {
    "aten::view": _reshaped,
    "aten::_unsafe_view": _reshaped,
    "aten::_reshape_alias": lambda self, size, stride: self.reshape(tuple(size)),
    "aten::alias": _itself,
    "aten::detach": _itself,
    "aten::lift_fresh_copy": _itself,
    "aten::_to_copy": _to_copy,
    "aten::copy": _copy,
    "prims::convert_element_type": _cast,
    "prims::fma": lambda a, b, c: a * b + c,
    "prims::view_of": _itself,
    "prims::device_put": lambda self, device, non_blocking=False: self,
}
_OWN["aten::view.dtype"] = lambda self, dtype: self.contiguous().view(dtype)


def lookup(name: str, overload: str) -> Callable[..., Any] | None:
    """The function of an operator ("aten::view", "dtype") in a graph; None where there is none."""
    return (overload and _OWN.get(f"{name}.{overload}")) or _OWN.get(name) or aten.lookup(name, overload) or None


def with_strides(x: Tensor, strides: Sequence[int]) -> Tensor:
    """The tensor, or a copy, with these strides. Its elements lie apart from one another, as those of a new tensor."""
    if tuple(x.stride()) == tuple(strides):
        return x
    order = sorted(range(x.dim()), key=lambda d: -strides[d])
    moved = x.permute(order).contiguous()
    found = moved.permute([order.index(d) for d in range(x.dim())])
    if any(a != b for a, b, n in zip(found.stride(), strides, x.shape, strict=True) if n != 1):
        raise NotImplementedError(
            f"torch.compile(backend='webgpu'): as_strided of a tensor with strides {tuple(strides)}"
        )
    return found
