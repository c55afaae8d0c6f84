"""MaskedTensor against PyTorch's: what it prints, which calls it answers and refuses, and its gradients."""

from __future__ import annotations

import copy
import io
import pickle
import re
from typing import Any

import pytest
import torch

import tabtorch
from conformance.docstrings import same
from sidebyside import DEVICES

pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of MaskedTensors",
    "ignore:It is not recommended",
    "ignore:.* is not implemented in __torch_disp",
)

#: a and b have one mask, c hides nothing, i is of integers
CASES = """
a; i; mt([1, 2, 3], [True, False, True]); mt(3.5, True); mt(3, False); mt([[[1.5, 2], [3, 4]]], [[[True, True], [False, True]]])
M.masked_tensor([1], T.tensor([True])); M.masked_tensor(T.ones(2), T.ones(2)); M.masked_tensor(T.ones(2), T.ones(3).bool())
M.masked_tensor(T.ones(2), T.ones(2, 1).bool()); M.masked_tensor(a, a); M.masked_tensor(T.ones(2), 5)
M.masked_tensor(T.ones(2).to(T.uint8), T.ones(2).bool()); M.as_masked_tensor(T.ones(2), T.tensor([True, False]))
M.is_masked_tensor(a); M.is_masked_tensor(T.ones(2)); isinstance(a, T.Tensor); type(a).__name__; M.MaskedTensor is type(a)
a.shape; a.dtype; a.dim(); a.size(1); a.numel(); a.requires_grad; a.is_leaf; a.grad; a.get_data(); a.get_mask(); a.to_tensor(9)
a.layout; a.is_sparse; a.is_sparse_coo(); a.is_sparse_csr(); len(a); a.stride(); a.is_contiguous(); a.ndim; a[0, 0].item()
a[0, 1].item(); float(a[1, 1]); bool(b[0, 0]); a.item(); a.sin(); T.exp(b); abs(a); -a; +a; a.neg(); a ** 2; b ** 0.5; T.pow(a, 2)
a ** b; 2 ** a; ~mt([True, False], [True, False]); T.clamp(a, min=1); a.clamp(1, 2); T.isnan(a); a.log(); a.reciprocal()
a.round(); a.sign(); T.sigmoid(a); a.square(); a.nan_to_num(); T.relu(a); a.logical_not(); a.polygamma(1); T.erf(a); T.i0(a)
own(lambda x: x.sin_()); own(lambda x: x.mul_(2)); own(lambda x: x.add_(x)); own(lambda x: x.__iadd__(1)); own(lambda x: x.fill_(1))
own(lambda x: x.zero_()); own(lambda x: x.sub_(T.ones(2, 3))); own(lambda x: x.clamp_(1, 2)); own(lambda x: x.__imul__(x))
own(lambda x: x.add_(c)); a + b; a + 1; 1 + a; 1 - a; a - 1; 2 * a; 2 / b; a / 2; a / b; a < b; a < 2; a > 2; a == b; a != b
a <= b; a >= 2; a // 2; a % 2; a + c; a * c; a + T.ones(2, 3); T.ones(2, 3) + a; T.ones(3) * a; a + T.ones(4, 2, 3)
T.add(a, b, alpha=2); a.add(b, alpha=2); T.matmul(a, b.t()); a & a; i & i; i | 1; i ^ i; T.hypot(a, b); T.atan2(a, b); 2 < a
T.maximum(a, b); a.minimum(b); T.fmod(b, a + 1); b.remainder(2); T.logaddexp(a, b); a.true_divide(b); T.floor_divide(b, 2)
T.where(T.tensor([True, False, True]), a, b); T.where(T.tensor([True, False, True]), a, T.zeros(2, 3)); T.where(a > 1, a, b)
T.where(T.tensor([True, False, True]), T.zeros(2, 3), c); b.sum(); T.sum(b); b.sum(1); b.sum(dim=1, keepdim=True); b.sum((0, 1))
b.sum(0); T.sum(b, 1, dtype=T.float16); b.mean(); T.mean(b, 0); b.mean(dim=1, keepdim=True); i.mean(); b.amin(); b.amax(1)
T.amax(b, 0, True); b.argmin(); b.argmax(1); T.argmax(b, 0); b.prod(); b.prod(1); T.prod(b, 0); b.var(); b.std(); b.var(0)
T.std(b, 1); mt([True, False], [True, False]).all(); mt([[True, False], [True, True]], [[True, False], [False, False]]).all(dim=1)
mt([1, 2], [False, False]).sum(); b.median(); b.max(); b.any(); b.cumsum(0); b.logsumexp(0); i.sum(); i.amax(0); b.t(); b[0]; b[:, 1]
b[0:1]; b[..., 0]; b[None]; b[T.tensor([0, 1])]; b[T.tensor([True, False])]; b.transpose(0, 1); b.view(3, 2); b.reshape(3, 2)
b.reshape(-1); b.unsqueeze(0); b.expand(2, 2, 3); T.cat([b, b]); T.stack([b, b]); b.split(1); b.select(0, 1); b.unfold(1, 2, 1)
b.permute(1, 0); b.flatten(); b.squeeze(); b.chunk(2, 0); T.cat([b, b], dim=1); T.unsqueeze(b, dim=0); b.mT; b.T; b.unbind(0)
T.cat([b, T.ones(1, 3)]); b.contiguous(); b.clone(); b.detach(); b.half(); b.to(T.int64); b.float(); b.to(T.uint8); T.ones_like(b)
T.zeros_like(b); b.to_dense(); T.softmax(b, 1); b.softmax(0); F.softmax(b, dim=-1); list(b); b.numpy(); b.tolist(); T.dropout(b, 0.5, True)
F.relu(b); T.sort(b); b.to(T.float16).dtype; g(lambda x: (x * x).sum()); g(lambda x: x.exp().mean()); g(lambda x: x.sum(0).sum())
g(lambda x: (x * T.ones(2, 3)).amax()); g(lambda x: (x / 2).prod()); g(lambda x: x.get_data().sum()); g(lambda x: x.to_tensor(0).sum())
g(lambda x: x.t().sum()); g(lambda x: x.reshape(6).sum()); g(lambda x: (x + x.detach()).std())
g(lambda x: T.where(x.get_mask(), x, c).sum())
g(lambda x: x * 2); g(lambda x: (x.log() * 0).sum()); unsafe(); mt(3., True, True); a * mt([[1.0] * 3] * 2, mask, True)
copied(a); M._ops.logaddexp(T.zeros(3), T.ones(3), input_mask=T.tensor([True, False, False]), other_mask=T.tensor([True, True, False]))
"""


def world(lib: Any) -> dict[str, Any]:
    """What the cases name."""
    mask = [[True, False, False], [True, True, False]]

    def mt(data: Any, mask: Any, requires_grad: bool = False) -> Any:
        return lib.masked.masked_tensor(lib.tensor(data), lib.tensor(mask), requires_grad)

    def fresh(requires_grad: bool = False) -> Any:
        return mt([[1.0, 2, 3], [4, 5, 6]], mask, requires_grad)

    def own(f: Any) -> Any:
        x = fresh()
        return f(x) is x, x

    def g(f: Any) -> Any:
        x = fresh(True)
        y = f(x)
        y.backward()
        return x.grad, type(y).__name__, y.requires_grad, y

    def unsafe() -> Any:
        """Of PyTorch's guide: what is not chosen would make the gradient nan."""
        x = lib.tensor([-10.0, -5, 0, 5, 10, 50, 60, 70, 80, 90, 100])
        mx = lib.masked.masked_tensor(x, x < 0, requires_grad=True)
        my = lib.masked.masked_tensor(lib.ones_like(x), x >= 0, requires_grad=True)
        y = lib.where(x < 0, lib.exp(mx), my)
        y.sum().backward()
        return y, mx.grad, my.grad

    def copied(x: Any) -> Any:
        return copy.deepcopy(x), copy.deepcopy(x).get_mask()

    return {
        "T": lib,
        "M": lib.masked,
        "F": lib.nn.functional,
        "mt": mt,
        "mask": mask,
        "a": mt([[0.0, 1, 2], [3, 4, 5]], mask),
        "b": fresh(),
        "c": mt([[1.0, 2, 3], [4, 5, 6]], [[True] * 3] * 2),
        "i": mt([1, 2, 3], [True, False, True]),
        "own": own,
        "g": g,
        "unsafe": unsafe,
        "copied": copied,
    }


def outcome(text: str, lib: Any) -> tuple[str, str]:
    try:
        return "value", repr(eval(text, world(lib)))
    except Exception as e:
        return "error", type(e).__name__


#: PyTorch goes into recursion without end, or says in other words that there is no such thing
OTHERWISE = {"T.where(a > 1, a, b)": "TypeError", "b.numpy()": "TypeError", "b.tolist()": "TypeError"}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("text", [x.strip() for x in CASES.replace("\n", ";").split(";") if x.strip()])
def test_as_pytorch(text: str, device: str) -> None:
    want = outcome(text, torch)
    with tabtorch.device(device):
        got = outcome(text, tabtorch)
    if text in OTHERWISE:
        assert want[0] == "error" and got == ("error", OTHERWISE[text])
    else:
        assert got[0] == want[0] and same(want[1], re.sub(r"\s*device='\w+(:0)?',?", "", got[1])), (want, got)


def test_cases_say_both() -> None:
    kinds = [outcome(x.strip(), torch)[0] for x in CASES.replace("\n", ";").split(";") if x.strip()]
    assert kinds.count("value") > 150 and kinds.count("error") > 30


def test_a_history_of_plain_tensors_is_refused() -> None:
    """In PyTorch the gradient of a plain tensor would be masked."""
    mask = tabtorch.tensor([True, False])
    with pytest.raises(NotImplementedError, match="never masked"):
        tabtorch.masked.as_masked_tensor(tabtorch.ones(2, requires_grad=True), mask)
    with pytest.raises(NotImplementedError, match="sparse"):
        tabtorch.masked.masked_tensor(tabtorch.eye(2).to_sparse(), tabtorch.eye(2).bool().to_sparse())


def test_gradients_can_be_set_and_added_to() -> None:
    x = tabtorch.masked.masked_tensor(tabtorch.ones(3), tabtorch.tensor([True, False, True]), requires_grad=True)
    for k in (2.0, 4.0):
        (x * 2).sum().backward()
        assert x.grad.to_tensor(0).tolist() == [k, 0.0, k]
    x.grad = None
    assert x.grad is None
    x.grad = x.detach() * 3
    assert x.grad.to_tensor(0).tolist() == [3.0, 0.0, 3.0]


def test_data_and_mask_are_copied() -> None:
    data, mask = tabtorch.ones(2), tabtorch.tensor([True, False])
    x = tabtorch.masked.masked_tensor(data, mask)
    data.fill_(5)
    mask.fill_(True)
    assert x.to_tensor(0).tolist() == [1.0, 0.0]


def test_it_is_saved() -> None:
    x = tabtorch.masked.masked_tensor(tabtorch.ones(2), tabtorch.tensor([True, False]), requires_grad=True)
    file = io.BytesIO()
    tabtorch.save({"x": x}, file)
    file.seek(0)
    for y in (tabtorch.load(file, weights_only=False)["x"], pickle.loads(pickle.dumps(x))):
        assert tabtorch.masked.is_masked_tensor(y) and y.requires_grad and y.to_tensor(7).tolist() == [1.0, 7.0]
