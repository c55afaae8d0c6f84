"""What PyTorch's CPU operators refuse for its dtype is refused here, with an exception of the same kind; the rest is not.

Asked is every operator of PyTorch's table, with its first sample cast to each dtype that the table says it has not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from conformance import checks, translate
from sidebyside import said

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_HALVES = (torch.float16, torch.bfloat16)
_COMPLEX = (torch.complex64, torch.complex128)
DTYPES = (torch.float32, torch.float64, *_HALVES, *_INTEGERS, torch.bool, *_COMPLEX)

_GPUS_HAVE = "PyTorch's GPUs have it, and a script that was written for one runs here"
_NO_CHUNKS = "PyTorch's options are of no effect here, so that nothing finds them to be wrong"
_NOTHING = "of a matrix without elements no kernel is asked: its sample is one"

#: what differs, and why: operator -> (dtypes, reason)
LEFT: dict[str, tuple[tuple[torch.dtype, ...], str]] = {
    "_upsample_bilinear2d_aa": (_HALVES, _GPUS_HAVE),
    "nn.functional.avg_pool3d": (_HALVES, _GPUS_HAVE),
    "nn.functional.multi_margin_loss": (_HALVES, _GPUS_HAVE),
    "nn.functional.multilabel_margin_loss": (_HALVES, _GPUS_HAVE),
    "nn.functional.rrelu": ((torch.float16,), _GPUS_HAVE),
    "nn.functional.linear_cross_entropy.chunked": ((*_INTEGERS, torch.bool, *_COMPLEX), _NO_CHUNKS),
    "nn.functional.linear_cross_entropy.chunked_none": ((*_INTEGERS, torch.bool, *_COMPLEX), _NO_CHUNKS),
    "linalg.det": (_HALVES, _NOTHING),
    "linalg.svd": (_HALVES, _NOTHING),
    "svd": (_HALVES, _NOTHING),
    "scatter_reduce.prod": (_COMPLEX, "products of complex numbers would need atomics of two words"),
}


def _first(op: Any) -> tuple[torch.dtype, Any]:
    """A dtype that the operator has, and its first sample of it; StopIteration where the table has none.

    The samples are those of `op.sample_inputs`, which notes the whole stack for each: ten times the cost of the rest.
    """
    dtype = next(d for d in (torch.float32, torch.int64, torch.bool, torch.complex64) if d in op.dtypes)
    random.seed(checks.SEED)  # a margin is drawn from there
    torch.manual_seed(checks.SEED)
    return dtype, next(iter(op.sample_inputs_func(op, "cpu", dtype, False)))


def _cast(value: Any, old: torch.dtype, new: torch.dtype) -> Any:
    def leaf(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return x.detach().to(new) if x.dtype == old else x
        return new if isinstance(x, torch.dtype) and x == old else x

    return pytree.tree_map(leaf, value)


def _answers() -> Iterator[tuple[str, torch.dtype, str, str]]:
    """(operator, dtype, what PyTorch says, what is said here)."""
    for name, op in checks.operators().items():
        try:
            old, sample = _first(op)
            here = translate.function(op.op, op.name)
        except (StopIteration, AttributeError):
            continue
        for d in set(DTYPES) - set(op.dtypes):
            args, kwargs = _cast(((sample.input, *sample.args), sample.kwargs), old, d)
            translated = translate.Translator("cpu")
            try:
                question = translated(args), translated(kwargs)
            except translate.Unsupported:
                continue
            yield name, d, said(op.op, args, kwargs), said(here, *question)


@pytest.mark.filterwarnings("ignore")
def test_kinds() -> None:
    left = {(name, d) for name, (dtypes, _) in LEFT.items() for d in dtypes}
    count, differ = 0, {}
    for name, d, want, got in _answers():
        count += 1
        if want.partition(":")[0] != got.partition(":")[0]:
            differ[name, d] = f"{name} of {d}: {got}\n  PyTorch: {want}"
    assert count > 2400
    more = [text for key, text in differ.items() if key not in left]
    assert not more, "\n".join(more)
    stale = left - differ.keys()
    assert not stale, f"these agree: {stale}"
