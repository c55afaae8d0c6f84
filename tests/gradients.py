"""Expressions in real PyTorch and in tabtorch: results, errors, names of backward nodes, gradients, and gradients of those."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import tabtorch
from sidebyside import outcome, to_tab, values


def evaluate(expression: str, m: Any, names: dict[str, Any]) -> tuple[str, Any]:
    """The outcome of an expression over `names`, the library `m` and its `F`."""
    space = {"m": m, "F": m.nn.functional, "inf": float("inf"), "nan": float("nan"), **names}
    return outcome(lambda: eval(expression, space))


def close(want: Any, got: Any, tol: float, where: str) -> None:
    """Asserts equal structure, shape and dtype, and values within `tol` (absolute and relative; halves 1 %)."""
    if isinstance(want, torch.Tensor):
        assert isinstance(got, tabtorch.Tensor), f"{where}: {got!r}"
        assert tuple(want.shape) == tuple(got.shape), f"{where}: shape {tuple(got.shape)}, not {tuple(want.shape)}"
        assert str(want.dtype) == str(got.dtype), f"{where}: dtype {got.dtype}, not {want.dtype}"
        if want.dtype in (torch.float16, torch.bfloat16):
            tol = max(tol, 1e-2)
        elif not (want.is_floating_point() or want.is_complex()):
            tol = 0
        plain = torch.zeros(want.shape, dtype=want.dtype) if want._is_zerotensor() else want
        np.testing.assert_allclose(values(got), values(plain), rtol=tol, atol=tol, err_msg=where)
    elif isinstance(want, (tuple, list)):
        assert len(want) == len(got), f"{where}: {len(got)} results, not {len(want)}"
        for w, g in zip(want, got, strict=True):
            close(w, g, tol, where)
    else:
        assert want == got, f"{where}: {got!r}, not {want!r}"


def check(expression: str, names: dict[str, Any], device: str, *, tol: float, twice: bool, named: bool) -> None:
    """One expression: the same outcome in both libraries, and the same gradients of it.

    twice: the gradients' gradients too. named: the backward nodes have the same names.
    """
    mine = {k: to_tab(v, device) for k, v in names.items()}
    want_kind, want = evaluate(expression, torch, names)
    with tabtorch.device(device):
        got_kind, got = evaluate(expression, tabtorch, mine)
    if want_kind == "error" or got_kind == "error":
        w, g = ((want[0], want[1].strip()), (got[0], got[1].strip())) if want_kind == got_kind else (want, got)
        assert (want_kind, w) == (got_kind, g), f"{expression}\n{w}\n{g}"
        return
    close(want, got, tol, expression)
    several = isinstance(want, (tuple, list))
    pairs = [
        (w, g)
        for w, g in (zip(want, got, strict=True) if several else [(want, got)])
        if isinstance(w, torch.Tensor) and w.requires_grad
    ]
    if not pairs:
        return
    for w, g in pairs:
        assert g.requires_grad, f"{expression} does not require grad"
        if named:
            assert type(w.grad_fn).__name__ == g.grad_fn.name(), f"{expression}: {g.grad_fn.name()}"
    leaves = [k for k, v in names.items() if isinstance(v, torch.Tensor) and v.requires_grad]
    generator = torch.Generator().manual_seed(1)
    seeds = [torch.randn(w.shape, generator=generator).to(w.dtype).requires_grad_(twice) for w, _ in pairs]
    my_seeds = [to_tab(s, device) for s in seeds]
    a = torch.autograd.grad(
        [w for w, _ in pairs], [names[k] for k in leaves], seeds, create_graph=twice, allow_unused=True
    )
    b = tabtorch.autograd.grad(
        [g for _, g in pairs], [mine[k] for k in leaves], my_seeds, create_graph=twice, allow_unused=True
    )
    for k, x, y in zip(leaves, a, b, strict=True):
        assert (x is None) == (y is None), f"{expression}: gradient of {k} is {y}"
        if x is not None:
            close(x, y, 5 * tol, f"{expression}: gradient of {k}")
    if not twice:
        return
    weights = [torch.randn(x.shape, generator=generator) for x in a if x is not None]
    first = sum((x * w).sum() for x, w in zip([x for x in a if x is not None], weights, strict=True))
    mine_first = sum(
        (x * to_tab(w, device)).sum() for x, w in zip([x for x in b if x is not None], weights, strict=True)
    )
    c = torch.autograd.grad(first, [*(names[k] for k in leaves), *seeds], allow_unused=True)
    d = tabtorch.autograd.grad(mine_first, [*(mine[k] for k in leaves), *my_seeds], allow_unused=True)
    for k, x, y in zip([*leaves, *("seed" for _ in seeds)], c, d, strict=True):
        where = f"{expression}: second gradient of {k}"
        if x is None or y is None:  # nothing, or zeros
            z = y if x is None else x
            assert z is None or not np.any(values(z)), where
        else:
            close(x, y, 20 * tol, where)


def check_all(text: str, make: Any, device: str, *, tol: float = 2e-5, twice: bool = False, named: bool = True) -> None:
    """All expressions in a text, separated by semicolons or lines; `make()` gives each its own inputs."""
    wrong = []
    for e in (e.strip() for line in text.strip().split("\n") for e in line.split(";")):
        if not e:
            continue
        try:
            check(e, make(), device, tol=tol, twice=twice, named=named)
        except Exception as err:  # all of them are wanted in one report
            wrong.append(f"{e}\n    {type(err).__name__}: {str(err)[:600]}")
    assert not wrong, "\n\n".join(wrong)
