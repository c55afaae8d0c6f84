"""Bad input: PyTorch's exception and message where PyTorch has one, else a sentence that says what to do; then all is well."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import DEVICES
from tabtorch.bridge import get_bridge

# One mistake a line; names: torch, nn, F, Function and those of `names()`. Real PyTorch says what must be said.
MISTAKES = {
    "shapes": """
        a + torch.ones(2, 4)
        a * torch.ones(4, 3)
        a.add_(torch.ones(4, 2, 3))
        torch.maximum(a, torch.ones(5))
        torch.where(torch.ones(2, dtype=torch.bool), a, a)
        a @ a
        a.mm(torch.ones(3))
        torch.mm(a, torch.ones(2, 3))
        torch.bmm(torch.ones(2, 3, 4), torch.ones(3, 4, 5))
        torch.bmm(a, a)
        torch.mv(a, torch.ones(2))
        torch.dot(torch.ones(2), torch.ones(3))
        torch.dot(a, a)
        a @ torch.tensor(2.0)
        torch.addmm(torch.ones(5), a, torch.ones(3, 4))
        torch.einsum("ij,jk->ik", a, a)
        torch.einsum("ij->k", a)
        torch.einsum("ijk->i", a)
        a.view(5)
        a.view(-1, 4)
        a.view(-1, -1)
        a.t().view(6)
        a.reshape(4, 2)
        a.expand(2, 4)
        a.expand(3)
        a.permute(0, 0)
        a.permute(0)
        a.transpose(0, 2)
        a.unsqueeze(4)
        a.squeeze(5)
        torch.cat([a, torch.ones(3, 2)])
        torch.cat([a, torch.ones(2)])
        torch.cat([])
        torch.cat([a, a], dim=3)
        torch.stack([a, torch.ones(3)])
        torch.stack([])
        a.split([1, 2])
        a.chunk(0)
        a.unflatten(1, (2, 2))
        a.repeat(2)
        a[0] = torch.ones(4)
        a[:, 1:] = torch.ones(3, 2)
        a[torch.ones(3, dtype=torch.bool)]
        a.copy_(torch.ones(4))
        a.masked_fill(torch.ones(4, dtype=torch.bool), 1)
        a.item()
        bool(a)
        float(a)
        int(torch.ones(2))
        if a: pass
        len(torch.tensor(1))
        list(torch.tensor(1))
        iter(torch.tensor(1))
        torch.tensor([[1, 2], [3]])
        torch.tensor([[1], 2])
        torch.ones(-1)
        torch.arange(0, 3, -1)
        torch.eye(-1)
        a.T.T.view(2, 2)
        F.linear(a, torch.ones(4, 2))
        F.linear(a, torch.ones(4, 3), torch.ones(3))
        nn.Linear(4, 2)(a)
        F.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 2, 3, 3))
        F.conv2d(torch.ones(1, 3, 2, 2), torch.ones(4, 3, 3, 3))
        F.conv2d(torch.ones(3, 8), torch.ones(4, 3, 3, 3))
        nn.Conv2d(3, 4, 3)(torch.ones(1, 1, 8, 8))
        nn.Conv2d(3, 4, 3, groups=2)
        F.max_pool2d(torch.ones(1, 1, 1, 1), 2)
        nn.BatchNorm2d(3)(torch.ones(2, 3))
        nn.BatchNorm1d(3)(torch.ones(1, 3))
        F.layer_norm(a, (4,))
        F.cross_entropy(a, torch.tensor([0, 1, 2]))
        F.nll_loss(a, torch.tensor([0]))
        F.mse_loss(a, a, reduction="average")
        F.binary_cross_entropy(torch.rand(2), torch.rand(3))
        F.pad(a, (1,))
        F.pad(a, (1, 1, 1, 1, 1, 1))
        torch.linspace(0, 1, -1)
        torch.outer(a, a)
        torch.broadcast_tensors(a, torch.ones(4))
        nn.MultiheadAttention(5, 2)
        nn.LSTM(3, 4)(torch.ones(2, 2, 5))
        torch.ones(2, 3).diagonal(0, 0, 0)
        torch.tril(torch.ones(3))
    """,
    "dtypes": """
        i.mean()
        i.add_(1.5)
        i /= 2
        i.sqrt_()
        i += a[:, :1]
        torch.softmax(i, 0)
        i.std()
        a & 1
        a | a
        ~a
        a << 1
        i.exp_()
        torch.ones(2, dtype=torch.bool) - torch.ones(2, dtype=torch.bool)
        -torch.ones(2, dtype=torch.bool)
        a @ i
        torch.mm(a, torch.ones(3, 2, dtype=torch.int64))
        torch.ones(2, dtype=torch.complex64) < 1
        torch.ones(2, dtype=torch.complex64).floor()
        torch.tensor([1, 2], requires_grad=True)
        i.requires_grad_()
        torch.tensor("text")
        torch.tensor([None])
        torch.tensor({})
        torch.ones(2, dtype=float).dtype.nothing
        torch.ones(2, dtype="float32")
        torch.zeros("a")
        torch.zeros(2.5)
        torch.arange("a")
        a + "b"
        a + None
        "b" * a
        torch.add(a, "b")
        torch.exp("b")
        torch.exp()
        torch.exp(a, a)
        torch.add(a)
        a.sum(foo=1)
        torch.relu(3)
        F.embedding(a, torch.ones(3, 2))
        nn.Embedding(3, 2)(torch.ones(2))
        F.cross_entropy(a, torch.tensor([0.0, 1.0]))
        F.nll_loss(F.log_softmax(a, 1), torch.tensor([0.0, 1.0]))
        F.one_hot(a)
        a[1.5]
        a["x"]
        a[a]
        a.index_select(0, torch.tensor([0.5]))
        torch.gather(a, 1, torch.tensor([[0.0]]))
        torch.where(a, a, a)
        a.masked_fill(a, 1)
        torch.tensor([1.0]).masked_fill_(torch.tensor([1]), 1)
        torch.masked_select(a, a)
        a.to("float")
        a.type("torch.NoTensor")
        torch.tensor(300, dtype=torch.uint8)
        torch.tensor([2**70])
        torch.full((2,), 1).mean()
        a.int().bitwise_and(1.5)
        i.lerp(i, 0.5)
        torch.cumsum(a, "x")
        a.sum("x")
        torch.randint(5, 2, (2,))
        torch.randint(0.5, (2,))
        torch.nn.Linear(2, "3")
        nn.Parameter(i)
        torch.zeros(2, dtype=torch.int64).normal_()
        torch.bernoulli(torch.tensor([2.0]))
        torch.multinomial(torch.tensor([-1.0, 2.0]), 1)
        torch.promote_types(1, 2)
        torch.finfo(torch.int32)
        torch.iinfo(torch.float32)
        i.float().backward("x")
    """,
    "indices": """
        a[2]
        a[0, 3]
        a[-3]
        a[0, 0, 0]
        a[..., 0, 0, 0]
        a[..., ...]
        a[::-1]
        a[[0, 5]]
        a[torch.tensor([2])]
        a[torch.tensor([0, 1, 1]), torch.tensor([0, 1])]
        a[5] = 1
        a[torch.tensor([9])] = 1.0
        a.index_select(0, torch.tensor([2]))
        a.index_select(2, torch.tensor([0]))
        torch.gather(a, 1, torch.tensor([[3]]))
        torch.gather(a, 0, torch.tensor([0]))
        torch.gather(a, 2, torch.tensor([[0]]))
        torch.zeros(2, 3).scatter_(1, torch.tensor([[3]]), 1.0)
        torch.zeros(2, 3).scatter_add_(0, torch.tensor([[5]]), torch.ones(1, 1))
        torch.take(a, torch.tensor([6]))
        torch.zeros(3).index_add_(0, torch.tensor([3]), torch.ones(1))
        F.embedding(torch.tensor([5]), torch.ones(3, 2))
        nn.Embedding(3, 2)(torch.tensor([-1]))
        F.one_hot(torch.tensor([5]), 3)
        F.one_hot(torch.tensor([-1]))
        F.cross_entropy(a, torch.tensor([0, 3]))
        F.nll_loss(F.log_softmax(a, 1), torch.tensor([-1, 0]))
        a.sum(2)
        a.mean(-3)
        a.sum((0, 0))
        a.max(2)
        a.argmax(5)
        a.softmax(2)
        a.select(0, 2)
        a.select(2, 0)
        a.narrow(0, 1, 2)
        a.topk(4)
        a.topk(2, dim=4)
        a.kthvalue(0)
        a.kthvalue(4)
        a.sort(dim=2)
        a.cumsum(2)
        a.flip(2)
        a.unbind(2)
        a.size(2)
        a.stride(2)
        a.flatten(1, 0)
        torch.ones(0).max()
        torch.ones(0).argmax()
        torch.ones(0, 3).max(0)
        torch.ones(0).median
        torch.randperm(-1)
        torch.tensor([1.0, 2.0]).quantile(1.5)
        torch.bincount(torch.tensor([-1]))
        nn.Sequential(nn.ReLU())[1]
        nn.ModuleList([nn.ReLU()])[3]
        a.as_strided((9,), (1,))
        a.unfold(1, 4, 1)
    """,
    "autograd": """
        x.sum().backward(); x.sum().backward(); y = (x * x).sum(); y.backward(); y.backward()
        y = x.exp(); torch.autograd.grad(y.sum(), x); torch.autograd.grad(y.sum(), x)
        x.backward()
        a.sum().backward()
        (x * 2).backward()
        (x * 2).backward(torch.ones(4))
        x.add_(1)
        x += 1
        x[0] = 1
        x.zero_()
        x[0].mul_(2)
        x.view(-1).mul_(2)
        y = x.exp(); y.add_(1); y.sum().backward()
        y = x * 1; z = y * y; y[0] = 0; z.sum().backward()
        y = x.sigmoid(); y.zero_(); y.sum().backward()
        x.numpy()
        import numpy; numpy.array(x)
        import copy; copy.deepcopy(x * 2)
        torch.autograd.grad(x.sum(), a)
        torch.autograd.grad(x.sum(), torch.ones(2, requires_grad=True))
        torch.autograd.grad(a.sum(), x)
        (x * 2).requires_grad = False
        (x > 0).float().sum().backward()
        x.detach().sum().backward()
        x.argmax().backward()
        with torch.no_grad(): y = x * 2
        with torch.no_grad(): (x * 2).sum().backward()
        x.grad = torch.ones(5)
        x.grad = 3
        x.grad = torch.ones(2, 3, dtype=torch.int64)
        x.register_hook(3)
        a.register_hook(print)
        a.retain_grad()
        x.resize_(3)
        x.data = 3
        with torch.inference_mode(): y = torch.ones(2)\nz = y * torch.ones(2, requires_grad=True)
        with torch.inference_mode(): y = torch.ones(2)\ny.add_(1)
        nn.Linear(2, 2).weight = torch.ones(2, 2)
        nn.Parameter(torch.ones(2)).fill_(1)
        torch.nn.init.normal_(3)
        l = nn.Linear(3, 1); l(a).sum().backward(inputs=[])
        class Bad(Function): pass\nBad.apply(x)
        class Two(Function): forward = lambda ctx, x: x * 2; backward = lambda ctx, g: (g, g)\nTwo.apply(x).sum().backward()
        class Odd(Function): forward = lambda ctx, x: x * 2; backward = lambda ctx, g: g[0]\nOdd.apply(x).sum().backward()
    """,
    "arguments": """
        torch.optim.SGD([], lr=0.1)
        torch.optim.SGD([x], lr=-1)
        torch.optim.SGD(x, lr=1)
        torch.optim.SGD([x * 2], lr=1)
        torch.optim.SGD([3], lr=1)
        torch.optim.Adam([x], betas=(1.5, 0.9))
        torch.optim.AdamW([x], eps=-1)
        torch.optim.SGD([x], lr=0.1, nesterov=True)
        torch.optim.Adam([{"params": [x]}, {"params": [x]}])
        nn.Dropout(1.5)
        F.dropout(a, -0.1)
        nn.Module().forward(1)
        nn.Module()(1)
        nn.Linear(2, 2).load_state_dict({"weight": torch.ones(3, 3), "bias": torch.ones(2)})
        nn.Linear(2, 2).load_state_dict({"weight": torch.ones(2, 2)})
        nn.Linear(2, 2).nothing
        nn.Module().register_buffer("a.b", a)
        nn.Module().add_module("x", 3)
        torch.utils.data.DataLoader([1, 2], batch_size=0)
        torch.utils.data.DataLoader([1, 2], shuffle=True, sampler=[0])
        torch.utils.data.random_split([1, 2], [3])
        torch.utils.data.TensorDataset(torch.ones(2), torch.ones(3))
        torch.manual_seed("a")
        torch.Generator().manual_seed(2**70)
        torch.device("nothing")
        torch.device("cpu:x")
        torch.norm(a, p="nothing")
        F.interpolate(torch.ones(1, 1, 2, 2), size=3, scale_factor=2)
        F.interpolate(torch.ones(1, 1, 2, 2), scale_factor=2, mode="nothing")
        F.gelu(a, approximate="sin")
        torch.nn.utils.clip_grad_norm_([x], "a")
        torch.set_default_dtype(torch.int32)
        torch.permute(a, 1, 0)
        torch.permute(a, 1)
        torch.tile(a, 2, 2)
        torch.reshape(a, 3, 2)
        torch.reshape(a, 6)
        torch.flip(a, 0, 1)
        torch.broadcast_to(a, 2, 3)
        torch.squeeze(a, 0, 1)
        torch.rot90(a, 1, 0, 1)
        torch.roll(a, 1, 0, 1)
        torch.unflatten(a, 0, 1, 2)
        torch.zeros_like(a, 3)
        a.repeat()
        a.sum(0, 1)
        torch.sum(a, 0, 1)
        a.sum(0, keepdim=1)
        a.mean(0, 1)
        a.max(0, 1)
        a.max(0, 1, 2)
        a.std(0, 1)
        a.std(0, 1, 1)
        a.var(0, 1)
        torch.var_mean(a, 0, 1)
        a.argmax(0, 1)
        a.all(0, 1)
        a.median(0, 1)
        a.logsumexp(0, 1)
        torch.topk(a, 1, 0, 1)
        a.sort(0, descending=1)
        torch.linalg.svd(a, 1)
        torch.linalg.svd(a, full_matrices=0)
        torch.bucketize(a, a[0], out_int32=1)
        a.nothing
        torch.nothing_of_that_name
        a.new_tensor
        a.shape = (3, 2)
        a.data_ptr(1)
        torch.set_printoptions(profile="nothing")
        torch.clamp(a)
        torch.normal(0.0, -1.0, (2,))
        a.uniform_(1, 0)
        a.normal_(0, -1)
        a.bernoulli_(2)
        a.exponential_(-1)
    """,
}
CASES = [(k, line.strip()) for k, lines in MISTAKES.items() for line in lines.strip().splitlines()]
#: of these only the type is compared: PyTorch lists its C++ signatures or its devices, or its words are a slip of theirs
WORDS_DIFFER = re.compile(
    "received an invalid combination of arguments|incompatible function arguments|start of device string|torch._C|TensorBase"
    "|Could this error message be improved"
    "|requires a floating point input type|requires an integer input type|has no attribute|the default type"
)


def names(library: Any) -> dict[str, Any]:
    """The arguments of the mistakes: `a` (2, 3) floats, `i` (2, 1) integers, `x` (2, 3) that requires grad."""
    return {
        "torch": library,
        "nn": library.nn,
        "F": library.nn.functional,
        "Function": library.autograd.Function,
        "a": library.arange(6.0).reshape(2, 3),
        "i": library.tensor([[1], [2]]),
        "x": library.ones(2, 3, requires_grad=True),
    }


def said(source: str, library: Any) -> tuple[str, str]:
    """The name of the exception, and the first line of what it says. What a device finds out may come with the read."""
    here = names(library)
    source = source.replace("\\n", "\n")
    try:
        try:
            code = compile(source, "mistake", "eval")
        except SyntaxError:
            exec(source, here)
        else:
            result = eval(code, here)
            if isinstance(result, library.Tensor):
                result.detach().tolist()
    except Exception as error:
        kind = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
        return kind, str(error).split("\n")[0]
    return "nothing", ""


def check_all_is_well(device: str) -> None:
    """The next correct lines work."""
    x = tabtorch.ones(3, device=device, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", [source for _, source in CASES], ids=[f"{k}-{s}" for k, s in CASES])
def test_what_pytorch_says(source: str, device: str) -> None:
    want = said(source, torch)
    got = said(source, tabtorch)
    if WORDS_DIFFER.search(want[1]):
        want, got = (want[0], ""), (got[0], "")
    words = [re.sub(r"\b(cuda|webgpu)\.", "", text).replace("webgpu:0", "cpu") for text in got]
    assert tuple(words) == want
    check_all_is_well(device)


# ---- devices


@pytest.mark.usefixtures("webgpu")
class TestOnTheGpu:
    def test_two_devices(self) -> None:
        a, b = tabtorch.ones(3), tabtorch.ones(3, device="cpu")
        two = "found at least two devices, webgpu:0 and cpu!"
        argument = "got {} is on cpu, different from other tensors on webgpu:0 (when checking argument in method wrapper_WEBGPU_{})"
        for function, said in (
            (lambda: a + b, two),
            (lambda: a.add_(b), two),
            (lambda: tabtorch.where(a > 0, a, b), two),
            (lambda: a @ b, argument.format("tensor", "_dot")),
            (lambda: tabtorch.cat([a, b]), argument.format("tensors", "cat")),
            (lambda: tabtorch.nn.functional.linear(a[None], b[None]), argument.format("mat2", "mm")),
            (lambda: tabtorch.nn.functional.mse_loss(a, b), two),
        ):
            word = "Expected all tensors to be on the same device, but " + said
            with pytest.raises(RuntimeError, match=re.escape(word) + "$"):
                function()
        check_all_is_well("webgpu")

    def test_a_cpu_scalar_may_be_mixed_in(self) -> None:
        x = tabtorch.ones(3) * tabtorch.tensor(2.0, device="cpu")
        assert x.device.type == "webgpu" and x.tolist() == [2.0, 2.0, 2.0]

    def test_a_module_elsewhere(self) -> None:
        model = tabtorch.nn.Linear(3, 2, device="cpu")
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            model(tabtorch.ones(1, 3))
        assert model.to("webgpu")(tabtorch.ones(1, 3)).shape == (1, 2)

    @pytest.mark.parametrize(
        "source",
        [
            "torch.ones(2, dtype=torch.float64, device='webgpu')",
            "torch.ones(2, device='webgpu').double()",
            "torch.ones(2, device='webgpu').to(torch.float64)",
            "torch.ones(2, dtype=torch.float64, device='cpu').to('webgpu')",
            "torch.tensor([1.0], dtype=torch.float64, device='webgpu')",
            "torch.ones(2, device='webgpu').sum(dtype=torch.float64)",
            "torch.nn.Linear(2, 2).double()",
            "torch.ones(2, dtype=torch.complex128, device='webgpu')",
            "torch.ones(2, device='webgpu') + torch.tensor(1.0, dtype=torch.float64, device='cpu').expand(2).to('webgpu')",
            "torch.from_numpy(__import__('numpy').ones(2)).to('webgpu')",
        ],
    )
    def test_float64(self, source: str) -> None:
        with pytest.raises(
            TypeError, match=r"^(\w+: )?(float64|complex128) is not available on webgpu .*: use .*device='cpu'"
        ):
            eval(source, names(tabtorch))
        check_all_is_well("webgpu")

    def test_float64_with_no_device_named_lives_on_the_cpu(self) -> None:
        import numpy

        x = tabtorch.from_numpy(numpy.ones(2))
        assert (x.dtype, x.device.type) == (tabtorch.float64, "cpu")
        assert x.float().device.type == "webgpu"

    def test_too_large(self) -> None:
        limits = get_bridge().info["webgpu"]["limits"]
        most = min(limits["maxStorageBufferBindingSize"], limits["maxBufferSize"])
        for make in (
            lambda: tabtorch.zeros(most // 4 + 64),
            lambda: tabtorch.empty(most // 4 + 64),
            lambda: tabtorch.ones(1, 1).expand(1 << 20, 1 << 20).contiguous(),
            lambda: tabtorch.ones(1 << 20, 1) + tabtorch.ones(1, 1 << 20),
            lambda: tabtorch.rand(1 << 40),
        ):
            with pytest.raises(
                tabtorch.OutOfMemoryError,
                match=r"needs \d+ bytes, but .* allows at most \d+ bytes in one buffer: use a smaller one, or split it",
            ):
                make()
            check_all_is_well("webgpu")

    def test_no_second_gpu(self) -> None:
        with pytest.raises(RuntimeError, match="index 1"):
            tabtorch.ones(2, device="webgpu:1")


# ---- what ends a device; each in a process of its own


def python(source: str, **env: str) -> str:
    """What the script prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def lost() -> Iterator[str]:
    """A script's beginning: a model in training on a GPU that is then lost."""
    if "webgpu" not in DEVICES:
        pytest.skip("webgpu was not asked for")
    yield """
import tabtorch as torch
from tabtorch.bridge import get_bridge
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.AdamW(model.parameters())
def step():
    loss = model(torch.ones(4, 3, device=model.weight.device)).pow(2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
step()
step()
kept = torch.ones(3, device="cpu")
get_bridge().lose_device()
"""


def test_a_lost_device(lost: str) -> None:
    out = python(
        lost
        + """
for attempt in range(2):
    try:
        for _ in range(3): step()
    except RuntimeError as error:
        print(type(error).__name__, "|", error)
print((kept + 1).tolist())
x = torch.ones(2, 2, requires_grad=True)
(x @ x).sum().backward()
print(x.device, x.grad.tolist())
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.AdamW(model.parameters())
print(step() > step())
"""
    ).splitlines()
    assert out[0].startswith("AcceleratorError | ") and "lost" in out[0]
    assert "lost" in out[1]
    assert out[2:] == ["[2.0, 2.0, 2.0]", "webgpu:0 [[4.0, 4.0], [4.0, 4.0]]", "True"]


def test_no_webgpu_at_all() -> None:
    out = python(
        """
import tabtorch
tabtorch.install()
import torch
x = torch.ones(2)
print(x.device, torch.cuda.is_available(), torch.accelerator.is_available(), (x + 1).tolist())
print("cuda" if torch.cuda.is_available() else "cpu")
for make in (lambda: torch.ones(2, device="webgpu"), lambda: x.to("webgpu"), lambda: torch.nn.Linear(2, 2).cuda()):
    try:
        make()
    except RuntimeError as error:
        print(error)
print(torch.nn.Linear(2, 1)(x).shape)
""",
        VK_ICD_FILENAMES="/nonexistent.json",
        VK_DRIVER_FILES="/nonexistent.json",
    ).splitlines()
    assert out[:2] == ["cpu False False [2.0, 2.0]", "cpu"]
    for line in out[2:5]:
        assert "WebGPU" in line and "cpu" in line
    assert out[5:] == ["torch.Size([1])"]


def test_the_environment_asks_for_the_cpu() -> None:
    out = python(
        "import tabtorch as torch; print(torch.ones(2).device, torch.accelerator.is_available())", TABTORCH_DEVICE="cpu"
    )
    assert out.startswith("cpu ")
    with pytest.raises(AssertionError, match="TABTORCH_DEVICE is 'gpu'; it may be 'webgpu', 'cpu' or 'auto'"):
        python("import tabtorch as torch; torch.ones(2)", TABTORCH_DEVICE="gpu")


def test_the_runtime_dies() -> None:
    out = python(
        """
import os, signal
import tabtorch as torch
from tabtorch.bridge import get_bridge
x = torch.ones(3, device="cpu")
os.kill(get_bridge()._child.pid, signal.SIGKILL)
try:
    print((x + 1).tolist())
except RuntimeError as error:
    print(error)
y = torch.ones(3, device="cpu")
print((y + 1).tolist())
"""
    ).splitlines()
    assert "lost" in out[0]
    assert out[1] == "[2.0, 2.0, 2.0]"


@pytest.mark.parametrize("library", [torch, tabtorch], ids=["torch", "tabtorch"])
def test_an_operator_of_one_operand_leaves_it_to_no_other(library: Any) -> None:
    """Once a class overrides, operators say NotImplemented where they raised a TypeError: not those without another operand."""
    own = library.ones(3).as_subclass(type("Own", (library.Tensor,), {}))
    for value in (library.ones(3), own):
        with pytest.raises(TypeError, match="operator.invert"):
            ~value
        with pytest.raises(TypeError, match="unsupported operand"):
            value + "text"
