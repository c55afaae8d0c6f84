"""Operations on lists of tensors: steps of optimizers that PyTorch has as one kernel, and the checks of gradient scalers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch import ops
from tabtorch.ops.aten.table import ADAPTERS, Tensor, aten


@aten("_foreach_copy")
def _foreach_copy(self: Any, src: Any, non_blocking: bool = False) -> tuple[Tensor, ...]:
    return tuple(ops.empty_like(t).copy_(s, non_blocking) for t, s in zip(self, src, strict=True))


@aten("_foreach_zero")
def _foreach_zero(self: Any) -> tuple[Tensor, ...]:
    return tuple(ops.zeros_like(t) for t in self)


@aten("_foreach_mm")
def _foreach_mm(self: Any, mat2: Any) -> tuple[Tensor, ...]:
    return tuple(ops.mm(a, b) for a, b in zip(self, mat2, strict=True))


@aten("_foreach_powsum")
def _foreach_powsum(self: Any, ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The sum of |x|^ord of every tensor."""
    return tuple(ops.pow(ops.abs(t if dtype is None else t.to(dtype)), ord).sum() for t in self)


# ---- steps of optimizers


def _step(
    params: Any,
    grads: Any,
    lists: tuple[Any, ...],
    update: Callable[..., tuple[Tensor, ...]],
    maximize: bool,
    grad_scale: Tensor | None,
    found_inf: Tensor | None,
) -> None:
    """`update(param, grad, *states)` gives the new values of the parameter and the first states, which are written.

    grad_scale: what gradients are divided by, in place. found_inf: where it is 1 nothing is written.
    """
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        states = [states[i] for states in lists]
        if grad_scale is not None:
            g.copy_(g / grad_scale)
        new = update(p, -g if maximize else g, *states)
        for t, value in zip((p, *states), new, strict=False):
            t.copy_(value if found_inf is None else ops.where(found_inf == 1, t, value))


def _adam(decoupled: bool) -> Callable[..., None]:
    def step(
        self: Any,
        grads: Any,
        exp_avgs: Any,
        exp_avg_sqs: Any,
        max_exp_avg_sqs: Any,
        state_steps: Any,
        *,
        lr: Any,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
    ) -> None:
        def update(p: Tensor, g: Tensor, m: Tensor, v: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
            count = rest[-1]
            if weight_decay:
                p, g = (p * (1 - lr * weight_decay), g) if decoupled else (p, g + weight_decay * p)
            m, v = ops.lerp(m, g, 1 - beta1), v * beta2 + (1 - beta2) * g * g
            top = ops.maximum(rest[0], v) if amsgrad else v
            root = ops.sqrt(top) / ops.sqrt(1 - beta2**count) + eps
            p = p - lr / (1 - beta1**count) * m / root
            return (p, m, v, top) if amsgrad else (p, m, v)

        lists = (exp_avgs, exp_avg_sqs, *((max_exp_avg_sqs,) if amsgrad else ()), state_steps)
        _step(self, grads, lists, update, maximize, grad_scale, found_inf)

    return step


def _sgd(
    self: Any,
    grads: Any,
    momentum_buffer_list: Any,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    def update(p: Tensor, g: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        if weight_decay:
            g = g + weight_decay * p
        if not momentum:
            return (p - lr * g,)
        buffer = g if is_first_step else rest[0] * momentum + (1 - dampening) * g
        return p - lr * (g + momentum * buffer if nesterov else buffer), buffer

    lists = (momentum_buffer_list,) if momentum else ()
    _step(self, grads, lists, update, maximize, grad_scale, found_inf)


def _adagrad(
    self: Any,
    grads: Any,
    state_sums: Any,
    state_steps: Any,
    *,
    lr: Any,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    def update(p: Tensor, g: Tensor, total: Tensor, count: Tensor) -> tuple[Tensor, ...]:
        if weight_decay:
            g = g + weight_decay * p
        total = total + g * g
        return p - lr / (1 + (count - 1) * lr_decay) * g / (ops.sqrt(total) + eps), total

    _step(self, grads, (state_sums, state_steps), update, maximize, grad_scale, found_inf)


def _enter(name: str, step: Callable[..., None], written: int) -> None:
    """The form that writes its lists, and the one that gives new ones: the first `written` of them."""

    def functional(*lists: Any, **kw: Any) -> tuple[list[Tensor], ...]:
        copies = [[t.clone() for t in tensors] for tensors in lists]
        step(*copies, **kw)
        return tuple(copies[:written])

    ADAPTERS[name + "_"] = step
    ADAPTERS[name] = functional


_enter("_fused_adam", _adam(False), 5)
_enter("_fused_adamw", _adam(True), 5)
_enter("_fused_sgd", _sgd, 3)
_enter("_fused_adagrad", _adagrad, 4)


@aten("_fused_adagrad.tensor_lr")
def _adagrad_tensor_lr(*lists: Any, **kw: Any) -> Any:
    return ADAPTERS["_fused_adagrad"](*lists, **kw)[:3]


# ---- gradient scalers


@aten("_amp_foreach_non_finite_check_and_unscale_")
def _unscale_(self: Any, found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiplies gradients by `inv_scale`; `found_inf` becomes 1 where one of them is not finite."""
    for g in self:
        found_inf.copy_(ops.where(ops.isfinite(g).all(), found_inf, 1.0))
        g.copy_(g * inv_scale)


@aten("_amp_foreach_non_finite_check_and_unscale")
def _unscale(self: Any, found_inf: Tensor, inv_scale: Tensor) -> tuple[list[Tensor], Tensor]:
    grads, found = [g.clone() for g in self], found_inf.clone()
    _unscale_(grads, found, inv_scale)
    return grads, found


@aten("_amp_update_scale_")
def _update_scale_(
    self: Tensor,
    growth_tracker: Tensor,
    found_inf: Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> Tensor:
    """The scale, less after a step that was not finite, more after `growth_interval` that were; both tensors are written."""
    found = found_inf != 0
    count = growth_tracker + 1
    grows = count == growth_interval
    larger = self * scale_growth_factor
    larger = ops.where(ops.isfinite(larger), larger, self)
    scale = ops.where(found, self * scale_backoff_factor, ops.where(grows, larger, self))
    growth_tracker.copy_(ops.where(ops.logical_or(found, grows), 0, count))
    return self.copy_(scale)


@aten("_amp_update_scale")
def _update_scale(self: Tensor, growth_tracker: Tensor, *args: Any, **kw: Any) -> tuple[Tensor, Tensor]:
    tracker = growth_tracker.clone()
    return _update_scale_(self.clone(), tracker, *args, **kw), tracker
