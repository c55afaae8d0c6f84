"""Adam."""

import tabtorch as torch
from tabtorch.optim._elementwise import (
    Elementwise,
    addcdiv_,
    addcmul_,
    at_least_0,
    check_betas,
    check_flags,
    functional,
    one_element,
)
from tabtorch.optim.optimizer import _to_scalar

__all__ = ["Adam", "adam"]


class Adam(Elementwise):
    """m ← β1 · m + (1 - β1) · g;  v ← β2 · v + (1 - β2) · g²;  p ← p - lr · m̂ / (√v̂ + eps) (Kingma and Ba, 2014).

    ``weight_decay`` is added to the gradient, or, with ``decoupled_weight_decay``, shrinks p directly (AdamW).
    ``amsgrad``: the largest v so far (Reddi et al., 2018). ``foreach``, ``capturable``, ``fused`` are accepted: there
    is one implementation, which is all three.
    """

    _older = {"amsgrad": False, **Elementwise._older, "decoupled_weight_decay": False, "fused": None}

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
        if isinstance(lr, torch.Tensor):
            if foreach and not capturable:
                raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
            one_element(lr)
        at_least_0(learning_rate=lr, epsilon=eps)
        check_betas(betas)
        at_least_0(weight_decay=weight_decay)
        if not any(all(isinstance(b, kind) for b in betas[:2]) for kind in (float, torch.Tensor)):
            raise ValueError("betas must be either both floats or both Tensors")
        for i, beta in enumerate(betas[:2]):
            if isinstance(beta, torch.Tensor):
                if foreach and not capturable:
                    raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
                if beta.numel() != 1:
                    raise ValueError(f"Tensor betas[{i}] must be 1-element")
        defaults = {
            "lr": lr,
            "betas": tuple(map(_to_scalar, betas)),
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
        check_flags(fused, differentiable, foreach)

    @classmethod
    def _fills(cls, group, p):
        return {"exp_avg": 0, "exp_avg_sq": 0, **({"max_exp_avg_sq": 0} if group["amsgrad"] else {})}

    @classmethod
    def _settings(cls, group, count):
        beta1, beta2 = group["betas"]
        step_size = group["lr"] / (1 - beta1**count)
        root = (1 - beta2**count) ** 0.5
        return {"beta1": beta1, "beta2": beta2, "step_size": step_size, "root": root, "eps": group["eps"]}

    @staticmethod
    def _formula(param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq=None, *, beta1, beta2, step_size, root, eps):
        exp_avg.lerp_(grad, 1 - beta1)
        addcmul_(exp_avg_sq.mul_(beta2), grad, grad, 1 - beta2)
        second = exp_avg_sq
        if max_exp_avg_sq is not None:
            second = max_exp_avg_sq.copy_(torch.maximum(max_exp_avg_sq.clone(), exp_avg_sq))
        addcdiv_(param, exp_avg, second.sqrt() / root + eps, -step_size)


_LISTS = (
    "exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps foreach capturable differentiable fused grad_scale found_inf "
    "has_complex decoupled_weight_decay"
)
adam = functional(Adam, "adam", _LISTS)
