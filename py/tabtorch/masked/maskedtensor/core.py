"""The class: a tensor with a mask, whose calls `operations.py` answers.

It has the memory of its data, so that autograd records what is done with it as with any tensor. A gradient is hidden where its
tensor is: where PyTorch hides it besides, because nothing came of an element, it is 0 here. There are none of sparse layouts,
and none with the history of a plain tensor, whose gradient would be masked in PyTorch.
"""

from __future__ import annotations

import warnings
from typing import Any

import tabtorch as torch
from tabtorch import _lazy
from tabtorch.core.tensor import Tensor
from tabtorch.overrides import DisableTorchFunctionSubclass

_PLAIN: Any = Tensor

#: the names of the types that PyTorch has them of
_DTYPES = "float16 float32 float64 bool int8 int16 int32 int64".split()


def is_masked_tensor(obj: Any, /) -> bool:
    """Whether it is one."""
    return isinstance(obj, MaskedTensor)


def masked_tensor(data: Any, mask: Any, requires_grad: bool = False) -> MaskedTensor:
    """`MaskedTensor(data, mask, requires_grad)`: a copy of `data`, of which only what `mask` lets through counts."""
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data: Any, mask: Any) -> MaskedTensor:
    """`masked_tensor` of data without a history. NotImplementedError for data with one."""
    if isinstance(data, Tensor) and data.requires_grad:
        raise NotImplementedError(
            "as_masked_tensor(): in tabtorch the gradient of a plain tensor is never masked: use "
            "masked_tensor(data.detach(), mask, requires_grad=True)"
        )
    return MaskedTensor(data, mask)


def check(data: Any, mask: Any) -> None:
    """TypeError or ValueError where they do not belong together."""
    if is_masked_tensor(data) or not isinstance(data, Tensor):
        raise TypeError("data must be a Tensor")
    if is_masked_tensor(mask) or not isinstance(mask, Tensor):
        raise TypeError("mask must be a Tensor")
    if data.layout != mask.layout:
        raise TypeError("data and mask must have the same layout.")
    if data.layout != torch.strided:
        raise NotImplementedError("tabtorch has no MaskedTensor of a sparse layout")
    if type(data) is not type(mask):
        raise TypeError(f"data and mask must have the same type. Got {type(data)} and {type(mask)}")
    if mask.dtype != torch.bool:
        raise TypeError("mask must have dtype bool.")
    if str(data.dtype).rpartition(".")[2] not in _DTYPES:
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
    if data.dim() != mask.dim():
        raise ValueError("data.dim() must equal mask.dim()")
    if data.size() != mask.size():
        raise ValueError("data.size() must equal mask.size()")


class MaskedTensor(Tensor):
    """A tensor with a mask: elements where it is False are hidden, and take part in nothing."""

    _masked_mask: Tensor

    def __new__(cls, data: Any, mask: Any, requires_grad: bool = False) -> MaskedTensor:
        check(data, mask)
        warnings.warn(
            "The PyTorch API of MaskedTensors is in prototype stage and will change in the near future. Please open a Github "
            "issue for features requests and see our documentation on the torch.masked module for further information about "
            "the project.",
            UserWarning,
            stacklevel=2,
        )
        if data.requires_grad:
            warnings.warn(
                "It is not recommended to create a MaskedTensor with a tensor that requires_grad. To avoid this, you can use "
                "data.detach().clone()",
                UserWarning,
                stacklevel=2,
            )
        made = masked(data.detach().clone(), mask.clone())
        with DisableTorchFunctionSubclass():
            made.requires_grad_(requires_grad)
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _lazy.masked_operations.call(func, args, kwargs or {})

    @property
    def _masked_data(self) -> Tensor:
        return self.get_data().detach()

    @property
    def grad(self) -> Any:
        """The gradient, hidden where this is."""
        with DisableTorchFunctionSubclass():
            g = Tensor.grad.__get__(self)
        return None if g is None else masked(g.detach(), self._masked_mask)

    @grad.setter
    def grad(self, value: Any) -> None:
        with DisableTorchFunctionSubclass():
            Tensor.grad.__set__(self, value.get_data() if is_masked_tensor(value) else value)  # type: ignore[attr-defined]

    def get_data(self) -> Tensor:
        """The data as a plain tensor, what is hidden included."""
        with DisableTorchFunctionSubclass():
            plain: Tensor = self.as_subclass(_PLAIN)
        return plain

    def get_mask(self) -> Tensor:
        """The mask."""
        return self._masked_mask

    def to_tensor(self, value: Any) -> Tensor:
        """The data as a plain tensor, with `value` where it is hidden."""
        return self.get_data().masked_fill(self._masked_mask.logical_not(), value)

    def is_sparse_coo(self) -> bool:
        """False: see above."""
        return False

    def is_sparse_csr(self) -> bool:  # type: ignore[override]
        """False: see above."""
        return False

    def __repr__(self, *, tensor_contents: str | None = None) -> str:  # type: ignore[override]
        values, mask = self.get_data().tolist(), self._masked_mask.tolist()
        if not self.dim():
            return f"MaskedTensor({_shown(values) if mask else '--'}, {mask})"
        return "MaskedTensor(\n" + _indented(_rows(values, mask, self.dim())) + "\n)"

    __str__ = __repr__

    def __deepcopy__(self, memo: Any) -> MaskedTensor:
        return memo.setdefault(id(self), MaskedTensor(self._masked_data, self._masked_mask, self.requires_grad))


def masked(data: Tensor, mask: Tensor) -> MaskedTensor:
    """Over the very memory, and with the history, of `data`, which fits `mask`."""
    made: MaskedTensor = data.as_subclass(MaskedTensor)
    made._masked_mask = mask
    return made


def _shown(value: Any) -> str:
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in text.split("\n"))


def _rows(values: Any, mask: Any, ndim: int) -> str:
    if ndim > 1:
        inside = [_indented(_rows(v, m, ndim - 1)) for v, m in zip(values, mask, strict=True)]
        return "[\n" + ",\n".join(inside) + "\n]"
    texts = [_shown(v) for v in values]
    width = max((len(t) if m else 8 for t, m in zip(texts, mask, strict=True)), default=8)
    return "[" + ", ".join(t if m else "--".rjust(width) for t, m in zip(texts, mask, strict=True)) + "]"
