"""RAdam."""

from tabtorch.optim._elementwise import Elementwise, addcmul_, at_least_0, check_betas, functional, one_element

__all__ = ["RAdam", "radam"]


class RAdam(Elementwise):
    """Adam whose adaptive part waits until its variance is bounded: p ← p - lr · m̂ · r / √v̂, with r the rectification once
    ρ = ρ∞ - 2t · β2^t / (1 - β2^t) is above 5; before that p ← p - lr · m̂ (Liu et al., 2019)."""

    _older = {**Elementwise._older, "decoupled_weight_decay": False}

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
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
        at_least_0(weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    @classmethod
    def _fills(cls, group, p):
        return {"exp_avg": 0, "exp_avg_sq": 0}

    @classmethod
    def _settings(cls, group, count):
        beta1, beta2 = group["betas"]
        correction = 1 - beta2**count
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * count * beta2**count / correction
        rectified = None
        if length > 5.0:
            rectified = ((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)) ** 0.5
        return {
            "beta1": beta1,
            "beta2": beta2,
            "correction": 1 - beta1**count,
            "root": correction**0.5,
            "rectified": rectified,
            "lr": group["lr"],
            "eps": group["eps"],
        }

    @staticmethod
    def _formula(param, grad, exp_avg, exp_avg_sq, *, beta1, beta2, correction, root, rectified, lr, eps):
        exp_avg.lerp_(grad, 1 - beta1)
        addcmul_(exp_avg_sq.mul_(beta2), grad, grad, 1 - beta2)
        update = exp_avg / correction * lr
        if rectified is not None:
            update = update * (root / (exp_avg_sq.sqrt() + eps)) * rectified
        param.sub_(update)


radam = functional(
    RAdam,
    "radam",
    "exp_avgs exp_avg_sqs state_steps decoupled_weight_decay foreach differentiable capturable has_complex maximize",
)
