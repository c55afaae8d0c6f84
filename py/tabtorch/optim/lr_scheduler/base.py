"""The base of schedules."""

import contextlib
import functools
import types
import warnings
import weakref
from typing import Any

import tabtorch as torch
from tabtorch.optim.optimizer import Optimizer, _to_scalar

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being "
    "deprecated where possible. Please use `scheduler.step()` to step the "
    "scheduler. During the deprecation, if epoch is different from None, the "
    "closed form is used instead of the new chainable form, where available. "
    "Please open an issue if you are unable to replicate your use case: "
    "https://github.com/pytorch/pytorch/issues/new/choose."
)

_ORDER_URL = "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


def _check_optimizer(optimizer):
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def _group_values(optimizer, key):
    """A setting of each group; tensors are copied, as they are changed in place."""
    return [g[key].clone() if isinstance(g[key], torch.Tensor) else g[key] for g in optimizer.param_groups]


def _set(group, key, value):
    if isinstance(group[key], torch.Tensor):
        group[key].fill_(_to_scalar(value))
    else:
        group[key] = value


def _per_group(name, optimizer, value):
    """One value for each group, from one for all or a list."""
    n = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        value = [value] * n
    if len(value) != n:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. "
            f"{name} has {len(value)} values, param_groups has {n}."
        )
    return [v.clone() if isinstance(v, torch.Tensor) else v for v in value]


@contextlib.contextmanager
def _flag(owner, name):
    setattr(owner, name, True)
    try:
        yield
    finally:
        setattr(owner, name, False)


def _mark_calls(optimizer):
    """Makes ``optimizer.step`` note that it was called, once."""
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return
    reference: Any = weakref.ref(optimizer)
    function = optimizer.step.__func__

    @functools.wraps(function)
    def step(*args, **kwargs):
        owner = reference()
        owner._opt_called = True
        return function.__get__(owner, type(owner))(*args, **kwargs)

    marked: Any = step
    marked._wrapped_by_lr_sched = True
    optimizer.step = marked


class LRScheduler:
    """Sets the learning rate of every group at each ``step()``. Subclasses define ``get_lr``.

    ``last_epoch``: -1 to start, or the epoch to go on from, with ``initial_lr`` in the groups.
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer, last_epoch=-1):
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                lr = group["lr"]
                group.setdefault("initial_lr", lr.clone() if isinstance(lr, torch.Tensor) else lr)
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                    "last_epoch >= 0.\nThis typically happens when:\n1. You're trying to resume training from a "
                    "checkpoint but haven't properly loaded the optimizer state\n2. You're using last_epoch >= 0 for "
                    "a fresh training run (not recommended)"
                )
        self.base_lrs = _group_values(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _mark_calls(optimizer)
        self._initial_step()

    def _initial_step(self):
        self._step_count = 0
        with _flag(self, "_is_initial"):
            self.step()

    def state_dict(self):
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict):
        """Restores a ``state_dict``."""
        self.__dict__.update(state_dict)

    def get_last_lr(self):
        """The learning rates that were set last, one for each group."""
        return self._last_lr

    def get_lr(self):
        """The next learning rates, one for each group."""
        raise NotImplementedError

    def step(self, epoch=None):
        """Sets the next learning rates. After ``optimizer.step()``."""
        if self._step_count == 1:
            self._check_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _check_order(self):
        if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler "
                "initialization. Please, make sure to call `optimizer.step()` before "
                f"`lr_scheduler.step()`. See more details at {_ORDER_URL}",
                UserWarning,
                stacklevel=3,
            )
        elif not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. "
                "In PyTorch 1.1.0 and later, you should call them in the opposite order: "
                "`optimizer.step()` before `lr_scheduler.step()`.  Failure to do this "
                "will result in PyTorch skipping the first value of the learning rate schedule. "
                f"See more details at {_ORDER_URL}",
                UserWarning,
                stacklevel=3,
            )

    def _update_lr(self, epoch=None):
        with _flag(self, "_get_lr_called_within_step"):
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed_form = getattr(self, "_get_closed_form_lr", None)
                values = closed_form() if closed_form else self.get_lr()
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            _set(group, "lr", lr)
        self._last_lr = _group_values(self.optimizer, "lr")

    def _warn_outside_step(self):
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )

    def _scaled(self, factor):
        """The present learning rates times ``factor``."""
        return [group["lr"] * factor for group in self.optimizer.param_groups]


class _LRScheduler(LRScheduler):
    """The older name."""


def _callable_state(fn):
    """What of a callable can be saved: the attributes of an object; nothing of a function."""
    return None if isinstance(fn, types.FunctionType) else fn.__dict__.copy()
