"""Adam and AdamW."""

import tabtorch as torch

from ._fused import _buckets, _multi_tensor_step
from ._state import ParamState
from .optimizer import (
    Optimizer,
    _call_closure,
    _check_flags,
    _to_scalar,
    _use_grad_for_differentiable,
)

__all__ = ["Adam", "AdamW"]


class Adam(Optimizer):
    """m ← β1 · m + (1 - β1) · g;  v ← β2 · v + (1 - β2) · g²;  p ← p - lr · m̂ / (√v̂ + eps) (Kingma and Ba, 2014).

    ``weight_decay`` is added to the gradient, or, with ``decoupled_weight_decay``, shrinks p directly (AdamW).
    ``amsgrad``: the largest v so far (Reddi et al., 2018). ``foreach``, ``capturable``, ``fused`` are accepted: there
    is one implementation, which is all three.
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        amsgrad=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
        fused=None,
        decoupled_weight_decay=False,
    ):
        _check_tensor_settings(lr, betas, foreach, capturable)
        if not 0.0 <= lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 <= eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        for i, beta in enumerate(betas[:2]):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "betas": tuple(_to_scalar(b) for b in betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)
        _check_flags(fused, differentiable, foreach)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("amsgrad", False)
            group.setdefault("maximize", False)
            group.setdefault("foreach", None)
            group.setdefault("capturable", False)
            group.setdefault("differentiable", False)
            group.setdefault("decoupled_weight_decay", False)
            group.setdefault("fused", None)

    def _steps(self, amsgrad):
        """Counts a step of a parameter, making its state on the first; returns the count."""

        def advance(p):
            state = self.state[p]
            if len(state) == 0:
                state = self.state[p] = ParamState(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
                if amsgrad:
                    state["max_exp_avg_sq"] = torch.zeros_like(p)
            return state.advance()

        return advance

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """Updates the parameters once."""
        loss = _call_closure(closure)
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            lr = _to_scalar(group["lr"])
            amsgrad = group["amsgrad"]
            for step, params, grads in _buckets(group["params"], self._steps(amsgrad)):
                states = [self.state[p] for p in params]
                _multi_tensor_step(
                    params,
                    grads,
                    (
                        [s["exp_avg"] for s in states],
                        [s["exp_avg_sq"] for s in states],
                        [s.get("max_exp_avg_sq") if amsgrad else None for s in states],
                    ),
                    _adam,
                    step_size=lr / (1 - beta1**step),
                    root=(1 - beta2**step) ** 0.5,
                    beta1=beta1,
                    beta2=beta2,
                    eps=group["eps"],
                    weight_decay=0.0 if group["decoupled_weight_decay"] else group["weight_decay"],
                    shrink=1 - lr * group["weight_decay"] if group["decoupled_weight_decay"] else 1.0,
                    maximize=group["maximize"],
                )
        return loss


def _adam(
    param,
    grad,
    exp_avg,
    exp_avg_sq,
    max_exp_avg_sq,
    *,
    step_size,
    root,
    beta1,
    beta2,
    eps,
    weight_decay,
    shrink,
    maximize,
):
    """One parameter, in place. ``step_size`` lr / (1 - β1^t), ``root`` √(1 - β2^t), ``shrink`` 1 - lr · λ of AdamW."""
    if maximize:
        grad = -grad
    if shrink != 1.0:
        param.mul_(shrink)
    if weight_decay != 0:
        grad = grad.add(param, alpha=weight_decay)
    exp_avg.lerp_(grad, 1 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    second = exp_avg_sq
    if max_exp_avg_sq is not None:
        second = max_exp_avg_sq.copy_(torch.maximum(max_exp_avg_sq, exp_avg_sq))
    param.addcdiv_(exp_avg, second.sqrt() / root + eps, value=-step_size)


def _check_tensor_settings(lr, betas, foreach, capturable):
    """The rules for settings that are tensors."""
    tensors = [isinstance(b, torch.Tensor) for b in betas]
    if isinstance(lr, torch.Tensor):
        if foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
    if any(tensors) and not all(tensors):
        raise ValueError("betas must be either both floats or both Tensors")
    for i, beta in enumerate(betas):
        if tensors[i]:
            if foreach and not capturable:
                raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
            if beta.numel() != 1:
                raise ValueError(f"Tensor betas[{i}] must be 1-element")
        elif not isinstance(beta, float) and 0.0 <= beta < 1.0:
            raise ValueError("betas must be either both floats or both Tensors")


class AdamW(Adam):
    """Adam with decoupled weight decay: p ← p · (1 - lr · weight_decay) first (Loshchilov and Hutter, 2017)."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        amsgrad=False,
        *,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
    ):
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
