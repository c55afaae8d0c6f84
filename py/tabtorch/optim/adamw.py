"""AdamW."""

from tabtorch.optim._elementwise import functional
from tabtorch.optim.adam import _LISTS, Adam

__all__ = ["AdamW", "adamw"]


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

    @classmethod
    def _update(cls, group, members):
        super()._update({**group, "decoupled_weight_decay": True}, members)


adamw = functional(AdamW, "adamw", _LISTS)
