"""Stochastic gradient descent."""

import tabtorch as torch

from ._fused import _buckets, _multi_tensor_step
from .optimizer import Optimizer, _call_closure, _check_flags, _to_scalar, _use_grad_for_differentiable

__all__ = ["SGD", "sgd"]


class SGD(Optimizer):
    """b ← momentum · b + (1 - dampening) · g;  p ← p - lr · b, with g = grad + weight_decay · p.

    ``nesterov``: p ← p - lr · (g + momentum · b) (Sutskever et al., 2013).
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        weight_decay=0,
        nesterov=False,
        *,
        maximize=False,
        foreach=None,
        differentiable=False,
        fused=None,
    ):
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        _check_flags(fused, differentiable, foreach)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("nesterov", False)
            group.setdefault("maximize", False)
            group.setdefault("foreach", None)
            group.setdefault("differentiable", False)
            group.setdefault("fused", False)

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """Updates the parameters once."""
        loss = _call_closure(closure)
        for group in self.param_groups:
            settings = {
                "lr": _to_scalar(group["lr"]),
                "momentum": group["momentum"],
                "dampening": group["dampening"],
                "weight_decay": _to_scalar(group["weight_decay"]),
                "nesterov": group["nesterov"],
                "maximize": group["maximize"],
            }
            for _, params, grads in _buckets(group["params"]):
                if group["momentum"] == 0:
                    _multi_tensor_step(params, grads, ([None] * len(params),), _sgd, **settings)
                    continue
                buffers = [self.state[p].get("momentum_buffer") for p in params]
                new = _multi_tensor_step(params, grads, (buffers,), _sgd, **settings)
                for p, buffer in zip(params, new, strict=True):
                    self.state[p]["momentum_buffer"] = buffer
        return loss


def _sgd(param, grad, buffer, *, lr, momentum, dampening, weight_decay, nesterov, maximize):
    """One parameter, in place. Returns its momentum buffer."""
    if maximize:
        grad = -grad
    if weight_decay != 0:
        grad = grad.add(param, alpha=weight_decay)
    if momentum != 0:
        if buffer is None:
            buffer = grad.detach().clone()
        else:
            buffer.mul_(momentum).add_(grad, alpha=1 - dampening)
        grad = grad.add(buffer, alpha=momentum) if nesterov else buffer
    param.add_(grad, alpha=-lr)
    return buffer


def sgd(
    params,
    d_p_list,
    momentum_buffer_list,
    has_sparse_grad=False,
    foreach=None,
    fused=None,
    grad_scale=None,
    found_inf=None,
    *,
    weight_decay,
    momentum,
    lr,
    dampening,
    nesterov,
    maximize,
):
    """The functional form: updates ``params`` and ``momentum_buffer_list`` in place."""
    momentum_buffer_list[:] = _multi_tensor_step(
        params,
        d_p_list,
        (momentum_buffer_list,),
        _sgd,
        lr=_to_scalar(lr),
        momentum=momentum,
        dampening=dampening,
        weight_decay=weight_decay,
        nesterov=nesterov,
        maximize=maximize,
    )
