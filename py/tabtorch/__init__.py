"""PyTorch in a browser tab, on WebGPU: the torch namespace.

`tabtorch.install()` makes `import torch` mean this package. Importing it starts no device and loads no operation: both
happen on first use.
"""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from typing import Any

from tabtorch import _archive

_archive.extend(__path__, __name__)  # whatever is imported below may be in the archive

from tabtorch import _lazy, autograd
from tabtorch.autograd.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from tabtorch.base import dtypes
from tabtorch.base.device import device, set_default_device
from tabtorch.base.dtypes import can_cast, dtype, finfo, get_default_dtype, iinfo, promote_types
from tabtorch.base.errors import AcceleratorError, OutOfMemoryError
from tabtorch.core import operators
from tabtorch.core.layout import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    jagged,
    layout,
    memory_format,
    preserve_format,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from tabtorch.core.tensor import Tensor
from tabtorch.engine.view import Size
from tabtorch.ops.machinery import registry as _core
from tabtorch.torch_version import __version__

operators.install()

for _name, _dtype in (dtypes.PUBLIC | dtypes.NAMED_ONLY).items():
    globals()[_name] = _dtype

inf, nan, pi, e = math.inf, math.nan, math.pi, math.e
newaxis = None

#: modules that `torch.NAME` reaches without an import statement
_MODULES = (
    "accelerator amp ao backends compiler cpu cuda cli distributed distributions export fft func futures fx hub jit "
    "library linalg mps multiprocessing nested nn onnx optim overrides profiler quasirandom random return_types serialization "
    "signal sparse special testing types utils version webgpu xpu"
).split()

#: attribute -> where it lives; everything else is an operation of the registry
_ELSEWHERE = {
    "is_anomaly_check_nan_enabled": "autograd.anomaly_mode",
    "is_anomaly_enabled": "autograd.anomaly_mode",
    "PyTorchFileReader": "serialization.file_reader",
    "Event": "webgpu.streams",
    "Generator": "random",
    "Future": "futures",
    "GradScaler": "amp",
    "ScriptModule": "jit",
    "SymBool": "types",
    "SymFloat": "types",
    "SymInt": "types",
    "compile": "compiler",
    "TensorType": "_C",
    "TypedStorage": "storage",
    "Stream": "webgpu.streams",
    "UntypedStorage": "storage",
    "default_generator": "random",
    "explain": "profiler.schedules",
    "get_printoptions": "core.printing",
    "get_rng_state": "random",
    "initial_seed": "random",
    "load": "serialization",
    "manual_seed": "random",
    "plot": "display.charts",
    "printoptions": "core.printing",
    "save": "serialization",
    "seed": "random",
    "set_printoptions": "core.printing",
    "tensor": "core.from_host",
    "set_rng_state": "random",
    "show": "display.images",
    "thread_safe_generator": "random",
    "vmap": "func",
    "canvas": "display.canvases",
    **dict.fromkeys(("button", "pad", "slider"), "display.controls"),
    **dict.fromkeys(("microphone", "webcam"), "display.media"),
    **dict.fromkeys(
        "autocast autocast_decrement_nesting autocast_increment_nesting clear_autocast_cache get_autocast_cpu_dtype "
        "get_autocast_dtype get_autocast_gpu_dtype is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_enabled "
        "set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_dtype "
        "set_autocast_enabled set_autocast_gpu_dtype".split(),
        "amp",
    ),
}


async def init() -> None:
    """Starts the device without blocking. Needed only in a browser where Python cannot wait (one without JSPI)."""
    await _lazy.bridge.init()


def install(cuda: bool = True) -> None:
    """Makes `import torch` mean tabtorch, its submodules too. With `cuda` (default), "cuda" means webgpu."""
    do = _lazy.install.install
    globals()["install"] = _install  # the import has put the module there
    do(cuda)


_install = install


def get_default_device() -> device:
    """The device of tensors for which none is named."""
    return _lazy.device.default_device().public


def set_default_dtype(d: dtype) -> None:
    """The floating type of tensors for which none is named. TypeError for a type that is not floating."""
    dtypes.set_default_dtype(d)
    _lazy.dispatch.clear_tables()


def set_default_tensor_type(t: Any) -> None:
    """Sets the default dtype by a type's name, e.g. "torch.FloatTensor"."""
    name = t if isinstance(t, str) else getattr(t, "__name__", "")
    known = {v: k for k, v in dtypes.TYPE_NAMES.items()}
    set_default_dtype(dtypes.PUBLIC[known[name.rpartition(".")[2].removesuffix("Tensor")]])


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a tensor."""
    return isinstance(obj, Tensor)


def is_storage(obj: Any) -> bool:
    """Whether `obj` is what `Tensor.untyped_storage()` gives, or `Tensor.storage()`."""
    return isinstance(obj, (_lazy.storage.UntypedStorage, _lazy.storage.TypedStorage))


def is_floating_point(input: Tensor) -> bool:
    """Whether its type is a floating one."""
    return input.dtype.is_floating_point


def is_complex(input: Tensor) -> bool:
    """Whether its type is a complex one."""
    return input.dtype.is_complex


def is_inference(input: Tensor) -> bool:
    return input.is_inference()


def numel(input: Tensor) -> int:
    """How many elements it has."""
    return input.numel()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    return input.shape == other.shape


def result_type(tensor: Any, other: Any) -> dtype:
    """The type an operation on both would promote to."""
    return _lazy.promotion.common_dtype([tensor, other])


def typename(obj: Any) -> str:
    """`torch.FloatTensor` for a tensor, else the qualified name of the type of `obj`."""
    if isinstance(obj, Tensor):
        return obj.type()
    cls = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(cls, "__module__", "") or ""
    return cls.__qualname__ if module in ("", "builtins", "__builtin__") else f"{module}.{cls.__qualname__}"


def set_num_threads(n: int) -> None:
    """The cpu device has one thread: any other number is an error."""
    if n != 1:
        import warnings

        warnings.warn("tabtorch's cpu device has one thread; set_num_threads has no effect", stacklevel=2)


def get_num_threads() -> int:
    return 1


_precision = "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """ "highest", "high" or "medium". All compute in float32, which the two lower ones permit, but for adapters with Chromium's
    experimental subgroup matrices and `shader-f16`: there the lower ones split each float32 in two halves of 16 bits, of 22 bits
    together. Numbers beyond 65504 become infinite then, and those below 2^-13 are 2^-36 off at most."""
    global _precision
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"Invalid float32_matmul_precision: {precision}")
    _precision = precision
    if _lazy.engine_target.permit(precision != "highest"):
        _lazy.engine_graph.replan()


def get_float32_matmul_precision() -> str:
    return _precision


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__config__":
        raise AttributeError(f"module 'torch' has no attribute '{name}'")
    place = _ELSEWHERE.get(name)
    value: Any
    if name == "torch":  # `torch.torch`, as PyTorch has it by accident and some code writes it
        value = sys.modules[__name__]
    elif place is not None:
        value = getattr(_submodule(place, name), name)
    elif name in _MODULES:
        return _submodule(name, name)
    elif not _core.known(name) and importlib.util.find_spec("tabtorch." + name) is not None:
        # `from tabtorch import name` of a submodule comes here first: it must not load every operation
        return importlib.import_module("tabtorch." + name)
    else:
        value = _core.public(name)
        if value is None:
            hint = "" if name.startswith("_") else " (if PyTorch has it: tabtorch does not have it yet)"
            raise _core.Missing(f"module 'torch' has no attribute '{name}'{hint}")
    globals()[name] = value
    return value


def _submodule(module: str, name: str) -> Any:
    try:
        return importlib.import_module("tabtorch." + module)
    except ModuleNotFoundError as e:
        if e.name != "tabtorch." + module:
            raise
        raise _core.Missing(f"module 'torch' has no attribute '{name}' (tabtorch does not have it yet)") from None


def __dir__() -> list[str]:
    there = [m for m in _MODULES if importlib.util.find_spec("tabtorch." + m) is not None]
    functions = [f for f in _core.all_functions() if not f.startswith("__")]
    return sorted({*globals(), *_ELSEWHERE, *there, *functions})


__all__ = [
    "AcceleratorError",
    "OutOfMemoryError",
    "Size",
    "Tensor",
    "__version__",
    "autograd",
    "can_cast",
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "device",
    "dtype",
    "enable_grad",
    "finfo",
    "get_default_dtype",
    "iinfo",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "jagged",
    "layout",
    "memory_format",
    "no_grad",
    "preserve_format",
    "promote_types",
    "set_default_device",
    "set_grad_enabled",
    "sparse_bsc",
    "sparse_bsr",
    "sparse_coo",
    "sparse_csc",
    "sparse_csr",
    "strided",
]

if "schedule" in os.environ.get("TABTORCH_DEBUG", ""):
    _lazy.schedules  # noqa: B018  # prints what the engine makes of each window, from now on
