"""Steps of optimizers: what they cost, where their states lie, dtypes, autograd through them, and the functional forms."""

import copy
import importlib
import io
import pickle

import numpy as np
import pytest
import torch

import tabtorch as tt
from sidebyside import DEVICES
from tabtorch.bridge import get_bridge

ELEMENTWISE = ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "Rprop"]
MOMENTUM = {"SGD": {"momentum": 0.9}, "RMSprop": {"momentum": 0.9, "centered": True}, "Adam": {"amsgrad": True}}


def near(ours, theirs, tol=2e-6):
    a, b = ours.detach().cpu(), theirs.detach()
    if b.dtype is torch.bfloat16:
        a, b = a.float(), b.float()
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tol, atol=tol)


def values(n, shape=(3, 2), dtype=np.float32):
    x = np.sin(np.arange(n * int(np.prod(shape)), dtype=np.float64) * 0.7).reshape(n, *shape)
    return x.astype(dtype) if dtype != np.complex64 else (x + 1j * x[::-1]).astype(dtype)


def stepped(lib, name, start, steps=4, cast=lambda t: t, **arguments):
    """Parameters after steps whose gradients follow from them."""
    params = [cast(lib.tensor(v)).requires_grad_() for v in start]
    optimizer = getattr(lib.optim, name)(params, **arguments)
    for k in range(steps):
        for i, p in enumerate(params):
            p.grad = (p.detach() * 0.5 + 0.1 * (i + k + 1)).conj().resolve_conj()
        optimizer.step()
    return params, optimizer


def cost(name, n, **arguments):
    """(dispatches, reads) of the fourth step of n parameters."""
    params = [tt.full((4, 3), 0.1 * i, requires_grad=True) for i in range(n)]
    optimizer = getattr(tt.optim, name)(params, **arguments)
    bridge = get_bridge()
    for k in range(4):
        for p in params:
            p.grad = tt.ones(4, 3)
        for p in params:
            p.sum().item() if k == 3 else None  # whatever is pending is done
        before = bridge.stats()
        optimizer.step()
    after = bridge.stats()
    return after["dispatches"] - before["dispatches"], after["reads"] - before["reads"]


@pytest.mark.parametrize("name", [*ELEMENTWISE, "Adafactor", "Muon"])
def test_dispatches(device, name):
    """Ten times the parameters: the same dispatches, but for packing gradients, some at once; nothing is read."""
    few, many = cost(name, 8, **MOMENTUM.get(name, {})), cost(name, 80, **MOMENTUM.get(name, {}))
    assert few[1] == many[1] == 0
    assert few[0] <= {"Adafactor": 10, "Muon": 40}.get(name, 4)
    assert many[0] <= few[0] + 80 // 7


@pytest.mark.skipif("webgpu" not in DEVICES, reason="webgpu was not asked for")
@pytest.mark.parametrize("name", ["SGD", "Adam", "NAdam", "Rprop", "ASGD", "Adafactor", "Muon"])
def test_a_learning_rate_on_the_gpu_is_not_read(webgpu, name):
    """And it takes part: a new value is seen by the next step."""
    assert cost(name, 3, lr=tt.tensor(0.1))[1] == 0
    start = values(3)
    ours, o = stepped(tt, name, start, 2, lr=tt.tensor(0.1))
    theirs, t = stepped(torch, name, start, 2, lr=torch.tensor(0.1))
    for lib, params, optimizer in ((tt, ours, o), (torch, theirs, t)):
        optimizer.param_groups[0]["lr"].fill_(0.01)
        for p in params:
            p.grad = lib.full((3, 2), 0.3)
        optimizer.step()
    for a, b in zip(ours, theirs):
        near(a, b, 2e-2 if name == "Muon" else 1e-5)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_dtypes(device, name):
    """Complex, half and double parameters, an empty one and a view among others, in one group."""
    arguments = MOMENTUM.get(name, {})
    for a, b in zip(
        stepped(tt, name, values(2, dtype=np.complex64), **arguments)[0],
        stepped(torch, name, values(2, dtype=np.complex64), **arguments)[0],
    ):
        near(a, b, 1e-5)
    start = values(4)

    def cast(lib):
        kinds = iter([lib.float32, lib.bfloat16, lib.float32, lib.float32])

        def one(t):
            t = t.to(next(kinds))
            return lib.stack([t, t])[1] if t.dtype == lib.bfloat16 else t

        return one

    ours, o = stepped(tt, name, [*start, np.zeros((0, 2), np.float32)][:4], cast=cast(tt), **arguments)
    theirs, _ = stepped(torch, name, start, cast=cast(torch), **arguments)
    for a, b in zip(ours, theirs):
        near(a, b, 0.02 if b.dtype is torch.bfloat16 else 1e-5)
    assert all(s.dtype == p.dtype for p in ours for k, s in o.state[p].items() if k.startswith("exp_avg"))


def test_double(device):
    """float64 stays float64, on cpu."""
    start = values(3, dtype=np.float64)
    ours, o = stepped(tt, "Adam", start, cast=lambda t: t.cpu())
    theirs, _ = stepped(torch, "Adam", start)
    for a, b in zip(ours, theirs):
        assert a.dtype == tt.float64
        near(a, b, 1e-12)


def test_states_keep_their_tensors(device):
    """The tensor of a state is the same one all along, and what is written into it counts."""

    def run(lib):
        params = [lib.tensor(v).requires_grad_() for v in values(3)]
        optimizer = lib.optim.SGD(params, lr=0.1, momentum=0.9)
        held = None
        for k in range(4):
            for p in params:
                p.grad = lib.full((3, 2), 0.5)
            if k == 2:
                held.zero_()
            if k == 3:
                params[2].grad = None
            optimizer.step()
            held = held if held is not None else optimizer.state[params[0]]["momentum_buffer"]
        assert held is optimizer.state[params[0]]["momentum_buffer"]
        return [*params, held]

    for a, b in zip(run(tt), run(torch)):
        near(a, b)


@pytest.mark.parametrize("name", ["Adam", "SGD", "NAdam", "ASGD", "Adafactor", "Rprop"])
def test_copies(device, name):
    """deepcopy, pickle and torch.save keep numbers and tensors; the copies go on alone, and PyTorch reads the file."""
    arguments = MOMENTUM.get(name, {})
    params, optimizer = stepped(tt, name, values(3), **arguments)
    theirs, real = stepped(torch, name, values(3), **arguments)
    twins = [copy.deepcopy((params, optimizer)), pickle.loads(pickle.dumps((params, optimizer)))]
    file = io.BytesIO()
    tt.save(optimizer.state_dict(), file)
    file.seek(0)
    other = getattr(torch.optim, name)([p.detach().clone().requires_grad_() for p in theirs], **arguments)
    other.load_state_dict(torch.load(file))
    for pair in [(params, optimizer), *twins]:
        for p in pair[0]:
            p.grad = tt.full((3, 2), 0.3)
        pair[1].step()
    for optimizer in (real, other):
        for p in optimizer.param_groups[0]["params"]:
            p.grad = torch.full((3, 2), 0.3)
        optimizer.step()
    for a, b, *more in zip(theirs, params, twins[0][0], twins[1][0], other.param_groups[0]["params"]):
        for x in (b, *more):
            near(x, a, 1e-5)


DIFFERENTIABLE = [
    ("SGD", {}, 2, True),
    ("SGD", {"momentum": 0.9}, 2, False),
    ("Adam", {}, 2, True),
    ("Adam", {"amsgrad": True}, 1, False),
    ("RMSprop", {}, 2, False),
    ("RMSprop", {"momentum": 0.9, "centered": True}, 1, False),
    ("Adagrad", {"weight_decay": 0.1}, 2, False),
    ("Adadelta", {}, 2, False),
    ("NAdam", {}, 2, False),
    ("RAdam", {"decoupled_weight_decay": True}, 2, True),
    ("Adamax", {}, 1, False),
    ("ASGD", {}, 2, False),
    ("Rprop", {}, 1, False),
]


@pytest.mark.parametrize("name,arguments,steps,rate", DIFFERENTIABLE)
def test_differentiable(device, name, arguments, steps, rate):
    """A gradient through steps, to the start and to the learning rate, as PyTorch's, as far as that can."""

    def run(lib):
        start = lib.tensor(values(1)[0]).requires_grad_()
        lr = lib.tensor(0.1, requires_grad=True)
        p = start.clone()
        optimizer = getattr(lib.optim, name)([p], lr=lr if rate else 0.1, differentiable=True, **arguments)
        for _ in range(steps):
            q = p.clone()
            p.grad = q * q + 0.5
            optimizer.step()
        (p * p).sum().backward()
        return (start.grad, lr.grad) if rate else (start.grad,)

    for a, b in zip(run(tt), run(torch)):
        near(a, b, 1e-4)


def test_functional(device):
    """The functions under the optimizers."""
    ours, theirs = (importlib.import_module(f"{lib}.optim._functional") for lib in ("tabtorch", "torch"))

    def run(lib, F):
        def fresh(value=0.0):
            return [lib.full((3, 2), value) for _ in range(2)]

        def steps():
            return [lib.tensor(0.0, device="cpu") for _ in range(2)]

        grads = [lib.tensor(v) for v in values(2)]
        out = []
        for _ in range(2):
            p, m, v, t = fresh(1.0), fresh(), fresh(), steps()
            common = {"lr": 0.1, "weight_decay": 0.1, "eps": 1e-6, "maximize": False}
            betas = {"beta1": 0.9, "beta2": 0.99}
            F.adam(p, grads, m, v, [], t, amsgrad=False, foreach=False, fused=False, **betas, **common)
            F.adamw(p, grads, m, v, [], t, amsgrad=False, foreach=False, fused=False, **betas, **common)
            out += [*p, *m, *v, *t]
            p, buffers = fresh(1.0), [None, None]
            common = {"lr": 0.1, "weight_decay": 0.1, "maximize": False}
            F.sgd(p, grads, buffers, momentum=0.9, dampening=0.1, nesterov=False, foreach=False, fused=False, **common)
            out += [*p, *buffers]
            p, mu, t = fresh(1.0), [lib.tensor(1.0, device="cpu") for _ in range(2)], steps()
            F.nadam(
                p, grads, m, v, mu, t, momentum_decay=4e-3, eps=1e-8, **betas, lr=0.1, weight_decay=0, foreach=False
            )
            out += [*p, *mu, *t]
            F.rprop(
                p,
                grads,
                fresh(),
                fresh(0.1),
                steps(),
                step_size_min=1e-6,
                step_size_max=50,
                etaminus=0.5,
                etaplus=1.2,
                foreach=False,
                maximize=False,
                differentiable=False,
                capturable=False,
                has_complex=False,
            )
            out += p
        return out

    for a, b in zip(run(tt, ours), run(torch, theirs)):
        near(a, b)


ERRORS = [
    lambda t, o, p: o.Adam([p], capturable=True).step() if p.device.type == "cpu" else None,
    lambda t, o, p: o.RAdam([p], foreach=True, differentiable=True).step(),
    lambda t, o, p: o.Adam([p], fused=True, differentiable=True),
    lambda t, o, p: o.SGD([p], fused=True, foreach=True),
    lambda t, o, p: o.Adagrad([p], fused=True, foreach=True),
    lambda t, o, p: o.Adam([p], betas=(t.tensor([0.9, 0.9]), t.tensor(0.9))),
    lambda t, o, p: o.Adam([p], betas=(0, 0.9)),
    lambda t, o, p: o.LBFGS([{"params": [p]}, {"params": [t.ones(1)]}]),
    lambda t, o, p: o.LBFGS([p], line_search_fn="x").step(lambda: (p * p).sum()),
    lambda t, o, p: o.LBFGS([p]).step(),
    lambda t, o, p: o.Muon([t.ones(2, 2)], lr=-1),
    lambda t, o, p: o.Muon([p]),
    lambda t, o, p: o.Adafactor([p], lr=-1),
    lambda t, o, p: o.SparseAdam([p], lr=0.0),
    lambda t, o, p: o.SparseAdam([p]).step(),
    lambda t, o, p: o.Rprop([p], etas=(1.0, 1.2)),
    lambda t, o, p: o.NAdam([p], momentum_decay=-1),
    lambda t, o, p: o.ASGD([p], weight_decay=-1),
    lambda t, o, p: o.swa_utils.SWALR(o.SGD([p]), 0.1, anneal_strategy="x"),
    lambda t, o, p: o.swa_utils.SWALR(o.SGD([p]), 0.1, anneal_epochs=-1),
    lambda t, o, p: o.swa_utils.get_ema_avg_fn(2),
    lambda t, o, p: o.nothing,
]


@pytest.mark.parametrize("i", range(len(ERRORS)))
def test_error(i):
    def failure(lib):
        with tt.device("cpu"):
            p = lib.ones(2, requires_grad=True)
            p.grad = lib.ones(2)
            try:
                ERRORS[i](lib, lib.optim, p)
            except Exception as e:
                return type(e), str(e)
        return None

    expected = failure(torch)
    assert expected is not None
    assert failure(tt) == expected


def test_swap_in(device):
    """Other parameters and another state for a while, then the optimizer's own again."""

    def run(lib):
        params = [lib.tensor(v).requires_grad_() for v in values(2)]
        optimizer = lib.optim.Adam(params, lr=0.1)
        for p in params:
            p.grad = lib.ones(3, 2)
        optimizer.step()
        others = [lib.zeros(3, 2) for _ in params]
        for p in others:
            p.grad = lib.full((3, 2), 0.5)
        state = copy.deepcopy(optimizer.state_dict())
        with lib.optim.swap_in_optimizer_params_and_state(optimizer, dict(zip("ab", others)), state):
            optimizer.step()
        optimizer.step()
        with pytest.raises(RuntimeError) as e:
            with lib.optim.swap_in_optimizer_params_and_state(optimizer, {}, state):
                pass
        return [*params, *others, state["state"][0]["exp_avg"]], str(e.value)

    (ours, a), (theirs, b) = run(tt), run(torch)
    assert a == b
    for x, y in zip(ours, theirs):
        near(x, y)


@pytest.mark.parametrize("options", [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 3}])
def test_a_step_of_muon_is_not_rounded_to_bfloat16(device, options):
    """The orthogonal matrix is bfloat16; its product with the learning rate is not."""

    def step(lib):
        with tt.device(device):
            p = lib.tensor(values(1, (5, 3))[0]).requires_grad_()
            p.grad = lib.tensor(values(1, (5, 3))[0][::-1].copy())
            lib.optim.Muon([p], lr=0.7, **options).step()
            return p

    near(step(tt), step(torch), 2e-6)


@pytest.mark.parametrize("name", ["Adam", "NAdam", "RMSprop", "Adadelta"])
def test_squares_of_large_gradients(device, name):
    """(1 - beta) · g is there before it meets g again: what fits in float32 then does not overflow."""

    def steps(lib):
        with tt.device(device):
            p = lib.ones(4, requires_grad=True)
            optimizer = getattr(lib.optim, name)([p], lr=0.1)
            for k in range(2):
                p.grad = lib.tensor([1e19, -3e19, 1.5e20, 2e20]) * (1 - 0.2 * k)
                optimizer.step()
            return p

    near(steps(tt), steps(torch), 3e-6)


@pytest.mark.parametrize("name", ["Adam", "NAdam", "ASGD", "RAdam"])
def test_a_state_written_in_place(name):
    """Zeros in place, as a script that starts an optimizer's state anew: the step count too."""

    def run(lib):
        p = lib.tensor([1.0, -2.0], device="cpu", requires_grad=True)
        optimizer = getattr(lib.optim, name)([p], lr=0.1)
        seen = []
        for k in range(6):
            p.grad = p.detach() * 0.5
            optimizer.step()
            if k == 2:
                for key, value in optimizer.state[p].items():
                    value.zero_() if key in ("step", "exp_avg", "exp_avg_sq") else value.mul_(0.5)
                seen.append(float(optimizer.state[p]["step"]))
        optimizer.state[p]["step"] += 2
        seen.append(float(copy.deepcopy(optimizer).state_dict()["state"][0]["step"]))
        optimizer.state[p]["step"].fill_(9)
        other = pickle.loads(pickle.dumps(optimizer.state_dict()))["state"][0]
        return p, seen, float(other["step"])

    (ours, *a), (theirs, *b) = run(tt), run(torch)
    assert a == b == [[0.0, 5.0], 9.0]
    near(ours, theirs)


def test_lbfgs_plans_nothing_while_its_history_grows():
    from tabtorch.engine import graph

    tt.manual_seed(0)
    model = tt.nn.Linear(6, 3)
    x, y = tt.randn(20, 6), tt.randn(20, 3)
    optimizer = tt.optim.LBFGS(model.parameters(), lr=0.01, max_iter=20, tolerance_change=0, tolerance_grad=0)

    def closure():
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    known = graph.counts["schedules"]
    optimizer.step(closure)
    assert len(optimizer.state[next(model.parameters())]["old_dirs"]) > 30
    assert graph.counts["schedules"] == known
