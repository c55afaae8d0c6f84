"""Optimizers whose update is a formula, element by element: their ``step``, and their functional form."""

from collections.abc import Callable
from typing import Any, ClassVar

import tabtorch as torch
from tabtorch.optim._fused import fill_all, update_all
from tabtorch.optim._state import NUMBERS, NumberStorage, advance, number, number_tensor, set_number
from tabtorch.optim.optimizer import Optimizer, _call_closure, _use_grad_for_differentiable

_CAPTURABLE = ["cuda", "xpu", "hpu", "privateuseone", "xla"]
_FUSED = ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]


def one_element(lr):
    """ValueError for a learning rate of several elements."""
    if isinstance(lr, torch.Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")


def at_least_0(**settings):
    """ValueError for the first of these that is negative."""
    for name, value in settings.items():
        if not 0.0 <= value:
            raise ValueError(f"Invalid {'learning rate' if name == 'learning_rate' else name + ' value'}: {value}")


def check_betas(betas):
    """ValueError for a beta outside [0, 1)."""
    for i in (0, 1):
        if not 0.0 <= betas[i] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")


def check_flags(fused, differentiable, foreach):
    """RuntimeError for ways to compute that exclude each other."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


# In-place arithmetic whose factor may be a number (a kernel parameter) or a 0-dim tensor (never read).


def add_(x, y, alpha):
    """x += alpha · y."""
    return x.add_(y * alpha) if isinstance(alpha, torch.Tensor) else x.add_(y, alpha=alpha)


def addcmul_(x, a, b, value):
    """x += value · a · b."""
    return x.add_(a * value * b) if isinstance(value, torch.Tensor) else x.addcmul_(a, b, value=value)


def addcdiv_(x, a, b, value):
    """x += value · a / b."""
    return x.add_(a * value / b) if isinstance(value, torch.Tensor) else x.addcdiv_(a, b, value=value)


def plain(group, device):
    """A group's settings, with tensors as numbers, or as 0-dim tensors where reading one would make the GPU wait, or would
    cut it from the tape."""
    keep = group.get("differentiable")

    def scalar(x):
        if isinstance(x, torch.Tensor):
            if not keep and (x.device.type == "cpu" or x.device != device):
                return x.item()
            return x.reshape(()) if x.dim() else x
        return tuple(scalar(v) for v in x) if type(x) is tuple else x

    return {k: v if type(v) is float else scalar(v) for k, v in group.items() if k != "params"}


def _apply(param, grad, *, formula, maximize=False, weight_decay=0, shrink=None, **rest):
    """What all share, then the formula: the sign of the gradient, and weight decay, coupled or by ``shrink``."""
    if maximize:
        grad = -grad
    if shrink is not None:
        param.mul_(shrink)
    if isinstance(weight_decay, torch.Tensor):
        grad = grad + param * weight_decay
    elif weight_decay != 0:
        grad = grad.add(param, alpha=weight_decay)
    formula(param, grad, **rest)


class Elementwise(Optimizer):
    """``step`` of a subclass that gives a formula, what states start with, and the settings of a step.

    A step is a handful of dispatches, whatever the number of parameters, and reads nothing.
    """

    _older: ClassVar[dict] = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}
    _counted = True  # whether states have a step count
    _batched = False  # whether the formula takes parameters of one shape, stacked
    _formula: ClassVar[Callable]

    @classmethod
    def _start(cls, p, group):
        """The state of a parameter, without its tensors."""
        return {"step": number_tensor(0, cls._step_device(p, group))}

    @classmethod
    def _step_device(cls, p, group):
        """The device of the step count, as it reads."""
        return p.device if group.get("capturable") or group.get("fused") else "cpu"

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            for p in group["params"] if self._counted else ():
                own: dict[str, Any] = self.state.get(p) or {}
                for key in own:
                    if key in NUMBERS and not isinstance(own[key], torch.Tensor):  # from old files
                        own[key] = number_tensor(own[key], self._step_device(p, group))

    @classmethod
    def _fills(cls, group, p) -> dict[str, Any]:
        """The tensors of a state, with what they are full of at the start; a size: zeros of that size, not the parameter's."""
        return {}

    @classmethod
    def _count(cls, state):
        """Takes a step; returns the numbers of the state that settle it. Parameters with the same go together."""
        return advance(state)

    @classmethod
    def _settings(cls, group, count) -> dict[str, Any]:
        """What the formula takes besides tensors."""
        raise NotImplementedError

    @classmethod
    def _shared(cls, group):
        """What `_apply` takes."""
        shared = {"maximize": group.get("maximize", False)}
        if group.get("decoupled_weight_decay"):
            return {**shared, "shrink": 1 - group["lr"] * group["weight_decay"]}
        return {**shared, "weight_decay": group.get("weight_decay", 0)}

    @classmethod
    def _finish(cls, states, group, count):
        """After the step."""

    @classmethod
    def _sparse_step(cls, group, param, grad, state):
        """Updates a parameter whose gradient is sparse. RuntimeError where the formula has no such form."""
        name = "Adam" if cls.__name__ == "AdamW" else cls.__name__
        instead = ", please consider SparseAdam instead" if name == "Adam" else ""
        raise RuntimeError(f"{name} does not support sparse gradients{instead}")

    @classmethod
    def _update(cls, group, members):
        """Updates (parameter, gradient, state) of a group."""
        buckets: dict = {}
        capturable = group.get("capturable")
        for member in members:
            if member[1].is_sparse:
                cls._sparse_step(group, *member)
                continue
            m = member[0]._tab_meta
            if capturable and m.device.type == "cpu":
                raise AssertionError(
                    f"If capturable=True, params and state_steps must be on supported devices: {_CAPTURABLE}."
                )
            key = m.dtype, m.device, cls._count(member[2]), m.shape if cls._batched else None
            bucket = buckets.get(key)
            if bucket is None:
                buckets[key] = [member]
            else:
                bucket.append(member)
        if group.get("foreach") and group.get("differentiable") and buckets:
            raise AssertionError("_foreach ops don't support autograd")
        for (dtype, device, count, _), bucket in buckets.items():
            params, grads, states = map(list, zip(*bucket))
            numbers = plain(group, device)
            tensors = {}
            for name, value in cls._fills(numbers, params[0]).items():
                tensors[name] = own = [dict.get(s, name) for s in states]
                missing = [i for i, t in enumerate(own) if t is None]
                if missing:
                    value = complex(value, value) if dtype.is_complex and value else value
                    for i, t in zip(missing, fill_all([params[i] for i in missing], value)):
                        states[i][name] = own[i] = t
            settings = cls._shared(numbers) | cls._settings(numbers, count)
            update_all(_apply, params, grads, tensors, settings | {"formula": cls._formula}, cls._batched)
            cls._finish(states, numbers, count)

    @_use_grad_for_differentiable
    def step(self, closure=None):
        """Updates the parameters once. ``closure``: computes the loss again, and returns it."""
        loss = _call_closure(closure)
        for group in self.param_groups:
            members = []
            fused = group.get("fused")
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                if fused and not p.is_floating_point():
                    raise RuntimeError(
                        "`fused=True` requires all the params to be floating point Tensors of "
                        f"supported devices: {_FUSED} but {p.dtype} and {p.device.type}"
                    )
                state = self._state_of(p, group)
                members.append((p, grad, state))
            self._update(group, members)
        return loss

    def _state_of(self, p, group):
        state = self.state[p]
        if not state:
            state = self.state[p] = self._start(p, group)
        return state


_STATE_NAMES = {"state_sums": "sum", "state_steps": "step", "momentum_buffer_list": "momentum_buffer"}


def functional(cls, name, arguments):
    """The function under an optimizer: ``name(params, grads, *lists, *flags, *, settings)``, updating all in place.

    ``arguments``: names of what comes after ``params`` and ``grads``.
    """
    names = arguments.split()

    def function(params, grads, *args, **settings):
        values = dict(zip(names, args)) | settings
        values = {k: v for k, v in values.items() if k not in ("grad_scale", "found_inf", "has_complex")}
        lists = {
            _STATE_NAMES.get(k, k.removesuffix("s")): values.pop(k) for k in names if isinstance(values.get(k), list)
        }
        for pair, (a, b) in {"betas": ("beta1", "beta2"), "etas": ("etaminus", "etaplus"), **_SIZES}.items():
            if a in values:
                values[pair] = values.pop(a), values.pop(b)
        states = []
        for i in range(len(params)):
            start = {k: v[i] for k, v in lists.items() if i < len(v) and v[i] is not None}
            for key in NUMBERS & start.keys():  # those of the caller are written to at the end
                start[key] = number_tensor(number(start.copy(), key), "cpu")
            states.append(start)
        with torch.set_grad_enabled(bool(values.get("differentiable"))):
            cls._update(values, list(zip(params, grads, states)))
            for key, tensors in lists.items():
                for i, state in enumerate(states):
                    if key in NUMBERS:
                        if isinstance(tensors[i]._tab_storage, NumberStorage):
                            set_number({key: tensors[i]}, key, number(state, key))
                        else:
                            tensors[i].fill_(number(state, key))
                    elif key == "momentum_buffer" and i < len(tensors):
                        tensors[i] = state.get(key)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The functional form of ``{cls.__name__}``: updates parameters and states in place."
    return function


_SIZES = {"step_sizes": ("step_size_min", "step_size_max")}
