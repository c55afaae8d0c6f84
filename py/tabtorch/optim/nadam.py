"""NAdam."""

from tabtorch.optim._elementwise import (
    Elementwise,
    addcdiv_,
    addcmul_,
    at_least_0,
    check_betas,
    functional,
    one_element,
)
from tabtorch.optim._state import advance, number, number_tensor, set_number

__all__ = ["NAdam", "nadam"]


class NAdam(Elementwise):
    """Adam with Nesterov's momentum: p ← p - lr · (μ' · m / (1 - Πμ · μ') + (1 - μ) · g / (1 - Πμ)) / (√v̂ + eps), with
    μ = β1 · (1 - 0.96^(t · momentum_decay) / 2), μ' that of the next step (Dozat, 2016)."""

    _older = {**Elementwise._older, "decoupled_weight_decay": False}

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        momentum_decay=4e-3,
        decoupled_weight_decay=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
    ):
        one_element(lr)
        at_least_0(learning_rate=lr, epsilon=eps)
        check_betas(betas)
        at_least_0(weight_decay=weight_decay, momentum_decay=momentum_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    @classmethod
    def _start(cls, p, group):
        state = super()._start(p, group)
        state["mu_product"] = number_tensor(1.0, cls._step_device(p, group))
        return state

    @classmethod
    def _fills(cls, group, p):
        return {"exp_avg": 0, "exp_avg_sq": 0}

    @classmethod
    def _count(cls, state):
        return advance(state), number(state, "mu_product")

    @staticmethod
    def _mu(group, step):
        return group["betas"][0] * (1.0 - 0.5 * 0.96 ** (step * group["momentum_decay"]))

    @classmethod
    def _settings(cls, group, count):
        step, product = count
        lr, (beta1, beta2) = group["lr"], group["betas"]
        mu, after = cls._mu(group, step), cls._mu(group, step + 1)
        product = product * mu
        return {
            "beta1": beta1,
            "beta2": beta2,
            "correction": 1 - beta2**step,
            "of_grad": -lr * (1.0 - mu) / (1.0 - product),
            "of_average": -lr * after / (1.0 - product * after),
            "eps": group["eps"],
        }

    @classmethod
    def _finish(cls, states, group, count):
        product = count[1] * cls._mu(group, count[0])
        for state in states:
            set_number(state, "mu_product", product)

    @staticmethod
    def _formula(param, grad, exp_avg, exp_avg_sq, *, beta1, beta2, correction, of_grad, of_average, eps):
        exp_avg.lerp_(grad, 1 - beta1)
        addcmul_(exp_avg_sq.mul_(beta2), grad, grad, 1 - beta2)
        root = (exp_avg_sq / correction).sqrt() + eps
        addcdiv_(param, grad, root, of_grad)
        addcdiv_(param, exp_avg, root, of_average)


nadam = functional(
    NAdam,
    "nadam",
    "exp_avgs exp_avg_sqs mu_products state_steps decoupled_weight_decay foreach capturable differentiable has_complex "
    "maximize",
)
