"""`out=`: what it may be, and how a result gets into it.

Where it has the type and the size of the result, it is written to. Where not, PyTorch's own form for tensors without values
(device "meta") is asked first: it refuses the types that PyTorch refuses, in its words, and says how what it resizes lies.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from tabtorch.backend.tensors import NAME, THEIRS, unwrap_marked
from tabtorch.core.tensor import Tensor

#: of these PyTorch lets `out=` share nothing with what is read
_APART = set(
    "gather index_select masked_select take kthvalue cat scatter scatter_add scatter_reduce index_copy index_add".split()
)
_ADVICE = "Please clone() the tensor before performing the operation."


def _tensors(x: Any) -> Iterator[torch.Tensor]:
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for v in x:
            yield from _tensors(v)


def _span(t: torch.Tensor) -> tuple[int, int]:
    """The bytes of its storage that it lies between."""
    first = t.storage_offset() * t.element_size()
    last = sum((n - 1) * st for n, st in zip(t.shape, t.stride())) + 1
    return first, first + last * t.element_size()


def _meet(a: torch.Tensor, b: torch.Tensor) -> str:
    """ "full" for the same view of the same memory, "part" for two dense ones that have some of it in common, else ""."""
    if a is b:
        return "full"
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata or not a.numel() or not b.numel():
        return ""
    dense = torch.ops.aten.is_non_overlapping_and_dense.default
    if not (dense(a) and dense(b)):
        return ""
    x, y = _span(a), _span(b)
    if x == y and a.stride() == b.stride():
        return "full"
    return "part" if x[0] < y[1] and y[0] < x[1] else ""


def check_overlap(op: Any, targets: Sequence[Any], args: Sequence[Any], kw: dict[str, Any]) -> None:
    """RuntimeError for an `out=` that shows an element twice, or lies over what is read."""
    apart = op._schema.name[6:] in _APART
    for out in _tensors(targets):
        if 0 in out.stride() and any(st == 0 and n > 1 for st, n in zip(out.stride(), out.shape)):
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
                + _ADVICE
            )
        if apart or torch.Tag.pointwise in op.tags:
            for given in _tensors([*args, *kw.values()]):
                if given.device.type == NAME and given.layout is torch.strided:
                    met = _meet(out, given)
                    if met == "part" or (met and apart):
                        raise RuntimeError(
                            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
                            "single memory location. " + _ADVICE
                        )


def check_shape(out: torch.Tensor, args: Sequence[Any], r: Tensor) -> None:
    """RuntimeError for an `out=` that is an argument, too, and has not the size of the result: a map cannot resize what it reads."""
    if out.shape != r._tab_meta.shape and any(t is out for t in args):
        raise RuntimeError(
            f"output with shape {list(out.shape)} doesn't match the broadcast shape {list(r._tab_meta.shape)}"
        )


def fits_not(out: torch.Tensor, r: Tensor) -> bool:
    """Whether it has another type or size than the result."""
    return out.dtype is not THEIRS[r._tab_meta.dtype] or out.shape != r._tab_meta.shape


def settle(op: Any, names: Sequence[str], args: Sequence[Any], kw: dict[str, Any]) -> None:
    """Raises what PyTorch raises for the types of `out=`, and gives each of them the size and the strides that PyTorch gives.

    What PyTorch has no such form for is left as it is.
    """

    def empty(t: Any) -> Any:
        if isinstance(t, torch.Tensor) and t.device.type == NAME:
            return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
        return t

    emptied = tree_map(empty, dict(kw))
    try:
        op(*tree_map(empty, list(args)), **emptied)
    except NotImplementedError:
        return
    except Exception as e:
        text = str(e)
        if (
            "meta" in text.lower() or "Attempting to cast" in text
        ):  # it asks for a value; `write_out` has PyTorch's words
            return
        raise
    for name in names:
        for out, like in zip(_tensors(kw[name]), _tensors(emptied[name]), strict=True):
            if out.shape != like.shape:
                out.resize_(like.shape)
                if out.stride() != like.stride():
                    out.as_strided_(like.shape, like.stride())


def resize_out(out: torch.Tensor, shape: tuple[int, ...]) -> None:
    """`out=` as a result of this shape wants it, with PyTorch's warning if it had elements."""
    if tuple(out.shape) == shape:
        return
    if out.numel():
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not match the "
            f"required output shape {list(shape)}. This behavior is deprecated, and in a future PyTorch release "
            "outputs will not be resized unless they have zero elements. You can explicitly reuse an out tensor t by resizing "
            "it, inplace, to zero elements with t.resize_(0).",
            UserWarning,
            stacklevel=4,
        )
    out.resize_(shape)


def write_out(out: torch.Tensor, r: Tensor, name: str = "") -> None:
    """`out=` of an operation: resized to the result's shape with PyTorch's warning, and written to as PyTorch converts."""
    theirs = THEIRS[r._tab_meta.dtype]
    if not torch.can_cast(theirs, out.dtype):
        if name == "cat":
            raise TypeError(
                f"torch.cat(): input types can't be cast to the desired output type {_scalar_name(out.dtype)}"
            )
        raise RuntimeError(
            f"result type {_scalar_name(theirs)} can't be cast to the desired output type {_scalar_name(out.dtype)}"
        )
    resize_out(out, tuple(r._tab_meta.shape))
    unwrap_marked(out).copy_(r)


def _scalar_name(d: torch.dtype) -> str:
    special_names = {
        "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int",
        "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat",
        "complex128": "ComplexDouble",
    }  # fmt: skip
    return special_names.get(str(d).removeprefix("torch."), str(d))
