"""Rprop."""

import tabtorch as torch
from tabtorch.optim._elementwise import Elementwise, at_least_0, functional, one_element

__all__ = ["Rprop", "rprop"]


class Rprop(Elementwise):
    """Each element takes a step of its own size, against the sign of its gradient; the size grows by ``etas[1]`` where the
    sign stays, and shrinks by ``etas[0]`` where it turns, within ``step_sizes`` (Riedmiller and Braun, 1993)."""

    def __init__(
        self,
        params,
        lr=1e-2,
        etas=(0.5, 1.2),
        step_sizes=(1e-6, 50),
        *,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        one_element(lr)
        at_least_0(learning_rate=lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    @classmethod
    def _fills(cls, group, p):
        return {"prev": 0, "step_size": group.get("lr", 0)}

    @classmethod
    def _settings(cls, group, count):
        return {k: group[k] for k in ("etas", "step_sizes")}

    @staticmethod
    def _formula(param, grad, prev, step_size, *, etas, step_sizes):
        sign = (grad * prev.clone()).sign()
        factor = torch.where(sign > 0, etas[1], torch.where(sign < 0, etas[0], sign + 1))  # NaN stays
        step_size.copy_((step_size.clone() * factor).clamp(*step_sizes))
        prev.copy_(torch.where(sign < 0, 0, grad))
        param.addcmul_(prev.sign(), step_size, value=-1)


rprop = functional(
    Rprop, "rprop", "prevs step_sizes state_steps foreach capturable maximize differentiable has_complex"
)
