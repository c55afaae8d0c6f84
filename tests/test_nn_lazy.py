"""Modules that learn their sizes, tensors that have no values, and the modules that PyTorch keeps for old code."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch

import tabtorch
from nn_oracle import close, failure, mine, rand

LAZY = [
    ("LazyLinear", (3,), (2, 5)),
    ("LazyConv1d", (4, 3), (2, 6, 7)),
    ("LazyConvTranspose2d", (4, 3), (2, 3, 5, 4)),
    ("LazyBatchNorm1d", (), (4, 3, 2)),
    ("LazyBatchNorm3d", (), (2, 3, 2, 2, 2)),
    ("LazyInstanceNorm2d", (), (2, 3, 4, 4)),
]


def life(ns: Any, name: str, args: tuple[Any, ...], x: Any) -> list[Any]:
    """What a lazy module says of itself, from before its first call to after it."""
    seen: list[Any] = []
    ns.manual_seed(0)
    m = getattr(ns.nn, name)(*args)
    # PyTorch makes no deep copy of uninitialized buffers
    again = pickle.loads(pickle.dumps(m)) if "Norm" in name else copy.deepcopy(m)
    for module in (m, again, pickle.loads(pickle.dumps(m))):
        seen += [repr(module), repr(list(module.parameters())), repr(list(module.state_dict())), type(module).__name__]
        seen += [module.has_uninitialized_params(), [type(p).__name__ for p in module.parameters()]]
    m.half().float()
    seen.append(failure(lambda ns: m.weight.shape, ns))
    twin = pickle.loads(pickle.dumps(m))
    seen.append(repr(twin.load_state_dict(m.state_dict())))
    if name.startswith("LazyConv"):
        seen.append(failure(lambda ns: m(ns.zeros(3)), ns))
    seen.append(m(x))
    seen += [repr(m), type(m).__name__, len(m._forward_pre_hooks), len(m._load_state_dict_pre_hooks)]
    seen += [(k, tuple(v.shape), v.requires_grad) for k, v in m.state_dict(keep_vars=True).items()]
    seen.append(repr(twin.load_state_dict(m.state_dict())))
    seen += [type(twin).__name__, repr(twin), list(twin.state_dict().values())]
    # PyTorch's InstanceNorm does not learn its num_features from a state
    seen.append(failure(lambda ns: twin(x), ns) if "Instance" in name else twin(x))
    seen += [repr(twin), type(twin).__name__]
    return seen


@pytest.mark.parametrize("name,args,shape", LAZY, ids=[r[0] for r in LAZY])
def test_lazy(name: str, args: tuple[Any, ...], shape: tuple[int, ...], device: str) -> None:
    x = rand(*shape, grad=False)
    ours, theirs = life(tabtorch, name, args, mine(x)), life(torch, name, args, x)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(b, torch.Tensor) or (isinstance(b, list) and b and isinstance(b[0], torch.Tensor)):
            close(a, b, 1e-4)
        else:
            assert a == b


def test_uninitialized(device: str) -> None:
    p = tabtorch.nn.UninitializedParameter(dtype=tabtorch.float16)
    assert (
        repr(p) == "<UninitializedParameter>" and isinstance(p, tabtorch.nn.Parameter) and p.dtype is tabtorch.float16
    )
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
        p + 1
    p.materialize((2, 3))
    assert (
        type(p) is tabtorch.nn.Parameter and p.shape == (2, 3) and p.requires_grad and (p * 0).dtype is tabtorch.float16
    )


def loaded(ns: Any) -> list[Any]:
    """A model without values gets its size from nowhere else than its code, and its values from a file."""
    seen: list[Any] = []
    net = ns.nn.Sequential(ns.nn.Conv2d(2, 3, 3), ns.nn.BatchNorm2d(3), ns.nn.Flatten(), ns.nn.Linear(12, 2))
    state = net.state_dict()
    before = ns.get_rng_state().tolist()
    with ns.device("meta"):
        empty = ns.nn.Sequential(ns.nn.Conv2d(2, 3, 3), ns.nn.BatchNorm2d(3), ns.nn.Flatten(), ns.nn.Linear(12, 2))
    seen.append(before == ns.get_rng_state().tolist())
    seen += [(repr(p), p.is_meta, p.device.type) for p in empty.parameters()]
    out = empty(ns.empty(5, 2, 4, 4, device="meta"))
    out.sum().backward()
    seen += [repr(out.detach()), repr(empty[0].weight.grad)]
    for f in (lambda ns: empty.to("cpu"), lambda ns: out.sum().item(), lambda ns: out.cpu(), lambda ns: out.tolist()):
        seen.append(failure(f, ns))
    empty.zero_grad()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        empty.load_state_dict(state)
    seen.append(str(said[0].message))
    seen.append(repr(empty.load_state_dict(state, assign=True)))
    x = ns.ones(5, 2, 4, 4)
    seen.append(bool((empty(x) == net(x)).all()))
    there = net[0].weight.device.type
    made = ns.nn.utils.skip_init(ns.nn.Linear, 2, 3, device=there)
    seen += [tuple(made.weight.shape), made.weight.device.type == there, net.to("meta")[3].bias.is_meta]
    seen.append(sum(p.numel() for p in ns.nn.Linear(200_000, 200_000, device="meta").parameters()))
    return seen


def test_meta(device: str) -> None:
    for a, b in zip(loaded(tabtorch), loaded(torch), strict=True):
        assert a == b


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_cross_map_lrn(size: int, device: str) -> None:
    x = rand(2, 7, 3, 2)
    y = mine(x)
    out = [m(t) for m, t in ((f.nn.CrossMapLRN2d(size, 0.5, 0.6, 1.5), t) for f, t in ((tabtorch, y), (torch, x)))]
    close(*out)
    w = rand(2, 7, 3, 2, seed=1, grad=False)
    (out[0] * mine(w)).sum().backward()
    (out[1] * w).sum().backward()
    close(y.grad, x.grad, 1e-4)


def test_sync_batch_norm(device: str) -> None:
    def run(ns: Any) -> list[Any]:
        ns.manual_seed(0)
        net = ns.nn.SyncBatchNorm.convert_sync_batchnorm(ns.nn.Sequential(ns.nn.Linear(3, 4), ns.nn.BatchNorm1d(4)))
        return [repr(net), net(ns.ones(2, 3) * ns.tensor([[1.0], [2.0]])), *net.state_dict().values()]

    ours, theirs = run(tabtorch), run(torch)
    assert ours[0] == theirs[0]
    close(ours[1:], theirs[1:], 1e-4)


def test_data_parallel(device: str) -> None:
    net = tabtorch.nn.DataParallel(tabtorch.nn.Linear(2, 3))
    assert list(net.state_dict()) == ["module.weight", "module.bias"]
    assert net(tabtorch.ones(4, 2)).shape == (4, 3)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_padding_of_a_packed_encoder(device: str) -> None:
    """Where PyTorch packs the sequences, what is padding comes out as zeros."""

    def run(ns: Any, padding: Any, x: Any) -> list[Any]:
        ns.manual_seed(0)
        net = ns.nn.TransformerEncoder(ns.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2).eval()
        with ns.no_grad():
            packed = net(x, src_key_padding_mask=padding)
        return [packed, net(x, src_key_padding_mask=padding)]

    x = rand(2, 3, 4, grad=False)
    for rows in ([[False, False, True], [False, True, True]], [[False, False, True], [True, False, False]]):
        padding = torch.tensor(rows)
        close(run(tabtorch, mine(padding), mine(x)), run(torch, padding, x))
