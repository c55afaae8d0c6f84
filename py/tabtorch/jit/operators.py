"""What TorchScript code calls: ATen's operators by name, and those on numbers, texts, lists and dicts."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.base.device import device as Device
from tabtorch.core.tensor import Tensor
from tabtorch.jit import Error, numbers, texts
from tabtorch.jit.upgraders import upgraded
from tabtorch.jit.values import EnumMember
from tabtorch.ops import aten

#: the number of a type in TorchScript
NUMBERS = dict(
    enumerate(
        (dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.float16, dtypes.float32)
        + (dtypes.float64, None, dtypes.complex64, dtypes.complex128, dtypes.bool_, None, None, None, dtypes.bfloat16)
    )
)
NUMBER_OF = {d: n for n, d in NUMBERS.items() if d is not None}
#: what gives a list where the function here gives a tuple
LISTS = set(
    "size stride split split_with_sizes chunk unbind tensor_split hsplit vsplit dsplit meshgrid broadcast_tensors "
    "unsafe_chunk unsafe_split unsafe_split_with_sizes sym_size".split()
)
#: where a type stands by position
_DTYPE_AT = {
    "softmax": 2,
    "log_softmax": 2,
    "special_softmax": 2,
    "_softmax_backward_data": 3,
    "_log_softmax_backward_data": 3,
}
#: functions that `lookup` finds and that are no operators of ATen: they take functions or memory, or are of Python
REFUSED = set(
    "apply_ map_ map2_ as_subclass from_dlpack from_numpy frombuffer from_file save importlib guard read numpy storage "
    "untyped_storage data_ptr share_memory_ new new_tensor type register_hook register_post_accumulate_grad_hook "
    "missing_function unique dtype layout shape asarray grad_fn use_deterministic_algorithms dim_order "
    "set_deterministic_debug_mode set_flush_denormal set_num_interop_threads set_warn_always get_device_module H T "
    "cross_entropy interpolate grid_sample affine_grid normalize fold lu eig symeig lstsq lobpcg pca_lowrank svd_lowrank "
    "matrix_rank multi_head_attention_forward gumbel_softmax local_response_norm tolist linalg_LinAlgError".split()
)


def dtype(number: Any) -> Any:
    """The type that a number means. RuntimeError for one that tabtorch has not."""
    if number is None or not isinstance(number, int):
        return number
    found = NUMBERS.get(number)
    if found is None:
        raise RuntimeError(f"tabtorch has no type of number {number} in TorchScript (quantised tensors are not here)")
    return found


def _form(number: Any) -> Any:
    names = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
    return getattr(_lazy.torch, names[number]) if isinstance(number, int) else number


def _options(kw: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments as the functions here take them."""
    if kw.get("layout") not in (None, 0):
        raise NotImplementedError("tabtorch has strided tensors only")
    drop = ("layout", "pin_memory", "names")
    made = {k: v for k, v in kw.items() if k not in drop and not (v is None and k in _NONE)}
    if "dtype" in made:
        made["dtype"] = dtype(made["dtype"])
    if "memory_format" in made:
        made["memory_format"] = _form(made["memory_format"])
    return made


_NONE = ("dtype", "device", "memory_format", "generator")


def _to(x: Any, *args: Any, **kw: Any) -> Any:
    """All forms of `to`: by their first argument."""
    names = ["dtype", "non_blocking", "copy", "memory_format"]
    first = args[0] if args else None
    if isinstance(first, Device) or (first is None and len(args) > 4):
        names = ["device", *names]
    elif isinstance(first, Tensor):
        kw |= {"device": first.device, "dtype": first.dtype}
        args, names = args[1:], names[1:]
    elif isinstance(first, bool):
        names = names[1:]
    given = _options({**dict(zip(names, args, strict=False)), **kw})
    return x.to(**given)


def _operator(name: str) -> Callable[..., Any]:
    at = _DTYPE_AT.get(name)
    if name == "to":
        return _to
    base = aten.lookup(name)
    if base is None:
        raise NotImplementedError(f"tabtorch has no operator aten::{name}")
    vec = aten.lookup(name, "vec") if name.startswith(("upsample_", "_upsample_")) else None
    kind = {"lstm": 1, "gru": 2, "rnn_tanh": 2, "rnn_relu": 2}.get(name)

    def call(*given: Any, **kw: Any) -> Any:
        args: tuple[Any, ...] = given
        f: Any = base
        if kw:
            kw = _options(kw)
        if at is not None and len(args) > at:
            args = (*args[:at], *([dtype(args[at])] if args[at] is not None else []))
        if kind is not None:
            f = aten.lookup(name, "data" if isinstance(args[kind], Tensor) else "input") or base
        elif vec is not None and len(args) > 2 and (args[1] is None or isinstance(args[-1], list)):
            f = vec
        elif name in _SCALED and len(args) == 3:
            *args_, alpha = args
            args, kw = tuple(args_), {**kw, "alpha": alpha}
        elif name == "view" and isinstance(args[1], int):
            args = (args[0], dtype(args[1]))
        result = f(*args, **kw)
        if name in LISTS and isinstance(result, tuple):
            return list(result)
        return NUMBER_OF.get(result, result) if isinstance(result, dtypes.dtype) else result

    return call


_SCALED = ("add", "sub", "add_", "sub_", "rsub")

# ---- on the host


def _set_item(c: Any, i: Any, v: Any) -> Any:
    c[i] = v
    return c


def _delete(c: Any, i: Any) -> None:
    del c[i]


def _slice(x: Any, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return x[start:end:step]


def _derive(index: int, start: int, step: int) -> int:
    return start + index * step


def _torch() -> Any:
    return _lazy.torch


def _is_grad(*_: Any) -> bool:
    return bool(_torch().is_grad_enabled())


def _set_grad(on: bool) -> None:
    _torch().set_grad_enabled(on)


def _warn(message: str, stacklevel: int = 2) -> None:
    warnings.warn(message, UserWarning, stacklevel=2)


def _nested(x: Any, mask: Any, check: bool = True) -> Any:
    """A tensor whose rows are of several lengths, as encoders make one on their fast path: the padded one, which knows its padding."""
    if check and not _aligned(x, mask):
        raise RuntimeError("Expected mask to be left-aligned without gaps")
    made = x.detach().clone()
    made._padding = ~mask
    return made


def _aligned(x: Any, mask: Any) -> bool:
    return not bool((mask[:, 1:] & ~mask[:, :-1]).any())


def _padded(x: Any, value: float, size: Any = None) -> Any:
    if not _is_nested(x) or size is not None and tuple(size) != tuple(x.shape):
        raise NotImplementedError("to_padded_tensor: tabtorch has no nested tensors but those of an encoder's padding")
    return x.masked_fill(x._padding.unsqueeze(-1), value)


def _is_nested(x: Any) -> bool:
    return hasattr(x, "_padding")


def _encoder_layer(x: Any, *args: Any) -> Any:
    layer: Any = aten.lookup("_transformer_encoder_layer_fwd")
    if not _is_nested(x):
        return layer(x, *args)
    made = layer(x, *args[:17], x._padding, 1)
    made._padding = x._padding
    return made


#: for whatever values
ANY: dict[str, Callable[..., Any]] = {
    "__is__": operator.is_,
    "__isnot__": operator.is_not,
    "__not__": operator.not_,
    "len": len,
    "list": list,
    "dict": dict,
    "str": texts.text,
    "format": texts.FUNCTIONS["format"],
    "percentFormat": texts.FUNCTIONS["percentFormat"],
    "append": lambda x, v: x.append(v),
    "extend": lambda x, v: x.extend(v),
    "insert": lambda x, i, v: x.insert(i, v),
    "_set_item": _set_item,
    "Delete": _delete,
    "__range_length": lambda a, b, s: len(range(a, b, s)),
    "__derive_index": _derive,
    "__getitem__": operator.getitem,
    "is_grad_enabled": _is_grad,
    "set_grad_enabled": _set_grad,
    "warn": _warn,
    "is_scripting": lambda: True,
    "is_autocast_enabled": lambda *_: bool(_torch().is_autocast_enabled()),
    "is_autocast_cpu_enabled": lambda: bool(_torch().is_autocast_enabled("cpu")),
    "has_torch_function": lambda *_: False,
    "_unwrap_optional": lambda x: _unwrap(x),
    "IntImplicit": lambda x: int(x),
    "FloatImplicit": lambda x: float(x),
    "ScalarImplicit": lambda x: x.item(),
    "wait": lambda x: x,
    "device": lambda *a: Device(*a),
    "nonzero_numpy": lambda x: list(x.nonzero(as_tuple=True)),
    "_nested_tensor_from_mask": _nested,
    "_nested_tensor_from_mask_left_aligned": _aligned,
    "to_padded_tensor": _padded,
    "_transformer_encoder_layer_fwd": _encoder_layer,
}


def _unwrap(x: Any) -> Any:
    if x is None:
        raise RuntimeError("Unwrapping null optional")
    return x


def _shared(name: str, of_text: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A function that lists and dicts have, and texts too, by other rules."""
    return lambda x, *args: of_text(x, *args) if of_text and isinstance(x, str) else getattr(x, name)(*args)


#: for numbers, texts, lists and dicts; a tensor among the first two goes to ATen's operator
HOST: dict[str, Callable[..., Any]] = {
    **numbers.FUNCTIONS,
    **texts.FUNCTIONS,
    "sum": lambda x: sum(x) if x else 0,
    "any": any,
    "all": all,
    "sorted": sorted,
    "__contains__": operator.contains,
    "select": operator.getitem,
    "slice": _slice,
    "sort": lambda x, reverse=False: x.sort(reverse=reverse),
    "copy": lambda x: x.copy(),
    "items": lambda x: list(x.items()),
    "keys": lambda x: list(x.keys()),
    "values": lambda x: list(x.values()),
    "get": lambda d, k, default=None: d.get(k, default),
    "add_": lambda x, y: x.__iadd__(y),
    "Size": list,
    "hash": hash,
    **{
        n: _shared(n, texts.FUNCTIONS.get(n))
        for n in "pop remove reverse clear index count update setdefault popitem".split()
    },
}


def _raise(message: str, cls: str | None = None) -> None:
    raise Error(f"The following operation failed in the TorchScript interpreter.\n{cls or 'RuntimeError'}: {message}")


#: `ops.prim.NAME`
PRIM: dict[str, Callable[..., Any]] = {
    "RaiseException": _raise,
    "dtype": lambda x: NUMBER_OF[x.dtype],
    "device": lambda x: x.device,
    "type": lambda d: d.type,
    "index": lambda d: d.index,
    "layout": lambda x: 0,
    "data": lambda x: x.data,
    "grad": lambda x: x.grad,
    "requires_grad": lambda x: x.requires_grad,
    "is_cuda": lambda x: x.device.type in ("cuda", "webgpu"),
    "is_cpu": lambda x: x.device.type == "cpu",
    "NumToTensor": lambda x: _torch().tensor(x),
    **{n: lambda x: False for n in "is_sparse is_quantized is_mkldnn is_xla is_sparse_csr is_vulkan".split()},
    "is_nested": _is_nested,
    "is_meta": lambda x: x.is_meta,
    "max": lambda *a: max(*a),
    "min": lambda *a: min(*a),
    "abs": lambda x: abs(x),
    "rangelist": lambda n: list(range(n)),
    "TupleIndex": operator.getitem,
    "unchecked_unwrap_optional": _unwrap,
    "EnumName": lambda x: x.name if isinstance(x, EnumMember) else _raise("no enum"),
    "EnumValue": lambda x: x.value if isinstance(x, EnumMember) else _raise("no enum"),
}


@cache
def find(name: str, version: int) -> Callable[..., Any]:
    """`torch.NAME` of an archive of `version`. RuntimeError for what is no operator; one that is not here raises when it is called."""
    if name in ANY:
        return ANY[name]
    host = HOST.get(name)
    allowed = not name.startswith("__") or name.strip("_") in "and or xor lshift rshift iand ior ixor".split()
    if not host and (name in REFUSED or not allowed or not name.isidentifier()):
        raise RuntimeError(f"a TorchScript archive may not call torch.{name}")

    def call(*args: Any, **kw: Any) -> Any:
        first = args[0] if args else None
        if host and not isinstance(first, Tensor):
            number = type(first) in (int, float, bool, complex)
            if not (number and len(args) > 1 and isinstance(args[1], Tensor)):
                return host(*args, **kw)
        return operation()(*args, **kw)

    @cache
    def operation() -> Callable[..., Any]:
        return upgraded(name, version, _operator(name))

    return call
