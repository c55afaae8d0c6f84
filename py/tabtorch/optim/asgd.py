"""Averaged stochastic gradient descent."""

import tabtorch as torch
from tabtorch.optim._elementwise import Elementwise, add_, at_least_0, functional, one_element
from tabtorch.optim._state import NumberStorage, advance, number, number_tensor, set_number
from tabtorch.optim.optimizer import _to_scalar

__all__ = ["ASGD", "asgd"]


class ASGD(Elementwise):
    """p ← p · (1 - λ · η) - η · g;  ax ← ax + μ · (p - ax);  η = lr / (1 + λ · lr · t)^α;  μ = 1 / max(1, t - t0)
    (Polyak and Juditsky, 1992)."""

    def __init__(
        self,
        params,
        lr=1e-2,
        lambd=1e-4,
        alpha=0.75,
        t0=1e6,
        weight_decay=0,
        foreach=None,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        one_element(lr)
        at_least_0(learning_rate=lr, weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    @classmethod
    def _start(cls, p, group):
        state = super()._start(p, group)
        lr = _to_scalar(group["lr"])
        device = cls._step_device(p, group)
        state["eta"] = lr.detach().clone() if isinstance(lr, torch.Tensor) else number_tensor(lr, device)
        state["mu"] = number_tensor(1.0, device)
        return state

    @classmethod
    def _step_device(cls, p, group):
        return p.device

    @classmethod
    def _fills(cls, group, p):
        return {"ax": 0}

    @classmethod
    def _count(cls, state):
        eta = state["eta"]
        if not isinstance(eta, torch.Tensor) or eta.device.type == "cpu" or isinstance(eta._tab_storage, NumberStorage):
            eta = number(state, "eta")
        return advance(state), eta, number(state, "mu")

    @classmethod
    def _settings(cls, group, count):
        _, eta, mu = count
        return {"eta": eta, "mu": mu, "lambd": group["lambd"]}

    @classmethod
    def _finish(cls, states, group, count):
        lr = group["lr"]
        eta = lr / ((1 + group["lambd"] * lr * count[0]) ** group["alpha"])
        for state in states:
            if isinstance(eta, torch.Tensor):
                state["eta"].copy_(eta)
            else:
                set_number(state, "eta", eta)
            set_number(state, "mu", 1 / max(1, count[0] - group["t0"]))

    @staticmethod
    def _formula(param, grad, ax, *, eta, mu, lambd):
        param.mul_(1 - lambd * eta)
        add_(param, grad, -eta)
        if mu == 1:
            ax.copy_(param)
        else:
            ax.add_((param - ax) * mu)


asgd = functional(ASGD, "asgd", "axs mus etas state_steps foreach maximize differentiable capturable has_complex")
