"""`torch._C`: in PyTorch the compiled module, of which other packages ask a few things. There is no more of it than this."""

from __future__ import annotations

import enum
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE as _STATE
from tabtorch.base.device import device
from tabtorch.base.dtypes import dtype
from tabtorch.base.thread_state import STATE
from tabtorch.core.layout import layout, memory_format
from tabtorch.core.tensor import TensorMeta as _TensorMeta
from tabtorch.core.tensor import disabled_torch_function as _disabled_torch_function_impl
from tabtorch.engine.view import Size
from tabtorch.random import Generator

__all__ = [
    "DispatchKey",
    "DispatchKeySet",
    "Generator",
    "Size",
    "_TensorMeta",
    "_disabled_torch_function_impl",
    "device",
    "dtype",
    "layout",
    "memory_format",
]


#: what PyTorch was built for
_has_cuda = _has_mps = _has_xpu = False


def _get_tracing_state() -> None:
    """None: nothing is traced by `torch.jit.trace`."""


def _is_tracing() -> bool:
    """False, likewise."""
    return False


#: what a script set of TorchScript's executor; scripted functions run as the Python they are, whatever it is
_jit_profiling = {"executor": True, "mode": True}


def _jit_set_profiling_executor(value: bool) -> bool:
    """How TorchScript's graphs are run, and there are none here. What was set before."""
    before, _jit_profiling["executor"] = _jit_profiling["executor"], value
    return before


def _jit_set_profiling_mode(value: bool) -> bool:
    """Whether TorchScript's graphs are specialized by what they see, likewise."""
    before, _jit_profiling["mode"] = _jit_profiling["mode"], value
    return before


def _jit_override_can_fuse_on_cpu(value: bool) -> None:
    """Whether TorchScript's graphs are fused, likewise."""


_jit_override_can_fuse_on_gpu = _jit_set_texpr_fuser_enabled = _jit_override_can_fuse_on_cpu


def _current_graph_task_id() -> int:
    """The number of the backward pass that is running, or -1."""
    return -1 if STATE.task is None else int(STATE.task[0])


class Value:
    """RuntimeError: a value in TorchScript's graphs, which are PyTorch's. It is there for annotations."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("torch._C.Value: tabtorch has no TorchScript graphs")


class Graph:
    """RuntimeError: a graph of TorchScript, which are PyTorch's. It is there for annotations."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("torch._C.Graph: tabtorch has no TorchScript graphs")


class TensorType:
    """RuntimeError: the type of a tensor in TorchScript's graphs, which are PyTorch's. It is there for annotations."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("torch._C.TensorType: tabtorch has no TorchScript graphs")


def _log_api_usage_once(event: str) -> None:
    """Nothing is logged, as in PyTorch unless a logger was put in."""


def _get_privateuse1_backend_name() -> str:
    """The type of a device that extends PyTorch: its name while there is none."""
    return "privateuseone"


def _are_functorch_transforms_active() -> bool:
    """Whether a function is being called inside of `torch.func`'s transforms."""
    return bool(STATE.nesting)


class DispatchKey(enum.Enum):
    """Which kernel of an operator is meant. Only the keys of `torch.library` and of autocast mean something here."""

    CPU = 1
    CUDA = 2
    Meta = 3
    CompositeExplicitAutograd = 4
    CompositeImplicitAutograd = 5
    Autograd = 6
    AutogradCPU = 7
    AutogradCUDA = 8
    AutocastCPU = 9
    AutocastCUDA = 10
    AutocastXPU = 11
    AutocastMPS = 12
    AutocastPrivateUse1 = 13
    PrivateUse1 = 14
    BackendSelect = 15
    Functionalize = 16
    Python = 17
    ADInplaceOrView = 18
    Undefined = 19
    AutogradMeta = 20
    AutogradFunctionality = 21
    FuncTorchBatched = 22
    FuncTorchGradWrapper = 23
    PythonDispatcher = 24
    PythonTLSSnapshot = 25
    PreDispatch = 26
    XPU = 27
    MPS = 28
    XLA = 29


class DispatchKeySet:
    """A set of dispatch keys."""

    def __init__(self, key: DispatchKey | frozenset[DispatchKey]) -> None:
        self._keys = frozenset({key} if isinstance(key, DispatchKey) else key)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys | other._keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys & other._keys)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys - other._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether it has that key."""
        return key in self._keys

    def add(self, key: DispatchKey) -> DispatchKeySet:
        """The set with that key too."""
        return DispatchKeySet(self._keys | {key})

    def remove(self, key: DispatchKey) -> DispatchKeySet:
        """The set without that key."""
        return DispatchKeySet(self._keys - {key})

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(sorted(k.name for k in self._keys))})"


class _ExcludeDispatchKeyGuard:
    """A context in which operators of `torch.library` pass over their kernels for these keys."""

    def __init__(self, keys: DispatchKeySet) -> None:
        self._names = {k.name for k in keys._keys}

    def __enter__(self) -> None:
        self._before = _lazy.library.EXCLUDED.names
        _lazy.library.EXCLUDED.names = self._before | self._names

    def __exit__(self, *exc: Any) -> None:
        _lazy.library.EXCLUDED.names = self._before


class _AutoDispatchBelowAutograd:
    """A context in which operators of `torch.library` pass over their kernels for autograd, and nothing is recorded for it."""

    def __enter__(self) -> None:
        self._before, self._grad = _lazy.library.EXCLUDED.names, _STATE.grad
        _lazy.library.EXCLUDED.names = self._before | {"Autograd", "AutogradCPU", "AutogradCUDA", "AutogradMeta"}
        _STATE.grad = False

    def __exit__(self, *exc: Any) -> None:
        _lazy.library.EXCLUDED.names, _STATE.grad = self._before, self._grad


def _dispatch_has_kernel_for_dispatch_key(name: str, key: str) -> bool:
    """Whether an operator of `torch.library` has a kernel for a key. RuntimeError for an operator that does not exist."""
    return key in _lazy.library._found(name, "kernels")._kernels


def __getattr__(name: str) -> Any:
    if name in ("DisableTorchFunction", "DisableTorchFunctionSubclass"):
        return getattr(_lazy.overrides, name)
    if name == "_nn":
        from types import SimpleNamespace

        return SimpleNamespace(_parse_to=_lazy._traverse._parse_to)
    raise AttributeError(f"module 'torch._C' has no attribute '{name}' (tabtorch has no compiled module)")
