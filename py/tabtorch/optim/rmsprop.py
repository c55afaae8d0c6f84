"""RMSprop."""

import tabtorch as torch

from ._fused import _buckets, _multi_tensor_step
from ._state import ParamState
from .optimizer import Optimizer, _call_closure, _to_scalar, _use_grad_for_differentiable

__all__ = ["RMSprop"]


class RMSprop(Optimizer):
    """v ← α · v + (1 - α) · g²;  p ← p - lr · g / (√v + eps) (Hinton's lecture 6e).

    ``centered``: v minus the square of a running mean of g. ``momentum``: of the whole quotient.
    """

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
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        for name, value in (
            ("learning rate", lr),
            ("epsilon value", eps),
            ("momentum value", momentum),
            ("weight_decay value", weight_decay),
            ("alpha value", alpha),
        ):
            if not 0.0 <= value:
                raise ValueError(f"Invalid {name}: {value}")
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

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("momentum", 0)
            group.setdefault("centered", False)
            group.setdefault("foreach", None)
            group.setdefault("maximize", False)
            group.setdefault("differentiable", False)
            group.setdefault("capturable", False)

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """Updates the parameters once."""
        loss = _call_closure(closure)
        for group in self.param_groups:
            for _, params, grads in _buckets(group["params"]):
                states = []
                for p in params:
                    state = self.state[p]
                    if len(state) == 0:
                        state = self.state[p] = ParamState(step=0, square_avg=torch.zeros_like(p))
                        if group["momentum"] > 0:
                            state["momentum_buffer"] = torch.zeros_like(p)
                        if group["centered"]:
                            state["grad_avg"] = torch.zeros_like(p)
                    state.advance()
                    states.append(state)
                _multi_tensor_step(
                    params,
                    grads,
                    [[s.get(k) for s in states] for k in ("square_avg", "grad_avg", "momentum_buffer")],
                    _rmsprop,
                    lr=_to_scalar(group["lr"]),
                    alpha=group["alpha"],
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    momentum=group["momentum"],
                    centered=group["centered"],
                    maximize=group["maximize"],
                )
        return loss


def _rmsprop(
    param,
    grad,
    square_avg,
    grad_avg,
    buffer,
    *,
    lr,
    alpha,
    eps,
    weight_decay,
    momentum,
    centered,
    maximize,
):
    """One parameter, in place."""
    if maximize:
        grad = -grad
    if weight_decay != 0:
        grad = grad.add(param, alpha=weight_decay)
    square_avg.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
    if centered:
        grad_avg.lerp_(grad, 1 - alpha)
        avg = square_avg.addcmul(grad_avg, grad_avg, value=-1).sqrt()
    else:
        avg = square_avg.sqrt()
    avg = avg + eps
    if momentum > 0:
        buffer.mul_(momentum).addcdiv_(grad, avg)
        param.add_(buffer, alpha=-lr)
    else:
        param.addcdiv_(grad, avg, value=-lr)
