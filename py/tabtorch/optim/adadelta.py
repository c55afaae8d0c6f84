"""Adadelta."""

import tabtorch as torch

from ._fused import _buckets, _multi_tensor_step
from ._state import ParamState
from .optimizer import Optimizer, _call_closure, _to_scalar, _use_grad_for_differentiable

__all__ = ["Adadelta"]


class Adadelta(Optimizer):
    """v ← ρ · v + (1 - ρ) · g²;  Δ = g · √(u + eps) / √(v + eps);  u ← ρ · u + (1 - ρ) · Δ²;  p ← p - lr · Δ
    (Zeiler, 2012)."""

    def __init__(
        self,
        params,
        lr=1.0,
        rho=0.9,
        eps=1e-6,
        weight_decay=0,
        foreach=None,
        *,
        capturable=False,
        maximize=False,
        differentiable=False,
    ):
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        if not 0.0 <= eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
            group.setdefault("maximize", False)
            group.setdefault("differentiable", False)
            group.setdefault("capturable", False)

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """Updates the parameters once."""
        loss = _call_closure(closure)
        for group in self.param_groups:
            for _, params, grads in _buckets(group["params"]):
                states = []
                for p in params:
                    state = self.state[p]
                    if len(state) == 0:
                        state = self.state[p] = ParamState(
                            step=0, square_avg=torch.zeros_like(p), acc_delta=torch.zeros_like(p)
                        )
                    state.advance()
                    states.append(state)
                _multi_tensor_step(
                    params,
                    grads,
                    [[s[k] for s in states] for k in ("square_avg", "acc_delta")],
                    _adadelta,
                    lr=_to_scalar(group["lr"]),
                    rho=group["rho"],
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    maximize=group["maximize"],
                )
        return loss


def _adadelta(param, grad, square_avg, acc_delta, *, lr, rho, eps, weight_decay, maximize):
    """One parameter, in place."""
    if maximize:
        grad = -grad
    if weight_decay != 0:
        grad = grad.add(param, alpha=weight_decay)
    square_avg.mul_(rho).addcmul_(grad, grad, value=1 - rho)
    delta = (acc_delta + eps).sqrt() / (square_avg + eps).sqrt() * grad
    acc_delta.mul_(rho).addcmul_(delta, delta, value=1 - rho)
    param.add_(delta, alpha=-lr)
