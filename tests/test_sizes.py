"""Nothing may depend on how large a tensor is, nor wait for the GPU in the middle: a part of `python -m conformance.sizes`."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tabtorch
from conformance import checks
from conformance.sizes import audit, cost_of, counted
from tabtorch.engine.expr import const
from tabtorch.engine.graph import Map, emit, inst

pytestmark = pytest.mark.usefixtures("webgpu")

OPERATORS = (
    "add add.variant cat gather scatter_add index_put cumsum sort topk var_mean softmax matmul einsum addmm tril diff kron "
    "repeat_interleave roll flip searchsorted histc masked_scatter nn.functional.nll_loss nn.functional.cross_entropy "
    "nn.functional.embedding nn.functional.embedding_bag "
    "nn.functional.local_response_norm nn.functional.layer_norm nn.functional.conv2d nn.functional.unfold nn.functional.fold "
    "nn.functional.pad.reflect nn.functional.interpolate.bilinear nn.functional.max_pool2d nn.functional.ctc_loss"
).split()
#: whose result has a shape that depends on data
_READ = {"repeat_interleave"}


@pytest.mark.parametrize("name", [n for n in OPERATORS if n in checks.operators()])
@pytest.mark.parametrize("gradient", [False, True])
def test_an_operator(name: str, gradient: bool) -> None:
    for found in audit(checks.operators()[name], 2, gradient):
        assert not found.faults(), found.args
        assert name in _READ or not any(x.reads for x in found.costs), found.args


def rows_one_by_one(x: Any, *args: Any, **kw: Any) -> Any:
    return tabtorch.stack([row.sin() for row in x])


def compiled_for_its_size(x: Any, *args: Any, **kw: Any) -> Any:
    m, n = x._tab_meta, float(x.numel())
    op = Map("sized", lambda v: v * const(n, "f32"))
    return tabtorch.Tensor._wrap(emit(inst(op, (m,), m), (x._tab_storage.node,)), m)


@pytest.mark.parametrize(("f", "fault"), [(rows_one_by_one, "nodes"), (compiled_for_its_size, "compiles sized")])
def test_the_audit_finds(f: Any, fault: str) -> None:
    (found,) = audit(checks.operators()["cumsum"], 1, f=f)
    assert [x for x in found.faults() if x.startswith(fault)], found


@pytest.mark.parametrize(
    "f",
    [
        lambda x: tabtorch.linspace(x.sum(), x.amax(), 7),
        lambda x: tabtorch.logspace(x.amin(), 2, 7),
        lambda x: tabtorch.histc(x, 4),
        lambda x: tabtorch.normal(x, x.abs()),
        lambda x: x.repeat_interleave((x.abs() + 1).long(), output_size=9),
        lambda x: tabtorch.nn.functional.one_hot(x.abs().long(), 9),
        lambda x: tabtorch.istft(tabtorch.stft(x, 4, window=x[:4], return_complex=True), 4, window=x[:4]),
    ],
)
def test_a_check_of_an_argument_does_not_wait(f: Any) -> None:
    x = tabtorch.arange(9.0).sin()
    with counted() as cost:
        kept = f(x)
        assert not cost(1).reads
    del kept


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([1.0, 2.0, 1.0], "the sum of the elements in the `repeats` tensor (4)"),
        ([3.0, -1.0, 3.0], "repeats can not be negative"),
    ],
)
def test_an_output_size_that_is_wrong_is_heard_of(counts: list[float], said: str) -> None:
    x = tabtorch.arange(3.0)
    r = x.repeat_interleave((tabtorch.tensor(counts) * 1.0).long(), output_size=5)
    with pytest.raises(RuntimeError, match=re.escape(said)):
        r.tolist()
    assert x.repeat_interleave((tabtorch.tensor([2.0, 0.0, 3.0]) * 1.0).long(), output_size=5).tolist() == [
        0,
        0,
        2,
        2,
        2,
    ]


def test_what_depends_on_data_is_one_read() -> None:
    x = tabtorch.arange(1, 5) * 2
    assert cost_of(lambda x: tabtorch.repeat_interleave(x), (to_torch(x), (), {})).reads == 1
    assert cost_of(tabtorch.nn.functional.one_hot, (to_torch(x), (), {})).reads == 1


def to_torch(x: Any) -> Any:
    import torch

    return torch.from_numpy(x.numpy())
