"""Adamax."""

import tabtorch as torch

from ._fused import _buckets, _multi_tensor_step
from ._state import ParamState
from .optimizer import Optimizer, _call_closure, _to_scalar, _use_grad_for_differentiable

__all__ = ["Adamax"]


class Adamax(Optimizer):
    """m ← β1 · m + (1 - β1) · g;  u ← max(β2 · u, |g| + eps);  p ← p - lr / (1 - β1^t) · m / u (Kingma and Ba, 2014)."""

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not 0.0 <= lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 <= eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        for i, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
            group.setdefault("maximize", False)
            group.setdefault("differentiable", False)
            group.setdefault("capturable", False)

    def _advance(self, p):
        state = self.state[p]
        if len(state) == 0:
            state = self.state[p] = ParamState(step=0, exp_avg=torch.zeros_like(p), exp_inf=torch.zeros_like(p))
        return state.advance()

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """Updates the parameters once."""
        loss = _call_closure(closure)
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for step, params, grads in _buckets(group["params"], self._advance):
                _multi_tensor_step(
                    params,
                    grads,
                    [[self.state[p][k] for p in params] for k in ("exp_avg", "exp_inf")],
                    _adamax,
                    step_size=_to_scalar(group["lr"]) / (1 - beta1**step),
                    beta1=beta1,
                    beta2=beta2,
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    maximize=group["maximize"],
                )
        return loss


def _adamax(param, grad, exp_avg, exp_inf, *, step_size, beta1, beta2, eps, weight_decay, maximize):
    """One parameter, in place."""
    if maximize:
        grad = -grad
    if weight_decay != 0:
        grad = grad.add(param, alpha=weight_decay)
    exp_avg.lerp_(grad, 1 - beta1)
    exp_inf.copy_(torch.maximum(exp_inf * beta2, grad.abs() + eps))
    param.addcdiv_(exp_avg, exp_inf, value=-step_size)
