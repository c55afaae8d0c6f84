"""The table of ATen: every operator that PyTorch tags as core, and whatever PyTorch itself calls, forward and backward."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._decomp import core_aten_decompositions

import tabtorch
from conformance import aten_calls, checks
from conformance.aten_calls import Call, Recorder, replay
from conformance.compare import same
from conformance.translate import Translator, Unsupported
from tabtorch.ops import aten

DEVICES = ("cpu", "webgpu")
#: how many tests the recorded calls are dealt to, on each device
PARTS = 12

#: what PyTorch's CPU calls and is not in the table, and why
ABSENT = {
    "aten._efficient_attention_forward.default": "no kernel on PyTorch's CPU either: nothing to compare with",
    "aten._flash_attention_forward.default": "no kernel on PyTorch's CPU either",
    "aten._scaled_mm.default": "float8 is no type of tabtorch",
    "aten._scaled_mm_v2.default": "float8 is no type of tabtorch",
    "aten._to_sparse.default": "sparse tensors have operations of their own: tabtorch.sparse",
    "aten._to_sparse.sparse_dim": "the same",
    "aten.sparse_sampled_addmm.default": "the same",
    "aten.hash_tensor.default": "uint64 is no type of tabtorch",
    "aten.mkldnn_rnn_layer.default": "PyTorch's CPU alone calls it, for LSTMs",
    "aten.mkldnn_rnn_layer_backward.default": "PyTorch's CPU alone calls it",
}


def core() -> list[Any]:
    """The overloads that PyTorch tags as core."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        if space == "aten":
            plain, _, overload = rest.partition(".")
            packet = getattr(torch.ops.aten, plain, None)
            op = getattr(packet, overload or "default", None)
            if op is not None and torch.Tag.core in op.tags:
                found.append(op)
    return found


@functools.cache
def recorded() -> Recorder:
    """What PyTorch calls over the samples of op_db, decomposed too, and in steps of optimizers and layers."""
    recorder = Recorder(each=6, decompositions=dict(core_aten_decompositions()))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small
    for op in checks.operators().values():
        aten_calls.record(recorder, op)
    aten_calls.record_steps(recorder)
    torch.set_num_threads(threads)
    return recorder


def called(op: Any, *args: Any, **kwargs: Any) -> Call:
    """One call of ours."""
    before = aten_calls.held((args, kwargs))
    result = op(*args, **kwargs)
    after, kept = aten_calls.held(((args, kwargs), result))
    return Call(op, *before, after, kept)


def x(*shape: int) -> torch.Tensor:
    return torch.linspace(-2.0, 2.9, max(1, torch.Size(shape).numel())).reshape(shape)


I4 = torch.tensor([5, 3, 8, 12])


def by_hand() -> Iterator[Call]:
    """Core operators that no sample of op_db comes to, and arguments that samples leave out."""
    a = torch.ops.aten
    stats = (torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1.0, 2.0, 3.0]))
    for op in (a.bitwise_and, a.bitwise_or, a.bitwise_xor):
        yield called(op.Scalar, I4, 6)
    for op in (a.add, a.sub, a.rsub):
        yield called(op.Scalar, x(4), 2, 3)
        yield called(op.Tensor, x(4), x(3, 4), alpha=3)
    for op in (a.add_, a.sub_):
        yield called(op.Scalar, x(4), 2, 3)
    yield called(a.atan2.out, x(4), x(4) + 1, out=torch.zeros(4))
    yield called(a.avg_pool1d.default, x(2, 3, 9), [2], [], [1], True, False)
    yield called(a.adaptive_avg_pool1d.default, x(2, 3, 9), [4])
    yield called(a.fmod.Scalar, x(5), 0.7)
    for op in (a.var, a.std, a.var_mean, a.std_mean):
        yield called(op.default, x(3, 4), False)
    yield called(a.nuclear_norm.default, x(3, 4), True)
    yield called(a.nuclear_norm.dim, x(3, 4), [0, 1])
    yield called(a.einsum.default, "ij,jk->ki", [x(2, 3), x(3, 4)], path=[0, 1])
    yield called(a.tensordot.default, x(2, 3, 4), x(4, 3, 5), [1, 2], [1, 0])
    yield called(a.cartesian_prod.default, [x(3), x(2)])
    yield called(a._int_mm.default, x(4, 8).to(torch.int8), x(8, 4).to(torch.int8))
    yield called(a.var.dim, x(3, 4), [1], False, True)
    yield called(a.var.dim, x(3, 4), None, True)
    yield called(a.std.dim, x(3, 4), [0], False)
    yield called(a.div.Scalar_mode, x(5), 0.7, rounding_mode="floor")
    yield called(a.div.Scalar_mode, x(5), 0.7, rounding_mode="trunc")
    yield called(a._native_batch_norm_legit.no_stats, x(2, 3, 4), stats[1], stats[0], True, 0.1, 1e-5)
    yield called(a._native_batch_norm_legit_no_training.default, x(2, 3, 4), stats[1], None, *stats, 0.1, 1e-5)
    yield called(a._native_batch_norm_legit_functional.default, x(2, 3, 4), None, None, *stats, True, 0.3, 1e-5)
    yield called(a._batch_norm_no_update.default, x(2, 3, 4), None, None, *stats, 0.3, 1e-5)
    yield called(a.randperm.default, 7)
    yield called(a.native_dropout.default, x(50), 0.4, True)
    yield called(a.native_dropout.default, x(50), 0.4, False)
    for mode in (a.upsample_nearest2d, a._upsample_nearest_exact2d):
        yield called(mode.vec, x(1, 2, 3, 4), None, [2.0, 1.5])
        yield called(mode.vec, x(1, 2, 3, 4), [5, 5], None)
    for align in (True, False):
        for mode in (a.upsample_bilinear2d, a.upsample_bicubic2d, a._upsample_bilinear2d_aa):
            yield called(mode.vec, x(1, 2, 3, 4), None, align, [2.0, 1.5])
            yield called(mode.vec, x(1, 2, 3, 4), [5, 5], align, None)
    yield called(a.upsample_linear1d.vec, x(1, 2, 5), [8], True, None)
    yield called(a.upsample_trilinear3d.vec, x(1, 2, 3, 4, 2), [4, 2, 3], False, None)
    grid = x(1, 3, 3, 2) / 3
    yield called(a.grid_sampler_2d_backward.default, x(1, 2, 3, 3), x(1, 2, 4, 4), grid, 0, 1, True, [True, True])
    for reduction in (0, 1, 2):
        yield called(a.kl_div.default, x(3, 4), x(3, 4), reduction, log_target=True)
        yield called(a.cross_entropy_loss.default, x(3, 4), torch.tensor([0, 3, 1]), None, reduction, 3, 0.1)
        yield called(a.l1_loss.default, x(3, 4), x(3, 4) * 2, reduction)
        yield called(a.triplet_margin_loss.default, x(3, 4), x(3, 4) * 2, -x(3, 4), 1.0, 2.0, 1e-6, True, reduction)
        yield called(a.margin_ranking_loss.default, x(4), -x(4), x(4).sign(), 0.2, reduction)
        yield called(a.nll_loss_nd.default, x(2, 3, 4), torch.tensor([[0, 1, 2, 0]] * 2), stats[1], reduction, 1)
    yield called(a.kl_div.default, x(3, 4), x(3, 4).exp())
    for bias in (None, x(4)):
        yield called(a._convolution_mode.default, x(1, 2, 5, 5), x(4, 2, 3, 3), bias, [1, 1], "same", [1, 1], 1)
        yield called(a._convolution.default, x(1, 2, 5), x(2, 2, 3), None if bias is None else x(4), *CONVOLUTION)
    for name, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
        weights = [x(gates * 4, n) / 4 for n in (3, 4)] + [x(gates * 4), -x(gates * 4)]
        both = weights + [-w for w in weights]
        state = x(2, 2, 4) if name != "lstm" else [x(2, 2, 4), -x(2, 2, 4)]
        f = getattr(a, name)
        yield called(f.input, x(5, 2, 3), state, both, True, 1, 0.0, False, True, False)
        yield called(f.input, x(2, 5, 3), state, both, True, 1, 0.0, False, True, True)
        sizes = torch.tensor([2, 2, 1])
        yield called(f.data, x(5, 3), sizes, state, both, True, 1, 0.0, False, True)
    yield called(a.index_put.default, x(3, 4), [None, torch.tensor([1, 1, 2])], x(3, 3), True)
    yield called(a.index_put_.default, x(3, 4), [None, torch.tensor([1, 0])], x(3, 2), False)
    yield called(a.index_put_.default, x(3, 4), [torch.tensor([1, 1])], x(4), True)
    yield called(a.glu_jvp.default, a.glu(x(4, 6), 1), x(4, 6), x(4, 6) * 2, 1)
    yield called(a.pad_sequence.default, [x(2, 3), x(4, 3)], True, 9.0, "left")
    yield called(a.to.dtype, x(3), torch.int64, False, True, torch.preserve_format)
    yield called(a.to.other, x(3), I4, False, True)
    yield called(a._to_copy.default, x(3), dtype=torch.float16, layout=torch.strided)
    yield called(a.copy.default, x(3, 4), I4)
    yield called(a._trilinear.default, x(2, 3), x(2, 4), x(5, 3, 4), [1, 3], [1, 2], [0], [2, 3])
    yield called(a._fused_rms_norm.default, x(3, 4), [4], x(4), None)
    for shape in ([3, 4], [4]):
        yield called(a.rms_norm.default, x(2, 3, 4), shape, None, 1e-3)


CONVOLUTION = ([2], [1], [1], True, [1], 2, False, False, True, True)


def test_every_core_operator_is_there() -> None:
    ops = core()
    assert len(ops) >= 190 and len({op._schema.name for op in ops}) >= 160
    missing = [str(op) for op in ops if aten.lookup(op._schema.name, op._overloadname) is None]
    assert not missing


def test_names_are_looked_up() -> None:
    assert aten.lookup("aten::add", "Tensor") is aten.lookup("aten::add")
    assert aten.lookup("add", "default") is aten.lookup("aten::add")
    assert aten.lookup("aten::nothing") is None and aten.lookup("prims::add") is None
    names = set(aten.names())
    assert {"aten::add", "aten::convolution_backward", "aten::upsample_nearest2d.vec", "aten::fft_fft"} <= names
    assert all(aten.lookup(*name.split(".")) is not None for name in names)
    assert tabtorch.ops.aten.upsample_nearest2d.vec(tabtorch.ones(1, 1, 2, 2), None, [2.0, 2.0]).shape[-1] == 4


def test_no_module_of_the_table_hides_an_operator() -> None:
    """`torch.ops.aten.NAME` is the operator, also after a module of the name was imported."""
    modules = {m.name for m in pkgutil.iter_modules(aten.__path__)} | {
        "lookup",
        "names",
        "Packet",
        "Overload",
        "DISPATCH",
    }
    assert not [name for name in modules if hasattr(torch.ops.aten, name)]


def test_what_pytorch_calls_is_there() -> None:
    calls = recorded().counts
    ops = [name for name in calls if name.startswith("aten.")]
    missing = {name for name in ops if aten.lookup(*_split(name)) is None}
    print(f"{len(ops)} overloads are called, {len(ops) - len(missing)} are in the table")
    assert len(ops) > 640
    assert missing == ABSENT.keys()


def _split(name: str) -> tuple[str, str]:
    _, plain, overload = name.split(".")
    return "aten::" + plain, overload


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("device", DEVICES)
def test_results_are_those_of_pytorch(device: str, part: int) -> None:
    calls = recorded().calls
    names = [name for name in sorted(calls) if name not in ABSENT][part::PARTS]
    wrong = _wrong([call for name in names for call in calls[name]], device)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("device", DEVICES)
def test_by_hand(device: str) -> None:
    wrong = _wrong(list(by_hand()), device)
    assert not wrong, "\n".join(wrong)


def _wrong(calls: list[Call], device: str) -> list[str]:
    wrong = []
    for call in calls:
        try:
            replay(call, device)
        except Unsupported:
            continue
        except Exception as error:
            wrong.append(f"{call.op} {aten_calls.shown(call)}: {type(error).__name__}: {str(error)[:200]}")
    return wrong


# ---- what accelerators have kernels of, and PyTorch's CPU has not


def _ours(device: str, *tensors: Any) -> list[Any]:
    to = Translator(device)
    return [to(t) for t in tensors]


def _close(want: Any, got: Any, *names: str) -> None:
    for i, (w, g) in enumerate(zip(want, got, strict=True)):
        same(w, g, lambda dtype: (1e-4, 1e-5), where=f"{names} {i}")


def _call(name: str, *args: Any, **kw: Any) -> Any:
    f = aten.lookup("aten::" + name)
    assert f is not None, name
    with tabtorch.no_grad():
        return f(*args, **kw)


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("device", DEVICES)
def test_fused_cells(device: str, biases: bool) -> None:
    torch.manual_seed(0)
    gates, hidden, state = torch.randn(3, 20), torch.randn(3, 20), torch.randn(3, 5)
    bias = (torch.randn(20), torch.randn(20)) if biases else ()
    leaves = [t.requires_grad_() for t in (gates, hidden, state, *bias)]
    total = sum((*bias,), gates + hidden)
    i, f, g, o = total.chunk(4, 1)
    cell = f.sigmoid() * state + i.sigmoid() * g.tanh()
    out = o.sigmoid() * cell.tanh()
    by_out, by_cell = torch.randn(3, 5), torch.randn(3, 5)
    want = torch.autograd.grad([out, cell], leaves, [by_out, by_cell])
    x, h, c, gh, gc, *b = _ours(device, gates.detach(), hidden.detach(), state.detach(), by_out, by_cell, *_held(bias))
    hy, cy, kept = _call("_thnn_fused_lstm_cell", x, h, c, *b)
    _close((out, cell), (hy, cy), "lstm")
    got = _call("_thnn_fused_lstm_cell_backward", gh, gc, c, cy, kept, biases)
    _close(want, got[: len(want)], "lstm backward")
    assert biases or got[3] is got[4] is None
    only = _call("_thnn_fused_lstm_cell_backward_impl", None, gc, c, cy, kept, False)
    _close(torch.autograd.grad(sum_of(gates, hidden, state, bias), [gates, state], by_cell), only[:2], "cell")

    parts = [t.detach()[:, :15].requires_grad_() for t in (gates, hidden)]
    few = [t.detach()[:15].requires_grad_() for t in bias]
    start = state.detach().requires_grad_()
    a, d = (t + few[k] if few else t for k, t in enumerate(parts))
    (xr, xz, xn), (hr, hz, hn) = a.chunk(3, 1), d.chunk(3, 1)
    z, n = (xz + hz).sigmoid(), ((xr + hr).sigmoid() * hn + xn).tanh()
    out = (start - n) * z + n
    want = torch.autograd.grad(out, [*parts, start, *few], by_out)
    x, h, c, gh, *b = _ours(device, *_held((*parts, start)), by_out, *_held(few))
    hy, kept = _call("_thnn_fused_gru_cell", x, h, c, *b)
    _close([out], [hy], "gru")
    _close(want, _call("_thnn_fused_gru_cell_backward", gh, kept, biases)[: len(want)], "gru backward")


def sum_of(gates: Any, hidden: Any, state: Any, bias: Any) -> torch.Tensor:
    i, f, g, _ = sum(bias, gates + hidden).chunk(4, 1)
    return f.sigmoid() * state + i.sigmoid() * g.tanh()


def _held(tensors: Any) -> list[torch.Tensor]:
    return [t.detach() for t in tensors]


@pytest.mark.parametrize("masked", ["", "causal", "bias"])
@pytest.mark.parametrize("device", DEVICES)
def test_forms_of_attention(device: str, masked: str) -> None:
    torch.manual_seed(0)
    q, k, v, g = (torch.randn(1, 2, 17, 8, requires_grad=i < 3) for i in range(4))
    bias = torch.randn(1, 1, 17, 17, requires_grad=True) if masked == "bias" else None
    causal = masked == "causal"
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, 0.0, causal, scale=0.4)
    scores = (q @ k.mT * 0.4) + (0 if bias is None else bias)
    scores = scores.masked_fill(torch.ones(17, 17).triu(1).bool(), float("-inf")) if causal else scores
    lse = scores.logsumexp(-1)
    leaves = [q, k, v] if bias is None else [q, k, v, bias]
    want = torch.autograd.grad(out, leaves, g)
    q, k, v, g, *rest = _ours(device, *_held((q, k, v, g)), *_held([] if bias is None else [bias]))
    b = rest[0] if rest else None
    kw = {"scale": 0.4}
    r = _call("_scaled_dot_product_flash_attention_for_cpu", q, k, v, 0.0, causal, attn_mask=b, **kw)
    _close((out, lse), r, "cpu")
    back = _call("_scaled_dot_product_flash_attention_for_cpu_backward", g, q, k, v, *r, 0.0, causal, attn_mask=b, **kw)
    _close(want[:3], back, "cpu backward")
    r = _call("_scaled_dot_product_efficient_attention", q, k, v, b, True, 0.0, causal, **kw)
    _close((out, lse), r[:2], "efficient")
    mask = [True, True, True, b is not None]
    back = _call("_scaled_dot_product_efficient_attention_backward", g, q, k, v, b, *r, 0.0, mask, causal, **kw)
    _close(want, back[: len(want)], "efficient backward")
    r = _call("_scaled_dot_product_fused_attention_overrideable", q, k, v, b, 0.0, causal, **kw)
    _close((out, lse), r[:2], "overrideable")
    back = _call(
        "_scaled_dot_product_fused_attention_overrideable_backward",
        *(g, q, k, v, b, mask, *r[:6], 0.0, causal, *r[6:8]),
        **kw,
    )
    _close(want, back[: len(want)], "overrideable backward")
    if b is None:
        r = _call("_scaled_dot_product_flash_attention", q, k, v, 0.0, causal, **kw)
        _close((out, lse), r[:2], "flash")
        back = _call("_scaled_dot_product_flash_attention_backward", g, q, k, v, *r[:6], 0.0, causal, *r[6:8], **kw)
        _close(want, back, "flash backward")
    with pytest.raises(NotImplementedError, match="dropout"):
        _call("_scaled_dot_product_flash_attention", q, k, v, 0.5)
    assert _call("_fused_sdp_choice", q, k, v, dropout_p=0.5) == 0
    assert _call("_fused_sdp_choice", q, k, v) == 4


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("device", DEVICES)
def test_bags_go_back_by_what_they_said(device: str, mode: int) -> None:
    torch.manual_seed(0)
    weight = torch.randn(6, 3, requires_grad=True)
    indices, offsets = torch.tensor([1, 4, 2, 2, 5, 0, 4]), torch.tensor([0, 2, 2, 5])
    each = torch.randn(7) if mode == 0 else None
    for padding in (-1, 2):
        out = torch.ops.aten._embedding_bag(weight, indices, offsets, False, mode, False, each, False, padding)[0]
        g = torch.randn(out.shape)
        want = torch.autograd.grad(out, weight, g)
        w, i, o, gg, *p = _ours(device, weight.detach(), indices, offsets, g, *([] if each is None else [each]))
        per = p[0] if p else None
        r = _call("_embedding_bag", w, i, o, False, mode, False, per, False, padding)
        _close([out], r[:1], "bags")
        back = _call("_embedding_bag_backward", gg, i, o, *r[1:], 6, False, mode, False, per, padding)
        _close(want, [back], "bags backward")


@pytest.mark.parametrize(
    ("name", "args", "low", "high"),
    [
        ("uniform", (2.0, 3.0), 2, 3),
        ("normal_functional", (5.0, 0.1), 3, 7),
        ("exponential", (2.0,), 0, 99),
        ("geometric", (0.5,), 1, 99),
        ("cauchy", (), -1e9, 1e9),
        ("log_normal", (), 0, 1e9),
        ("random.from", (3, 9), 3, 8),
        ("bernoulli.p", (0.5,), 0, 1),
        ("_fused_dropout", (0.5,), -9, 9),
    ],
)
@pytest.mark.parametrize("device", DEVICES)
def test_draws_give_new_tensors(device: str, name: str, args: Any, low: float, high: float) -> None:
    """Of the shape and type of their argument, which stays; on cpu with PyTorch's numbers."""
    plain, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, plain), overload or "default")
    f = aten.lookup("aten::" + plain, overload)
    assert f is not None
    (x,) = _ours(device, torch.full((40,), 0.5))
    tabtorch.manual_seed(3)
    got = f(x, *args)
    got = got[0] if isinstance(got, tuple) else got
    assert got.shape == (40,) and got.dtype is tabtorch.float32 and x.eq(0.5).all().item()
    assert low <= got.min().item() < got.max().item() <= high
    if device == "cpu" and name != "_fused_dropout":
        torch.manual_seed(3)
        _close([op(torch.full((40,), 0.5), *args)], [got], name)


def test_gradients_can_be_differentiated_again() -> None:
    """By our own tape, where a gradient of ATen's is called with gradients on."""
    for name, args in (("gelu_backward", ()), ("tanh_backward", ()), ("softplus_backward", (1.0, 20.0))):
        g, x = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)
        want = torch.autograd.grad(getattr(torch.ops.aten, name)(g, x, *args).sum(), [g, x])
        mine = _ours("cpu", g, x)
        f = aten.lookup("aten::" + name)
        assert f is not None
        got = tabtorch.autograd.grad(f(*mine, *args).sum(), mine)
        _close(want, got, name)
