"""`torch.profiler`: what it counts is what ran, names survive fusion, and it leaves no trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tabtorch as tt
from tabtorch.profiler import ProfilerActivity, profile, record_function, schedule


def lines(p: Any) -> dict[str, Any]:
    return {e.key: e for e in p.key_averages()}


def test_counts(device: str) -> None:
    from tabtorch.bridge import get_bridge

    x = tt.rand(8, 8)
    tt.accelerator.synchronize()
    get_bridge().reset_stats()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as p:
        with record_function("mine"):
            y = (x @ x).exp() * 2
            for _ in range(3):
                y = y.relu() + x
            total = y.sum()
        value = total.item()
    dispatches = get_bridge().stats()["dispatches"]
    found = lines(p)
    assert value == pytest.approx(total.item())
    assert {k: found["aten::" + k].count for k in ("matmul", "exp", "mul", "relu", "add", "sum")} == {
        "matmul": 1,
        "exp": 1,
        "mul": 1,
        "relu": 3,
        "add": 3,
        "sum": 1,
    }
    assert found["mine"].count == 1 and found["mine"].cpu_time_total >= found["aten::relu"].cpu_time_total > 0
    kernels = [e for e in p.events() if e.is_kernel]
    assert len(kernels) == dispatches
    together = "+".join(k.name for k in kernels)
    for name in ("matmul", "exp", "mul", "relu", "add", "sum"):
        assert name in together, "a fused kernel is named after what is in it"
    assert found["aten::relu"].dispatches >= 1
    event = next(e for e in p.events() if e.name == "aten::matmul")
    assert event.input_shapes == [[8, 8], [8, 8]] and event.cpu_parent.name == "mine"
    own = sum(e.self_cpu_time_total for e in p.events())
    assert own == pytest.approx(sum(e.cpu_time_total for e in p.events() if e.cpu_parent is None))


def test_backward_optimizer_and_loader(device: str) -> None:
    model = tt.nn.Linear(4, 2)
    optimizer = tt.optim.SGD(model.parameters(), 0.1)
    loader = tt.utils.data.DataLoader(tt.utils.data.TensorDataset(tt.rand(6, 4)), batch_size=3)
    with profile() as p:
        for (x,) in loader:
            model(x).sum().backward()
            optimizer.step()
    found = lines(p)
    for name in (
        "autograd::backward",
        "Optimizer.step#SGD.step",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "aten::linear",
        "aten::sum",
    ):
        assert name in found, sorted(found)
    assert found["Optimizer.step#SGD.step"].count == 2


def test_it_leaves_no_trace(device: str) -> None:
    x = tt.rand(3)
    before = {f: f.__code__ for f in (tt.exp, tt.Tensor.exp, tt.Tensor.__dict__["__add__"], tt.sum)}
    with profile():
        x.exp() + x
        assert all(f.__code__ is not c for f, c in before.items() if f.__name__ != "first")
    (x + x).exp()
    with profile() as p:
        pass
    after = {f: f.__code__ for f in (tt.exp, tt.Tensor.exp, tt.sum)}
    assert all(after[f] is before[f] for f in after)
    assert not [e for e in p.events() if e.name.startswith("aten::")]


def test_under_autocast(device: str) -> None:
    """Both exchange functions: each goes on when the other begins or ends within it."""
    x = tt.rand(3, 3)
    low = tt.get_autocast_dtype(device)
    for _ in range(2):
        with profile() as p:
            with tt.autocast(device):
                assert (x @ x).dtype is low
            assert (x @ x).dtype is tt.float32
        assert lines(p)["aten::matmul"].count == 2
        with tt.autocast(device):
            with profile() as p:
                assert tt.mm(x, x).dtype is low
            assert tt.mm(x, x).dtype is low
        assert lines(p)["aten::mm"].count == 1
        assert tt.mm(x, x).dtype is tt.float32


def test_kernels_of_a_compiled_function(device: str) -> None:
    """A replay sends its plan without the windows of eager code, and is counted all the same; so is its backward pass."""
    from tabtorch.bridge import get_bridge

    f = tt.compile(lambda x: (x @ x).relu().exp().sum())
    x = tt.rand(8, 8, requires_grad=True)
    for _ in range(3):
        f(x).backward()
    tt.accelerator.synchronize()
    get_bridge().reset_stats()
    with profile() as p:
        for _ in range(4):
            f(x).backward()
    assert 0 < get_bridge().stats()["dispatches"] == len([e for e in p.events() if e.is_kernel])


def test_gpu_times(webgpu: None) -> None:
    from tabtorch.bridge import get_bridge

    if "timestamp-query" not in get_bridge().info["webgpu"]["features"]:
        pytest.skip("the adapter has no timestamps")
    x = tt.rand(128, 128)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
        for _ in range(3):
            x = x @ x
        x.sum().item()
    kernels = [e for e in p.key_averages() if e.is_kernel]
    assert sum(e.self_device_time_total for e in kernels) > 0
    assert "GPU total" in p.key_averages().table(sort_by="cuda_time_total")
    placed = [e for e in p.events() if e.is_kernel]
    assert all(a.start <= b.start for a, b in zip(placed, placed[1:])), "one after another, as the device ran them"
    assert (tt.ones(2) + 1).tolist() == [2, 2]


def test_table_and_traces(device: str, tmp_path: Path) -> None:
    x = tt.rand(4, 4)
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as p:
        with record_function("outer"):
            (x @ x).relu().sum().item()
    table = p.key_averages().table(sort_by="cpu_time_total", row_limit=3)
    rows = table.splitlines()
    assert rows[0].startswith("----") and "# of Calls" in rows[1] and "Mem" in rows[1]
    assert "outer" in rows[3] and rows[6] == rows[0] and rows[7].startswith("Self CPU time total")
    assert "[[4, 4], [4, 4]]" in p.key_averages(group_by_input_shape=True).table()
    assert any("test_profiler" in s for e in p.events() for s in e.stack)
    with pytest.raises(AttributeError):
        p.key_averages().table(sort_by="nonsense")
    p.export_chrome_trace(tmp_path / "t.json")
    trace = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {"ph", "ts", "dur", "name", "pid", "tid", "cat"} <= set(trace[0]) and {e["cat"] for e in trace} >= {
        "cpu_op",
        "kernel",
        "user_annotation",
    }
    p.export_stacks(tmp_path / "stacks.txt")
    assert "test_profiler" in (tmp_path / "stacks.txt").read_text()
    assert p.total_average().count == len(p.events())


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
def test_schedule() -> None:
    for settings in (
        {"wait": 1, "warmup": 1, "active": 2, "repeat": 1},
        {"wait": 0, "warmup": 1, "active": 3, "skip_first": 2},
        {"wait": 2, "warmup": 0, "active": 1, "repeat": 2},
    ):
        ours, theirs = schedule(**settings), torch.profiler.schedule(**settings)
        assert [ours(k).name for k in range(14)] == [theirs(k).name for k in range(14)]
    for bad in ({"wait": -1, "warmup": 0, "active": 1}, {"wait": 0, "warmup": 0, "active": 0}):
        with pytest.raises(AssertionError) as real:
            torch.profiler.schedule(**bad)
        with pytest.raises(AssertionError) as mine:
            schedule(**bad)
        assert str(mine.value) == str(real.value)


def test_steps(device: str, tmp_path: Path) -> None:
    """As PyTorch: the trace is ready at the step after the last active one, and steps are added up."""
    seen: list[Any] = []

    def ready(p: Any) -> None:
        seen.append((p.step_num, [(e.key, e.count) for e in p.key_averages() if e.key.startswith("ProfilerStep")]))

    x = tt.ones(2, 2)
    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=ready) as p:
        for _ in range(9):
            x @ x
            p.step()
    assert seen == [(4, [("ProfilerStep*", 2)]), (8, [("ProfilerStep*", 2)])]
    with profile(on_trace_ready=tt.profiler.tensorboard_trace_handler(str(tmp_path))):
        tt.ones(2).sum().item()
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text())["traceEvents"]


def test_record_function_without_a_profiler() -> None:
    @record_function("named")
    def f() -> int:
        return 3

    assert f() == 3
    with tt.autograd.profiler.profile() as p, tt.autograd.profiler.record_function("old"):
        f()
    assert {"old", "named"} <= set(lines(p))
    with profile(), pytest.raises(RuntimeError, match="already enabled"), profile():
        pass
    with pytest.raises(NotImplementedError, match="with_flops"):
        profile(with_flops=True)
