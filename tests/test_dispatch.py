"""Dispatch of elementwise operations against real PyTorch: promotion, layout, scalars, `out=`, in-place, errors, conversions."""

from __future__ import annotations

import copy
import itertools
import pickle
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import tabtorch
from conformance import left_out
from sidebyside import DEVICES, compare, same, to_tab

NAMES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
WIDE = ("float64", "complex128")


@pytest.mark.parametrize("device", DEVICES)
def test_promotion_of_every_pair(device: str) -> None:
    names = [n for n in NAMES if device == "cpu" or n not in WIDE]
    for a, b in itertools.product(names, names):
        for shape_a, shape_b in (((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())):
            x = torch.ones(shape_a, dtype=getattr(torch, a))
            y = torch.ones(shape_b, dtype=getattr(torch, b))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                want = (x * y).dtype
            if "float16" in (a, b) and want.is_complex:  # PyTorch has a complex32; tabtorch gives the next wider type
                continue
            p = tabtorch.ones(shape_a, dtype=getattr(tabtorch, a), device=device)
            q = tabtorch.ones(shape_b, dtype=getattr(tabtorch, b), device=device)
            assert repr((p * q).dtype) == repr(want), (a, b, shape_a, shape_b)


@pytest.mark.parametrize("device", DEVICES)
def test_promotion_of_scalars(device: str) -> None:
    names = [n for n in NAMES if device == "cpu" or n not in WIDE]
    for name, scalar in itertools.product(names, (True, 2, 2.5, 1 + 2j)):
        if name == "float16" and isinstance(scalar, complex):  # complex32, which tabtorch has not
            continue
        want = torch.ones(2, dtype=getattr(torch, name)) + scalar
        if device != "cpu" and str(want.dtype)[6:] in WIDE:
            continue
        got = tabtorch.ones(2, dtype=getattr(tabtorch, name), device=device) + scalar
        assert repr(got.dtype) == repr(want.dtype), (name, scalar)
        assert got.tolist() == want.tolist(), (name, scalar)


def inputs() -> dict[str, Any]:
    g = torch.Generator().manual_seed(3)
    return {
        "x": torch.randn(2, 3, generator=g),
        "y": torch.randn(3, generator=g),
        "c": torch.randn(2, 3, 4, 5, generator=g).contiguous(memory_format=torch.channels_last),
        "z": torch.tensor(1.5),
        "i": torch.tensor([[1, -2, 3], [4, 5, -6]]),
        "b": torch.tensor([True, False, True]),
        "u": torch.tensor([250, 5, 7], dtype=torch.uint8),
        "h": torch.randn(3, generator=g).half(),
        "e": torch.zeros(0, 3),
    }


EXPRESSIONS = """
x + y; y + x; x - 2; 2 - x; x * 2.5; 2.5 * x; x / y; 3 / x; i / 2; i + 2.5; i * True; b + b; b * 2; b + 1.5; u + 10
u - 10; u * 300; -x; abs(i); +x; x.t() + 1; x.t() * y.unsqueeze(1); x.t() + x.t(); (x.t() + 1).t() + x; c + 1; c + z
c.permute(2, 0, 3, 1) * 2; c[:, :, ::2] + 1; x.expand(4, 2, 3) + 1; y.expand(2, 3) + 1; y.expand(2, 3) + x; e + 1
e + y; x + e; x[:, 1:] * x[:, :2]; x[::2] + y; x[:, ::2] - 1; z + 1; z + i; i + z; i + z.half().float(); x == y
x != 1; i < 3; i >= 2.5; b == True; b & b; b | True; i & 3; i ^ 1; ~b; ~i; i << 1; i >> 1; 1 << b.long(); x == None
x != None; i // 2; i % 4; -7 // i; -7 % i; x // 0.3; x % 0.3; x ** 2; x ** 0.5; 2 ** x; i ** 2; i ** -1; 2 ** i.abs()
x ** y; h + 1; h * y; h + h; torch.add(x, y); torch.add(x, y, alpha=2); torch.add(x, 3, alpha=0.5)
torch.add(i, 1, alpha=0.5); x.add(y, alpha=-1); torch.sub(x, y, alpha=3); x.add(other=y); torch.add(input=x, other=y)
torch.add(x); torch.add(x, 'a'); torch.add(1, 2); x + 'a'; x + [1]; 'a' + x; x + (1, 2, 3, 4)
torch.mul(x, y, out=torch.empty(0)); torch.add(x, y, out=torch.empty(2, 3))
torch.add(x, y, out=torch.empty(2, 3, dtype=torch.int64)); torch.add(i, 1, out=torch.empty(2, 3))
torch.exp(x, out=torch.empty(3)); torch.exp(x, out=torch.zeros(2, 6)[:, ::2]); x.clone().add_(y); x.clone().add_(1)
y.clone().add_(x); i.clone().add_(1.5); i.clone().add_(2); i.clone().div_(2); u.clone().add_(10)
x.clone().t().add_(1); x.clone()[:, 1].mul_(3); x.clone().mul_(x); b.clone().logical_not_(); x.clone().exp_()
x.clone().t().exp_(); c.clone().mul_(2); x.clone().copy_(y); x.clone().copy_(i); i.clone().copy_(x)
x.clone().copy_(torch.ones(4)); x.clone().copy_(torch.ones(3, 2, 3)); x.clone().fill_(3); i.clone().fill_(2.7)
x.clone().zero_(); x.clone()[0].fill_(1); b.clone().fill_(2); x.clone().fill_(z); x.clone().fill_(y)
x.expand(2, 2, 3).add_(1); y.expand(2, 3).clone().add_(1); x.to(torch.int32); x.long(); x.half(); x.bool(); i.float()
i.to(x.dtype); x.to(x); x.to(torch.complex64); x.type(torch.int64); x.type('torch.LongTensor'); x.to('nonsense')
x.to(1.5); x.type_as(i); x.bfloat16().float(); u.to(torch.int8); i.to(torch.uint8); x.clone(); x.t().clone()
c.clone(); x.t().clone(memory_format=torch.contiguous_format); x[:, ::2].clone(); y.expand(2, 3).clone()
x.contiguous(); x.t().contiguous(); c.contiguous(); c.contiguous(memory_format=torch.channels_last); c.is_contiguous()
c.is_contiguous(memory_format=torch.channels_last); x.contiguous(memory_format=torch.channels_last)
c.to(memory_format=torch.contiguous_format); x.item(); z.item(); i[0, 0].item(); b[0].item(); x.tolist(); e.tolist()
torch.zeros(2, 0).tolist(); h.tolist(); len(x); len(z); bool(x); bool(z); int(z); float(z); bool(e); complex(z)
z.__index__(); i[0, 0].__index__(); [t.tolist() for t in x]; list(z); 2 in i; 9 in i; f'{z:.2f}'; x.size(-1)
x.size(5); x.stride(); x.t().stride(0); x.numel(); x.dim(); x.element_size(); h.element_size(); x.nbytes
x.storage_offset(); x[1].storage_offset(); x.is_floating_point(); i.is_signed(); x.data_ptr() == x[0].data_ptr()
x.data_ptr() == x[1].data_ptr(); x.is_same_size(i); repr(x.layout); repr(x.dtype); x.shape; x.T.shape; x.mT.shape
z.mT; repr(torch.result_type(x, 1)); repr(torch.result_type(i, 1.5)); torch.is_tensor(x); torch.is_floating_point(i)
torch.numel(x); torch.exp(i); torch.exp('a'); x.sqrt(); torch.bitwise_and(x, 1); x & 1; x.no_such_thing; b - b; -b
torch.where(x > 0, x, 0.0); torch.where(b, x, y); torch.clamp(x, 0); torch.clamp(x, min=y); torch.clamp(x, max=0.5)
torch.clamp(i, 0.5); torch.clamp(x); x.clamp_(0, 1); torch.maximum(x, y); torch.true_divide(i, 3)
torch.div(x, y, rounding_mode='floor'); torch.div(i, 2, rounding_mode='trunc'); torch.div(x, 2, rounding_mode='x')
x * np.float64(2); x * np.float32(2); np.float32(2) / x; torch.add(x, np.ones(3)); x.clone().add_(np.ones(3)); x + np.ones(3)
"""
CASES = [e.strip() for e in EXPRESSIONS.replace("\n", ";").split(";") if e.strip()]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("expression", [c for c in CASES if c not in left_out.EXPRESSIONS])
def test_expression(expression: str, device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(expression, inputs, device, exact=False)


@pytest.mark.parametrize(
    "expression", ["torch.add(x, 'a')", "torch.eq(1, 2)", "torch.exp('a')", "x.to(1.5)", "torch.add(x)"]
)
def test_bad_arguments_are_type_errors(expression: str) -> None:
    names = {k: to_tab(v, "cpu") for k, v in inputs().items()}
    with pytest.raises(TypeError):
        eval(expression, {"torch": tabtorch, **names})


def test_none_is_equal_to_no_tensor() -> None:
    x = tabtorch.ones(3, device="cpu")
    assert (x == None) is False  # noqa: E711
    assert (x != None) is True  # noqa: E711


def test_names_that_are_not_there() -> None:
    x = tabtorch.ones(3, device="cpu")
    assert not hasattr(x, "no_such_thing")
    assert not hasattr(tabtorch, "no_such_thing")
    for call in (lambda: x.no_such_thing, lambda: tabtorch.no_such_thing):
        with pytest.raises(NotImplementedError, match="no_such_thing"):
            call()
        with pytest.raises(AttributeError, match="no_such_thing"):
            call()


@pytest.mark.skipif("webgpu" not in DEVICES, reason="no webgpu")
def test_devices() -> None:
    c, g = tabtorch.ones(3, device="cpu"), tabtorch.ones(3, device="webgpu")
    with pytest.raises(
        RuntimeError, match="Expected all tensors to be on the same device, but found at least two devices"
    ):
        c + g
    with pytest.raises(RuntimeError, match="same device"):
        g.clone().add_(c)
    s = tabtorch.tensor(2.0, device="cpu", requires_grad=True)
    r = g * s
    assert r.device == g.device and r.tolist() == [2.0, 2.0, 2.0]
    r.sum().backward()
    assert s.grad is not None and s.grad.device.type == "cpu" and s.grad.item() == 3.0
    for bad in (
        lambda: g.double(),
        lambda: g.to(tabtorch.complex128),
        lambda: tabtorch.ones(2, dtype=tabtorch.float64, device="webgpu"),
    ):
        with pytest.raises(TypeError, match=r"not available on webgpu"):
            bad()
    assert (g + 1).tolist() == [2.0] * 3
    back = tabtorch.arange(6, device="webgpu").reshape(2, 3).t().cpu()
    assert back.tolist() == [[0, 3], [1, 4], [2, 5]] and back.stride() == (1, 3)
    x = tabtorch.arange(3.0, device="cpu", requires_grad=True)
    (x.to("webgpu") * 2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0, 2.0] and x.grad.device.type == "cpu"


def test_copies_share_nothing() -> None:
    a = tabtorch.arange(4.0, device="cpu")
    b, c, d = a.clone(), copy.deepcopy(a), tabtorch.empty(4, device="cpu").copy_(a)
    a.add_(1)
    b[0] = 9
    assert a.tolist() == [1, 2, 3, 4] and b.tolist() == [9, 1, 2, 3]
    assert c.tolist() == d.tolist() == [0, 1, 2, 3]
    pair = [a, a[1:]]
    p = copy.deepcopy(pair)
    p[0].mul_(2)
    assert p[1].tolist() == [4, 6, 8] and a.tolist() == [1, 2, 3, 4]


def test_pickle() -> None:
    for t in (
        tabtorch.arange(4, device="cpu"),
        tabtorch.ones(2, 3, device="cpu").t(),
        tabtorch.ones(2, device="cpu").half(),
    ):
        u = pickle.loads(pickle.dumps(t))
        assert u.tolist() == t.tolist() and u.dtype is t.dtype and u.device == t.device


def test_numpy_is_a_copy_of_the_values() -> None:
    for name in (
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ):
        t = torch.arange(-2, 4).to(getattr(torch, name)).reshape(2, 3)
        got = to_tab(t, "cpu").numpy()
        assert got.dtype == t.numpy().dtype
        np.testing.assert_array_equal(got, t.numpy())
        np.testing.assert_array_equal(np.asarray(to_tab(t.t(), "cpu")), t.t().numpy())


def test_reading_without_blocking() -> None:
    import asyncio

    async def main() -> Any:
        t = tabtorch.arange(4.0, device="cpu").reshape(2, 2)
        return await (t * 2).read(), await t.sum().read()

    assert asyncio.run(main()) == ([[0.0, 2.0], [4.0, 6.0]], 6.0)


def test_install() -> None:
    script = """
import tabtorch; tabtorch.install()
import torch, torch.cuda, torch.backends.cudnn as cudnn
from torch import Tensor
from torch.autograd import Function
from torch.autograd.grad_mode import no_grad
import torch.autograd.function
assert torch is tabtorch and Tensor is tabtorch.Tensor and no_grad is torch.no_grad
assert torch.__name__ == "torch" and "tabtorch" in torch.__version__ and torch.__version__.startswith("2.13")
device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.ones(3, device=device)
assert x.to(device) is x and (x + torch.ones(3).to(device)).tolist() == [2.0] * 3
if torch.cuda.is_available():
    assert x.is_cuda and x.device.type == "webgpu" and torch.cuda.device_count() == 1 and torch.cuda.get_device_name()
    torch.cuda.synchronize(); assert torch.cuda.memory_allocated() > 0
try:
    import torch.no_such_module
except ModuleNotFoundError as e:
    assert "torch.no_such_module" in str(e), e
else:
    raise AssertionError
tabtorch.install(cuda=False)
assert not torch.cuda.is_available()
print("done")
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert out.stdout.strip() == "done", out.stderr


# ---- the registry


#: what rows add that PyTorch has not: in-place forms of aliases
_EXTRA = {"absolute_"}


def test_rows_are_public_where_pytorch_has_them() -> None:
    from tabtorch.ops.machinery import registry

    registry.load_all()
    names = [n for n in registry.ROW_NAMES if not n.startswith("_")]
    assert {n for n in names if hasattr(tabtorch, n)} - _EXTRA == {n for n in names if hasattr(torch, n)}
    methods = {n for n in names if registry.method(n) is not None}
    assert methods <= {n for n in names if hasattr(torch.Tensor, n)}
    assert not hasattr(tabtorch, "silu") and not hasattr(tabtorch.Tensor, "silu")
    assert tabtorch.nn.functional.silu(tabtorch.zeros(2)).tolist() == [0.0, 0.0]
    assert not hasattr(tabtorch, "special_erf") and tabtorch.special.erf is not None


def test_the_table_of_a_wheel() -> None:
    """It knows every name, and with it an operation loads its own family and no other."""
    script = """
import sys, types
from tabtorch.ops.machinery import registry
if sys.argv[1:]:
    sys.modules["tabtorch.ops.names"] = types.SimpleNamespace(MODULES=eval(sys.argv[1]))
    import tabtorch
    assert callable(tabtorch.Tensor.exp) and callable(tabtorch.kron) and callable(tabtorch.Tensor.kron)
    assert not hasattr(tabtorch, "no_such_name") and not hasattr(tabtorch.Tensor, "no_such_name")
    loaded = {m for m in sys.modules if m.startswith("tabtorch.ops.")}
    assert "tabtorch.ops.sliding.conv" not in loaded and "tabtorch.ops.reductions.sort" not in loaded, loaded
else:
    table = registry.table()
    names = {n for text in table.values() for n in text.split()}
    known = {*registry.FUNCTIONS, *registry.METHODS, *registry.ROW_NAMES}
    assert names == known, names ^ known
    print(table)
"""
    first = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert first.returncode == 0, first.stderr
    second = subprocess.run([sys.executable, "-c", script, first.stdout], capture_output=True, text=True, timeout=120)
    assert second.returncode == 0, second.stderr


def test_a_submodule_does_not_hide_a_function() -> None:
    import tabtorch.ops.random_numbers.dropout  # noqa: F401
    import tabtorch.ops.random_numbers.random_tensors as submodule
    from tabtorch import ops

    assert callable(ops.dropout) and submodule.__name__ == "tabtorch.ops.random_numbers.random_tensors"


@pytest.mark.parametrize("python", [bool, int, float, complex])
def test_python_types_are_dtypes(python: type) -> None:
    assert str(tabtorch.zeros(2, device="cpu").to(python).dtype) == str(torch.zeros(2).to(python).dtype)


@pytest.mark.skipif(sys.platform == "emscripten", reason="arrays are stand-ins there")
def test_equal_to_an_array() -> None:
    """`==` is the one operator that takes NumPy's arrays, on either side."""
    for other in (np.arange(3.0), np.arange(3), np.array([0, 5, 2], dtype=np.int32), np.arange(6).reshape(2, 3)):
        for t in (torch.arange(3), torch.arange(3.0)):
            mine = to_tab(t, "cpu")
            same(t == other, mine == other)
            same(other == t, other == mine)
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        to_tab(torch.ones(3), "cpu") == np.ones(4)  # noqa: B015
