"""Losses over classes: cross entropy, negative log-likelihood, margins."""

import warnings

import tabtorch as torch
from tabtorch import ops as _ops
from tabtorch.autograd.tape import record
from tabtorch.core.shapes import remembered
from tabtorch.ops.functional._common import (
    assert_between,
    check_reduction,
    legacy_reduction,
    named,
    reduced,
    scalar_type,
    size_list,
)
from tabtorch.ops.functional.activation import log_softmax
from tabtorch.ops.functional.linear import linear
from tabtorch.ops.indexing.gather import index_prepared
from tabtorch.ops.machinery.operand_devices import on_device_of
from tabtorch.ops.machinery.promotion import FLOATING, check_kernel
from tabtorch.ops.machinery.recorded import Recorded
from tabtorch.ops.shaping.convert import in_order, recorded_in_order

#: what `torch.nn.functional` shows
__all__ = [
    "cross_entropy",
    "linear_cross_entropy",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
]


def _check_classes(target, classes, ignore_index):
    """PyTorch's IndexError. A bad class that only the device knows picks nothing, until it is found."""
    assert_between(target, 0, classes - 1, "nll_loss", IndexError, "Target {i} is out of bounds.", exempt=ignore_index)


def _check_class_dtype(target):
    if target.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {scalar_type(target.dtype)}")


@remembered
def _class_dim(input, target, weight):
    """Metas: shapes and types of input (N, C, …) or (C,) and target (N, …) or (); PyTorch's errors. Returns the class dim."""
    ndim = input.ndim
    if ndim == 0:
        raise ValueError(f"Expected 1 or more dimensions (got {ndim})")
    if ndim != 1 and input.shape[0] != (target.shape[0] if target.ndim else 0):
        raise ValueError(
            f"Expected input batch_size ({input.shape[0]}) to match target batch_size "
            f"({target.shape[0] if target.ndim else 0})."
        )
    if ndim <= 2:
        if target.ndim > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    elif ndim == 4:
        if target.ndim != 3:
            raise RuntimeError(
                f"only batches of spatial targets supported (3D tensors) but got targets of dimension: {target.ndim}"
            )
        _check_class_dtype(target)
        if target.shape[1:] != input.shape[2:]:
            raise RuntimeError(
                f"size mismatch (got input: {size_list(input.shape)} , target: {size_list(target.shape)}"
            )
    elif target.shape[1:] != input.shape[2:]:
        expected = (input.shape[0], *input.shape[2:])
        raise RuntimeError(f"Expected target size {size_list(expected)}, got {size_list(target.shape)}")
    _check_class_dtype(target)
    dim = 0 if ndim == 1 else 1
    classes = input.shape[dim]
    if weight is not None and (weight.ndim != 1 or weight.numel != classes):
        raise RuntimeError(
            f"weight tensor should be defined either for all {classes} classes or no classes but got weight tensor "
            f"of shape: {size_list(weight.shape)}"
        )
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(f"expected scalar type {scalar_type(input.dtype)} but found {scalar_type(weight.dtype)}")
    return dim


def _check_nll(input, target, weight):
    metas = input._tab_meta, target._tab_meta, weight if weight is None else weight._tab_meta
    return _class_dim(*metas)


def _picked(input, target, dim):
    """input at the target class: a select and a sum, which fuse with what made ``input``, and need no scatter back.

    A class out of range picks zero.
    """
    return torch.where(_is_class(input.shape, target, dim), input, 0.0).sum(dim)


def _is_class(shape, target, dim):
    """Where in a tensor of that shape the target class is."""
    classes = torch.arange(shape[dim], device=target.device, dtype=torch.int32)
    classes = classes.reshape((-1,) + (1,) * (len(shape) - 1 - dim))
    return classes == target.to(torch.int32).unsqueeze(dim)


def _looked_at(input, target, ignore_index, dim):
    """PyTorch's errors for types and classes. Returns the target, in the shape and where it is needed."""
    if input.dim() == 1 and target.dim() == 1:
        target = target.reshape(())
    kernel = "nll_loss_forward" if input.dim() <= 2 else "nll_loss2d_forward"
    frame = "nll_loss_out_frame" if input.dim() <= 2 else "nll_loss2d_forward_out_frame"
    check_kernel(frame, input.dtype, FLOATING)
    target = on_device_of(input, target, ("target", kernel))
    _check_classes(target, input.size(dim), ignore_index)
    return target


def _nll_name(ndim, reduction):
    if ndim not in (1, 2, 4) and reduction == "none":
        return "ViewBackward0"
    return "NllLossBackward0" if ndim <= 2 else "NllLoss2DBackward0"


def _unweighted_forward(input, target, ignore_index, reduction, dim):
    kept = target != ignore_index
    # first, so that the kernel over the classes can make the gradient, which needs it, too
    total = kept.to(input.dtype).sum() if reduction == "mean" else None
    # `where`, not a product: an ignored position may hold an infinity.
    loss = torch.where(kept, -_picked(input, target, dim), 0.0)
    if total is None:
        return (in_order(reduced(loss, reduction)),)
    return loss.sum() / total, total


def _unweighted_gradient(g, target, total, shape, ignore_index, dim):
    """Of the log-probabilities, of that shape."""
    if total is not None:
        g = g / total
    g = -torch.where(target != ignore_index, g, 0.0)
    return torch.where(_is_class(shape, target, dim), g.unsqueeze(dim), 0.0)


_unweighted, _of_unweighted = Recorded(_unweighted_forward), Recorded(_unweighted_gradient)


def _nll_unweighted(input, target, ignore_index, reduction, dim):
    """The loss without weights of classes: recorded as one function, with its gradient in closed form."""
    target = _looked_at(input, target, ignore_index, dim)
    loss, *total = _unweighted((input, target), (ignore_index, reduction, dim))
    others = tuple(input.shape), ignore_index, dim

    def back(g, target, total=None):
        if torch.is_grad_enabled():
            return _unweighted_gradient(g, target, total, *others)
        return _of_unweighted((g, target, total), others)

    record(_nll_name(input.dim(), reduction), (input,), loss, back, (target, *total))
    return loss


def _nll(input, target, weight, ignore_index, reduction, dim):
    """(loss, count): the reduced loss, and what "mean" divided by."""
    target = _looked_at(input, target, ignore_index, dim)
    kept = target != ignore_index
    loss = -_picked(input, target, dim)
    if weight is None:
        scale = kept.to(input.dtype)
    else:
        at = torch.where(kept, target, 0).long()
        scale = index_prepared(weight, (at.reshape(-1),)).reshape(at.shape)  # which has been looked at
        scale = torch.where(kept, scale, 0.0)
    # `where`, not a product: an ignored position may hold an infinity.
    loss = torch.where(kept, loss if weight is None else loss * scale, 0.0)
    loss = loss.sum() / scale.sum() if reduction == "mean" else reduced(loss, reduction)
    loss = recorded_in_order(loss)
    return named(loss, _nll_name(input.dim(), reduction), input), scale


def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """-weight[t] · x[t] for log-probabilities x. ``input`` (N, C, …) or (C,), ``target`` (N, …) or () of classes.

    "mean" divides by the sum of the weights of the targets; ``ignore_index`` counts for nothing.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_reduction(reduction)
    dim = _check_nll(input, target, weight)
    if weight is None:
        return _nll_unweighted(input, target, ignore_index, reduction, dim)
    return _nll(input, target, weight, ignore_index, reduction, dim)[0]


def cross_entropy(
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
):
    """-log softmax(x)[t]. ``input`` (N, C, …) or (C,) of logits; ``target`` of classes (N, …) or (), or of
    probabilities with the shape of ``input``. ``label_smoothing`` ε: the target is (1 - ε) · target + ε / C.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_reduction(reduction)
    dim = 0 if input.dim() == 1 else 1
    if input.shape == target.shape:
        return _with_probabilities(input, target, weight, ignore_index, reduction, label_smoothing, dim)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}")
    if not (input.is_floating_point() or input.is_complex()):
        log_softmax(input, dim)  # raises
    _check_nll(input, target, weight)
    logp = log_softmax(input, dim)
    if weight is None and label_smoothing == 0.0:
        return _nll_unweighted(logp, target, ignore_index, reduction, dim)
    loss, scale = _nll(logp, target, weight, ignore_index, reduction, dim)
    if label_smoothing == 0.0:
        return loss
    kept = (target if input.dim() > 1 else target.reshape(())) != ignore_index
    smooth = -(logp if weight is None else logp * _per_class(weight, input, dim)).sum(dim)
    smooth = torch.where(kept, smooth, 0.0)
    smooth = smooth.sum() / scale.sum() if reduction == "mean" else reduced(smooth, reduction)
    return (1 - label_smoothing) * loss + smooth * (label_smoothing / input.size(dim))


def linear_cross_entropy(
    input,
    linear_weight,
    target,
    *,
    linear_bias=None,
    weight=None,
    reduction="mean",
    ignore_index=None,
    label_smoothing=0.0,
    options=None,
):
    """``cross_entropy(linear(input, linear_weight, linear_bias), target)``.

    ``input`` (N, I) or (I), ``linear_weight`` (C, I) or (C, d1, …, I), bias (C, d1, …), ``target`` of classes (N, d1, …) or of
    probabilities (N, C, d1, …). ``options``, which let PyTorch work in chunks, are ignored with a warning.
    """
    if not 1 <= input.dim() <= 2:
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}")
    classes, *places, features = linear_weight.shape
    if input.size(-1) != features:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {input.size(-1)} and {features}, respectively"
        )
    if linear_bias is not None and tuple(linear_bias.shape) != (classes, *places):
        raise RuntimeError(f"expected linear_bias shape {(classes, *places)}, got {tuple(linear_bias.shape)}")
    if places and input.dim() == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
            f"(N, {features}), got unbatched input with shape {tuple(input.shape)}"
        )
    shape = (*input.shape[:-1], classes, *places)
    if tuple(target.shape) == shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    if options is not None:
        warnings.warn("linear_cross_entropy: ``options`` ignored: tabtorch has no chunked path", stacklevel=2)
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = linear(input, linear_weight.reshape(-1, features), bias).reshape(shape)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(
        logits, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
    )


def _per_class(weight, input, dim):
    return weight.reshape((-1,) + (1,) * (input.dim() - 1 - dim))


def _with_probabilities(input, target, weight, ignore_index, reduction, label_smoothing, dim):
    if not target.is_floating_point():
        raise RuntimeError(
            f"Expected floating point type for target with class probabilities, got {scalar_type(target.dtype)}"
        )
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    classes = input.size(dim)
    if weight is not None and (weight.dim() != 1 or weight.numel() != classes):
        raise RuntimeError(
            f"cross_entropy: weight tensor should be defined either for all {classes} classes or no classes but got "
            f"weight tensor of shape: {size_list(weight.shape)}"
        )
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}")
    if label_smoothing > 0.0:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    loss = log_softmax(input, dim) * target
    if weight is not None:
        loss = loss * _per_class(weight, input, dim)
    if reduction == "mean":
        return named(-loss.sum() / (input.numel() / classes), "DivBackward1")
    return -(loss.sum() if reduction == "sum" else loss.sum(dim))


def _check_rows(input):
    """(N, C), (C,) or (): not without classes."""
    ndim = input.dim()
    if ndim > 2 or (ndim and input.size(-1) == 0):
        raise RuntimeError(
            f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {size_list(input.shape)}"
        )


def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """sum over classes i ≠ y of max(0, margin - x[y] + x[i])^p / C. ``input`` (N, C) or (C,), ``target`` (N,) or ()."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_reduction(reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    _check_rows(input)
    rows = input if input.dim() == 2 else input.reshape(1, -1)
    if target.dim() > 1 or target.numel() != rows.size(0):
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch "
            f"size). Expected target size [{rows.size(0)}], but got {size_list(target.shape)}. "
            f"Input has shape {size_list(input.shape)}."
        )
    if weight is not None and weight.numel() != rows.size(1):
        raise RuntimeError(f"inconsistent weight size, expected {rows.size(1)} but got {size_list(weight.shape)}")
    if target.dtype != torch.int64:
        raise RuntimeError(f"expected scalar type Long but found {scalar_type(target.dtype)}")
    check_kernel("multi_margin_loss_cpu_kernel", input.dtype, FLOATING)  # halves: what PyTorch's GPUs alone have
    assert_between(target, 0, rows.size(1) - 1, "multi_margin_loss", RuntimeError, "target out of range")
    loss = _multi_margin(rows, target.reshape(-1), p, margin, weight)
    loss = loss if target.dim() else loss.squeeze(0)
    return named(reduced(loss, reduction), "MultiMarginLossBackward0")


def _multi_margin(input, target, p, margin, weight):
    classes = torch.arange(input.size(1), device=input.device)
    is_target = classes == target.unsqueeze(1)
    z = margin - _picked(input, target, 1).unsqueeze(1) + input
    z = torch.where(z > 0, z, 0.0)  # not clamp: NaN does not count, and the gradient at 0 is 0
    z = z if p == 1 else z * z
    if weight is not None:
        z = z * weight[target].unsqueeze(1)
    return torch.where(is_target, 0.0, z).sum(1) / input.size(1)


def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """-mean over classes of t · log σ(x) + (1 - t) · log σ(-x). ``input``, ``target`` (N, C) or (C,)."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    loss = -(target * _ops.logsigmoid(input) + (1 - target) * _ops.logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    loss = loss.sum(-1) / input.size(-1)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    return reduced(loss, reduction)


def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """sum over targets j and non-targets i of max(0, 1 - x[j] + x[i]) / C. ``target`` lists classes up to the first -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_reduction(reduction)
    _check_rows(input)
    if (target.dim() > 1 and input.shape != target.shape) or target.numel() != input.numel():
        raise RuntimeError(
            f"inconsistent target size: {size_list(target.shape)} for input of size: {size_list(input.shape)}"
        )
    # halves are what PyTorch's GPUs alone have
    check_kernel("multilabel_margin_loss_forward_out_frame", input.dtype, FLOATING)
    if input.dim() < 2:
        loss = multilabel_margin_loss(input.reshape(1, -1), target.reshape(1, -1), reduction=reduction)
        return named(loss.squeeze(0), "MultilabelMarginLossBackward0") if reduction == "none" else loss
    n_classes = input.size(1)
    text = "argument #2 'target' is out of range"
    assert_between(target, -1, n_classes - 1, "multilabel_margin_loss", RuntimeError, text)
    listed = (target < 0).long().cumsum(1) == 0  # (N, C): before the first -1
    classes = torch.arange(n_classes, device=input.device)
    hits = (classes == target.unsqueeze(2)) & listed.unsqueeze(2)  # (N, slot, class)
    is_target = hits.any(1)
    chosen = torch.where(hits, input.unsqueeze(1), 0.0).sum(2)  # (N, slot)
    z = 1 - chosen.unsqueeze(2) + input.unsqueeze(1)  # (N, slot, class)
    counted = listed.unsqueeze(2) & is_target.logical_not().unsqueeze(1) & (z > 0)
    loss = torch.where(counted, z, 0.0).sum((1, 2)) / n_classes
    return named(reduced(loss, reduction), "MultilabelMarginLossBackward0")
