"""Real PyTorch and tabtorch side by side: the same calls on both, and what must be equal afterwards."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

import tabtorch

#: TABTORCH_TEST_DEVICES="cpu" leaves the GPU out
DEVICES = os.environ.get("TABTORCH_TEST_DEVICES", "cpu webgpu").split()


def to_tab(x: Any, device: str) -> Any:
    """A torch tensor (or a container of some) as tabtorch's, with the same strides."""
    if isinstance(x, torch.Tensor):
        dtype = getattr(tabtorch, str(x.dtype).removeprefix("torch."))
        base = x.detach().clone()
        plain = base.contiguous()
        if x.dtype is torch.bfloat16:
            t = tabtorch.tensor(plain.float().numpy(), device=device).to(dtype)
        else:
            t = tabtorch.tensor(plain.numpy(), device=device)
        if not base.is_contiguous():
            u = tabtorch.empty_strided(tuple(base.shape), base.stride(), dtype=dtype, device=device)
            u.copy_(t)
            t = u
        return t.requires_grad_() if x.requires_grad else t
    if isinstance(x, torch.dtype):
        return getattr(tabtorch, str(x).removeprefix("torch."))
    if isinstance(x, (list, tuple)):
        return type(x)(to_tab(v, device) for v in x)
    if isinstance(x, dict):
        return {k: to_tab(v, device) for k, v in x.items()}
    return x


def values(t: Any) -> Any:
    """The elements as a NumPy array, whichever library they are of."""
    if str(t.dtype) == "torch.bfloat16":
        t = t.float()
    return t.detach().resolve_conj().resolve_neg().numpy()


def same(want: Any, got: Any, *, strides: bool = True, exact: bool = True, where: str = "") -> None:
    """Asserts that a result of PyTorch and one of tabtorch are the same: type, shape, strides, dtype, values."""
    if isinstance(want, torch.Tensor):
        assert isinstance(got, tabtorch.Tensor), f"{where}: {got!r}"
        assert tuple(want.shape) == tuple(got.shape), f"{where}: shape {tuple(got.shape)}, not {tuple(want.shape)}"
        assert str(want.dtype) == str(got.dtype), f"{where}: dtype {got.dtype}, not {want.dtype}"
        if strides:
            assert want.stride() == got.stride(), f"{where}: strides {got.stride()}, not {want.stride()}"
        a, b = values(want), values(got)
        if exact:
            np.testing.assert_array_equal(b, a, err_msg=where)
        else:
            np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-6, err_msg=where)
        return
    if isinstance(want, (list, tuple)):
        assert isinstance(got, (list, tuple)), f"{where}: {got!r}"
        assert len(want) == len(got), f"{where}: {len(got)} results, not {len(want)}"
        for w, g in zip(want, got, strict=True):
            same(w, g, strides=strides, exact=exact, where=where)
        return
    if isinstance(want, torch.dtype):
        want, got = str(want), str(got)
    assert want == got, f"{where}: {got!r}, not {want!r}"


def outcome(call: Any) -> tuple[str, Any]:
    """("value", result), or ("error", (type name, first line of the message))."""
    try:
        return "value", call()
    except Exception as e:
        return "error", (type(e).__name__, str(e).split("\n")[0])


def said(f: Any, args: Any, kwargs: Any) -> str:
    """The error of `f(*args, **kwargs)` as "type name: first line", or that there was none."""
    kind, what = outcome(lambda: f(*args, **kwargs))
    return ": ".join(what) if kind == "error" else "computed"


def compare(
    expression: str, make: Any, device: str, *, exact: bool = True, strides: bool = True, names_too: bool = True
) -> None:
    """Evaluates an expression over the names that `make()` gives, in both libraries; then the gradients of a sum of it.

    Errors must have the same type and message too.
    """
    names = make()
    mine = {k: to_tab(v, device) for k, v in names.items()}
    want_kind, want = outcome(
        lambda: eval(expression, {"torch": torch, "F": torch.nn.functional, "np": np, "L": torch.tensor, **names})
    )
    with tabtorch.device(device):
        got_kind, got = outcome(
            lambda: eval(expression, {"torch": tabtorch, "F": _functional(), "np": np, "L": tabtorch.tensor, **mine})
        )
    if want_kind == "error" or got_kind == "error":
        assert (want_kind, want) == (got_kind, got), f"{expression}\n{want}\n{got}"
        return
    same(want, got, exact=exact, strides=strides, where=expression)
    wants, gots = _tensors(want), _tensors(got)
    if not any(w.requires_grad for w in wants):
        return
    for w, g in zip(wants, gots, strict=True):
        assert w.requires_grad == g.requires_grad, f"{expression}: requires_grad is {g.requires_grad}"
        if names_too:
            assert _name(w) == _name(g), f"{expression}: {_name(g)}, not {_name(w)}"
    leaves = [k for k, v in names.items() if isinstance(v, torch.Tensor) and v.requires_grad]
    pairs = [(w, g) for w, g in zip(wants, gots, strict=True) if w.requires_grad]
    loss = sum((w * weights(w)).real.sum() for w, _ in pairs)
    mine_loss = sum((g * to_tab(weights(w), device)).real.sum() for w, g in pairs)
    a = torch.autograd.grad(loss, [names[k] for k in leaves], allow_unused=True)
    b = tabtorch.autograd.grad(mine_loss, [mine[k] for k in leaves], allow_unused=True)
    for k, x, y in zip(leaves, a, b, strict=True):
        assert (x is None) == (y is None), f"{expression}: gradient of {k}"
        if x is not None:
            same(x, y, strides=False, exact=False, where=f"{expression}: gradient of {k}")


def _functional() -> Any:
    from types import SimpleNamespace

    from tabtorch.ops.indexing.gather import embedding
    from tabtorch.ops.shaping.pad import pad

    return SimpleNamespace(pad=pad, embedding=lambda i, w: embedding(w, i))


def _tensors(x: Any) -> list[Any]:
    if isinstance(x, (list, tuple)):
        return [t for v in x for t in _tensors(v)]
    return [x] if hasattr(x, "requires_grad") else []


def _name(t: Any) -> str:
    return type(t.grad_fn).__name__


def weights(t: torch.Tensor) -> torch.Tensor:
    """Numbers that differ from element to element, so that a gradient in the wrong place shows."""
    w = torch.arange(1, t.numel() + 1, dtype=torch.float64).sin().reshape(t.shape)
    return w.to(t.dtype)
