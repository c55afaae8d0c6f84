"""Bringing a gradient to what its input is: summed over broadcast dimensions, of its dtype, on its device."""

from __future__ import annotations

from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.engine.view import Meta


def sum_dims(shape: tuple[int, ...], to: tuple[int, ...]) -> list[int] | None:
    """The dimensions over which a tensor of `shape` is summed to give one that broadcasts to it from `to`; None: it cannot."""
    lead = len(shape) - len(to)
    if lead < 0:
        return None
    dims = list(range(lead))
    for d, n in enumerate(to):
        if n != shape[lead + d]:
            if n != 1:
                return None
            dims.append(lead + d)
    return dims


def sum_to(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The transpose of broadcasting `shape` to `t.shape`. Shapes must fit."""
    if t._tab_meta.shape == shape:
        return t
    dims = sum_dims(t._tab_meta.shape, shape)
    assert dims is not None
    lead = t._tab_meta.ndim - len(shape)
    if len(dims) == lead:
        return t.sum(dims)
    t = t.sum(dims, keepdim=True)
    return t.reshape(shape) if lead else t


def in_dtype(g: Tensor, to: Any) -> Tensor:
    """A gradient in the dtype that is wanted; None: any."""
    if to is None or g._tab_meta.dtype is to:
        return g
    if g._tab_meta.dtype.is_complex and not to.is_complex:
        g = g.real
    return g.to(to)


def fit_gradient(g: Any, m: Meta, fn: Any, k: int) -> Tensor:
    """Gradient `k` of `fn` for an input described by `m`. RuntimeError if the shapes cannot belong together."""
    if not isinstance(g, Tensor):
        raise TypeError(f"expected Variable or None (got {type(g).__name__})")
    if g._tab_meta.shape != m.shape:
        if sum_dims(g._tab_meta.shape, m.shape) is None:
            raise RuntimeError(
                f"Function {fn.name()} returned an invalid gradient at index {k} - got {list(g.shape)} but expected "
                f"shape compatible with {list(m.shape)}"
            )
        if g._tab_meta.dtype.is_complex and not m.dtype.is_complex:
            g = g.real
        g = sum_to(g, m.shape)
    to = getattr(fn.edges[k], "_tab_grad_dtype", False) if fn.edges else False  # what a leaf has asked for
    if (
        to is False or to is None and not hasattr(fn, "save_for_backward")
    ):  # PyTorch's own give the dtype of their input
        to = m.dtype
    g = in_dtype(g, to)
    if g._tab_meta.device.number != m.device.number:
        g = g.to(m.device)
    return g
