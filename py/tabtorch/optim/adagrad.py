"""Adagrad."""

import tabtorch as torch
from tabtorch.optim._elementwise import Elementwise, addcdiv_, at_least_0, check_flags, functional, one_element

__all__ = ["Adagrad", "adagrad"]


class Adagrad(Elementwise):
    """s ← s + g²;  p ← p - lr / (1 + (t - 1) · lr_decay) · g / (√s + eps) (Duchi et al., 2011)."""

    _older = {"foreach": None, "maximize": False, "differentiable": False, "fused": None}

    def __init__(
        self,
        params,
        lr=1e-2,
        lr_decay=0,
        weight_decay=0,
        initial_accumulator_value=0,
        eps=1e-10,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        fused=None,
    ):
        one_element(lr)
        at_least_0(
            learning_rate=lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            epsilon=eps,
        )
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        check_flags(fused, differentiable, foreach)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = state = self._start(p, group)
                value = initial_accumulator_value
                state["sum"] = torch.full_like(p.detach(), complex(value, value) if p.is_complex() else value)

    def share_memory(self):
        """Moves the states to shared memory."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    @classmethod
    def _fills(cls, group, p):
        return {"sum": group.get("initial_accumulator_value", 0)}

    @classmethod
    def _settings(cls, group, count):
        return {"lr": group["lr"] / (1 + (count - 1) * group["lr_decay"]), "eps": group["eps"]}

    @classmethod
    def _sparse_step(cls, group, param, grad, state):
        lr = cls._settings(group, cls._count(state))["lr"]
        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        grad = (-grad if group.get("maximize") else grad).coalesce()
        indices, values = grad._indices(), grad._values()
        make = torch.sparse_coo_tensor
        state["sum"].add_(make(indices, values * values, grad.shape))
        std = state["sum"].sparse_mask(grad)._values().sqrt() + group["eps"]
        param.add_(make(indices, values / std, grad.shape), alpha=-lr)

    @staticmethod
    def _formula(param, grad, sum, *, lr, eps):
        sum.addcmul_(grad, grad)
        addcdiv_(param, grad, sum.sqrt() + eps, -lr)


adagrad = functional(
    Adagrad,
    "adagrad",
    "state_sums state_steps fused grad_scale found_inf has_sparse_grad foreach differentiable has_complex",
)
