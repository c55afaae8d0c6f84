"""Stochastic gradient descent."""

from tabtorch.optim._elementwise import Elementwise, add_, check_flags, functional, one_element

__all__ = ["SGD", "sgd"]


class SGD(Elementwise):
    """b ← momentum · b + (1 - dampening) · g;  p ← p - lr · b, with g = grad + weight_decay · p.

    ``nesterov``: p ← p - lr · (g + momentum · b) (Sutskever et al., 2013).
    """

    _older = {"nesterov": False, "maximize": False, "foreach": None, "differentiable": False, "fused": False}
    _counted = False

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        weight_decay=0,
        nesterov=False,
        *,
        maximize=False,
        foreach=None,
        differentiable=False,
        fused=None,
    ):
        one_element(lr)
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, defaults)
        check_flags(fused, differentiable, foreach)

    def _state_of(self, p, group):
        return self.state[p] if group["momentum"] != 0 else {}

    @classmethod
    def _count(cls, state):
        return state.get("momentum_buffer") is None

    @classmethod
    def _fills(cls, group, p):
        momentum = group["momentum"]
        return {} if isinstance(momentum, (int, float)) and momentum == 0 else {"momentum_buffer": 0}

    @classmethod
    def _settings(cls, group, count):
        return {"first": count, **{k: group[k] for k in ("lr", "momentum", "dampening", "nesterov")}}

    @classmethod
    def _sparse_step(cls, group, param, grad, state):
        if group.get("maximize"):
            grad = -grad
        if group["weight_decay"] != 0:
            grad = grad.add(param, alpha=group["weight_decay"])
        momentum = group["momentum"]
        if momentum != 0:
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = grad.detach().clone()
            else:
                buffer.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
            grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
        param.add_(grad, alpha=-group["lr"])

    @staticmethod
    def _formula(param, grad, momentum_buffer=None, *, first, lr, momentum, dampening, nesterov):
        if momentum_buffer is not None:
            if first:
                momentum_buffer.copy_(grad.detach())
            else:
                add_(momentum_buffer.mul_(momentum), grad, 1 - dampening)
            grad = grad + momentum_buffer * momentum if nesterov else momentum_buffer
        add_(param, grad, -lr)


sgd = functional(SGD, "sgd", "momentum_buffer_list has_sparse_grad foreach fused grad_scale found_inf")
