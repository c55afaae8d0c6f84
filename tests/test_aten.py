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
from conformance.translate import Unsupported
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
    "aten._to_sparse.default": "no sparse tensors",
    "aten._to_sparse.sparse_dim": "no sparse tensors",
    "aten.sparse_sampled_addmm.default": "no sparse tensors",
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
    for op in checks.operators().values():
        aten_calls.record(recorder, op)
    aten_calls.record_steps(recorder)
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
    modules = {m.name for m in pkgutil.iter_modules(aten.__path__)} | {"lookup", "names", "Packet"}
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
