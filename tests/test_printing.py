"""`tensor_repr` against PyTorch's own `repr`, on PyTorch's own tensors."""

import contextlib

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tabtorch.core import printing

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
COMPLEX = [torch.complex64, torch.complex128]


@pytest.fixture(autouse=True)
def torch_rules(monkeypatch):
    """PyTorch's default dtype, and its rule for the device."""
    monkeypatch.setattr(printing, "_default_dtype", torch.get_default_dtype)
    monkeypatch.setattr(
        printing, "_device_suffix", lambda t: None if t.device.type == "cpu" else f"device='{t.device}'"
    )


@contextlib.contextmanager
def options(**kw):
    with torch._tensor_str.printoptions(**kw), printing.printoptions(**kw):
        yield


def check(t):
    mine = printing.parameter_repr(t) if isinstance(t, torch.nn.Parameter) else printing.tensor_repr(t)
    assert mine == repr(t)


SPECIAL = [
    0.0,
    -0.0,
    float("nan"),
    float("inf"),
    -float("inf"),
    1.0,
    -1.0,
    0.5,
    1e-5,
    1e-4,
    1e8,
    1.0001e8,
    1000.0,
    1001.0,
    1e-40,
    3e38,
]
numbers = st.one_of(
    st.sampled_from(SPECIAL),
    st.integers(-2000, 2000).map(float),
    st.floats(width=32),
    st.floats(-10, 10, width=16),
)
shapes = st.lists(st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 9, 0]), max_size=4)
option_sets = st.fixed_dictionaries(
    {},
    optional={
        "precision": st.integers(0, 9),
        "threshold": st.sampled_from([0, 1, 5, 20, 1000, float("inf")]),
        "edgeitems": st.integers(0, 4),
        "linewidth": st.integers(1, 130),
        "profile": st.sampled_from(["default", "short", "full"]),
        "sci_mode": st.sampled_from([None, True, False]),
    },
)


@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), shapes, st.sampled_from(FLOATS + INTS + COMPLEX), option_sets)
def test_random_tensors(data, shape, dtype, opts):
    n = 1
    for size in shape:
        n *= size
    pool = data.draw(st.lists(numbers, min_size=1, max_size=6))
    seed = data.draw(st.integers(0, 1000))
    pick = torch.randint(0, len(pool), (n,), generator=torch.Generator().manual_seed(seed)).tolist()
    values = torch.tensor([pool[i] for i in pick], dtype=torch.float64)
    if dtype.is_complex:
        values = torch.complex(values, values.flip(0))
    elif not dtype.is_floating_point:
        values = values.nan_to_num(0, 100, -100).clamp(-1000, 1000)
    t = values.to(dtype).reshape(shape)
    if data.draw(st.booleans()) and (dtype.is_floating_point or dtype.is_complex):
        t.requires_grad_()
        if data.draw(st.booleans()):
            t = t + 1
    with options(**opts):
        check(t)


@pytest.mark.parametrize(
    "t",
    [
        torch.tensor(1.5),
        torch.tensor(3),
        torch.tensor(True),
        torch.tensor(1 + 2j),
        torch.tensor(1.0, requires_grad=True),
        torch.tensor([]),
        torch.empty(0, 3),
        torch.empty(0, 3, dtype=torch.int64),
        torch.empty(0, dtype=torch.bool),
        torch.arange(1001),
        torch.arange(1000.0),
        torch.arange(100000.0).reshape(10, 100, 100),
        torch.arange(4000).reshape(2, 2000),
        torch.tensor([1e-8, 1.0]),
        torch.tensor([float("nan"), 1.0, float("inf")]),
        torch.tensor([float("nan")] * 3),
        torch.tensor([2**63 - 1, -(2**63)]),
        torch.ones(2, 3).t(),
        torch.ones(3, 3, dtype=torch.float16),
        torch.zeros(2, device="meta"),
        torch.zeros(2, device="meta", dtype=torch.int64),
        torch.nn.Parameter(torch.ones(2, 2)),
        torch.nn.Parameter(torch.ones(2, 2), requires_grad=False),
        torch.tensor([1 + 2j, -1 - 0.5j]).conj(),
        torch.tensor([1 + 2j, -1 - 0.5j]).conj().imag,
        (torch.ones(3, requires_grad=True) * 2).sum(),
        torch.ones(40, requires_grad=True).exp(),
        torch.eye(3, requires_grad=True).expand(2, 3, 3),
    ],
)
def test_cases(t):
    check(t)


def test_subclasses():
    class Mine(torch.Tensor):
        pass

    class MyParameter(torch.nn.Parameter):
        pass

    check(torch.ones(2).as_subclass(Mine))
    check(MyParameter(torch.ones(2)))
    p = torch.nn.Parameter(torch.ones(2).as_subclass(Mine))
    assert printing.tensor_repr(p) == repr(p)


@pytest.mark.parametrize("default", [torch.float64, torch.float16, torch.bfloat16])
def test_default_dtype(default):
    old = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        for dtype in FLOATS + INTS + COMPLEX:
            check(torch.ones(2, dtype=dtype))
            check(torch.ones(0, dtype=dtype))
    finally:
        torch.set_default_dtype(old)


def test_reads_only_what_it_shows():
    read = []

    class Spy:
        def __init__(self, t):
            self.t = t

        def __getattr__(self, name):
            return getattr(self.t, name)

        def __getitem__(self, index):
            return Spy(self.t[index])

        def detach(self):
            return Spy(self.t.detach())

        def tolist(self):
            read.append(self.t.numel())
            return self.t.tolist()

    Spy.__name__, Spy.__module__ = "Tensor", "torch"
    big = torch.arange(8e6).reshape(200, 200, 200)
    assert printing.tensor_repr(Spy(big)) == repr(big)
    assert read == [216]


def test_options():
    before = printing.get_printoptions()
    assert before == torch._tensor_str.get_printoptions()
    with printing.printoptions(precision=2, sci_mode=True):
        assert printing.get_printoptions()["precision"] == 2
        printing.set_printoptions(profile="short")
        assert printing.get_printoptions() == {
            "precision": 2,
            "threshold": 1000,
            "edgeitems": 2,
            "linewidth": 80,
            "sci_mode": None,
        }
    assert printing.get_printoptions() == before
