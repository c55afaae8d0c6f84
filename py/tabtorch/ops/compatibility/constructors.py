"""The old constructors: `torch.Tensor(2, 3)`, `torch.FloatTensor([1, 2])` and their kin."""

from __future__ import annotations

from typing import Any

from tabtorch.base import dtypes
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery import registry
from tabtorch.ops.machinery.registry import register


def legacy_constructor(cls: type, *args: Any, device: Any = None, dtype: Any = None) -> Any:
    """An empty tensor of the sizes given, or one of the values of a sequence, or an alias of a tensor; of default dtype."""
    d = dtype or dtypes.get_default_dtype()
    empty: Any = registry.function("empty")
    if len(args) == 1 and isinstance(args[0], Tensor):
        if args[0].dtype is not d and cls is not Tensor and not issubclass(cls, Tensor):
            raise TypeError(f"expected {d!r} (got {args[0].dtype!r})")
        t = args[0].detach()
    elif len(args) == 1 and not isinstance(args[0], int) and type(args[0]).__name__ != "Size":
        make: Any = registry.function("tensor")
        t = make(args[0], dtype=d, device=device)
    elif len(args) == 1 and not isinstance(args[0], int):
        t = empty(args[0], dtype=d, device=device)
    else:
        t = empty(tuple(args) if args else (0,), dtype=d, device=device)
    return t if cls is Tensor else Tensor._make_subclass(cls, t)


class _Typed(type):
    """`isinstance(x, torch.FloatTensor)` asks for the dtype, and `torch.cuda.FloatTensor` for the device too."""

    dtype: dtypes.dtype
    device: str | None

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor) and x._tab_meta.dtype is cls.dtype and (cls.device is None or x.is_cuda)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls.device is not None:
            kwargs.setdefault("device", cls.device)
        return legacy_constructor(Tensor, *args, dtype=cls.dtype, **kwargs)


_TYPES = {
    "FloatTensor": dtypes.float32,
    "DoubleTensor": dtypes.float64,
    "HalfTensor": dtypes.float16,
    "BFloat16Tensor": dtypes.bfloat16,
    "LongTensor": dtypes.int64,
    "IntTensor": dtypes.int32,
    "ShortTensor": dtypes.int16,
    "CharTensor": dtypes.int8,
    "ByteTensor": dtypes.uint8,
    "BoolTensor": dtypes.bool_,
}

for _name, _d in _TYPES.items():
    register(_name, _Typed(_name, (), {"dtype": _d, "device": None, "__module__": "torch"}))


def cuda_type(name: str) -> Any:
    """`torch.cuda.FloatTensor` and its kin, or None for a name that is none of them."""
    if name not in _TYPES:
        return None
    return _Typed(name, (), {"dtype": _TYPES[name], "device": "cuda", "__module__": "torch.cuda"})
