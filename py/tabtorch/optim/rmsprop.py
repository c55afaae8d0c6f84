"""RMSprop."""

from tabtorch.optim._elementwise import Elementwise, add_, addcdiv_, addcmul_, at_least_0, functional, one_element

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(Elementwise):
    """v ← α · v + (1 - α) · g²;  p ← p - lr · g / (√v + eps) (Hinton's lecture 6e).

    ``centered``: v minus the square of a running mean of g. ``momentum``: of the whole quotient.
    """

    _older = {"momentum": 0, "centered": False, **Elementwise._older}

    def __init__(
        self,
        params,
        lr=1e-2,
        alpha=0.99,
        eps=1e-8,
        weight_decay=0,
        momentum=0,
        centered=False,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        one_element(lr)
        at_least_0(learning_rate=lr, epsilon=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    @classmethod
    def _fills(cls, group, p):
        more = {"momentum_buffer": group["momentum"] > 0, "grad_avg": group["centered"]}
        return {"square_avg": 0, **{k: 0 for k, used in more.items() if used}}

    @classmethod
    def _settings(cls, group, count):
        return {k: group[k] for k in ("lr", "alpha", "eps", "momentum")}

    @staticmethod
    def _formula(param, grad, square_avg, momentum_buffer=None, grad_avg=None, *, lr, alpha, eps, momentum):
        addcmul_(square_avg.mul_(alpha), grad, grad, 1 - alpha)
        variance = square_avg
        if grad_avg is not None:
            grad_avg.lerp_(grad, 1 - alpha)
            variance = square_avg.addcmul(grad_avg, grad_avg, value=-1)
        deviation = variance.sqrt() + eps
        if momentum_buffer is None:
            addcdiv_(param, grad, deviation, -lr)
        else:
            add_(param, momentum_buffer.mul_(momentum).addcdiv_(grad, deviation), -lr)


rmsprop = functional(
    RMSprop,
    "rmsprop",
    "square_avgs grad_avgs momentum_buffer_list state_steps foreach maximize differentiable capturable has_complex",
)
