"""What scripts that try the parts one by one have found: nn, optim, data, files, autograd, func, distributions, devices."""

from __future__ import annotations

import importlib
import io
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import outcome

place: Any = importlib.import_module("tabtorch.base.device")


@pytest.fixture
def cpu() -> Iterator[None]:
    """The default device is the cpu."""
    with tabtorch.device("cpu"):
        yield


@pytest.fixture
def tab(webgpu: None) -> Iterator[None]:
    """As in a tab: no device is named as the default, and "cuda" means the GPU."""
    before = place._default.stack[:]
    place._default.stack.clear()
    place._cuda_alias = True
    try:
        yield
    finally:
        place._default.stack[:] = before
        place._cuda_alias = False


def same(call: Any) -> Any:
    """`call(library)` gives the same with each: the value, or the error."""
    want, got = outcome(lambda: _plain(call(torch))), outcome(lambda: _plain(call(tabtorch)))
    assert _close(got, want), (got, want)
    return want


def _plain(x: Any) -> Any:
    if hasattr(x, "tolist"):
        return [str(x.dtype).rpartition(".")[2], x.requires_grad, x.tolist()]
    return [_plain(v) for v in x] if isinstance(x, (list, tuple)) else x


def _close(a: Any, b: Any) -> bool:
    if isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_close, a, b))
    return bool(a == pytest.approx(b, rel=1e-4)) if isinstance(b, float) else bool(a == b)


# ---- nn and data


def test_recurrent_weights_by_name(cpu: None) -> None:
    same(lambda L: L.nn.LSTM(2, 3, 2, bidirectional=True, proj_size=2)._flat_weights_names)
    same(lambda L: [tuple(w.shape) for w in L.nn.GRU(2, 3)._flat_weights])


def test_padding_errors(cpu: None) -> None:
    same(lambda L: L.nn.utils.rnn.pad_sequence([L.ones(2)], padding_side="up"))
    same(lambda L: L.nn.utils.rnn.pack_padded_sequence(L.zeros(0, 0), L.tensor([])))


def test_collate_of_types_of_ones_own(cpu: None) -> None:
    class Box:
        def __init__(self, value: int) -> None:
            self.value = value

    def check(L: Any) -> Any:
        m = importlib.import_module(f"{L.__name__}.utils.data._{'utils.collate' if L is torch else 'collate'}")

        def boxes(batch: Any, *, collate_fn_map: Any = None) -> Any:
            return m.collate([b.value for b in batch], collate_fn_map=collate_fn_map)

        known = {**m.default_collate_fn_map, Box: boxes}
        out = m.collate([{"a": [Box(1), 2.0]}, {"a": [Box(3), 4.0]}], collate_fn_map=known)
        m.default_collate_fn_map[Box] = boxes
        try:
            again = m.default_collate([(Box(5), "s"), (Box(6), "t")])
        finally:
            del m.default_collate_fn_map[Box]
        return [out["a"], again]

    same(check)


def test_old_name_of_cumulative_sizes(cpu: None) -> None:
    with pytest.warns(FutureWarning, match="renamed to `cumulative_sizes`"):
        assert tabtorch.utils.data.ConcatDataset([[1], [2, 3]]).cummulative_sizes == [1, 3]


# ---- autograd


def test_anomaly_tells_the_forward_call(cpu: None) -> None:
    def check(L: Any, inside: bool) -> Any:
        x = L.tensor([1.0, 2.0], requires_grad=True)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            with L.autograd.set_detect_anomaly(inside):
                y = ((x * 0).log() * 0).sum()
            with L.autograd.detect_anomaly():
                try:
                    y.backward()
                except RuntimeError as e:
                    error = str(e)
        told = str(heard[-1].message)
        first = told.partition("\n")[0].partition(" (Triggered")[0]
        return [error, first, "y = ((x * 0).log() * 0).sum()" in told]

    for inside in (True, False):
        assert same(lambda L, inside=inside: check(L, inside))[1][2] is inside
    # nothing is noted any more
    assert "made" not in (tabtorch.ones(1, requires_grad=True) * 2).grad_fn.__dict__


def test_backward_details(cpu: None) -> None:
    same(lambda L: L.autograd.grad(L.ones(1, requires_grad=True).sum(), []))

    def twice(L: Any) -> Any:
        class Double(L.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2

        x = L.ones(2, requires_grad=True)
        y = Double.apply(x)
        y.sum().backward()
        y.sum().backward()  # what was saved is gone, but nobody asks for it
        return x.grad

    same(twice)


def test_create_graph_warns_once(cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = importlib.import_module("tabtorch.autograd.engine")
    monkeypatch.setattr(engine, "_warn_of_cycle", [True])
    x = tabtorch.ones(1, requires_grad=True)
    with pytest.warns(UserWarning, match="will create a reference cycle"):
        (x * x).sum().backward(create_graph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (x * x).sum().backward(create_graph=True)


# ---- func


def test_linearize_leaves_no_tape(cpu: None) -> None:
    f: Any = tabtorch.func
    moved = f.linearize(lambda v: f.vmap(f.grad(lambda q: q**3))(v), tabtorch.tensor([1.0, 2.0]))[1](tabtorch.ones(2))
    assert moved.tolist() == [6.0, 12.0] and not moved.requires_grad


@pytest.mark.parametrize(
    "one",
    [
        lambda L, a: L.multinomial(a, 2),
        lambda L, a: L.multinomial(a, 1),
        lambda L, a: L.equal(a, a),
        lambda L, a: L.allclose(a, a),
        lambda L, a: L.distributions.Categorical(a).sample(),
        lambda L, a: L.distributions.Normal(a, 1.0).log_prob(a + 1),
        lambda L, a: L.distributions.Gamma(a, a).log_prob(a),
        lambda L, a: L.func.grad(lambda p: L.distributions.Beta(p, 2.0).entropy().sum())(a),
        lambda L, a: L.distributions.kl_divergence(L.distributions.Normal(a, 1.0), L.distributions.Normal(0.0, a)),
        lambda L, a: L.distributions.Exponential(-a),
        lambda L, a: L.distributions.Exponential(a).log_prob(-a),
    ],
)
def test_under_vmap(one: Any, cpu: None) -> None:
    def check(L: Any) -> Any:
        L.manual_seed(0)
        a = L.arange(6.0).reshape(2, 3) + 1
        return L.func.vmap(lambda v: one(L, v), randomness="different")(a)

    same(check)


# ---- reductions


def test_bool_sums(device: str) -> None:
    x = tabtorch.tensor([[0, 2], [0, 0]])
    assert x.sum(dtype=tabtorch.bool).item() is True
    assert x.sum(1, dtype=tabtorch.bool).tolist() == [True, False]
    for name in ("cumsum", "cumprod"):
        with pytest.raises(NotImplementedError, match=f"\"{name}_out_cpu\" not implemented for 'Bool'"):
            getattr(x, name)(0, dtype=tabtorch.bool)


# ---- devices, as in a tab


@pytest.mark.parametrize(
    "f",
    [
        lambda x, i: i.double(),
        lambda x, i: i.to(tabtorch.float64),
        lambda x, i: x.to(tabtorch.complex64).to(tabtorch.complex64).real.double(),
        lambda x, i: x.to(x.device, tabtorch.float64),
        lambda x, i: tabtorch.as_tensor(i, dtype=tabtorch.float64),
        lambda x, i: tabtorch.as_tensor(i, dtype=tabtorch.float64, device=i.device),
        lambda x, i: x.sum(dtype=tabtorch.float64),
        lambda x, i: tabtorch.mean(i, 0, dtype=tabtorch.float64),
        lambda x, i: x.prod(0, dtype=tabtorch.float64),
        lambda x, i: x.cumsum(0, dtype=tabtorch.float64),
        lambda x, i: tabtorch.bincount(i, weights=i.double()),
    ],
)
def test_wide_results_of_what_named_no_device(f: Any, tab: None) -> None:
    r = f(tabtorch.ones(2), tabtorch.tensor([1, 2]))
    assert r.dtype is tabtorch.float64 and r.device.type == "cpu"
    assert r.float().device.type == "webgpu"
    with pytest.raises(TypeError, match="float64 is not available on webgpu"):
        tabtorch.ones(2, device="webgpu").sum(dtype=tabtorch.float64)


def test_random_state_is_of_both_generators(tab: None) -> None:
    cuda = tabtorch.cuda

    def draws() -> list[Any]:
        dropped = tabtorch.nn.functional.dropout(tabtorch.ones(16, device="cuda"))
        return [dropped.tolist(), tabtorch.rand(2, device="cuda").tolist()]

    for get, put in (
        (tabtorch.get_rng_state, tabtorch.set_rng_state),
        (cuda.get_rng_state, cuda.set_rng_state),
        (cuda.get_rng_state_all, cuda.set_rng_state_all),
    ):
        state = get()
        first = draws()
        put(state)
        assert draws() == first
    kept = tabtorch.get_rng_state()
    assert not kept.__dict__  # a file has the 5,056 bytes alone
    assert len(cuda.default_generators) == 1 and cuda.get_arch_list() == []


def test_lines_for_cuda(tab: None) -> None:
    x = tabtorch.ones(2).pin_memory()
    assert x.is_pinned() and not tabtorch.ones(2).is_pinned()
    x.record_stream(tabtorch.cuda.current_stream())
    assert repr(tabtorch.device(0)) == "device(type='cuda', index=0)"


def test_files_of_a_model_on_cuda(tab: None) -> None:
    f = io.BytesIO()
    tabtorch.save(tabtorch.ones(2, device="cuda"), f)

    def load(where: Any) -> Any:
        f.seek(0)
        return tabtorch.load(f, map_location=where).device

    assert repr(load("cuda:0")) == "device(type='cuda', index=0)"
    assert repr(load({"cuda:0": "cpu"})) == "device(type='cpu')"
    assert load(None).type == "webgpu"


def test_double_as_the_default_type(tab: None) -> None:
    tabtorch.set_default_dtype(tabtorch.float64)
    try:
        i = tabtorch.arange(3)
        for r in (i / 2, i.sqrt(), i * 0.5, 1 / (i + 1), tabtorch.where(i > 1, 1.0, 0.0), (i == 1) * 0.5):
            assert r.dtype is tabtorch.float64 and r.tolist()
        layer = tabtorch.nn.Linear(2, 1)
        layer(tabtorch.ones(1, 2)).sum().backward()
        assert layer.weight.grad.tolist() == [[1.0, 1.0]]
    finally:
        tabtorch.set_default_dtype(tabtorch.float32)
    assert tabtorch.ones(1).device.type == "webgpu"


def test_a_subclass_names_its_attributes_as_it_likes() -> None:
    """What a tensor consists of has names that nobody else takes: MONAI's MetaTensor sets `self._meta`."""
    taken = (
        "_meta _storage _fn _rg _stale _inference _accumulator _retain _view_state _detached _computed _shallow".split()
    )
    for torch_ in (tabtorch, torch):

        class Named(torch_.Tensor):  # type: ignore[name-defined,misc]
            pass

        x = torch_.arange(3.0).as_subclass(Named).requires_grad_()
        for name in taken:
            setattr(x, name, {"affine": 1})
        y = (x * 2).sum()
        y.backward()
        assert x.grad.tolist() == [2.0, 2.0, 2.0] and x._meta == {"affine": 1} and set(taken) <= set(vars(x))
        assert type(y) is Named
