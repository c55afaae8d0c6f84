"""What the rows of the elementwise table keep for backward is what PyTorch keeps: a later write to it is an error in both."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tabtorch
from fuzz.steps import error_of
from tabtorch.ops.machinery import registry

registry.load_all()


def there(name: str, lib: Any) -> Any:
    """The function of that name, wherever the library has it."""
    for place in (lib, lib.special, lib.nn.functional):
        if hasattr(place, name.removeprefix("special_")):
            return getattr(place, name.removeprefix("special_"))
    return None


#: rows that are not asked, or not for their form in place, and why
OTHERWISE = {
    "special_ndtr": "PyTorch composes it, and keeps what comes in between",
    "special_log_ndtr": "its gradient here is the more exact one, without the result",
    "floor_divide_ heaviside_": "what has no gradient has the name of the other form",
    "asinh_ acosh_ atanh_": "PyTorch has no gradient of these",
    "leaky_relu_ elu_ selu_ celu_": "PyTorch's gradient is made of the result, here it is of what was there before",
}
LEFT_OUT = " ".join(OTHERWISE).split()


def asked(row: Any) -> bool:
    """Whether PyTorch has a gradient of that name, of operands alone."""
    public = row.name[0] != "_" and row.name not in LEFT_OUT and there(row.name, torch) and there(row.name, tabtorch)
    return bool(row.grads and public and len(row.names) - len(row.defaults) <= row.operands)


ROWS = [r for r in registry.ROWS.values() if asked(r)]


def outcome(lib: Any, row: Any, wanted: tuple[bool, ...], changed: int, in_place: bool) -> Any:
    """The first line of the error that backward raises once an operand (by its number; -1: the result) was written to."""
    low, high = row.domain
    value = low + 0.7 * (high - low)
    operands = [lib.full((2,), value * (1 - 0.1 * k)).requires_grad_(w) for k, w in enumerate(wanted)]
    if in_place:
        operands[0] = operands[0] * 1
    f = there(row.name + "_", lib) if in_place else there(row.name, lib)
    if f is None:
        f = getattr(lib.Tensor, row.name + "_", None)
    if f is None:
        return "no such form"
    try:
        y = f(*operands)
        written = y if changed < 0 else operands[changed]
        with lib.no_grad():
            written.mul_(1)
        y.sum().backward()
    except Exception as e:
        return error_of(e)[2].partition(" is at version")[0]
    return None


def cases(row: Any) -> Iterator[tuple[tuple[bool, ...], int, bool]]:
    wanted = [w for w in itertools.product((False, True), repeat=row.operands) if any(w)]
    for in_place in (False, True) if row.inplace and row.name + "_" not in LEFT_OUT else (False,):
        for w in wanted:
            for changed in range(-1, row.operands):
                if not (in_place and changed == 0):
                    yield w, changed, in_place


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_as_pytorch(row: Any) -> None:
    with tabtorch.device("cpu"):
        for case in cases(row):
            want, got = outcome(torch, row, *case), outcome(tabtorch, row, *case)
            assert got == want, case
