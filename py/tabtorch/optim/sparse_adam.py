"""SparseAdam."""

import math

import tabtorch as torch
from tabtorch.optim._elementwise import check_betas, one_element
from tabtorch.optim.optimizer import Optimizer, _call_closure

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam for sparse gradients: only the rows that have one change, and their averages.

    ValueError for sparse or complex parameters; ``step`` raises RuntimeError for a dense gradient.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        one_element(lr)
        if not 0.0 < lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        each = [([i, k], p) for i, g in enumerate(self.param_groups) for k, p in enumerate(g["params"])]
        at = [place for place, p in each if p.is_sparse]
        if at:
            raise ValueError(f"Sparse params at indices {at}: SparseAdam requires dense parameter tensors")
        at = [place for place, p in each if p.is_complex()]
        if at:
            raise ValueError(f"Complex params at indices {at}: SparseAdam does not support complex parameters")

    @torch.no_grad()
    def step(self, closure=None):
        """Updates the parameters once. ``closure``: computes the loss again, and returns it."""
        loss = _call_closure(closure)
        for group in self.param_groups:
            members = []
            for p in group["params"]:
                if p.grad is None:
                    continue
                if not p.grad.is_sparse:
                    raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
                state = self.state[p]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
                state["step"] += 1
                members.append((p, p.grad, state))
            for p, grad, state in members:
                _update(p, -grad if group.get("maximize") else grad, state, group)
        return loss


def _update(param, grad, state, group):
    grad = grad.coalesce()  # the update is not linear: each row once
    indices, values = grad._indices(), grad._values()
    if not values.numel():
        return
    beta1, beta2 = group["betas"]
    changes = []
    for name, beta, new in (("exp_avg", beta1, values), ("exp_avg_sq", beta2, values * values)):
        old = state[name].sparse_mask(grad)._values()
        change = (new - old) * (1 - beta)
        state[name].add_(torch.sparse_coo_tensor(indices, change, grad.shape))
        changes.append(old + change)
    mean, square = changes
    lr = group["lr"].item() if isinstance(group["lr"], torch.Tensor) else group["lr"]
    size = lr * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
    param.add_(torch.sparse_coo_tensor(indices, -size * (mean / (square.sqrt() + group["eps"])), grad.shape))
