"""Schedules with learning rates that are tensors, their states, and the averages of `swa_utils`."""

import copy
import warnings

import numpy as np
import pytest
import torch

import tabtorch as tt

SCHEDULES = {
    "StepLR": lambda o, f: o.lr_scheduler.StepLR(f, 3),
    "MultiStepLR": lambda o, f: o.lr_scheduler.MultiStepLR(f, [2, 4]),
    "ConstantLR": lambda o, f: o.lr_scheduler.ConstantLR(f),
    "LinearLR": lambda o, f: o.lr_scheduler.LinearLR(f),
    "ExponentialLR": lambda o, f: o.lr_scheduler.ExponentialLR(f, 0.9),
    "PolynomialLR": lambda o, f: o.lr_scheduler.PolynomialLR(f),
    "CosineAnnealingLR": lambda o, f: o.lr_scheduler.CosineAnnealingLR(f, 5),
    "CosineAnnealingWarmRestarts": lambda o, f: o.lr_scheduler.CosineAnnealingWarmRestarts(f, 3),
    "LambdaLR": lambda o, f: o.lr_scheduler.LambdaLR(f, lambda e: 0.9**e),
    "MultiplicativeLR": lambda o, f: o.lr_scheduler.MultiplicativeLR(f, lambda e: 0.9),
    "CyclicLR": lambda o, f: o.lr_scheduler.CyclicLR(f, 0.1, 0.5, 3, mode="exp_range", gamma=0.9),
    "OneCycleLR": lambda o, f: o.lr_scheduler.OneCycleLR(f, 0.1, total_steps=20, three_phase=True),
    "ReduceLROnPlateau": lambda o, f: o.lr_scheduler.ReduceLROnPlateau(f, patience=1),
    "SequentialLR": lambda o, f: o.lr_scheduler.SequentialLR(
        f, [o.lr_scheduler.ConstantLR(f, 0.1, 2), o.lr_scheduler.ExponentialLR(f, 0.9)], [3]
    ),
    "ChainedScheduler": lambda o, f: o.lr_scheduler.ChainedScheduler(
        [o.lr_scheduler.ConstantLR(f, 0.1, 2), o.lr_scheduler.ExponentialLR(f, 0.9)]
    ),
    "SWALR": lambda o, f: o.swa_utils.SWALR(f, 0.05, 4),
    "SWALR linear": lambda o, f: o.swa_utils.SWALR(f, [0.05, 0.5], 4, "linear"),
    "SWALR at once": lambda o, f: o.swa_utils.SWALR(f, 0.05, 0),
}


def plain(x):
    """Tensors and numbers as (kind, rounded)."""
    if isinstance(x, (tt.Tensor, torch.Tensor)):
        return str(x.dtype), round(float(x), 6)
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items() if not callable(v)}
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    return round(x, 6) if isinstance(x, float) else x


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(device, name, tensor):
    """Groups, last rates and the state dict, its order of keys too, after every step, with Adam and with SGD."""

    def run(lib, kind):
        lr = [lib.tensor(v) if tensor else v for v in (0.2, 0.1)]
        groups = [{"params": [lib.ones(2, requires_grad=True)], "lr": v} for v in lr]
        optimizer = getattr(lib.optim, kind)(groups, lr=0.3, **({"momentum": 0.9} if kind == "SGD" else {}))
        scheduler = SCHEDULES[name](lib.optim, optimizer)
        log = []
        for _ in range(7):
            optimizer.step()
            scheduler.step(*[1.0] * (name == "ReduceLROnPlateau"))
            settings = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
            log.append((plain(scheduler.get_last_lr()), plain(settings)))
        state = scheduler.state_dict()
        return log, list(state), plain(state)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in ("Adam", "SGD"):
            assert run(tt, kind) == run(torch, kind)


def test_names():
    ours, theirs = tt.optim.lr_scheduler, torch.optim.lr_scheduler
    assert sorted(ours.__all__) == sorted(theirs.__all__)
    assert sorted(tt.optim.swa_utils.__all__) == sorted(torch.optim.swa_utils.__all__)


AVERAGES = {
    "swa": lambda u: {},
    "swa list": lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
    "swa each": lambda u: {"avg_fn": u.get_swa_avg_fn()},
    "ema list": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9)},
    "ema each": lambda u: {"avg_fn": u.get_ema_avg_fn(0.9)},
    "own": lambda u: {"avg_fn": lambda a, p, n: a * 0.5 + p * n},
}


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("name", AVERAGES)
def test_averaged_model(device, name, buffers):
    """Four models, one after another; a state dict in between."""
    if name == "swa list" and buffers:
        return  # raises in PyTorch as well: a count of batches is no float

    def run(lib):
        lib.manual_seed(0)
        model = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 2))
        utils = lib.optim.swa_utils
        averaged = utils.AveragedModel(model, use_buffers=buffers, **AVERAGES[name](utils))
        for k in range(4):
            with lib.no_grad():
                for p in model.parameters():
                    p.add_(0.1 * (k + 1))
            model(lib.full((2, 3), 0.5 * k))
            averaged.update_parameters(model)
            if k == 1:
                saved = averaged.state_dict()
                averaged = copy.deepcopy(averaged)
                averaged.load_state_dict(saved)
        return averaged.state_dict()

    ours, theirs = run(tt), run(torch)
    assert list(ours) == list(theirs)
    for k, v in theirs.items():
        assert str(ours[k].dtype) == str(v.dtype)
        np.testing.assert_allclose(ours[k].cpu().numpy(), v.numpy(), rtol=1e-5, atol=1e-6, err_msg=k)


def test_update_bn(device):
    def run(lib):
        lib.manual_seed(0)
        model = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4)).eval()
        batches = [(lib.arange(12.0).reshape(4, 3) * k, None) for k in range(1, 4)]
        lib.optim.swa_utils.update_bn(batches, model)
        assert not model.training and model[1].momentum == 0.1
        return model[1].running_mean, model[1].running_var, model[1].num_batches_tracked

    for a, b in zip(run(tt), run(torch)):
        np.testing.assert_allclose(a.cpu().numpy(), b.numpy(), rtol=1e-5)
