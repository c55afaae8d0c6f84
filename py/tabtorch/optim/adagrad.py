"""Adagrad."""

import tabtorch as torch

from ._fused import _buckets, _multi_tensor_step
from ._state import ParamState
from .optimizer import Optimizer, _call_closure, _check_flags, _to_scalar, _use_grad_for_differentiable

__all__ = ["Adagrad"]


class Adagrad(Optimizer):
    """s ← s + g²;  p ← p - lr / (1 + (t - 1) · lr_decay) · g / (√s + eps) (Duchi et al., 2011)."""

    def __init__(
        self,
        params,
        lr=1e-2,
        lr_decay=0,
        weight_decay=0,
        initial_accumulator_value=0,
        eps=1e-10,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        fused=None,
    ):
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        for name, value in (
            ("learning rate", lr),
            ("lr_decay value", lr_decay),
            ("weight_decay value", weight_decay),
            ("initial_accumulator_value value", initial_accumulator_value),
            ("epsilon value", eps),
        ):
            if not 0.0 <= value:
                raise ValueError(f"Invalid {name}: {value}")
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        _check_flags(fused, differentiable, foreach)
        for group in self.param_groups:
            for p in group["params"]:
                start = torch.full_like(p.detach(), group["initial_accumulator_value"])
                self.state[p] = ParamState(step=0, sum=start)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
            group.setdefault("maximize", False)
            group.setdefault("differentiable", False)
            group.setdefault("fused", None)

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """Updates the parameters once."""
        loss = _call_closure(closure)
        for group in self.param_groups:
            lr = _to_scalar(group["lr"])
            for step, params, grads in _buckets(group["params"], lambda p: self.state[p].advance()):
                _multi_tensor_step(
                    params,
                    grads,
                    ([self.state[p]["sum"] for p in params],),
                    _adagrad,
                    lr=lr / (1 + (step - 1) * group["lr_decay"]),
                    weight_decay=group["weight_decay"],
                    eps=group["eps"],
                    maximize=group["maximize"],
                )
        return loss


def _adagrad(param, grad, total, *, lr, weight_decay, eps, maximize):
    """One parameter, in place."""
    if maximize:
        grad = -grad
    if weight_decay != 0:
        grad = grad.add(param, alpha=weight_decay)
    total.addcmul_(grad, grad, value=1)
    param.addcdiv_(grad, total.sqrt() + eps, value=-lr)
