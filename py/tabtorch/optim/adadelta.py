"""Adadelta."""

from tabtorch.optim._elementwise import Elementwise, add_, addcmul_, at_least_0, functional, one_element

__all__ = ["Adadelta", "adadelta"]


class Adadelta(Elementwise):
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
        one_element(lr)
        at_least_0(learning_rate=lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        at_least_0(epsilon=eps, weight_decay=weight_decay)
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

    @classmethod
    def _fills(cls, group, p):
        return {"square_avg": 0, "acc_delta": 0}

    @classmethod
    def _settings(cls, group, count):
        return {k: group[k] for k in ("lr", "rho", "eps")}

    @staticmethod
    def _formula(param, grad, square_avg, acc_delta, *, lr, rho, eps):
        addcmul_(square_avg.mul_(rho), grad, grad, 1 - rho)
        delta = (acc_delta + eps).sqrt() / (square_avg + eps).sqrt() * grad
        addcmul_(acc_delta.mul_(rho), delta, delta, 1 - rho)
        add_(param, delta, -lr)


adadelta = functional(
    Adadelta, "adadelta", "square_avgs acc_deltas state_steps capturable foreach differentiable has_complex"
)
