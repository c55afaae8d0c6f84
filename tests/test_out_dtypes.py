"""What is said where an `out=`, or a tensor that is written in place, is of a type that will not do: PyTorch's exception and words."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

import tabtorch
from conformance import checks, translate
from sidebyside import said

#: the types that `out=` is given in, and those that are written in place
OUT = (torch.float32, torch.int64, torch.float64, torch.int32, torch.bool, torch.complex64)
IN_PLACE = (torch.float32, torch.int64, torch.bool, torch.complex64, torch.uint8)
DOUBLES = {torch.float64, torch.complex128}

#: (question, operator) -> how many answers differ, and why
LEFT = {
    ("out", "_batch_norm_with_update"): (
        21,
        "no operator of torch.ops has another exception for arguments that none takes",
    ),
    ("in place", "baddbmm"): (2, "PyTorch compares the shapes before it looks for a kernel; and has two, by size"),
    ("in place", "scatter_reduce.prod"): (2, "products of complex numbers that are scattered are not there"),
}
PARTS = 8


def _both(theirs: Any, mine: Any, args: Any, kwargs: dict[str, Any], device: str) -> tuple[str, str]:
    to = translate.Translator(device)
    given, named = to(args), to(kwargs)
    with tabtorch.device(device):
        ours = said(mine, given, named)
    return said(theirs, args, kwargs), ours


def _on(device: str, *values: Any) -> bool:
    return device == "cpu" or not any(x in DOUBLES or getattr(x, "dtype", None) in DOUBLES for x in _leaves(values))


def _leaves(values: Any) -> list[Any]:
    return [x for x in tree_leaves(values) if isinstance(x, (torch.Tensor, torch.dtype))]


def _ours(f: Any, name: str) -> Any:
    """The same function here; None: there is none, as the page of compatibility says."""
    try:
        return translate.function(f, name)
    except AttributeError:
        return None


def _samples(op: Any, d: torch.dtype, n: int) -> list[Any]:
    """The first samples; `op.sample_inputs` would look through the stack for each, which takes longer than all else here."""
    torch.manual_seed(0)
    return list(islice(op.sample_inputs_func(op, "cpu", d, False), n))


def _asked_out(op: Any, device: str) -> Iterator[tuple[str, str, str]]:
    """(question, what PyTorch says, what is said here): each result of the first sample in each other type."""
    kind = next((d for d in OUT[:2] if d in op.dtypes), None)
    if not op.supports_out or kind is None:
        return
    (sample,) = _samples(op, kind, 1)
    args = (sample.input, *sample.args)
    result = op.op(*args, **sample.kwargs)
    single = isinstance(result, torch.Tensor)
    results = [result] if single else list(result) if isinstance(result, (list, tuple)) else []
    mine = _ours(op.op, op.name)
    if mine is None or not all(isinstance(r, torch.Tensor) for r in results):
        return
    if not _on(device, results, args, sample.kwargs):
        return
    for i, r in enumerate(results):
        for d in OUT:
            if d is r.dtype or not _on(device, d):
                continue
            out = tuple(torch.empty_like(x, dtype=d if j == i else None) for j, x in enumerate(results))
            yield f"{i} {d}", *_both(op.op, mine, args, {**sample.kwargs, "out": out[0] if single else out}, device)


def _asked_in_place(op: Any, device: str) -> Iterator[tuple[str, str, str]]:
    """The same of the first two samples written in place, in types that the operator has or has not."""
    mine = op.inplace_variant and _ours(op.inplace_variant, op.name + "_")
    if mine is None:
        return
    for d in IN_PLACE:
        have = d if d in op.dtypes else next(x for x in IN_PLACE if x in op.dtypes)
        for sample in _samples(op, have, 2):
            rest = (sample.args, sample.kwargs)

            def to(x: Any, have: Any = have, d: Any = d) -> Any:
                return x.to(d) if isinstance(x, torch.Tensor) and x.dtype is have else x

            for args, kwargs in (rest,) if have is d else (tree_map(to, rest), rest):
                if _on(device, args, kwargs):
                    first = to(sample.input).clone()
                    yield str(d), *_both(op.inplace_variant, mine, (first, *args), kwargs, device)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    ("question", "ask"), [("out", _asked_out), ("in place", _asked_in_place)], ids=["out", "in_place"]
)
def test_says_what_pytorch_says(question: str, ask: Any, part: int, device: str) -> None:
    for name, op in islice(checks.operators().items(), part, None, PARTS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other = [f"{q}\n  {a}\n  {b}" for q, a, b in ask(op, device) if a != b]
        most, _ = LEFT.get((question, name), (0, ""))
        assert len(other) <= most if device == "webgpu" else len(other) == most, name + "\n" + "\n".join(other)
