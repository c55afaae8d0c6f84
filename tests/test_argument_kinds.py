"""Arguments that are of a subclass, or stand for what is asked for: lists, tuples, numbers, strings, as PyTorch takes them."""

from __future__ import annotations

import copy
import enum
import io
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import tabtorch as tt


class Listed(list):
    pass


class Tupled(tuple):
    pass


class Pair(NamedTuple):
    a: Any
    b: Any


class Whole(int):
    pass


class Real(float):
    pass


class Named(enum.IntEnum):
    ONE = 1


class Mode(enum.StrEnum):
    MEAN = "mean"


SEQUENCES: tuple[Callable[[Any], Any], ...] = (list, tuple, Listed, Tupled, lambda v: Pair(*v))
ONES: tuple[Any, ...] = (1, Whole(1), Named.ONE, np.int64(1), np.uint8(1), np.array(1))
HALVES: tuple[Any, ...] = (0.5, Real(0.5), np.float64(0.5), np.float32(0.5))


def x(t: Any) -> Any:
    return (t.arange(24).float().view(2, 3, 4) / 7).sin()


OF_DIMS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda t, d: x(t).sum(d),
    "mean": lambda t, d: t.mean(x(t), d, keepdim=True),
    "nanmean": lambda t, d: x(t).nanmean(d),
    "var": lambda t, d: x(t).var(d),
    "amax": lambda t, d: x(t).amax(d),
    "any": lambda t, d: (x(t) > 0).any(d),
    "flip": lambda t, d: x(t).flip(d),
    "roll": lambda t, d: x(t).roll(d, d),
    "zeros": lambda t, d: t.zeros(d),
    "pad_sequence": lambda t, d: t.nn.utils.rnn.pad_sequence(type(d)([t.ones(2), t.ones(3)])) if type(d) is list else 0,
}
OF_ONE: dict[str, Callable[[Any, Any], Any]] = {
    "squeeze": lambda t, n: t.ones(2, 1, 3).squeeze(n),
    "sum": lambda t, n: x(t).sum(n),
    "softmax": lambda t, n: x(t).softmax(n),
    "unsqueeze": lambda t, n: x(t).unsqueeze(n),
    "narrow": lambda t, n: x(t).narrow(n, n, n),
    "index": lambda t, n: x(t)[n],
    "tensor": lambda t, n: t.tensor([n, n]),
}
OF_HALF: dict[str, Callable[[Any, Any], Any]] = {
    "tensor": lambda t, v: t.tensor(v),
    "tensor of several": lambda t, v: t.tensor([v, 1.0, 2]),
    "tensor with ints": lambda t, v: t.tensor([1, v]),
    "full": lambda t, v: t.full((2,), v),
    "mul": lambda t, v: t.arange(3) * v,
    "clamp": lambda t, v: x(t).clamp(v),
}


def said(f: Callable[..., Any], t: Any, v: Any) -> Any:
    try:
        r = f(t, v)
    except Exception as e:
        return type(e).__name__
    return (str(r.dtype), tuple(r.shape), [round(v, 5) for v in r.reshape(-1).tolist()]) if hasattr(r, "dtype") else r


@pytest.mark.parametrize("make", SEQUENCES)
@pytest.mark.parametrize("name", OF_DIMS)
def test_sequences(name: str, make: Any) -> None:
    assert said(OF_DIMS[name], tt, make([0, 1])) == said(OF_DIMS[name], torch, make([0, 1]))


@pytest.mark.parametrize("n", ONES, ids=lambda n: f"{type(n).__module__}.{type(n).__name__}")
@pytest.mark.parametrize("name", OF_ONE)
def test_ints(name: str, n: Any) -> None:
    theirs = said(OF_ONE[name], torch, n)
    if theirs in ("TypeError", "RuntimeError"):
        pytest.skip("an array of one number is taken here")
    assert said(OF_ONE[name], tt, n) == theirs


@pytest.mark.parametrize("v", HALVES, ids=lambda v: f"{type(v).__module__}.{type(v).__name__}")
@pytest.mark.parametrize("name", OF_HALF)
def test_floats(name: str, v: Any) -> None:
    with tt.device("cpu"):
        assert said(OF_HALF[name], tt, v) == said(OF_HALF[name], torch, v)


def test_interpolated_to_sizes_of_numpy() -> None:
    size = (np.int64(3), np.int32(2))
    for t in (tt, torch):
        image = t.ones(1, 1, 4, 4)
        assert t.nn.functional.interpolate(image, size=size).shape == (1, 1, 3, 2)
        assert t.nn.functional.interpolate(image, size=list(t.tensor([3, 2]))).shape == (1, 1, 3, 2)
        with pytest.raises(TypeError, match="expected size to be one of int"):
            t.nn.functional.interpolate(image, size=(3.0, 2))


def test_strings() -> None:
    assert tt.nn.functional.mse_loss(x(tt), x(tt) * 2, reduction=Mode.MEAN).item() == pytest.approx(
        torch.nn.functional.mse_loss(x(torch), x(torch) * 2, reduction=Mode.MEAN).item()
    )


@pytest.mark.parametrize("given", [iter, lambda v: {str(i): p for i, p in enumerate(v)}.values()])
def test_padded_iterables(given: Any) -> None:
    found = [t.nn.utils.rnn.pad_sequence(given([t.ones(2), t.ones(3)])).tolist() for t in (tt, torch)]
    assert found[0] == found[1]


@pytest.mark.parametrize("make", SEQUENCES)
def test_autocast_looks_into_them(make: Any) -> None:
    for t in (tt, torch):
        with t.autocast("cpu", dtype=t.bfloat16):
            assert t.cat(make([t.ones(2), t.ones(2, dtype=t.bfloat16)])).dtype is t.float32


@pytest.mark.parametrize("make", SEQUENCES)
def test_a_backward_hook_gives_any_sequence(make: Any) -> None:
    found = []
    for t in (tt, torch):
        net = t.nn.Bilinear(2, 2, 2)
        with t.no_grad():
            net.weight.fill_(1)
        net.register_full_backward_hook(lambda m, given, _: make([given[0] * 2, given[1]]))
        a, b = t.ones(1, 2, requires_grad=True), t.ones(1, 2, requires_grad=True)
        net(a, b).sum().backward()
        found.append([a.grad.tolist(), b.grad.tolist()])
    assert found[0] == found[1]


@pytest.mark.parametrize("t", (tt, torch))
def test_a_parameter_whose_class_takes_more(t: Any) -> None:
    class Curved(t.nn.Parameter):
        def __new__(cls, data: Any, curvature: float, requires_grad: bool = True) -> Any:
            made = t.nn.Parameter.__new__(cls, data, requires_grad)
            made.curvature = curvature
            return made

    p = Curved(t.ones(2), -1.0)
    assert type(p) is Curved and p.curvature == -1.0 and p.requires_grad and p.is_leaf
    assert not Curved(t.ones(2), curvature=2.0, requires_grad=False).requires_grad


def test_private_names_that_monai_asks_for() -> None:
    code = [
        "import tabtorch; tabtorch.install()",
        "from torch.utils.data._utils.collate import np_str_obj_array_pattern",
        "import torch",
        "assert np_str_obj_array_pattern.search('<U3') and not torch.backends.flags_frozen()",
        "with torch.backends.__allow_nonbracketed_mutation(): torch.backends.cudnn.deterministic = True",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(code)], check=True)


def test_who_asks_for_packages_finds_those_that_are_there() -> None:
    """torchao's names can be imported, but nobody is told that there is a torchao; bitsandbytes is not there."""
    code = [
        "import tabtorch; tabtorch.install()",
        "import importlib.util",
        "assert importlib.util.find_spec('torchao') is None and importlib.util.find_spec('bitsandbytes') is None",
        "from torchao.quantization import quantize_",
        "import torchao.quantization",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(code)], check=True)


def test_parameters_are_pickled_and_copied() -> None:
    p = tt.nn.Parameter(tt.ones(2), requires_grad=False)
    assert type(copy.deepcopy(p)) is tt.nn.Parameter and not copy.deepcopy(p).requires_grad
    stored = io.BytesIO()
    tt.save(p, stored)
    stored.seek(0)
    assert tt.load(stored).tolist() == [1, 1]


@pytest.mark.parametrize("names", [("cpu", "cpu:0"), ("cpu:0", "cpu")])
def test_a_device_by_two_names_is_one(names: tuple[str, str]) -> None:
    """Values that wait on "cpu:0" may be read by operations on "cpu", and the other way round."""
    found = []
    for t in (tt, torch):
        a, b = t.zeros(4, device=names[0]), t.ones(4, device=names[1]) * 3
        a[1:3] += b[1:3]
        c = a / (b * 2)
        found.append([(c.amax() + 1).item(), t.stack([a, b]).sum().item(), c.tolist()])
    assert found[0] == found[1]
