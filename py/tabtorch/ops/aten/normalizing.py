"""Normalizations that give their statistics, and gradients that are told them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tabtorch import _lazy, ops
from tabtorch.base import dtypes
from tabtorch.ops.aten.table import Tensor, aten, grads_of


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype.name in ("float16", "bfloat16") else x


def _backward(
    g: Tensor, normal: Tensor, root: Tensor, weight: Tensor | None, over: Sequence[int], centred: bool = True
) -> Tensor:
    """The gradient of x in `normal * weight`, where normal = (x - mean) · root over the dimensions `over`."""
    g = g if weight is None else g * weight
    inner = normal * (g * normal).mean(over, keepdim=True)
    return (g - inner - g.mean(over, keepdim=True) if centred else g - inner) * root


def _picked(found: Sequence[Tensor | None], mask: Sequence[bool]) -> tuple[Tensor | None, ...]:
    return tuple(t if wanted else None for t, wanted in zip(found, mask, strict=True))


# ---- over the last dimensions


@aten("native_layer_norm_backward")
def _native_layer_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Any,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Any,
) -> tuple[Tensor | None, ...]:
    """mean, rstd: of the input's shape, 1 over the dimensions of `normalized_shape`."""
    lead = tuple(range(input.ndim - len(normalized_shape)))
    over = tuple(range(len(lead), input.ndim))
    shape = (*input.shape[: len(lead)], *(1 for _ in over))
    g, root = _wide(grad_out), _wide(rstd).reshape(shape)
    normal = (_wide(input) - _wide(mean).reshape(shape)) * root
    gx = _backward(g, normal, root, weight, over).to(input.dtype)
    gw = None if weight is None else _over(g * normal, lead).to(weight.dtype)
    like: Any = bias if weight is None else weight
    gb = None if like is None else _over(g, lead).to(like.dtype)
    return _picked((gx, gw, gb), output_mask)


def _over(x: Tensor, dims: Sequence[int]) -> Tensor:
    return x.sum(list(dims)) if dims else x


@aten("_fused_rms_norm")
def _fused_rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    """(`rms_norm`, 1 / sqrt(mean(x²) + eps), 1 over the dimensions of `normalized_shape`)."""
    wide = _wide(input)
    over = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    least = _lazy.torch.finfo(wide.dtype).eps if eps is None else eps
    root = ((wide * wide).mean(over, keepdim=True) + least).rsqrt()
    return ops.rms_norm(input, tuple(normalized_shape), weight, eps), root


@aten("_fused_rms_norm_backward")
def _fused_rms_norm_backward(
    grad_out: Tensor, input: Tensor, normalized_shape: Any, rstd: Tensor, weight: Tensor | None, output_mask: Any
) -> tuple[Tensor | None, ...]:
    lead = tuple(range(input.ndim - len(normalized_shape)))
    over = tuple(range(len(lead), input.ndim))
    g, root = _wide(grad_out), _wide(rstd).reshape((*input.shape[: len(lead)], *(1 for _ in over)))
    normal = _wide(input) * root
    gx = _backward(g, normal, root, weight, over, centred=False).to(input.dtype)
    gw = None if weight is None else _over(g * normal, lead).to(weight.dtype)
    return _picked((gx, gw), output_mask)


@aten("native_group_norm_backward")
def _native_group_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Any,
) -> tuple[Tensor | None, ...]:
    """mean, rstd: (N, group)."""
    shape = (N, group, C // group, HxW)
    g, x = _wide(grad_out).reshape(shape), _wide(input).reshape(shape)
    root = _wide(rstd).reshape(N, group, 1, 1)
    normal = (x - _wide(mean).reshape(N, group, 1, 1)) * root
    scale = None if weight is None else _wide(weight).reshape(1, group, C // group, 1)
    gx = _backward(g, normal, root, scale, (2, 3)).reshape(input.shape).to(input.dtype)
    kind = input.dtype if weight is None else weight.dtype
    gw = None if weight is None else (g * normal).sum([0, 3]).reshape(C).to(kind)
    return _picked((gx, gw, g.sum([0, 3]).reshape(C).to(kind)), output_mask)


# ---- over batches


@aten("native_batch_norm_backward")
def _native_batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Any,
) -> tuple[Tensor | None, ...]:
    """In training by the statistics that the forward pass saved, else by the running ones."""
    shape = (1, input.shape[1], *(1 for _ in range(input.ndim - 2)))
    over = tuple(d for d in range(input.ndim) if d != 1)
    mean: Any = save_mean if train else running_mean
    root: Any = _wide(save_invstd) if train else (_wide(running_var) + eps).rsqrt()
    root = root.reshape(shape)
    g = _wide(grad_out)
    normal = (_wide(input) - _wide(mean).reshape(shape)) * root
    scale = None if weight is None else _wide(weight).reshape(shape)
    if train:
        gx = _backward(g, normal, root, scale, over)
    else:
        gx = g * (root if scale is None else root * scale)
    kind = input.dtype if weight is None else weight.dtype
    gw = None if weight is None else (g * normal).sum(over).to(kind)
    return _picked((gx.to(input.dtype), gw, g.sum(over).to(kind)), output_mask)


@aten("batch_norm_backward")
def _batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_var: Tensor | None,
    update: bool,
    eps: float,
    output_mask: Any,
    reserve: Tensor,
) -> tuple[Tensor | None, ...]:
    rest = (running_mean, running_var, save_mean, save_var, update, eps, output_mask)
    return _native_batch_norm_backward(grad_out, input, weight, *rest)


@aten("_native_batch_norm_legit_no_training")
def _no_training(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = ops.native_batch_norm(
        input, weight, bias, running_mean, running_var, False, momentum, eps
    )
    return found


@aten("_batch_norm_impl_index")
def _impl_index(*args: Any, **kw: Any) -> tuple[Any, ...]:
    """`native_batch_norm`, an empty reserve, and which implementation it was: 0."""
    kw.pop("cudnn_enabled", None)
    input = args[0]
    return (*ops.native_batch_norm(*args[:8], **kw), input.new_empty((0,), dtype=dtypes.uint8), 0)


@aten("_batch_norm_no_update")
def _no_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    found = ops.native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)
    return (*found, input.new_empty((0,), dtype=dtypes.uint8))


@aten("_native_batch_norm_legit_functional")
def _functional(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """`native_batch_norm`, then the new running statistics: those given are not written."""
    mean, var = running_mean.clone(), running_var.clone()
    return (*ops.native_batch_norm(input, weight, bias, mean, var, training, momentum, eps), mean, var)


@aten("_batch_norm_with_update_functional")
def _with_update_functional(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    mean, var = running_mean.clone(), running_var.clone()
    return (*ops._batch_norm_with_update(input, weight, bias, mean, var, momentum, eps), mean, var)


# ---- weights


@aten("_weight_norm_interface")
def _weight_norm_interface(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """(g · v / ‖v‖, ‖v‖), the norm over all dimensions but `dim`."""
    norm = ops.norm_except_dim(v, 2, dim)
    return v * (g / norm), norm


@aten("_weight_norm_interface_backward")
def _weight_norm_interface_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> tuple[Tensor | None, ...]:
    return grads_of(lambda v, g: _weight_norm_interface(v, g, dim)[0], (saved_v, saved_g), grad_w)
