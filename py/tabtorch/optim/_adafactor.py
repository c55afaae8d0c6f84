"""Adafactor."""

import tabtorch as torch
from tabtorch.optim._elementwise import Elementwise, functional, one_element

__all__ = ["Adafactor", "adafactor"]


class Adafactor(Elementwise):
    """p ← p - max(eps2, RMS(p)) · min(lr, 1/√t) · u / max(1, RMS(u) / d), with u = g / √v̂, and v̂ of a matrix kept as a mean
    of g² by row and one by column (Shazeer and Stern, 2018).

    Norms are of each parameter: those of one shape are updated together, so a step takes some dispatches for every shape.
    """

    _older = {"foreach": None}
    _batched = True

    def __init__(
        self,
        params,
        lr=1e-2,
        beta2_decay=-0.8,
        eps=(None, 1e-3),
        d=1.0,
        weight_decay=0.0,
        *,
        foreach=None,
        maximize=False,
    ):
        one_element(lr)
        if not 0.0 <= lr:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not 0.0 >= beta2_decay:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not 0.0 <= eps[0]:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not 0.0 <= eps[1]:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not 1.0 <= d:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not 0.0 <= weight_decay:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _state_of(self, p, group):
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        return super()._state_of(p, group)

    @classmethod
    def _fills(cls, group, p):
        if p.dim() < 2:
            return {"variance": 0}
        *outer, rows, columns = p.shape
        return {"row_var": (*outer, rows, 1), "col_var": (*outer, 1, columns)}

    @classmethod
    def _shared(cls, group):
        return {"maximize": group["maximize"]}

    @classmethod
    def _settings(cls, group, count):
        lr, decay, most = group["lr"], group["weight_decay"], 1 / count**0.5
        eps1, eps2 = group["eps"] if "eps" in group else (group["eps1"], group["eps2"])
        return {
            "weight": count ** group["beta2_decay"],
            "rho": lr.clamp(max=most) if isinstance(lr, torch.Tensor) else min(lr, most),
            "decay": 1 - lr * decay if decay != 0 else None,
            "eps1": eps1,
            "eps2": eps2,
            "d": group["d"],
        }

    @staticmethod
    def _formula(param, grad, row_var=None, col_var=None, variance=None, *, weight, rho, decay, eps1, eps2, d):
        if eps1 is None:
            eps1 = torch.finfo(param.dtype).eps
        alpha = _rms(param).clamp(min=eps2) * rho
        if decay is not None:
            param.mul_(decay)
        if variance is None:
            for average, dim in ((row_var, -1), (col_var, -2)):
                mean = torch.linalg.vector_norm(grad, dim=dim, keepdim=True).square() / grad.size(dim)
                average.lerp_(mean, weight)
            variance = row_var * col_var / row_var.mean(dim=-2, keepdim=True).clamp(min=eps1)
        else:
            variance.lerp_(grad * grad, weight)
        update = variance.clamp(min=eps1 * eps1).rsqrt() * grad
        param.sub_(update * (alpha / (_rms(update) / d).clamp(min=1.0)))


def _rms(x):
    """The root of the mean square of each of a stack, as a factor for the stack."""
    if x.dim() == 1:
        return x.abs()
    return torch.linalg.vector_norm(x, dim=tuple(range(1, x.dim())), keepdim=True) / (x.numel() / len(x)) ** 0.5


adafactor = functional(
    Adafactor, "adafactor", "row_vars col_vars variances state_steps foreach grad_scale found_inf has_complex"
)
