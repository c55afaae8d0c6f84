"""Values on the CPU and on the device: moving them, and comparing what comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

from tabtorch.random import PhiloxGenerator

NAME = "webgpu"
HALVES = (torch.float16, torch.bfloat16)
#: how often the GPU's own generator was asked
draws = [0]


def count_draws() -> None:
    """Counts in `draws` from here on."""
    plain = PhiloxGenerator.next

    def counted(self: Any) -> Any:
        draws[0] += 1
        return plain(self)

    PhiloxGenerator.next = counted  # type: ignore[method-assign]


def said(e: BaseException) -> str:
    """An error in a line or a few."""
    return f"{type(e).__name__}: {str(e)}"[:600]


def leaves_of(x: Any) -> list[Any]:
    """What is no list, tuple or dict in it."""
    return [t for v in tree_leaves(x) for t in ([v.data] if isinstance(v, PackedSequence) else [v])]


def tensors_of(x: Any) -> list[torch.Tensor]:
    """The tensors in it."""
    return [t for t in leaves_of(x) if isinstance(t, torch.Tensor)]


def moved(x: Any, leaves: list[Any] | None = None) -> Any:
    """The same on the device, laid out the same, what it is a view of with it, and what shares memory sharing it.

    leaves: gets (here, there) of what wants gradients.
    """
    found: dict[int, torch.Tensor] = {}
    bases: dict[int, torch.Tensor] = {}
    storages = Counter(t.untyped_storage()._cdata for t in tensors_of(x) if t.layout is torch.strided)

    def move(t: Any) -> Any:
        if isinstance(t, PackedSequence):
            return PackedSequence(*(move(v) if i != 1 else v for i, v in enumerate(t)))
        if not isinstance(t, torch.Tensor):
            return t
        if id(t) in found:
            return found[id(t)]
        if t.layout is torch.strided and t.numel() and not t.is_conj() and not t.is_neg():
            n, key = t.untyped_storage().nbytes() // t.element_size(), t.untyped_storage()._cdata
            if n == t.numel() and t.is_contiguous() and storages[key] == 1:
                there = t.detach().to(NAME)
            else:
                if key not in bases or bases[key].dtype is not t.dtype:
                    bases[key] = t.detach().as_strided((n,), (1,), 0).to(NAME)
                there = bases[key].as_strided(t.shape, t.stride(), t.storage_offset())
        else:
            there = t.detach().to(NAME)
        if t.requires_grad:
            there.requires_grad_(True)
            if leaves is not None:
                leaves.append((t, there))
        found[id(t)] = there
        return there

    return tree_map(move, x, is_leaf=lambda v: isinstance(v, PackedSequence))


def compare(expected: Any, found: Any, home: bool = False, near: tuple[float, float] | None = None) -> None:
    """AssertionError unless they are the same: values, types, shapes, device. home: the result may be on the CPU.

    near: (rtol, atol), otherwise by the type.
    """
    e, f = leaves_of(expected), leaves_of(found)
    assert len(e) == len(f), f"{len(f)} results for {len(e)}"
    for a, b in zip(e, f, strict=True):
        if isinstance(a, torch.Tensor):
            assert isinstance(b, torch.Tensor), f"{type(b)} for a tensor"
            assert home or b.device.type == NAME, f"a result on {b.device}"
            rtol, atol = near or ((2e-2, 2e-2) if a.dtype in HALVES else (1e-3, 1e-4))
            torch.testing.assert_close(b.cpu(), a.detach(), rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
        else:
            assert a == b or a != a, f"{b} for {a}"


def differentiable(x: Any) -> list[torch.Tensor]:
    """The tensors in it that gradients come from."""
    return [t for t in tensors_of(x) if t.requires_grad]


def gradients(outs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> list[Any]:
    """Those of a sum of all results, each with another weight. None for a leaf that has none."""
    loss: Any = 0
    for o in outs:
        weights = torch.linspace(0.5, 1.5, max(o.numel(), 1), device="cpu")[: o.numel()].reshape(o.shape).to(o.device)
        loss = loss + ((o * weights).sum().abs() if o.is_complex() else (o * weights.to(o.dtype)).sum())
    return list(torch.autograd.grad(loss, leaves, allow_unused=True))


def compare_gradients(wanted: Sequence[Any], got: Sequence[Any], near: tuple[float, float] | None = None) -> None:
    """AssertionError unless they are the same, None included."""
    for a, b in zip(wanted, got, strict=True):
        assert (a is None) == (b is None), "a gradient that is None on one side only"
        if a is not None:
            compare(a, b, near=near)


def outcome(f: Callable[[], Any]) -> Any:
    """What `f` gives, all of it computed; or its error."""
    try:
        r = f()
        for t in tensors_of(r):
            t.cpu()
        return r
    except Exception as e:
        return e


def same_error(expected: BaseException, found: Any) -> None:
    """AssertionError unless it is an error of the same type, or of one below it."""
    assert isinstance(found, Exception), f"no error, where PyTorch raises {said(expected)[:200]}"
    assert isinstance(found, type(expected)), f"{said(found)[:200]}, not {said(expected)[:200]}"


def wide(t: Any) -> Any:
    """A half tensor, or the type, in single precision; whatever else, as it is."""
    if isinstance(t, torch.Tensor):
        return t.detach().float() if t.dtype in HALVES else t
    return torch.float32 if isinstance(t, torch.dtype) and t in HALVES else t


def as_near(exact: Any, expected: Any, found: Any) -> bool:
    """Whether halves are as near to the result in single precision as PyTorch's are, but for a few roundings."""
    for x, a, b in zip(tensors_of(exact), tensors_of(expected), tensors_of(found), strict=True):
        if a.dtype not in HALVES:
            compare(a, b)
            continue
        eps, most = torch.finfo(a.dtype).eps, torch.finfo(a.dtype).max
        x, a, b = (t.detach().cpu().double() for t in (x, a, b))
        if x.shape != b.shape:
            return False
        fits = x.isfinite() & (x.abs() < most)
        x, a, b = x[fits], a[fits].nan_to_num(), b[fits]
        if not x.numel():
            continue
        allowed = 2 * (a - x).abs().max() + 8 * eps * x.abs().max()
        if not bool(((b - x).abs() <= allowed).all()):
            return False
    return True
