"""What ordinary programs do, and once failed here or cost too much: each test is one habit of theirs."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import tabtorch
from sidebyside import compare, outcome, to_tab
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph
from tabtorch.ops.machinery import asserts


def steady(step: Any, times: int = 8) -> list[dict[str, int]]:
    """What each call of `step` cost: plans made, waits for the GPU, dispatches."""
    costs = []
    for _ in range(times):
        graph.flush()
        before, plans = get_bridge().stats(), graph.counts["plans"]
        step()
        graph.flush()
        after = get_bridge().stats()
        costs.append(
            {k: after[k] - before[k] for k in ("maps", "dispatches")} | {"plans": graph.counts["plans"] - plans}
        )
    return costs


# ---- random windows of a text: `data[i : i + block_size] for i in ix`


def test_windows_at_random_places(device: str) -> None:
    data, mine = torch.arange(50), tabtorch.arange(50)
    grid, my_grid = torch.arange(60.0).view(10, 6), tabtorch.arange(60.0).view(10, 6)
    for seed in range(4):
        ix = torch.randint(40, (5,), generator=torch.Generator().manual_seed(seed))
        my_ix = tabtorch.tensor(ix.tolist())
        want = torch.stack([data[i : i + 8] for i in ix])
        assert tabtorch.stack([mine[i : i + 8] for i in my_ix]).tolist() == want.tolist()
        want = torch.stack([data[i + 1 : i + 8 + 1] for i in ix])
        assert tabtorch.stack([mine[i + 1 : i + 8 + 1] for i in my_ix]).tolist() == want.tolist()
        want = torch.stack([grid[:, i % 6] for i in ix])
        assert tabtorch.stack([my_grid[:, i % 6] for i in my_ix]).tolist() == want.tolist()


@pytest.mark.parametrize(
    "parts",
    [
        "[x[3:5], x[7:9], x[0:2]]",
        "[x[1], x[0]]",
        "[x[1, 2], x[3, 4]]",
        "[x[1:3, 2:4], x[4:6, 1:3]]",
        "[x[::2, 1], x[1::2, 5]]",
        "[x.t()[4], x.t()[1]]",
        "[x[0].expand(2, 6), x[5].expand(2, 6)]",
        "[x[1] > 7, x[5] > 7]",
        "[x[3].half(), x[1].half()]",
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_stacked_views_of_one_tensor(device: str, parts: str, grad: bool) -> None:
    for dim in (0, 1):
        for _ in range(2):  # the first time by a gather, then by a kernel of its own
            compare(
                f"torch.stack({parts}, {dim})",
                lambda: {"x": torch.arange(60.0).view(10, 6).requires_grad_(grad)},
                device,
            )


def test_a_batch_of_windows_makes_no_plan_and_waits_once(webgpu: None) -> None:
    data = tabtorch.arange(500)
    emb, head = tabtorch.nn.Embedding(500, 4), tabtorch.nn.Linear(4, 500)
    opt = tabtorch.optim.SGD([*emb.parameters(), *head.parameters()], lr=0.1)

    def step() -> None:
        ix = tabtorch.randint(480, (4,))
        x = tabtorch.stack([data[i : i + 8] for i in ix])
        y = tabtorch.stack([data[i + 1 : i + 8 + 1] for i in ix])
        loss = tabtorch.nn.functional.cross_entropy(head(emb(x)).view(-1, 500), y.view(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()

    costs = steady(step)
    assert [c["plans"] for c in costs[4:]] == [0] * 4
    assert [c["maps"] for c in costs] == [1] * 8  # one may bring the log of the asserts along


# ---- numbers that the host knows already


def test_elements_are_read_once(device: str) -> None:
    labels = tabtorch.tensor([3, 1, 2]) * 1
    asserts.raise_found()  # those of earlier tests, else they are read along
    graph.flush()
    before = get_bridge().stats()["reads"]
    assert [int(v) for v in labels] == [3, 1, 2]
    assert labels.tolist() == [3, 1, 2] and labels[1].item() == 1 and [bool(v) for v in labels > 0] == [True] * 3
    assert get_bridge().stats()["reads"] - before == 2  # labels, and labels > 0
    labels[0] = 7
    labels += 1
    assert [int(v) for v in labels] == [8, 2, 3]


@pytest.mark.parametrize(
    "expression",
    [
        "i + 8",
        "i + 8 + 1",
        "1 + i",
        "i - 2",
        "3 - i",
        "i * 3",
        "-i + 1",
        "i + one * 2 - 1",
        "i + True",
        "i - one",
        "big + 1",
        "big * 2",
        "-big - 2",
        "torch.add(i, 2, alpha=3)",
        "torch.sub(one, i, alpha=2)",
        "torch.rsub(i, 3)",
        "torch.rsub(one, 10, alpha=5)",
        "i // 2",
        "i % 5",
        "i / 2",
        "i + 1.5",
        "(i + 1).int() + 1",
        "(i > 3) + 1",
    ],
)
def test_arithmetic_with_a_known_integer(device: str, expression: str) -> None:
    def value(lib: Any, **options: Any) -> Any:
        ix = lib.tensor([4, 13, 9], **options)
        return eval(expression, {"torch": lib, "i": ix[1], "one": lib.tensor(1), "big": lib.tensor(2**63 - 1)})

    want, got = value(torch), value(tabtorch)
    assert got.item() == want.item() and type(got.item()) is type(want.item())
    assert value(tabtorch).view(1).expand(2).clone().tolist() == [want.item()] * 2  # what the device says


# ---- in-place arithmetic on a part


def test_augmented_assignment_to_a_part_writes_once(device: str) -> None:
    def program(lib: Any) -> list[Any]:
        x = lib.arange(12.0).view(3, 4)
        v = x._version
        x[0] += 1
        x[:, 1:3] *= 2
        x[1, 1] -= 5
        x[[0, 2], [0, 3]] += 1
        x[...] /= 2
        y = x * 1
        y[1:] += x[:-1]
        return [x.tolist(), x._version - v, y.tolist()]

    assert program(tabtorch) == program(torch)


def test_a_stencil_is_two_dispatches_a_step(webgpu: None) -> None:
    v = tabtorch.zeros(16, 16)
    v[0] = 1

    def step() -> None:
        for _ in range(5):
            v[1:-1, 1:-1] += 0.2 * (v[2:, 1:-1] + v[:-2, 1:-1] + v[1:-1, 2:] + v[1:-1, :-2] - 4 * v[1:-1, 1:-1])

    assert steady(step)[-1]["dispatches"] <= 10


def test_augmented_assignment_in_a_graph(device: str) -> None:
    def program(lib: Any) -> list[Any]:
        a = lib.ones(3, requires_grad=True)
        b = a * 2
        b[0] += 3
        b[1:] *= 2
        b.pow(2).sum().backward()
        with lib.no_grad():
            a[1:] -= 1
        return [a.grad.tolist(), b.tolist(), a.tolist(), a.requires_grad]

    assert program(tabtorch) == program(torch)
    leaf = tabtorch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being used in an in-place"):
        leaf[0] += 1


# ---- layers and losses as the graph shows them


@pytest.mark.parametrize(
    "expression",
    [
        "F.mse_loss(F.linear(x, w, b), t)",
        "F.linear(x, w, b)",
        "F.linear(x, w)",
        "F.smooth_l1_loss(x, t)",
        "F.huber_loss(x, t)",
        "F.binary_cross_entropy(x.sigmoid(), t)",
        "F.binary_cross_entropy_with_logits(x, t)",
        "F.softmax(x, 1)",
        "F.log_softmax(x, 1)",
        "F.nll_loss(F.log_softmax(x, 1), c)",
        "F.cross_entropy(x, c)",
        "F.layer_norm(x, (3,), v, v)",
        "F.layer_norm(x, (3,))",
        "F.batch_norm(x, None, None, v, v, True)",
        "F.embedding(c, w)",
    ],
)
def test_next_functions_of_a_layer(expression: str) -> None:
    def names(lib: Any) -> Any:
        with lib.device("cpu"):
            scope = {
                "F": lib.nn.functional,
                "x": lib.ones(2, 3, requires_grad=True),
                "w": lib.ones(3, 3, requires_grad=True),
            }
            scope |= {"b": lib.ones(3, requires_grad=True), "v": lib.ones(3, requires_grad=True)}
            fn = eval(expression, scope | {"t": lib.full((2, 3), 0.5), "c": lib.tensor([0, 2])}).grad_fn
            found = [(f.name().rpartition("::")[2] if f else None) for f, _ in fn.next_functions]
        return fn.name().rpartition("::")[2], found

    want, got = names(torch), names(tabtorch)
    if want[1] == ["AccumulateGrad", "AccumulateGrad", "TBackward0"]:
        want = want[0], ["AccumulateGrad"] * 3  # a linear layer transposes nothing here
    if want[1] == ["AccumulateGrad", "TBackward0"]:
        want = want[0], ["AccumulateGrad"] * 2
    assert got == want


def test_linear_and_bilinear(device: str) -> None:
    g = torch.Generator().manual_seed(0)

    def tensors() -> dict[str, Any]:
        shapes = {
            "x": (2, 3),
            "y": (2, 2, 3),
            "v": (3,),
            "w": (4, 3),
            "b": (4,),
            "z": (2, 4),
            "m": (5, 3, 4),
            "c": (5,),
        }
        return {k: torch.randn(s, generator=g).requires_grad_() for k, s in shapes.items()}

    for expression in (
        "torch.nn.functional.linear(x, w, b)",
        "torch.nn.functional.linear(y, w, b)",
        "torch.nn.functional.linear(v, w, b)",
        "torch.nn.functional.linear(y, w)",
        "torch.nn.functional.linear(y.transpose(0, 1), w, b)",
        "torch.nn.functional.linear(x, v)",
        "torch.nn.functional.linear(x, w, torch.ones(2, 4))",
        "torch.nn.functional.bilinear(x, z, m, c)",
        "torch.nn.functional.bilinear(x, z, m)",
        "torch.nn.functional.bilinear(x[0], z[0], m)",
        "torch.nn.functional.linear(x, w, c)",
        "torch.nn.functional.linear(y, w, c)",
        "torch.nn.functional.linear(x, w.half())",
        "torch.nn.functional.linear(x, w.half(), b)",
        "torch.nn.functional.linear(x.long(), w)",
        "torch.nn.functional.linear(x, v, torch.ones(()))",
        "torch.nn.functional.linear(torch.ones(()), w)",
        "torch.nn.functional.linear(z, w, b)",
    ):
        if "torch.ones" in expression:
            with tabtorch.device(device):
                compare(expression, tensors, device, exact=False, names_too=False)
        else:
            compare(expression, tensors, device, exact=False)


# ---- names of old programs


def test_variable() -> None:
    with tabtorch.device("cpu"):
        t = tabtorch.ones(2)
        v = tabtorch.autograd.Variable(t, requires_grad=True)
        t[0] = 5  # an alias
        assert v.tolist() == [5.0, 1.0] and v.requires_grad and v.is_leaf and type(v) is tabtorch.Tensor
        assert not tabtorch.autograd.Variable(v).requires_grad
        assert isinstance(t, tabtorch.autograd.Variable) and not isinstance(1, tabtorch.autograd.Variable)
        want = outcome(lambda: torch.autograd.Variable([1]))
        assert outcome(lambda: tabtorch.autograd.Variable([1])) == want
    assert repr(tabtorch.autograd.Variable) == repr(torch.autograd.Variable)


def test_types_by_class(device: str) -> None:
    x = to_tab(torch.tensor([1.5, -2.5]), device)
    assert x.type(tabtorch.LongTensor).tolist() == [1, -2] and x.type(tabtorch.LongTensor).device.type == device
    assert outcome(lambda: x.type(int)) == outcome(lambda: torch.ones(1).type(int))
    assert tabtorch.LongTensor(np.array([1, 2])).tolist() == [1, 2]


def test_cuda_types() -> None:
    program = """
import tabtorch; tabtorch.install()
import torch
Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
Index = torch.cuda.LongTensor if torch.cuda.is_available() else torch.LongTensor
print(Tensor(2, 1).fill_(1.0).tolist(), Index([3]).tolist(), Tensor([1, 2]).device, torch.ones(2).type(Index).type())
print(isinstance(torch.ones(1), Tensor), isinstance(torch.ones(1), Index), hasattr(torch.cuda, "NoTensor"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    where = "cuda:0" if "cuda:0" in lines[0] else "cpu"
    kind = "torch.cuda.LongTensor" if where != "cpu" else "torch.LongTensor"
    assert lines == [f"[[1.0], [1.0]] [3] {where} {kind}", "True False False"]


def test_return_types() -> None:
    x = tabtorch.tensor([3.0, 1.0], device="cpu")
    assert isinstance(x.max(0), tabtorch.return_types.max) and type(x.sort()) is tabtorch.return_types.sort
    assert repr(tabtorch.return_types.topk) == repr(torch.return_types.topk)
    again = pickle.loads(pickle.dumps(tuple(x.max(0))))
    assert [t.tolist() for t in again] == [3.0, 0]
    with pytest.raises(AttributeError, match=r"torch\.return_types.*does not have it yet"):
        tabtorch.return_types.nothing


def test_a_module_that_is_not_there_yet_says_so() -> None:
    program = """
import tabtorch; tabtorch.install()
import torch
for line in ("import torch.package", "import torch.distributed.pipelining", "from torch.nn.utils import nothing"):
    try:
        exec(line)
    except ImportError as e:
        print(type(e).__name__, e)
print(hasattr(torch, "package"), hasattr(torch.nn.utils, "nothing"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert (
        lines[0]
        == "ModuleNotFoundError No module named 'torch.package' (if PyTorch has it: tabtorch does not have it yet)"
    )
    assert lines[1].startswith("ModuleNotFoundError No module named 'torch.distributed")
    assert lines[2].startswith("ImportError cannot import name 'nothing'") and lines[3] == "False False"


# ---- numbers beside tensors


@pytest.mark.parametrize(
    "expression",
    [
        "x == 0.1",
        "x > 0.3",
        "x <= 0.7",
        "x != 0.2",
        "x - 0.1",
        "x * 1.1",
        "x / 0.3",
        "x % 0.1",
        "x.clamp(max=0.3) == 0.3",
        "x.masked_fill(x >= 0.7, 9.0)",
        "torch.where(x == 0.3, 1, 0)",
        "torch.linspace(0, 1, 8)",
        "x.half() == 0.1",
        "x.half() > 0.3",
        "0.7 <= x.half()",
        "x.bfloat16() == 0.1",
        "x.half() == 1e6",
        "x.half().eq(0.1)",
        "torch.isinf(x.half() * 1e6)",
        "x.half() * 0.1",
    ],
)
def test_a_number_meets_a_tensor_in_its_type(device: str, expression: str) -> None:
    """0.1 is the float32 nearest to it, beside float32: bit for bit what PyTorch gives."""

    def value(lib: Any) -> Any:
        return eval(expression, {"torch": lib, "x": lib.tensor([0.1, 0.2, 0.3, 0.7])}).tolist()

    assert value(tabtorch) == (pytest.approx(value(torch), rel=2e-7, abs=0) if "/" in expression else value(torch))
