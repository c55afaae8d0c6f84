"""Muon."""

import math

import tabtorch as torch
from tabtorch.optim._elementwise import Elementwise, functional, one_element

__all__ = ["Muon"]


class Muon(Elementwise):
    """p ← p · (1 - lr · weight_decay) - lr' · O, with O the momentum, made nearly orthogonal by a Newton–Schulz iteration in
    bfloat16 (Jordan, 2024). For matrices only. ``adjust_lr_fn``: "original" or "match_rms_adamw", how lr' follows from the shape.

    Matrices of one shape are updated together: a step takes three products an iteration for every shape.
    """

    _older = {}
    _counted = False
    _batched = True

    def __init__(
        self,
        params,
        lr=1e-3,
        weight_decay=0.1,
        momentum=0.95,
        nesterov=True,
        ns_coefficients=(3.4445, -4.7750, 2.0315),
        eps=1e-7,
        ns_steps=5,
        adjust_lr_fn=None,
    ):
        one_element(lr)
        if not 0.0 <= lr:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not 0.0 <= momentum:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}"
                    )

    def _state_of(self, p, group):
        if p.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        return self.state[p]

    @classmethod
    def _count(cls, state):
        return None

    @classmethod
    def _fills(cls, group, p):
        return {"momentum_buffer": 0}

    @classmethod
    def _shared(cls, group):
        return {}

    @classmethod
    def _settings(cls, group, count):
        names = "lr weight_decay momentum nesterov ns_coefficients eps ns_steps adjust_lr_fn"
        return {"settings": {k: group[k] for k in names.split()}}

    @staticmethod
    def _formula(param, grad, momentum_buffer, *, settings):
        lr, momentum = settings["lr"], settings["momentum"]
        momentum_buffer.lerp_(grad, 1 - momentum)
        update = grad.lerp(momentum_buffer, momentum) if settings["nesterov"] else momentum_buffer
        update = _orthogonal(update, settings["ns_coefficients"], settings["ns_steps"], settings["eps"])
        rows, columns = param.shape[-2:]
        wide = settings["adjust_lr_fn"] == "match_rms_adamw"
        ratio = 0.2 * math.sqrt(max(rows, columns)) if wide else math.sqrt(max(1, rows / columns))
        param.mul_(1 - lr * settings["weight_decay"])
        step = lr * ratio  # update is bfloat16: the product with it is not to be rounded to that
        param.sub_(update.float() * step) if isinstance(step, torch.Tensor) else param.sub_(update, alpha=step)


def _orthogonal(x, coefficients, steps, eps):
    """Each matrix of a stack with singular values near 1: x ← a · x + (b · xxᵀ + c · (xxᵀ)²) · x, ``steps`` times."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = x.size(-2) > x.size(-1)
    x = x.bfloat16()
    x = x.mT if tall else x
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def _zeropower_via_newtonschulz(grad, ns_coefficients, ns_steps, eps):
    """The same of one matrix."""
    if grad.dim() != 2:
        raise ValueError("Input tensor gradient must be a 2D matrix")
    return _orthogonal(grad.unsqueeze(0), ns_coefficients, ns_steps, eps)[0]


muon = functional(Muon, "muon", "momentum_bufs")
