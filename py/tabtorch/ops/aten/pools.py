"""Pooling with ATen's names: results with the places of maxima, and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch.core.layout import suggested_format
from tabtorch.nn import functional as F
from tabtorch.ops.aten.table import ADAPTERS, Tensor, aten, grad_of
from tabtorch.ops.machinery.promotion import FLOATING, check_kernel
from tabtorch.ops.sliding.pool import unpooled


def _put(g: Tensor, like: Tensor, indices: Tensor, n: int) -> Tensor:
    """Each element of `g` added where its index says, within the last `n` dimensions of `like`."""
    lead = like.shape[: like.ndim - n]
    size = 1
    for s in like.shape[like.ndim - n :]:
        size *= s
    flat = g.new_zeros((*lead, size))
    return flat.scatter_add(-1, indices.flatten(-n), g.flatten(-n)).reshape(like.shape)


def _laid_out(g: Tensor, like: Tensor) -> Tensor:
    """A gradient in the format of what it is the gradient of."""
    return g.contiguous(memory_format=suggested_format(like._tab_meta))


# ---- averages


def _adaptive_avg(n: int) -> None:
    name = f"adaptive_avg_pool{n}d"

    @aten("_" + name)
    def forward(self: Tensor, output_size: Any) -> Tensor:
        return getattr(F, name)(self, tuple(output_size))

    @aten(f"_{name}_backward")
    def backward(grad_output: Tensor, self: Tensor) -> Tensor:
        g = grad_of(lambda x: forward(x, grad_output.shape[-n:]), self, grad_output)
        return _laid_out(g, self) if n == 2 else g


def _avg(n: int) -> Callable[..., Tensor]:
    def backward(
        grad_output: Tensor,
        self: Tensor,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Tensor:
        rest = (kernel_size, stride or None, padding, ceil_mode, count_include_pad, divisor_override)
        g = grad_of(lambda x: getattr(F, f"avg_pool{n}d")(x, *rest), self, grad_output)
        return _laid_out(g, self) if n == 2 else g

    return backward


for _n in (2, 3):
    _adaptive_avg(_n)
    ADAPTERS[f"avg_pool{_n}d_backward"] = _avg(_n)


# ---- maxima


def _adaptive_max(n: int) -> None:
    name = f"adaptive_max_pool{n}d"

    @aten(name)
    def forward(self: Tensor, output_size: Any) -> Any:
        return getattr(F, name)(self, tuple(output_size), True)

    @aten(name + "_backward")
    def backward(grad_output: Tensor, self: Tensor, indices: Tensor) -> Tensor:
        return grad_of(lambda x: forward(x, grad_output.shape[-n:])[0], self, grad_output)


for _n in (1, 2, 3):
    _adaptive_max(_n)


@aten("max_pool2d_backward")
def _max_pool2d_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    rest = (kernel_size, stride or None, padding, dilation, ceil_mode)
    return grad_of(lambda x: F.max_pool2d(x, *rest), self, grad_output)


def _max(n: int) -> Callable[..., Tensor]:
    def backward(
        grad_output: Tensor,
        self: Tensor,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        indices: Tensor,
    ) -> Tensor:
        check_kernel(f"max_pool{n}d_backward", grad_output.dtype, FLOATING)
        # our own gradient gathers, where the indices would make it add up concurrently
        rest = (kernel_size, stride or None, padding, dilation, ceil_mode)
        return _laid_out(grad_of(lambda x: getattr(F, f"max_pool{n}d")(x, *rest), self, grad_output), self)

    return backward


ADAPTERS["max_pool2d_with_indices_backward"] = _max(2)
ADAPTERS["max_pool3d_with_indices_backward"] = _max(3)


def _fractional(n: int) -> None:
    name = f"fractional_max_pool{n}d"

    @aten(name)
    def forward(self: Tensor, kernel_size: Any, output_size: Any, random_samples: Tensor) -> Any:
        pool = getattr(F, name + "_with_indices")
        return pool(self, tuple(kernel_size), tuple(output_size), _random_samples=random_samples)

    @aten(name + "_backward")
    def backward(grad_output: Tensor, self: Tensor, kernel_size: Any, output_size: Any, indices: Tensor) -> Tensor:
        return _put(grad_output, self, indices, n)


for _n in (2, 3):
    _fractional(_n)


def _unpooled(n: int, x: Tensor, indices: Tensor, output_size: Any, names: str) -> Tensor:
    if len(output_size) != n:
        raise RuntimeError(
            f"There should be exactly {('two', 'three')[n - 2]} elements ({names}) in output_size, but got {len(output_size)} "
            "elements."
        )
    if x.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"Input to max_unpooling{n}d should be a {n + 1}d or {n + 2}d Tensor, but got a tensor with {x.ndim} dimensions."
        )
    return unpooled(n, x, indices, tuple(output_size))


@aten("max_unpool2d")
def _max_unpool2d(self: Tensor, indices: Tensor, output_size: Any) -> Tensor:
    """Each element where its index says in planes of `output_size`, zeros elsewhere."""
    return _unpooled(2, self, indices, output_size, "height, width")


@aten("max_unpool3d")
def _max_unpool3d(self: Tensor, indices: Tensor, output_size: Any, stride: Any, padding: Any) -> Tensor:
    if min(stride, default=1) < 1:
        raise RuntimeError(f"strides should be greater than zero, but got stride: {list(stride)}")
    return _unpooled(3, self, indices, output_size, "depth, height, width")


# ---- windows as columns


@aten("im2col")
def _im2col(self: Tensor, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    return F.unfold(self, tuple(kernel_size), tuple(dilation), tuple(padding), tuple(stride))


@aten("col2im")
def _col2im(self: Tensor, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    rest = (tuple(output_size), tuple(kernel_size), tuple(dilation), tuple(padding), tuple(stride))
    return F.fold(self, *rest)
