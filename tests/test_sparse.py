"""Sparse tensors, beside real PyTorch: what they print and refuse, gradients, files, optimizers, and programs as people write them."""

from __future__ import annotations

import copy
import io
import math
import re
import subprocess
import sys
from typing import Any

import pytest
import torch

import tabtorch
from fuzz import sparse as fuzz
from sidebyside import DEVICES
from slices import number
from sparse_cases import GRADIENTS, SAME, split

pytestmark = pytest.mark.filterwarnings("ignore")
LIBRARIES = (torch, tabtorch)


def world(t: Any) -> dict[str, Any]:
    """What the expressions name, new for each."""
    i, v = t.tensor([[0, 1, 1], [2, 0, 2]]), t.tensor([3.0, 4, 5])
    s = t.sparse_coo_tensor(i, v, (2, 3)).coalesce()
    return {
        "torch": t,
        "T": t.tensor,
        "i": i,
        "v": v,
        "s": s,
        "c": s.to_sparse_csr(),
        "d": t.tensor([[0.5, -1, 2], [3, 0.25, 1]]),
        "e": t.tensor([[1.0, 2], [-1, 0.5], [3, 1]]),
        "u": t.sparse_coo_tensor(t.tensor([[0, 0], [1, 1]]), t.tensor([1.0, 2]), (2, 3)),
        "h": t.sparse_coo_tensor(i, t.arange(6.0).view(3, 2), (2, 3, 2)).coalesce(),
    }


def outcome(t: Any, text: str) -> str:
    try:
        return repr(eval(text, world(t))).replace("tabtorch", "torch")
    except Exception as e:
        said = re.sub(r"(aten::\w+)\.\w+", r"\1", str(e)).replace("aten::_", "aten::")
        kernel = said.startswith("Could not run")
        # which of its kernels PyTorch comes to first is its own affair
        return type(e).__name__ + ": " + ("Could not run" if kernel else said[:70])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("line", SAME.strip().splitlines())
def test_expressions(line: str, device: str) -> None:
    with tabtorch.device(device):
        for text in split(line):
            want, got = outcome(torch, text), outcome(tabtorch, text)
            assert got.replace(f", device='{device}:0'", "") == want, text


def dense(x: Any) -> Any:
    x = x.detach().to_dense()
    return x if isinstance(x, torch.Tensor) else torch.tensor(x.tolist(), dtype=getattr(torch, x.dtype.name))


def close(want: Any, got: Any, layout: bool = True) -> None:
    if layout:
        assert str(want.layout) == str(got.layout)
    assert str(want.dtype) == str(got.dtype)
    torch.testing.assert_close(dense(got), dense(want), rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("text", split(GRADIENTS))
def test_gradients(text: str, device: str) -> None:
    found = []
    for t in LIBRARIES:
        with t.device(device if t is tabtorch else "cpu"):
            a, d = world(t)["s"].requires_grad_(), world(t)["d"].requires_grad_()
            r = eval(text, {"t": t, "a": a, "d": d}).to_dense()
            (r * r).sum().backward()
            found.append([r, a.grad, d.grad])
    for k, (want, got) in enumerate(zip(*found, strict=True)):
        assert (want is None) == (got is None)
        if want is not None:
            close(want, got, layout=k == 1)


@pytest.mark.parametrize("device", DEVICES)
def test_masked_where_pytorch_fails(device: str) -> None:
    """Of a hybrid tensor under a mask PyTorch raises; of a CSR tensor with a hidden row it makes one that has no dense form."""
    with tabtorch.device(device):
        w = world(tabtorch)
        hidden = tabtorch.tensor([[[True, False]] * 3, [[False, True]] * 3])
        for name, none in (("sum", 0.0), ("prod", 1.0), ("amax", -math.inf), ("amin", math.inf)):
            f, want = getattr(tabtorch.masked, name), getattr(torch.masked, name)
            for mask in (hidden, hidden.to_sparse(2)):
                for dim in (0, 2, (1, 2), (0, 1), None):
                    got = f(w["h"], dim, mask=mask)
                    assert got.layout is tabtorch.sparse_coo
                    plain = want(world(torch)["h"].to_dense(), dim, mask=torch.tensor(hidden.tolist()))
                    plain = plain.where(plain != none, 0) if dim == 0 else plain  # where the mask hides all
                    close(plain, got.to_dense().where(got.to_dense() != none, 0) if dim == 0 else got, layout=False)
            got = f(w["c"], 1, keepdim=True, mask=tabtorch.tensor([[False], [True]]))
            assert got.crow_indices().tolist() == [0, 0, 1]
            assert got.values().shape == (1,)
            assert got.to_dense()[0].item() == 0


def test_dense_operations_refuse() -> None:
    """No function and no method reads a sparse tensor as if it were dense: it has PyTorch's answer, or raises."""
    from tabtorch.ops.machinery import registry

    names = [*registry.all_functions(), *registry.all_methods()]
    skipped = re.compile(r"^(_|set_|seed|manual_seed|read$|is_|bernoulli)|dropout|_$|^normal|Tensor$|from_dlpack")
    answers = 0
    for name in dict.fromkeys(names):
        if skipped.search(name):
            continue
        for layout in ("s", "c"):
            made = {t: world(t) for t in LIBRARIES}
            both: list[Any] = []
            for t in (tabtorch, torch):
                f = getattr(t, name, None) or getattr(t.Tensor, name, None)
                try:
                    both.append([x for x in _tensors(f(made[t][layout])) if x.layout is not None])
                except Exception:
                    both.append(None)
            if both[0] and both[1]:
                answers += 1
                for got, want in zip(*both, strict=True):
                    assert str(got.layout) == str(want.layout), name
                    if name not in ("empty_like", "randn_like"):
                        close(want, got)
            elif both[0]:  # an answer that PyTorch has not: only for what is the tensor itself
                assert name in _MORE, name
    assert answers > 100


#: what PyTorch has for the one layout alone
_MORE = ("movedim", "moveaxis", "sub", "subtract", "dist", "diff", "chain_matmul", "type_as")


def _tensors(x: Any) -> list[Any]:
    if isinstance(x, (torch.Tensor, tabtorch.Tensor)):
        return [x]
    return [t for y in x for t in _tensors(y)] if isinstance(x, (list, tuple)) else []


# ---- files


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("new", [True, False])
def test_files(safe: bool, new: bool) -> None:
    with tabtorch.device("cpu"):
        for writer, reader in ((torch, tabtorch), (tabtorch, torch), (tabtorch, tabtorch)):
            w = world(writer)
            told = {k: w[k] for k in "scuhd"} | {"b": writer.ones(4, 4).to_sparse_bsr((2, 2))}
            file = io.BytesIO()
            writer.save(told, file, _use_new_zipfile_serialization=new)
            file.seek(0)
            found = reader.load(file, weights_only=safe)
            for k, t in told.items():
                assert repr(found[k]) == repr(t)
            assert found["s"].is_coalesced()
            assert not found["u"].is_coalesced()


def test_a_file_with_indices_out_of_range_is_refused() -> None:
    file = io.BytesIO()
    torch.save(torch.sparse_coo_tensor(torch.tensor([[5]]), torch.ones(1), (3,), check_invariants=False), file)
    file.seek(0)
    with pytest.raises(RuntimeError, match="size is inconsistent with indices: for dim 0, size is 3 but found index 5"):
        tabtorch.load(file)


def test_copies_and_modules() -> None:
    import pickle

    with tabtorch.device("cpu"):
        s = world(tabtorch)["s"]
        for t in (pickle.loads(pickle.dumps(s)), copy.deepcopy(s), copy.copy(s)):
            assert repr(t) == repr(s)
        m = tabtorch.nn.Linear(2, 2)
        m.register_buffer("adjacency", s)
        m.weights = tabtorch.nn.Parameter(s)
        assert isinstance(m.weights, tabtorch.nn.Parameter)
        other = copy.deepcopy(m)
        other.load_state_dict(m.state_dict())
        assert repr(other.state_dict()["weights"]) == repr(s)
        assert m.double().adjacency.dtype is tabtorch.float64


def test_import_loads_no_sparse_module() -> None:
    code = (
        "import tabtorch, sys; x = tabtorch.ones(2, device='cpu') + 1; x.sum().item(); "
        "assert not [m for m in sys.modules if m.startswith('tabtorch.sparse')]; x.to_sparse(); assert 'tabtorch.sparse' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- programs


def embeddings(t: Any, make: Any, padding: Any = None) -> list[Any]:
    e = t.nn.Embedding(7, 3, sparse=True, padding_idx=padding)
    with t.no_grad():
        e.weight.copy_(t.arange(21.0).view(7, 3) / 10 - 1)
    o = make(t.optim, list(e.parameters()))
    for _ in range(4):
        o.zero_grad()
        (e(t.tensor([[1, 2, 2], [4, 5, 1]])) ** 2).sum().backward()
        o.step()
    return [e.weight.grad, e.weight]


OPTIMIZERS = {
    "SGD": lambda o, p: o.SGD(p, lr=0.1),
    "momentum": lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, dampening=0.1),
    "nesterov": lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "SparseAdam": lambda o, p: o.SparseAdam(p, lr=0.1),
    "maximize": lambda o, p: o.SparseAdam(p, lr=0.01, maximize=True),
    "Adagrad": lambda o, p: o.Adagrad(p, lr=0.1, lr_decay=0.1),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_sparse_embeddings_are_trained(name: str, padding: Any, device: str) -> None:
    want = embeddings(torch, OPTIMIZERS[name], padding)
    with tabtorch.device(device):
        got = embeddings(tabtorch, OPTIMIZERS[name], padding)
    for w, g in zip(want, got, strict=True):
        close(w, g)


@pytest.mark.parametrize(
    "name", "Adam AdamW RMSprop NAdam RAdam Rprop Adadelta Adamax ASGD weight_decay decay dense".split()
)
def test_optimizers_that_take_no_sparse_gradient(name: str) -> None:
    said = []
    for t in LIBRARIES:
        make = {
            "weight_decay": lambda o, p: o.SGD(p, lr=0.1, weight_decay=1),
            "decay": lambda o, p: o.Adagrad(p, weight_decay=1),
        }.get(name, lambda o, p: getattr(o, name)(p))
        with pytest.raises(RuntimeError) as e:
            if name == "dense":
                p = t.nn.Parameter(t.ones(2))
                p.sum().backward()
                t.optim.SparseAdam([p]).step()
            embeddings(t, make)
        said.append(str(e.value))
    assert said[0] == said[1]


def bags(t: Any, mode: str, padding: Any) -> Any:
    e = t.nn.EmbeddingBag(7, 3, sparse=True, mode=mode, padding_idx=padding)
    with t.no_grad():
        e.weight.copy_(t.arange(21.0).view(7, 3) / 10 - 1)
    out = e(t.tensor([1, 2, 2, 4, 5, 1]), t.tensor([0, 2, 5]))
    (out**2).sum().backward()
    return out, e.weight.grad


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("padding", [None, 2])
def test_embedding_bags(mode: str, padding: Any, device: str) -> None:
    with tabtorch.device(device):
        for w, g in zip(bags(torch, mode, padding), bags(tabtorch, mode, padding), strict=True):
            close(w, g)


def graph_network(t: Any) -> list[float]:
    """Two graph convolutions over a sparse adjacency matrix, trained."""
    edges = t.tensor([[0, 1, 1, 2, 2, 3, 4, 0], [1, 0, 2, 1, 3, 2, 0, 4]])
    loops = t.arange(5).repeat(2, 1)
    at = t.cat([edges, loops], 1)
    degree = t.zeros(5).index_add_(0, at[0], t.ones(at.shape[1]))
    norm = degree[at[0]].rsqrt() * degree[at[1]].rsqrt()
    adjacency = t.sparse_coo_tensor(at, norm, (5, 5)).coalesce()
    x = t.arange(20.0).view(5, 4).sin()
    w1 = (t.arange(24.0).view(4, 6).cos() / 2).requires_grad_()
    w2 = (t.arange(12.0).view(6, 2).sin() / 2).requires_grad_()
    o = t.optim.Adam([w1, w2], lr=0.05)
    losses = []
    for k in range(15):
        o.zero_grad()
        a = adjacency if k % 2 else adjacency.to_sparse_csr()
        y = t.sparse.mm(a, t.relu(a @ (x @ w1)) @ w2)
        loss = t.nn.functional.cross_entropy(y, t.tensor([0, 1, 0, 1, 1]))
        loss.backward()
        o.step()
        losses.append(loss.item())
    return losses


def recommender(t: Any) -> list[float]:
    """Factors of users and items with sparse gradients, biases with dense ones."""
    users, items = t.nn.Embedding(6, 4, sparse=True), t.nn.Embedding(8, 4, sparse=True)
    with t.no_grad():
        users.weight.copy_(t.arange(24.0).view(6, 4).sin())
        items.weight.copy_(t.arange(32.0).view(8, 4).cos())
    bias = t.nn.Parameter(t.zeros(6))
    sparse, plain = t.optim.SparseAdam([users.weight, items.weight], lr=0.05), t.optim.Adam([bias], lr=0.05)
    losses = []
    for k in range(12):
        u, i = t.tensor([k % 6, (k + 2) % 6, 0]), t.tensor([k % 8, 3, (k * 3) % 8])
        loss = (((users(u) * items(i)).sum(1) + bias[u] - t.tensor([1.0, 0, 0.5])) ** 2).mean()
        sparse.zero_grad()
        plain.zero_grad()
        loss.backward()
        sparse.step()
        plain.step()
        losses.append(loss.item())
    return losses


def interpolation(t: Any) -> list[float]:
    """As linear_operator does: a sparse matrix of interpolation weights, made of values with a gradient, between dense ones."""
    index, values = (
        t.tensor([[0, 1], [1, 2], [2, 3]]),
        t.tensor([[0.25, 0.75], [0.5, 0.5], [0.9, 0.1]], requires_grad=True),
    )
    rows = t.arange(3).unsqueeze(1).expand(3, 2).reshape(-1)
    m = t.sparse_coo_tensor(t.stack([index.reshape(-1), rows]), values.reshape(-1), (4, 3))
    base = t.arange(16.0).view(4, 4).cos().requires_grad_()
    left = t.sparse.mm(m.t(), base)
    r = t.sparse.mm(m.t().coalesce(), left.t())
    (r**2).sum().backward()
    batch = t.bmm(t.stack([m.detach(), m.detach()]).transpose(1, 2), base.detach().expand(2, 4, 4))
    summed = t.sparse.sum(m.detach(), 1).to_dense()
    return [
        *r.flatten().tolist(),
        *values.grad.flatten().tolist(),
        *base.grad.flatten().tolist(),
        *batch.flatten().tolist(),
        *summed.tolist(),
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("program", [graph_network, recommender, interpolation])
def test_programs(program: Any, device: str) -> None:
    want = program(torch)
    with tabtorch.device(device):
        got = program(tabtorch)
    assert got == pytest.approx(want, rel=2e-3, abs=1e-4)


def test_gradcheck() -> None:
    with tabtorch.device("cpu"):
        a = tabtorch.tensor([[0, 2.0], [3, 0]], dtype=tabtorch.float64).to_sparse().requires_grad_()
        b = tabtorch.ones(2, 2, dtype=tabtorch.float64, requires_grad=True)
        check = tabtorch.sparse.as_sparse_gradcheck(tabtorch.autograd.gradcheck)
        assert check(lambda x, y: tabtorch.sparse.mm(x, y), (a, b), masked=True)
        assert check(lambda x: x.sin().to_dense(), (a,), masked=True)


def test_invariants_are_checked_where_asked() -> None:
    for t in LIBRARIES:
        at, v = t.tensor([[5]]), t.ones(1)
        t.sparse_coo_tensor(at, v, (3,))
        with (
            t.sparse.check_sparse_tensor_invariants(),
            pytest.raises(RuntimeError, match="size is inconsistent with indices"),
        ):
            t.sparse_coo_tensor(at, v, (3,))
        assert not t.sparse.check_sparse_tensor_invariants.is_enabled()


@pytest.mark.parametrize("device", DEVICES)
def test_random_chains(device: str) -> None:
    """A slice of the fuzz: another with each commit."""
    for seed in range(20):
        fuzz.one(number() * 100 + seed, device)
