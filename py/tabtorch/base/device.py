"""Devices: `webgpu` (the GPU, through the bridge) and `cpu` (the same kernels as JavaScript).

A tensor for which the script named no device has an implicit one. It lies on webgpu, or on the cpu while it is of a type that the GPU
lacks; beside a tensor whose device was named it goes there, as in PyTorch, where both were on the cpu. Two tensors whose
devices were named, and differ, are PyTorch's error. operand_devices.py has the rules.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from tabtorch.base import dtypes
from tabtorch.base.thread_state import kind


class Backend(NamedTuple):
    """What computes: its name, its number in commands to the runtime, and the class that writes its kernels' text.

    lacks: names of the types that it does not have. host: a number on it may stand beside tensors of other devices, and random
    streams are made for it, as PyTorch has both for its cpu.
    """

    name: str
    number: int
    renderer: str
    lacks: frozenset[str] = frozenset()
    host: bool = False


#: every device that computes, by its number: to add one is a line here, a renderer, and a file of js/src/devices
BACKENDS = {
    b.number: b
    for b in (
        Backend("webgpu", 0, "tabtorch.engine.wgsl.Wgsl", lacks=frozenset({"float64", "complex128"})),
        Backend("cpu", 1, "tabtorch.engine.js.JavaScript", host=True),
    )
}
#: of the device that has shapes and dtypes, and no values
_META = 2


def _number_of(name: str) -> int | None:
    """The number of a device that is there; None for another name."""
    return _META if name == "meta" else next((n for n, b in BACKENDS.items() if b.name == name), None)


_cuda_alias = False  # set by tabtorch.install(): "cuda" then means webgpu


class device:
    """`torch.device(type, index)`. Types: "webgpu", "cpu", "meta", and after install() "cuda", which is webgpu under its PyTorch name.

    Other types of PyTorch's can be named, and making something there is the error. RuntimeError for a type that is none.
    """

    __slots__ = ("tensor_device", "host", "index", "number", "public", "implicit", "type")

    type: str
    index: int | None
    number: (
        int  # as in the command stream, see BACKENDS (and in none: 2 meta, -1 elsewhere); those of one number are one
    )
    host: bool  # see Backend
    implicit: bool  # of tensors that named no device
    public: device  # what `Tensor.device` shows of it
    tensor_device: (
        device  # the object that tensors made there have as their device, so that devices are compared by identity
    )
    _known: dict[tuple[str, int | None], device] = {}

    def __new__(cls, type: Any = None, index: int | None = None, **kw: Any) -> device:
        if isinstance(type, device):
            return type
        if isinstance(type, int):
            type, index = "cuda" if _cuda_alias else default_device().type, type
        if not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' (position 1) must be str, not {type.__class__.__name__}")
        name = type
        if ":" in name:
            if index is not None:
                raise RuntimeError(
                    f"type (string) must not include an index because index was passed explicitly: {type}"
                )
            name, _, tail = name.partition(":")
            if not tail.isdigit():
                raise RuntimeError(f"Invalid device string: '{type}'")
            index = int(tail)
        if name == "cuda" and _cuda_alias:
            name = _CUDA
        elif _number_of(name) is None:
            if not name:
                raise RuntimeError("Device string must not be empty")
            if not name.replace("_", "").isalpha():
                raise RuntimeError(f"Invalid device string: '{type}'")
            if (
                name not in _ELSEWHERE
            ):  # PyTorch too has the name of another backend in the last place, where there is one
                raise RuntimeError(f"Expected one of {_NAMES}, webgpu device type at start of device string: {name}")
            return _made(name, index, -1)
        if index not in (None, 0):
            if name == "cpu":
                raise RuntimeError(f"CPU device index must be -1 or zero, got {index}")
            raise RuntimeError(f"invalid device ordinal: {name} has one device, index {index} was asked for")
        if name is _CUDA:
            return _cuda if index is None else cuda.public
        known = cls._known.get((name, index))
        if known is None:
            known = cls._known[name, index] = _made(name, index, _number_of(name) or 0)
        return known

    def lacks(self, dtype: Any) -> bool:
        """Whether it has no values of that type."""
        number = self.number
        return number in BACKENDS and dtype.name in BACKENDS[number].lacks

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + ("" if self.index is None else f", index={self.index}") + ")"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self) -> Any:
        return (device, (str(self),))

    def __deepcopy__(self, memo: Any) -> device:
        return self

    def __enter__(self) -> device:
        global _named
        _named = True
        _default.stack.append(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        _default.stack.pop()


class _Type(str):
    """The type "cuda", where that means webgpu: equal to both names, so that code that asks for either takes the way of the GPU."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str.__str__(other) in ("cuda", "webgpu")

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class _Shown(device):
    """What `Tensor.device` shows where it is not what the tensor carries; equal to the device that it is in truth."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash(device._known[BACKENDS[self.number].name, self.index])


def _made(name: str, index: int | None, number: int, cls: type[device] = device) -> device:
    d = object.__new__(cls)
    d.type, d.index, d.number, d.implicit = name, index, number, False
    backend = BACKENDS.get(number)
    d.host = backend is not None and backend.host
    d.public = d.tensor_device = d
    return d


def _another(on: device, name: str, implicit: bool) -> device:
    """A device object for tensors on `on` that show `name` as its type."""
    d, shown = _made(on.type, on.index, on.number), _made(name, on.index, on.number, _Shown)
    d.implicit = shown.implicit = implicit
    d.public, shown.tensor_device = shown, d
    return d


#: what PyTorch lets be named, though nothing can be made there
_NAMES = (
    "cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, vulkan, mps, meta, hpu, mtia"
)
_ELSEWHERE = frozenset({*_NAMES.split(", "), "privateuseone"}) - {"cpu", "meta"}
_CUDA = _Type("cuda")


class _Default(threading.local):
    """Of a thread: what it has chosen, and the `with` blocks of devices that it is in. The automatic choice is one for all."""

    def __init__(self) -> None:
        self.stack: list[device] = []
        self.chosen: device | None = None


_default = _Default()


def _kept() -> Any:
    return _default.stack[:], _default.chosen


def _restore(values: Any) -> None:
    _default.stack[:], _default.chosen = values


kind(_kept, _restore)
_automatic: device | None = None
#: whether any thread ever chose
_named = False

cpu = device("cpu")
webgpu = device("webgpu", 0)
device("webgpu").tensor_device = webgpu
meta = device("meta")  # shapes and dtypes without values

#: the GPU, of scripts that named it "cuda"
cuda = _another(webgpu, _CUDA, False)
_cuda = _made(_CUDA, None, 0, _Shown)
_cuda.tensor_device = cuda
#: the devices of tensors for which none was named. What is made on the device that they show has an implicit one, too
implicit_webgpu = _another(webgpu, "webgpu", True)
implicit_cpu = _another(cpu, "cpu", True)


def check_has(on: device, dtype: Any, name: str = "") -> None:
    """TypeError for a type that `on` lacks: 64-bit floats on webgpu. name: of the operation that would make it."""
    backend = BACKENDS.get(on.number)
    if backend is not None and dtype.name in backend.lacks:
        raise TypeError(
            f"{name + ': ' if name else ''}{dtype.name} is not available on {BACKENDS[on.number].name} (WGSL has no 64-bit floats): "
            f"use {'float32' if dtype.name == 'float64' else 'complex64'}, or device='cpu'"
        )


def default_device() -> device:
    """Where tensors with no device named are made: webgpu, implicit, where an adapter exists, else cpu."""
    global _automatic
    chosen = None
    if _named:
        own = _default
        if own.stack:
            return resolve(own.stack[-1])
        chosen = own.chosen
    if chosen is None:
        if _automatic is None:
            from tabtorch.bridge import get_bridge

            _automatic = implicit_webgpu if get_bridge().info.get("webgpu") else cpu
        chosen = _automatic
    if dtypes.get_default_dtype() is dtypes.float64 and chosen is implicit_webgpu:
        return implicit_cpu  # the GPU lacks what most results would be
    return chosen


def set_default_device(device: Any) -> None:
    """`torch.set_default_device`, for this thread. None goes back to the automatic choice, which is made anew."""
    global _automatic, _named
    _named = True
    if device is None:
        _automatic = None
    _default.chosen = None if device is None else resolve(device)


def resolve(d: Any) -> device:
    """A device argument -> the one device object tensors carry. Raises RuntimeError if it is not there."""
    d = default_device() if d is None else device(d)
    if d.number < 0:
        if d.type in ("cuda", "xpu"):
            raise AssertionError(f"Torch not compiled with {d.type.upper()} enabled")
        raise RuntimeError(f"PyTorch is not linked with support for {d.type} devices")
    if d.type in (webgpu.type, _CUDA) and not d.implicit:
        from tabtorch.bridge import get_bridge

        if not get_bridge().info.get("webgpu"):
            why = get_bridge().info.get("reason") or "no adapter was found"
            raise RuntimeError(f"No WebGPU device is available ({why}); use device='cpu'.")
    return d.tensor_device
