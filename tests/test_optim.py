"""Optimizers and schedules against real PyTorch: every number, state, ``repr`` and error."""

import copy
import importlib
import pickle
import warnings

import numpy as np
import pytest
import torch

import tabtorch as tt
from nn_oracle import DEVICES, failure


@pytest.fixture(params=DEVICES, autouse=True)
def device(request):
    """Everything is made on this device."""
    with tt.device(request.param):
        yield request.param


def close(ours, theirs, rtol=1.3e-6, atol=1e-5):
    np.testing.assert_allclose(ours.detach().cpu().numpy(), theirs.detach().numpy(), rtol=rtol, atol=atol)


def parameters(ns):
    """Three parameters: two with gradients, one without."""
    values = np.linspace(-1, 2, 6, dtype=np.float32)
    return [
        ns.tensor(values.reshape(2, 3)).requires_grad_(),
        ns.tensor(values[:2]).requires_grad_(),
        ns.tensor(values[:1]).requires_grad_(),
    ]


def loss(params, k):
    a, b, _ = params
    return ((a * a * (1 + k)).sum() + (a.sum(0)[:2] * b).sum() * 0.5 + (b**3).sum()) * 0.1


def train(ns, name, arguments, steps=6):
    params = parameters(ns)
    optimizer = getattr(ns.optim, name)(params, **arguments)
    for k in range(steps):
        optimizer.zero_grad()
        loss(params, k % 3).backward()
        optimizer.step()
    return params, optimizer


OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "dampening": 0.3, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1, "betas": (0.8, 0.9)}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "eps": 1e-3}),
    ("Adam", {"lr": 0.1, "maximize": True, "foreach": False}),
    ("AdamW", {"lr": 0.1}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.3, "amsgrad": True}),
    ("RMSprop", {}),
    ("RMSprop", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.1, "centered": True, "alpha": 0.8, "maximize": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("Adadelta", {"lr": 0.5, "weight_decay": 0.1}),
    ("Adamax", {"lr": 0.1, "weight_decay": 0.1}),
]
IDS = [f"{i}-{r[0]}" for i, r in enumerate(OPTIMIZERS)]


@pytest.mark.parametrize("name,arguments", OPTIMIZERS, ids=IDS)
def test_optimizer(name, arguments):
    """Parameters after some steps, repr, and a state_dict that goes both ways and on from there."""
    ours, o = train(tt, name, arguments)
    theirs, p = train(torch, name, arguments)
    for a, b in zip(ours, theirs):
        close(a, b)
    assert repr(o) == repr(p)
    mine, its = o.state_dict(), p.state_dict()
    assert mine["param_groups"] == its["param_groups"]
    assert list(mine["state"]) == list(its["state"])
    for k, state in its["state"].items():
        assert type(mine["state"][k]) is dict
        assert list(mine["state"][k]) == list(state)
        for key, value in state.items():
            if value is None:
                assert mine["state"][k][key] is None
                continue
            close(mine["state"][k][key], value)
            if key == "step":
                step = mine["state"][k]["step"]
                assert step.dtype == tt.float32 and step.device.type == "cpu" and step.dim() == 0

    def converted(value, ns):
        if isinstance(value, (torch.Tensor, tt.Tensor)):
            return ns.tensor(value.detach().cpu().numpy(), device="cpu")
        return {k: converted(v, ns) for k, v in value.items()} if isinstance(value, dict) else value

    # PyTorch's state into ours, ours into PyTorch's: both go on as one.
    o2 = getattr(tt.optim, name)(ours)
    o2.load_state_dict({"state": converted(its["state"], tt), "param_groups": its["param_groups"]})
    p2 = getattr(torch.optim, name)(theirs)
    p2.load_state_dict({"state": converted(mine["state"], torch), "param_groups": mine["param_groups"]})
    for params, optimizer in ((ours, o2), (theirs, p2)):
        optimizer.zero_grad()
        loss(params, 1).backward()
        optimizer.step()
    for a, b in zip(ours, theirs):
        close(a, b)


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_groups(name):
    """Settings by group, a group added later, and one frozen in mid-run."""

    def run(ns):
        params = parameters(ns)
        more = {"momentum": 0.9} if name == "SGD" else {}
        optimizer = getattr(ns.optim, name)([{"params": params[:1], "lr": 0.2}, {"params": params[1]}], lr=0.1, **more)
        for k in range(5):
            if k == 2:
                optimizer.add_param_group({"params": params[2], "lr": 0.5})
            optimizer.zero_grad()
            (loss(params, k) + params[2].sum()).backward()
            if k == 3:
                params[0].grad = None  # its step count falls behind the others'
            optimizer.step()
        return params, [g["lr"] for g in optimizer.param_groups], [len(g["params"]) for g in optimizer.param_groups]

    (ours, *a), (theirs, *b) = run(tt), run(torch)
    assert a == b
    for x, y in zip(ours, theirs):
        close(x, y, 1e-5)


def test_named_parameters():
    def run(ns):
        layer = ns.nn.Linear(2, 1)
        return ns.optim.SGD(layer.named_parameters()).state_dict()

    assert run(tt) == run(torch)


def test_state_of_a_parameter():
    """``step`` reads as PyTorch's tensor and is set from one; copies and pickles keep it."""
    (a, *_), optimizer = train(tt, "Adam", {}, 3)
    state = optimizer.state[a]
    assert state["step"].item() == 3.0 and state.get("step").dtype == tt.float32
    assert dict(state.items())["step"].item() == 3.0
    state["step"] = tt.tensor(7.0)
    assert state["step"].item() == 7.0
    for twin in (copy.deepcopy(state), pickle.loads(pickle.dumps(state)), state.copy()):
        assert twin["step"].item() == 7.0 and list(twin) == list(state)


def test_deepcopy():
    layer = tt.nn.Linear(2, 2)
    optimizer = tt.optim.AdamW(layer.parameters())
    layer(tt.ones(2)).sum().backward()
    optimizer.step()
    twin = copy.deepcopy(optimizer)
    assert repr(twin) == repr(optimizer)
    assert next(iter(twin.state.values()))["step"].item() == 1.0


def test_closure_and_zero_grad():
    def run(ns):
        params = parameters(ns)
        optimizer = ns.optim.SGD(params, lr=0.1)

        def closure():
            optimizer.zero_grad()
            out = loss(params, 0)
            out.backward()
            return out

        value = optimizer.step(closure).item()
        optimizer.zero_grad(set_to_none=False)
        return round(value, 5), params[0].grad.abs().sum().item(), params[2].grad

    assert run(tt) == run(torch)


def test_learning_rate_as_a_tensor():
    for ns in (tt, torch):
        params = parameters(ns)
        optimizer = ns.optim.Adam(params, lr=ns.tensor(0.1))
        loss(params, 0).backward()
        optimizer.step()
        if ns is tt:
            ours = params
    close(ours[0], params[0])


def test_hooks():
    def run(ns):
        log = []
        params = parameters(ns)
        optimizer = ns.optim.SGD(params, lr=0.1)
        everywhere = importlib.import_module(f"{ns.__name__}.optim.optimizer")
        handles = [
            optimizer.register_step_pre_hook(lambda o, a, k: log.append(("pre", type(o).__name__, len(a)))),
            optimizer.register_step_post_hook(lambda o, a, k: log.append("post")),
            optimizer.register_state_dict_pre_hook(lambda o: log.append("state pre")),
            optimizer.register_state_dict_post_hook(lambda o, s: log.append(list(s))),
            optimizer.register_load_state_dict_pre_hook(lambda o, s: log.append("load pre")),
            optimizer.register_load_state_dict_post_hook(lambda o: log.append("load post"), prepend=True),
            everywhere.register_optimizer_step_pre_hook(lambda o, a, k: log.append("all pre")),
            everywhere.register_optimizer_step_post_hook(lambda o, a, k: log.append("all post")),
        ]
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
        for handle in handles:
            handle.remove()
        optimizer.step()
        return log

    assert run(tt) == run(torch)


def test_an_optimizer_of_ones_own():
    class Sign(tt.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @tt.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad.sign(), alpha=-group["lr"])

    p = tt.ones(2, requires_grad=True)
    (p * tt.tensor([1.0, -1.0])).sum().backward()
    Sign([p], 0.5).step()
    close(p, torch.tensor([0.5, 1.5]))


def failed(f, ns):
    return failure(lambda ns: f(ns, ns.optim, ns.ones(2, requires_grad=True)), ns)


ERRORS = [
    lambda t, o, p: o.SGD(p),
    lambda t, o, p: o.SGD([]),
    lambda t, o, p: o.SGD([3]),
    lambda t, o, p: o.SGD([p * 2]),
    lambda t, o, p: o.SGD([{"params": {p}}]),
    lambda t, o, p: o.SGD([{"params": [p]}, {"params": [p]}]),
    lambda t, o, p: o.SGD([p], lr=-1),
    lambda t, o, p: o.SGD([p], momentum=-1),
    lambda t, o, p: o.SGD([p], weight_decay=-1),
    lambda t, o, p: o.SGD([p], nesterov=True),
    lambda t, o, p: o.SGD([("a", p), t.ones(1)]),
    lambda t, o, p: o.SGD([p]).add_param_group(3),
    lambda t, o, p: o.SGD([p]).load_state_dict({"state": {}, "param_groups": []}),
    lambda t, o, p: o.SGD([p]).load_state_dict({"state": {}, "param_groups": [{"params": []}]}),
    lambda t, o, p: o.Adam([p], lr=-1),
    lambda t, o, p: o.Adam([p], eps=-1),
    lambda t, o, p: o.Adam([p], betas=(1.0, 0.9)),
    lambda t, o, p: o.Adam([p], betas=(0.9, 1.5)),
    lambda t, o, p: o.Adam([p], weight_decay=-1),
    lambda t, o, p: o.Adam([p], lr=t.ones(2)),
    lambda t, o, p: o.Adam([p], lr=t.tensor(0.1), foreach=True),
    lambda t, o, p: o.RMSprop([p], alpha=-1),
    lambda t, o, p: o.Adagrad([p], lr_decay=-1),
    lambda t, o, p: o.Adadelta([p], rho=2),
    lambda t, o, p: o.Adamax([p], betas=(2.0, 0.9)),
    lambda t, o, p: o.Optimizer([p], {"lr": 1}).step(),
    lambda t, o, p: o.lr_scheduler.StepLR(3, 1),
    lambda t, o, p: o.lr_scheduler.StepLR(o.SGD([p]), 1, last_epoch=3),
    lambda t, o, p: o.lr_scheduler.OneCycleLR(o.SGD([p]), 0.1),
    lambda t, o, p: o.lr_scheduler.OneCycleLR(o.Adagrad([p]), 0.1, total_steps=3),
    lambda t, o, p: o.lr_scheduler.LambdaLR(o.SGD([p]), [abs, abs]),
    lambda t, o, p: o.lr_scheduler.ReduceLROnPlateau(o.SGD([p]), factor=2),
    lambda t, o, p: o.lr_scheduler.ReduceLROnPlateau(o.SGD([p]), mode="foo"),
    lambda t, o, p: o.lr_scheduler.SequentialLR(o.SGD([p]), [], []),
    lambda t, o, p: o.lr_scheduler.CosineAnnealingWarmRestarts(o.SGD([p]), 0),
    lambda t, o, p: o.lr_scheduler.LinearLR(o.SGD([p]), start_factor=0),
]


@pytest.mark.parametrize("i", range(len(ERRORS)))
def test_error(i):
    expected = failed(ERRORS[i], torch)
    assert expected is not None
    assert failed(ERRORS[i], tt) == expected


# -- schedules


def _sequence(lr, o):
    return lr.SequentialLR(o, [lr.ConstantLR(o, 0.1, 2), lr.LinearLR(o), lr.ExponentialLR(o, 0.9)], [3, 7])


SCHEDULES = {
    "StepLR": lambda lr, o: lr.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda lr, o: lr.MultiStepLR(o, [2, 5, 5], 0.5),
    "ExponentialLR": lambda lr, o: lr.ExponentialLR(o, 0.9),
    "ConstantLR": lambda lr, o: lr.ConstantLR(o, 0.5, 4),
    "LinearLR": lambda lr, o: lr.LinearLR(o, 0.25, 0.75, 6),
    "PolynomialLR": lambda lr, o: lr.PolynomialLR(o, 8, 2.0),
    "CosineAnnealingLR": lambda lr, o: lr.CosineAnnealingLR(o, 4, 0.01),
    "CosineAnnealingWarmRestarts": lambda lr, o: lr.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "LambdaLR": lambda lr, o: lr.LambdaLR(o, lambda e: 0.9**e),
    "LambdaLR list": lambda lr, o: lr.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (e + 1)]),
    "MultiplicativeLR": lambda lr, o: lr.MultiplicativeLR(o, lambda e: 0.9),
    "OneCycleLR": lambda lr, o: lr.OneCycleLR(o, 0.3, total_steps=14),
    "OneCycleLR 3": lambda lr, o: lr.OneCycleLR(
        o, [0.3, 0.2], epochs=2, steps_per_epoch=7, three_phase=True, anneal_strategy="linear"
    ),
    "CyclicLR": lambda lr, o: lr.CyclicLR(o, 0.1, 0.5, 3, 2, mode="triangular2"),
    "CyclicLR exp": lambda lr, o: lr.CyclicLR(o, 0.1, 0.5, 3, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "SequentialLR": _sequence,
    "ChainedScheduler": lambda lr, o: lr.ChainedScheduler([lr.ConstantLR(o, 0.1, 3), lr.ExponentialLR(o, 0.9)]),
}


def schedule(ns, name, resume):
    a, b, _ = parameters(ns)
    if name == "CyclicLR exp":
        optimizer = ns.optim.Adam([{"params": [a]}, {"params": [b], "lr": 0.4}], lr=0.2)
    else:
        optimizer = ns.optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.4}], lr=0.2, momentum=0.9)
    scheduler = SCHEDULES[name](ns.optim.lr_scheduler, optimizer)
    log = []
    for k in range(12):
        log += scheduler.get_last_lr()
        log += [g["lr"] for g in optimizer.param_groups] + [g.get("momentum", 0.0) for g in optimizer.param_groups]
        optimizer.step()
        scheduler.step()
        if k == 5 and resume:
            saved = copy.deepcopy((scheduler.state_dict(), optimizer.state_dict()))
            scheduler = SCHEDULES[name](ns.optim.lr_scheduler, optimizer)
            scheduler.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
    return log


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(name, resume):
    if resume and name == "CyclicLR":
        resume = False  # PyTorch's own state_dict of it cannot be copied
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = schedule(torch, name, resume)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert schedule(tt, name, resume) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("arguments", [{}, {"mode": "max", "threshold_mode": "abs"}, {"cooldown": 1, "min_lr": 0.05}])
def test_plateau(arguments):
    def run(ns):
        optimizer = ns.optim.SGD(parameters(ns), lr=0.2)
        scheduler = ns.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, **arguments)
        log = []
        for metric in [3.0, 2.0, 2.0, 2.5, 2.0, 1.0, ns.tensor(1.5), 1.5, 1.5, 1.5, 1.5]:
            scheduler.step(metric)
            log.append((scheduler.get_last_lr(), scheduler.best, scheduler.num_bad_epochs))
        return log

    assert run(tt) == run(torch)


def test_order_of_calls():
    """A schedule that steps before its optimizer warns."""
    optimizer = tt.optim.SGD(parameters(tt), lr=0.2)
    scheduler = tt.optim.lr_scheduler.StepLR(optimizer, 1)
    with pytest.warns(UserWarning, match=r"Detected call of `lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        scheduler.step()
    with pytest.warns(UserWarning, match="please use `get_last_lr"):
        scheduler.get_lr()
