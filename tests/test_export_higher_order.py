"""Operators that take graphs (`torch.ops.higher_order`), exported by PyTorch and run here: equal numbers."""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as torch_map

import tabtorch
from conformance.compare import same
from conformance.translate import Translator, tensors
from fuzz.exported_files import rewritten
from tabtorch import export
from tabtorch.autograd.grad_mode import STATE

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}


def case(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def put(f: Callable[..., Any]) -> Callable[..., Any]:
        CASES[f.__name__] = (f, args)
        return f

    return put


def x(*shape: int) -> torch.Tensor:
    return torch.linspace(-1.0, 1.3, torch.Size(shape).numel()).reshape(shape).sin()


@case(x(3, 4))
def cond(a: torch.Tensor) -> Any:
    return torch.cond(a.sum() > 0, lambda a: (a.sin(), a + 1), lambda a: (a.cos(), a - 1), (a,))


@case(torch.tensor(5), x(3))
def while_loops(n: torch.Tensor, a: torch.Tensor) -> Any:
    return while_loop(lambda n, a: n > 0, lambda n, a: (n - 1, a * 2 + n), (n, a))


@case(x(3, 4), x(4))
def maps(a: torch.Tensor, b: torch.Tensor) -> Any:
    return torch_map(lambda row, b: (row * b).sum(), a, b)


@case(x(4), x(5, 4))
def scans(first: torch.Tensor, rows: torch.Tensor) -> Any:
    return scan(lambda c, r: (c * 0.5 + r, (c + r).tanh()), first, rows)


@case(x(4), x(5, 4))
def scans_backwards(first: torch.Tensor, rows: torch.Tensor) -> Any:
    return scan(lambda c, r: (c * 0.5 + r, (c + r).tanh()), first, rows, reverse=True)


@case(x(5, 4), x(5, 4))
def associative_scans(a: torch.Tensor, b: torch.Tensor) -> Any:
    def combine(p: Any, q: Any) -> Any:
        return p[0] * q[0], q[0] * p[1] + q[1]

    return associative_scan(combine, (a, b), 0, combine_mode="generic")


@case(x(3, 4))
def no_grad(a: torch.Tensor) -> Any:
    with torch.no_grad():
        b = a * 2
    return b + a


@case(x(3, 4), x(4, 2))
def autocasts(a: torch.Tensor, b: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        c = a @ b
    return c.float() + 1, c


@case(x(5, 4), x(4))
def vmaps(a: torch.Tensor, b: torch.Tensor) -> Any:
    def write(row: torch.Tensor) -> torch.Tensor:
        row.add_(1)
        return row.sum()

    c = a.clone()
    rows = torch.vmap(lambda row, b: (row * b, row.sum()), in_dims=(0, None))(a, b)
    outer = torch.vmap(torch.vmap(lambda p, q: p * q, in_dims=(None, 0)), in_dims=(0, None))
    return rows, outer(a[:, 0], b), torch.vmap(write)(c), c


@case(x(3, 3))
def effects(a: torch.Tensor) -> Any:
    return torch.linalg.inv(a @ a.T + torch.eye(3)) + 1


@torch.compiler.nested_compile_region
def _inner(a: torch.Tensor) -> torch.Tensor:
    return a.sin() + 1


@case(x(3, 4))
def subgraphs(a: torch.Tensor) -> Any:
    return _inner(a) * _inner(a + 1)


class Module(nn.Module):
    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: Any) -> Any:
        return self.f(*args)


@functools.cache
def exported(name: str, core: bool) -> bytes:
    f, args = CASES[name]
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ep = torch.export.export(Module(f), args, strict=name == "subgraphs")
        if core:
            ep = ep.run_decompositions()
        torch.export.save(ep, file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "core"),
    [
        pytest.param(name, core, id=f"{name}-{'core' if core else 'training'}")
        for name in CASES
        for core in (False, True)
    ],
)
def test_equal(name: str, core: bool) -> None:
    f, args = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = f(*args)
    to = Translator("cpu")
    got = export.load(exported(name, core), map_location="cpu").module()(*map(to, args))
    for w, g in zip(tensors(want), tabtorch.utils._pytree.tree_leaves(got), strict=True):
        same(w.detach(), g.detach(), lambda dtype: (2e-4, 2e-5), where=name, values=True)


def test_a_vmap_that_fails_is_closed() -> None:
    archive = exported("vmaps", False)
    module = export.load(archive, map_location="cpu").module()
    module.validate_inputs = False
    with pytest.raises(RuntimeError):
        module(tabtorch.ones(5, 4, device="cpu"), tabtorch.ones(3, device="cpu"))
    assert not STATE.levels


def test_steps_of_other_transforms_are_refused() -> None:
    archive = rewritten(exported("vmaps", False), lambda d: d.replace(b"_add_batch_dim", b"_wrap_for_grad"))
    with pytest.raises(
        NotImplementedError, match=r"predispatch\._wrap_for_grad.* ep\.run_decompositions\(\) in PyTorch"
    ):
        export.load(archive, map_location="cpu").module()
