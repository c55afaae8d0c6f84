"""``torch.optim.swa_utils``: averages of the weights of a training run."""

import itertools
import math
from collections import defaultdict
from copy import deepcopy
from typing import Any

import tabtorch as torch
from tabtorch.nn.modules.batchnorm import _BatchNorm
from tabtorch.nn.modules.module import Module
from tabtorch.optim._fused import update_all
from tabtorch.optim.lr_scheduler.base import LRScheduler, _per_group

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def _check_decay(decay):
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _toward(average, current, *, weight):
    average.lerp_(current, weight)


def _floating(tensors):
    return tensors[0].is_floating_point() or tensors[0].is_complex()


def get_ema_multi_avg_fn(decay=0.999):
    """``update(averages, currents, n)``: average ← decay · average + (1 - decay) · current, over lists, in place."""
    _check_decay(decay)

    @torch.no_grad()
    def ema_update(ema_param_list, current_param_list, _):
        if _floating(ema_param_list):
            update_all(_toward, ema_param_list, current_param_list, {}, {"weight": 1 - decay})
        else:
            for ema, current in zip(ema_param_list, current_param_list, strict=True):
                ema.copy_(ema * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn():
    """``update(averages, currents, n)``: average ← average + (current - average) / (n + 1), over lists, in place."""

    @torch.no_grad()
    def swa_update(averaged_param_list, current_param_list, num_averaged):
        if _floating(averaged_param_list):
            update_all(_toward, averaged_param_list, current_param_list, {}, {"weight": 1 / (num_averaged + 1)})
        else:
            for average, current in zip(averaged_param_list, current_param_list, strict=True):
                average.addcdiv_(current - average, torch.as_tensor(num_averaged + 1, device=average.device))

    return swa_update


def get_ema_avg_fn(decay=0.999):
    """``f(average, current, n)`` → decay · average + (1 - decay) · current."""
    _check_decay(decay)

    @torch.no_grad()
    def ema_update(ema_param, current_param, num_averaged):
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn():
    """``f(average, current, n)`` → average + (current - average) / (n + 1)."""

    @torch.no_grad()
    def swa_update(averaged_param, current_param, num_averaged):
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of ``model`` whose parameters are an average of those it is shown (Izmailov et al., 2018): equal weights, or
    ``avg_fn(average, current, n)``, or ``multi_avg_fn(averages, currents, n)`` in place. ``use_buffers``: averages buffers too.
    """

    module: Any

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", torch.tensor(0, dtype=torch.long, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args, **kwargs):
        """The averaged model's output."""
        return self.module(*args, **kwargs)

    def _seen(self):
        """``n_averaged``; read only if somebody else has changed it."""
        known, node = self.__dict__.get("_known", (0, None))
        return known if node is self.n_averaged._tab_storage.node else int(self.n_averaged)

    @torch.no_grad()
    def update_parameters(self, model):
        """Takes ``model`` into the average; the first is copied."""
        buffers = self.use_buffers
        own = [*self.module.parameters(), *self.module.buffers()] if buffers else list(self.parameters())
        its = itertools.chain(model.parameters(), model.buffers()) if buffers else model.parameters()
        pairs = [(a.detach(), m.detach().to(a.device)) for a, m in zip(own, its, strict=False)]
        seen = self._seen()
        if seen == 0:
            for average, current in pairs:
                average.copy_(current)
        elif self.avg_fn is not None:
            for average, current in pairs:
                average.copy_(self.avg_fn(average, current, self.n_averaged.to(average.device)))
        else:
            buckets = defaultdict(list)
            for pair in pairs:
                buckets[pair[0].device, pair[0].dtype].append(pair)
            for (device, _), bucket in buckets.items():
                averages, currents = map(list, zip(*bucket, strict=True))
                if self.multi_avg_fn is not None:
                    self.multi_avg_fn(averages, currents, self.n_averaged.to(device))
                elif _floating(averages):
                    get_swa_multi_avg_fn()(averages, currents, seen)
                else:
                    for average, current in bucket:
                        average.copy_(get_swa_avg_fn()(average, current, seen))
        if not buffers:
            for average, current in zip(self.module.buffers(), model.buffers(), strict=True):
                average.detach().copy_(current.detach().to(average.device))
        self.n_averaged += 1
        self.__dict__["_known"] = seen + 1, self.n_averaged._tab_storage.node

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k != "_known"}


@torch.no_grad()
def update_bn(loader, model, device=None):
    """Computes the statistics of a model's BatchNorm layers anew, in one pass over ``loader`` (batches, or tuples that begin
    with one)."""
    momenta = {m: m.momentum for m in model.modules() if isinstance(m, _BatchNorm)}
    if not momenta:
        return
    for layer in momenta:
        layer.reset_running_stats()
    training = model.training
    model.train()
    for layer in momenta:
        layer.momentum = None
    for batch in loader:
        if isinstance(batch, (list, tuple)):
            batch = batch[0]
        model(batch if device is None else batch.to(device))
    for layer, momentum in momenta.items():
        layer.momentum = momentum
    model.train(training)


class SWALR(LRScheduler):
    """From the present learning rates to ``swa_lr``, over ``anneal_epochs``, then constant. ``anneal_strategy``: "cos" or
    "linear"."""

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        for rate, group in zip(_per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t):
        """How far the way is gone at a part ``t`` of the time."""
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self):
        self._warn_outside_step()
        step = self._step_count - 1
        epochs = max(1, self.anneal_epochs)
        if self.anneal_epochs == 0:
            step = max(1, step)
        before = self.anneal_func(max(0, min(1, (step - 1) / epochs)))
        now = self.anneal_func(max(0, min(1, step / epochs)))
        rates = []
        for group in self.optimizer.param_groups:
            last = group["swa_lr"]
            first = last if before == 1 else (group["lr"] - before * last) / (1 - before)
            rates.append(last * now + first * (1 - now))
        return rates
