"""SparseAdam."""

from tabtorch.optim._elementwise import check_betas, one_element
from tabtorch.optim.optimizer import Optimizer, _call_closure

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam for sparse gradients. tabtorch has no sparse tensors, so its ``step`` raises PyTorch's error for dense ones."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        one_element(lr)
        if not 0.0 < lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 < eps:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        at = [[i, k] for i, g in enumerate(self.param_groups) for k, p in enumerate(g["params"]) if p.is_complex()]
        if at:
            raise ValueError(f"Complex params at indices {at}: SparseAdam does not support complex parameters")

    def step(self, closure=None):
        """RuntimeError where a parameter has a gradient."""
        loss = _call_closure(closure)
        if any(p.grad is not None for group in self.param_groups for p in group["params"]):
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        return loss
