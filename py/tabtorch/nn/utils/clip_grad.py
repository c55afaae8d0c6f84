"""Gradient clipping. Nothing here reads the GPU, unless ``error_if_nonfinite`` asks for it."""

import math
import types
import warnings

import tabtorch as torch
from tabtorch.engine import multi
from tabtorch.optim._fused import _flat


def _as_list(tensors):
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _packed(tensors, norm_type):
    """All of them as one flat tensor, padded with zeros, so that a handful of dispatches does for all; None where they
    cannot be laid so, or zeros would count.
    """
    if len(tensors) < 2 or norm_type not in (1.0, 2.0, math.inf) or torch.is_grad_enabled():
        return None
    device = tensors[0]._tab_meta.device
    for t in tensors:
        m = t._tab_meta
        if m.dtype is not torch.float32 or m.device is not device or not m.numel or t.layout is not torch.strided:
            return None
    return _flat(tensors)


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all tensors as one vector: a 0-dim tensor. ``foreach`` is accepted."""
    tensors = _as_list(tensors)
    norm_type = float(norm_type)
    if len(tensors) == 0:
        return torch.tensor(0.0)
    return _checked(_norm(tensors, norm_type, _packed(tensors, norm_type)), norm_type, error_if_nonfinite)


def _norm(tensors, norm_type, flat):
    if flat is None:
        first = tensors[0].device
        flat = torch.stack([torch.linalg.vector_norm(t, norm_type).to(first) for t in tensors])
    return torch.linalg.vector_norm(flat, norm_type)


def _checked(total, norm_type, error_if_nonfinite):
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from "
            "`parameters` is non-finite, so it cannot be clipped. To disable "
            "this error and scale the gradients by the non-finite norm anyway, "
            "set `error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scales the gradients by max_norm / total_norm, where that is less than 1. In place."""
    grads = [p.grad for p in _as_list(parameters) if p.grad is not None]
    if not grads:
        return
    _scale(grads, max_norm, total_norm, _packed(grads, 2.0))


def _scale(grads, max_norm, total_norm, flat):
    # Multiplying always, by a coefficient clamped at 1, needs no reading of the norm.
    coefficient = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    own = len({id(g._tab_storage) for g in grads}) == len(grads)
    if (
        flat is None
        or not own
        or not all(g._tab_meta.whole and g._tab_storage.node.inst.out.numel == g._tab_meta.numel for g in grads)
    ):
        for g in grads:
            g.mul_(coefficient.to(g.device))
        return
    scaled = flat * coefficient.to(flat.device)
    for g, window in zip(grads, multi.windows(scaled._tab_storage.node, [g._tab_meta for g in grads]), strict=True):
        g._tab_storage.node = window
        g._tab_storage.written()


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scales all gradients so that their norm, as one vector, is at most ``max_norm``. Returns the norm before."""
    if isinstance(parameters, types.GeneratorType):
        parameters = list(parameters)
        if not parameters:
            warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2)
    parameters = _as_list(parameters)
    with torch.no_grad():
        max_norm, norm_type = float(max_norm), float(norm_type)
        grads = [p.grad for p in parameters if p.grad is not None]
        if not grads:
            return get_total_norm(grads, norm_type)
        flat = _packed(grads, norm_type)
        total = _checked(_norm(grads, norm_type, flat), norm_type, error_if_nonfinite)
        _scale(grads, max_norm, total, flat)
    return total


def clip_grad_norm(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Deprecated name of ``clip_grad_norm_``."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters, clip_value, foreach=None):
    """Clamps every gradient to [-clip_value, clip_value]. In place."""
    clip_value = float(clip_value)
    with torch.no_grad():
        for p in _as_list(parameters):
            if p.grad is not None:
                p.grad.clamp_(-clip_value, clip_value)
