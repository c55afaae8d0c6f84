"""Where Python numbers may stand for tensors, integer division by zero, and functions that NaN must come through."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import tabtorch
from tabtorch.nn import functional as F

DEVICES = ("cpu", "webgpu")
NAN = float("nan")

CALLS = (
    "torch.eq(2, x)",
    "torch.maximum(x, 2)",
    "torch.maximum(2, x)",
    "x.atan2(2)",
    "x.atan2_(2)",
    "torch.fmod(2, x)",
    "torch.lerp(x, 2, x)",
    "torch.addcmul(x, 2, x)",
    "torch.isclose(x, 2)",
    "torch.polar(2, x)",
    "torch.bitwise_and(1, 2)",
    "type(x).__radd__(2, x)",
    "type(x).__rand__(2, 3)",
)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("text", CALLS)
def test_no_number_there(text: str, device: str) -> None:
    for lib in (torch, tabtorch):
        x: Any = lib.ones(3, device=device if lib is tabtorch else "cpu")
        with pytest.raises(TypeError, match="must be Tensor|invalid combination|descriptor"):
            eval(text, {"torch": lib, "x": x})


@pytest.mark.parametrize(
    "text", ("torch.add(2, 3)", "torch.mul(2.0, 3)", "torch.div(1, 2)", "torch.sub(3, 2, alpha=2)")
)
def test_numbers_as_tensors(text: str) -> None:
    want, got = eval(text, {"torch": torch}), eval(text, {"torch": tabtorch})
    assert got.shape == () and got.item() == want.item() and str(got.dtype) == str(want.dtype)


BY_ZERO = """
x // 0; x % 0; x.fmod(0); x.floor_divide_(0); x // y; x % y; 5 // y; 5 % y; x.int() // y.int(); x.to(torch.uint8) % y
torch.div(x, y, rounding_mode='trunc'); torch.div(x, y, rounding_mode='floor', out=torch.zeros_like(x)); x.fmod(y)
x.clone().remainder_(y); x.clone().div_(y, rounding_mode='trunc'); torch.vmap(lambda a, b: a // b)(x, y); x // (y > 0)
torch.remainder(x, y, out=torch.zeros_like(x)); x.clone().__ifloordiv__(y)
"""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("text", [t.strip() for t in BY_ZERO.replace("\n", ";").split(";") if t.strip()])
def test_integer_division_by_zero(text: str, device: str) -> None:
    """The error comes for divisors that only the device knows, too, and nothing else is lost."""
    for lib in (torch, tabtorch):
        x, y = (lib.tensor(v, device=device if lib is tabtorch else "cpu") for v in ([4, 5], [2, 0]))
        for divisor in (y, y * 1):
            other = x * 2
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                eval(text, {"torch": lib, "x": x, "y": divisor}).tolist()
            assert other.tolist() == [8, 10]
            assert (x[:0] // 0).tolist() == [] and (x // (divisor + 1)).tolist() == [1, 5]
            assert (x // divisor.float()).tolist() == [2, float("inf")]


def test_compiled_integer_division_by_zero() -> None:
    f = tabtorch.compile(lambda x, y: x // y)
    x = tabtorch.tensor([4, 5])
    for _ in range(3):
        assert f(x, tabtorch.tensor([2, 1])).tolist() == [2, 5]
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            f(x, tabtorch.tensor([2, 0])).tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_nan_comes_through(device: str) -> None:
    """Selects between the two values compared are maxima and minima to a compiler, and a GPU's drop NaN."""
    x = tabtorch.tensor([NAN, 0.5], device=device)
    special = tabtorch.special
    for f in (tabtorch.relu, F.hardtanh, F.relu6, tabtorch.erf, special.ndtr, special.log_ndtr, F.hardsigmoid):
        assert f(x).isnan().tolist() == [True, False]


def test_selects_of_what_is_compared_ask_for_nan() -> None:
    from tabtorch.engine.expr import const, variable, where
    from tabtorch.engine.wgsl import Wgsl

    x, zero = variable("x", "f32"), const(0, "f32")
    assert "tt_pick" in Wgsl().text(where(x < zero, zero, x))
    assert "tt_pick" not in Wgsl().text(where(x < zero, x, zero))  # NaN gives the constant either way
    assert "tt_pick" not in Wgsl().text(where(x < zero, -x, x))


#: what would be `a` if numbers were real, or but a sign away from it
TAKEN_BACK = """((a - b) + b, b + (a - b), (a + b) - b, b - (b - a), (a * b) / b, (b * a) / b, (a / b) * b, b * (a / b), a / a,
    (a * 2) / a, (a * a) / a, torch.relu(a * b) / b, (a - b) * 1 + b)"""


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_taken_back_was_rounded(device: str) -> None:
    """SPIR-V's optimizer makes `a` of (a - b) + b and of (a * b) / b. Both round, overflow, and know NaN."""

    def results(lib: Any, device: str) -> Any:
        a, b = (
            lib.tensor(v, device=device) for v in ([1e-3, 0.0, 2.0, math.inf, 3.0], [1e8, 0.0, 0.0, math.inf, 2e38])
        )
        return [torch.tensor(t.tolist()) for t in eval(TAKEN_BACK, {"torch": lib, "a": a, "b": b})]

    for got, want in zip(results(tabtorch, device), results(torch, "cpu"), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("device", DEVICES)
def test_complex_division_by_zero(device: str) -> None:
    """Each part is divided by itself, so that an infinity says where the number was."""
    x = torch.tensor([1 + 2j, -1 + 2j, 1, -1j, 0, complex(math.inf, -1)])
    got = torch.tensor((tabtorch.tensor(x.tolist(), device=device) / 0j).tolist())
    torch.testing.assert_close(got, x / 0j, equal_nan=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ("float16", "bfloat16"))
def test_nextafter_of_halves(name: str, device: str) -> None:
    bits = list(range(-32768, 32768, 97)) + [0, 1, 0x7C00, -1024, 0x3F80, 0x3C00]
    x = torch.tensor(bits, dtype=torch.int16).view(getattr(torch, name))
    if device == "webgpu":
        x = x[~(x.abs() < 2.0**-125)]  # subnormal float32 numbers may be flushed to 0 there
    y = x.flip(0)
    mine = [tabtorch.tensor(t.tolist(), dtype=getattr(tabtorch, name), device=device) for t in (x, y)]
    got = torch.tensor(tabtorch.nextafter(*mine).tolist(), dtype=getattr(torch, name))
    torch.testing.assert_close(got, torch.nextafter(x, y), rtol=0, atol=0, equal_nan=True)


def test_a_reflected_operator_called_by_name() -> None:
    """With something that is no tensor in the tensor's place, also when there are classes that override functions."""

    class Overrides:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> str:
            return "overridden"

    x = tabtorch.ones(2)
    for _ in range(2):
        with pytest.raises(TypeError, match="doesn't apply to a 'int' object"):
            type(x).__radd__(2, x)
        assert type(x).__radd__(x, 2).tolist() == [3, 3]
        assert tabtorch.add(x, Overrides()) == "overridden"
    assert x.__radd__("a") is NotImplemented
