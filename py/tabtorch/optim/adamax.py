"""Adamax."""

import tabtorch as torch
from tabtorch.optim._elementwise import Elementwise, addcdiv_, at_least_0, check_betas, functional, one_element

__all__ = ["Adamax", "adamax"]


class Adamax(Elementwise):
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
        one_element(lr)
        at_least_0(learning_rate=lr, epsilon=eps)
        check_betas(betas)
        at_least_0(weight_decay=weight_decay)
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

    @classmethod
    def _fills(cls, group, p):
        return {"exp_avg": 0, "exp_inf": 0}

    @classmethod
    def _settings(cls, group, count):
        beta1, beta2 = group["betas"]
        return {"step_size": group["lr"] / (1 - beta1**count), "beta1": beta1, "beta2": beta2, "eps": group["eps"]}

    @staticmethod
    def _formula(param, grad, exp_avg, exp_inf, *, step_size, beta1, beta2, eps):
        exp_avg.lerp_(grad, 1 - beta1)
        exp_inf.copy_(torch.maximum(exp_inf * beta2, grad.abs() + eps))
        addcdiv_(param, exp_avg, exp_inf, -step_size)


adamax = functional(
    Adamax, "adamax", "exp_avgs exp_infs state_steps foreach maximize differentiable capturable has_complex"
)
