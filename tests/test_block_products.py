"""A vector times a matrix in blocks, in the form that GPUs have: whole words of a block are read, once."""

from __future__ import annotations

from typing import Any

import pytest

import tabtorch as torch
from tabtorch.engine import block_products, graph
from tabtorch.nn import functional as F
from test_packed import FORMATS, counted, modest, packed, unpacked

pytestmark = pytest.mark.usefixtures("made_up_gpu")

#: of 32 weights, whose kernel this is; MXFP4's scales are exponents, which `modest` does not make
NAMES = [name for name, f in FORMATS.items() if f.weights == 32 and name != "MXFP4"]


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What the form said of each contraction of blocks: whether it is one for it."""
    said: list[bool] = []
    emit = block_products.emit

    def counting(*args: Any) -> bool:
        said.append(emit(*args))
        return said[-1]

    monkeypatch.setattr(block_products, "emit", counting)
    return said


@pytest.mark.parametrize("name", NAMES)
def test_each_format(name: str, times: list[bool]) -> None:
    torch.set_default_device("webgpu")
    try:
        for rows, per_row in ((67, 9), (64, 66)):  # rows that are no multiple of four; more blocks than threads
            data = modest(name, rows, per_row)
            w, dense = packed(name, data), torch.from_numpy(unpacked(name, data))
            x, bias = torch.randn(1, per_row * 32), torch.randn(rows)
            graph.flush()
            for before, f in (
                (0, lambda w, x=x, bias=bias: F.silu(F.linear(x, w, bias))),
                (0, lambda w, x=x: (w @ x[0]).exp()),
                (1, lambda w, x=x: F.linear((x * 2).sin(), w)),  # x is stored, the weights are not
            ):
                del times[:]
                with counted() as n:
                    y = f(w)
                assert False not in times  # none where the plan for other sizes serves
                assert (n.dispatches, n.temporaries) == (1 + before, before), n.labels
                assert torch.allclose(y, f(dense), rtol=1e-3, atol=1e-3), (y - f(dense)).abs().max()
    finally:
        torch.set_default_device("cpu")


def test_others_keep_the_form_that_they_have(times: list[bool]) -> None:
    torch.set_default_device("webgpu")
    try:
        data = modest("Q4_0", 64, 8)
        w, dense = packed("Q4_0", data), torch.from_numpy(unpacked("Q4_0", data))
        x = torch.randn(3, 256)
        graph.flush()
        for f in (
            lambda w: F.linear(x, w),  # several rows of x
            lambda w: x[:1, :128] @ w[:, ::2].t(),  # not all of the weight
            lambda w: F.linear(x[:1, :128], w.reshape(128, 128)) * 1,
            lambda w: torch.softmax(F.linear(x[:1], w), -1),
            lambda w: x[0, :64] @ w,
        ):
            assert torch.allclose(f(w), f(dense), rtol=1e-3, atol=1e-3)
        assert False in times
        h = w.half()
        y = F.linear(x[:1].half(), h).float()
        assert torch.allclose(y, F.linear(x[:1], dense), rtol=2e-2, atol=2e-1)
    finally:
        torch.set_default_device("cpu")
