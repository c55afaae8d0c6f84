"""Methods written to files and read again: the same numbers as the functions give, on both devices."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch

import tabtorch as torch
from fuzz import plan_files as hostile
from tabtorch import nn, plan_files
from tabtorch.engine import graph
from tabtorch.nn import functional as F
from tabtorch.plan_files import ExportError, PlanFileError


def saved(methods: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    plan_files.save(file, methods, **options)
    return file.getvalue()


def plan_of(data: bytes) -> dict[str, Any]:
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    plan: dict[str, Any] = json.loads(header["__metadata__"]["tabtorch.plan"])
    return plan


def with_plan(data: bytes, plan: dict[str, Any]) -> bytes:
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + n])
    header["__metadata__"]["tabtorch.plan"] = json.dumps(plan)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + n :]


@pytest.fixture(params=["cpu", "webgpu"])
def on(request: Any) -> Any:
    """Tensors are made on this device."""
    if request.param == "webgpu" and not graph.bridge().info.get("webgpu"):
        pytest.skip("there is no WebGPU")
    with torch.device(request.param):
        yield request.param


def trainer(model: Any, optimizer: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    return step


def mlp() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def batch(n: int) -> Any:
    return torch.randn(n, 8), torch.randint(0, 3, (n,))


def same(a: Any, b: Any, on: str) -> None:
    """Equal: to the last bit on the cpu. On a software GPU eager kernels have another form, and round otherwise."""
    if on == "cpu":
        assert torch.equal(a, b), (a, b)
    else:
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6)


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "Adam": lambda p: torch.optim.Adam(p, 1e-2),
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-2, amsgrad=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 1e-2, momentum=0.5, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 1e-2),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Adamax": lambda p: torch.optim.Adamax(p),
    "NAdam": lambda p: torch.optim.NAdam(p),
    "RAdam": lambda p: torch.optim.RAdam(p, 1e-2),
    "ASGD": lambda p: torch.optim.ASGD(p),
    "Rprop": lambda p: torch.optim.Rprop(p),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_optimizers(name: str) -> None:
    with torch.device("cpu"):
        model = mlp()
        optimizer = OPTIMIZERS[name](model.parameters())
        step = trainer(model, optimizer)
        x, y = batch(5)
        m = plan_files.load(saved({"step": (step, (x, y))}, model=model, optimizer=optimizer, devices=("cpu",)), "cpu")
        assert name == "Adagrad" or not optimizer.state  # it is as it was
        for k in range(12):
            if k == 6 and "lr" in m.numbers:
                m.numbers["lr"] = optimizer.param_groups[0]["lr"] = 0.005
            assert m.step(x, y)["loss"].item() == step(x, y)["loss"].item(), k
        now = m.state_dict()
        for key, t in model.state_dict().items():
            assert torch.equal(now[key], t)


def test_a_model_in_training(on: str) -> None:
    """Convolutions, batch norm, dropout; several methods over the same tensors; sizes that vary."""
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = trainer(model, optimizer)

    def noisy(x: Any) -> Any:
        return x + torch.rand(x.shape) + torch.randn(3, 1, 8, 8)[:1]

    x, y = torch.randn(4, 1, 8, 8), torch.randint(0, 3, (4,))
    dims = {"x": {0: "batch"}, "y": {0: "batch"}}
    data = saved(
        {"step": (step, (x, y)), "noisy": (noisy, (x,))}, model=model, optimizer=optimizer, dynamic=dims, devices=(on,)
    )
    m = plan_files.load(data, on)
    for n in (4, 3, 9, 2, 1, 5) if on == "cpu" else (4, 3):
        x, y = torch.randn(n, 1, 8, 8), torch.randint(0, 3, (n,))
        state = torch.get_rng_state()
        for g, k in zip(plan_of(data)["generators"], range(9), strict=False):
            if "mt19937" in g:
                m._generators[k] = _words_of(torch.default_generator)
        got, drawn = m.step(x, y)["loss"], m.noisy(x)
        torch.set_rng_state(state)
        same(got, step(x, y)["loss"].detach(), on)
        same(drawn, noisy(x), on)
    for key, t in model.state_dict().items():
        if key in (now := m.state_dict()):
            same(now[key], t, on)


def _words_of(g: Any) -> Any:
    return graph.copied(graph.buffer_of(g._state()), 1, graph.buffer_of(g._state()).nbytes)


def test_random_numbers_go_on_in_the_same_stream(on: str) -> None:
    def noisy(x: Any) -> Any:
        return F.dropout(x, 0.5) + torch.rand(3) + torch.randn(20)[:3]

    x = torch.ones(3)
    torch.manual_seed(11)
    torch.rand(5)
    m = plan_files.load(saved({"noisy": (noisy, (x,))}, devices=(on,)), on)
    for _ in range(5):
        assert m.noisy(x).tolist() == noisy(x).tolist()


def test_unseen_sizes_are_those_of_the_function(on: str) -> None:
    model = mlp().eval()

    def predict(x: Any) -> Any:
        return model(x).softmax(-1), x.mean(0), x.shape[0]

    m = plan_files.load(
        saved({"predict": (predict, (torch.randn(4, 8),))}, dynamic={"x": {0: "batch"}}, devices=(on,)), on
    )
    for n in (1, 2, 3, 5, 8, 16, 17, 31, 64, 100, 333):
        x = torch.randn(n, 8)
        a, b = m.predict(x), predict(x)
        assert a[2] == n
        same(a[0], b[0].detach(), on)
        same(a[1], b[1], on)


def test_bounds_and_shapes_are_told() -> None:
    model = mlp()

    def predict(x: Any, y: Any) -> Any:
        return model(x) + y.sum()

    class Dim:
        __name__ = "batch"
        min, max = 2, 64

    dims = {"x": {0: Dim()}, "y": {0: "batch"}}
    with torch.device("cpu"):
        m = plan_files.load(
            saved({"predict": (predict, (torch.randn(4, 8), torch.randn(4)))}, dynamic=dims, devices=("cpu",)), "cpu"
        )
        assert m.dims == {"batch": {"min": 2, "max": 64}}
        with pytest.raises(ValueError, match=r"batch = 1 \(from 2 to 64\)"):
            m.predict(torch.randn(1, 8), torch.randn(1))
        with pytest.raises(ValueError, match="y is of shape"):
            m.predict(torch.randn(5, 8), torch.randn(4))
        with pytest.raises(ValueError, match="x is float32"):
            m.predict(torch.randn(5, 8).int(), torch.randn(5))
        with pytest.raises(TypeError, match="lacks 'y'"):
            m.predict(torch.randn(5, 8))


def test_gradients_go_from_method_to_method() -> None:
    with torch.device("cpu"):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), 0.01)

        def accumulate(x: Any, y: Any) -> Any:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        def apply() -> None:
            optimizer.step()
            optimizer.zero_grad()

        m = plan_files.load(
            saved({"accumulate": (accumulate, batch(4)), "apply": (apply, ())}, model=model, devices=("cpu",)), "cpu"
        )
        for k in range(9):
            x, y = batch(4)
            assert m.accumulate(x, y).item() == accumulate(x, y).item(), k
            if k % 3 == 2:
                m.apply()
                apply()


def test_trees_constants_and_names() -> None:
    with torch.device("cpu"):
        table = torch.arange(6.0).reshape(2, 3)
        tied = nn.Linear(3, 3)
        model = nn.Sequential(tied, nn.Tanh(), tied)

        def f(pair: Any, scale: float = 2.0, *more: Any) -> Any:
            return {"a": model(pair["x"]) * scale, "b": [pair["y"][0] + table, more[0].T], "n": None}

        args = ({"x": torch.randn(2, 3), "y": (torch.randn(2, 3),)}, 3.0, torch.randn(2, 5))
        data = saved({"f": (f, args)}, model=model, devices=("cpu",))
        plan = plan_of(data)
        assert [i["name"] for i in plan["methods"]["f"]["inputs"]] == ["pair.x", "pair.y.0", "more.0"]
        assert plan["aliases"] == {"2.weight": "0.weight", "2.bias": "0.bias"}
        theirs = safetensors.torch.load(data)
        assert set(theirs) == {"0.weight", "0.bias", "constant.0"}
        assert theirs["constant.0"].tolist() == table.tolist()
        m = plan_files.load(data, "cpu")
        got, want = m.f(args[0], **{"more.0": args[2]}), f(*args)
        assert torch.equal(got["a"], want["a"]) and got["n"] is None
        assert all(torch.equal(a, b) for a, b in zip(got["b"], want["b"], strict=True))
        with pytest.raises(AttributeError, match="no method 'g'"):
            m.g


def test_the_world_is_as_it_was() -> None:
    with torch.device("cpu"):
        model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))
        optimizer = torch.optim.Adam(model.parameters())
        step = trainer(model, optimizer)
        x, y = batch(6)
        step(x, y)
        torch.manual_seed(5)
        before = {k: t.clone() for k, t in model.state_dict().items()}
        grads = [p.grad for p in model.parameters()]
        states = {k: {n: t.clone() for n, t in s.items()} for k, s in optimizer.state_dict()["state"].items()}
        plans = graph.counts["flushes"]
        data = saved({"step": (step, (x, y))}, model=model, optimizer=optimizer)
        assert graph.counts["flushes"] >= plans
        assert all(torch.equal(before[k], t) for k, t in model.state_dict().items())
        assert all(p.grad is g for p, g in zip(model.parameters(), grads, strict=True))
        for k, s in optimizer.state_dict()["state"].items():
            assert all(torch.equal(states[k][n], t) for n, t in s.items())
        m = plan_files.load(data, "cpu")
        for _ in range(3):
            assert m.step(x, y)["loss"].item() == step(x, y)["loss"].item()


def _reads(x: Any) -> Any:
    return x * x.sum().item()  # the line that is named


def _branches(x: Any) -> Any:
    if x.sum() > 0:
        return x
    return -x


def _prints(x: Any) -> Any:
    print("here")
    return x + 1


_seen: list[Any] = []


def _remembers(x: Any) -> Any:
    _seen.append(1)
    return x + 1


def _by_data(x: Any) -> Any:
    return x[x > 0]


def _opaque(x: Any) -> Any:
    return {"x": x, "o": object()}


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (_reads, r"reads a value at .*test_plan_files.py:\d+ \(`return x \* x.sum\(\).item\(\)"),
        (_branches, r"reads a value at .*`if x.sum\(\) > 0:`"),
        (_prints, r"writes to a stream at .*`print\(\"here\"\)`"),
        (_remembers, "changes what its Python sees"),
        (_by_data, r"reads a value at .*`return x\[x > 0\]`"),
        (_opaque, "it returns an object of type object"),
    ],
)
def test_what_cannot_be_exported_says_where(f: Any, why: str) -> None:
    with torch.device("cpu"):
        x = torch.randn(4)
        with pytest.raises(ExportError, match=why):
            saved({"f": (f, (x,))})
        assert torch.equal(x + 1, x + 1)  # and nothing is left behind
    del _seen[:]


def test_arguments_are_looked_at() -> None:
    with torch.device("cpu"):
        x = torch.randn(4, 2)
        with pytest.raises(ValueError, match="no method has an input 'z'; there are x"):
            saved({"f": (lambda x: x + 1, (x,))}, dynamic={"z": {0: "n"}})
        with pytest.raises(ValueError, match="'x' of f has no dimension 2"):
            saved({"f": (lambda x: x + 1, (x,))}, dynamic={"x": {2: "n"}})
        with pytest.raises(ExportError, match=r"makes a constant of x.shape\[0\] \(n\)"):
            saved({"f": (lambda x: x + torch.zeros(list(range(x.shape[0]))[-1] + 1, 2), (x,))}, dynamic={"x": {0: "n"}})
        with pytest.raises(ValueError, match="devices are some of"):
            saved({"f": (lambda x: x + 1, (x,))}, devices=("tpu",))
        with pytest.raises(ExportError, match="float64 cannot be on webgpu"):
            saved({"f": (lambda x: x + 1, (x.double(),))})
        with pytest.raises(ValueError, match="no methods"):
            saved({})


def test_indices_out_of_range_are_errors() -> None:
    with torch.device("cpu"):
        e = nn.Embedding(5, 3)
        m = plan_files.load(saved({"f": (lambda i: e(i), (torch.tensor([1, 2]),))}, devices=("cpu",)), "cpu")
        i = torch.tensor([4, 0])
        assert torch.equal(m.f(i), e(i))
        with pytest.raises(IndexError, match="out of range"):
            m.f(torch.tensor([1, 7]))
        assert torch.equal(m.f(i), e(i))


def test_hostile_files() -> None:
    assert hostile.run(150, "slice") == []
    header, plan, rest = hostile.parts(hostile.seed_file())
    next(p for p in plan["state"]["cpu"] if "window" not in p)["nbytes"] = 2**31
    with pytest.raises(PlanFileError, match="bytes of memory for"):
        plan_files.load(hostile.joined(header, plan, rest), "cpu")


@pytest.mark.usefixtures("made_up_gpu")
def test_sizes_are_bit_equal_in_the_form_of_a_gpu() -> None:
    if not graph.bridge().info.get("webgpu"):
        pytest.skip("there is no WebGPU")
    with torch.device("webgpu"):
        model = mlp()
        step = trainer(model, torch.optim.AdamW(model.parameters(), 1e-2))
        x, y = batch(4)
        dims = {"x": {0: "batch"}, "y": {0: "batch"}}
        m = plan_files.load(
            saved({"predict": (lambda x: model(x), (x,)), "step": (step, (x, y))}, dynamic=dims, devices=("webgpu",)),
            "webgpu",
        )
        for n in (1, 2, 3, 5, 9, 17, 33):
            x, y = batch(n)
            assert torch.equal(m.predict(x), model(x))
            assert m.step(x, y)["loss"].item() == step(x, y)["loss"].item()


def test_the_first_version_is_read_for_ever() -> None:
    """tests/corpus/plan-1.safetensors: written by version 1, and never again."""
    path = Path(__file__).parent / "corpus" / "plan-1.safetensors"
    expected = json.loads(path.with_suffix(".json").read_text())
    for device in ("cpu", "webgpu"):
        if device == "webgpu" and not graph.bridge().info.get("webgpu"):
            continue
        with torch.device(device):
            m = plan_files.load(path, device)
            x, y = torch.arange(12.0).reshape(3, 4) / 10 - 0.5, torch.tensor([0, 2, 1])
            torch.testing.assert_close(m.predict(x).cpu(), torch.tensor(expected["predict"], device="cpu"))
            losses = [m.step(x, y)["loss"].item() for _ in range(20)]
        if device == "cpu":
            assert losses == expected["losses"]
        else:
            assert losses == pytest.approx(expected["losses"], rel=1e-4)


def test_other_files_are_refused() -> None:
    with torch.device("cpu"):
        data = saved({"f": (lambda x: x + 1, (torch.randn(2),))}, devices=("cpu",))
        plan = plan_of(data)
        with pytest.raises(PlanFileError, match="version 2, and this tabtorch reads up to 1"):
            plan_files.load(with_plan(data, plan | {"version": 2}), "cpu")
        with pytest.raises(PlanFileError, match="damaged: it has no templates"):
            plan_files.load(with_plan(data, {k: v for k, v in plan.items() if k != "templates"}), "cpu")
        with pytest.raises(PlanFileError, match="has no plan"):
            plan_files.load(safetensors.torch.save({}), "cpu")
        with pytest.raises(PlanFileError, match="no plans for webgpu"):
            plan_files.load(data, "webgpu")
        assert plan_files.load(with_plan(data, plan | {"later": 1}), "cpu").f(torch.zeros(2)).tolist() == [1, 1]
