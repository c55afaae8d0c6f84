"""Devices: `webgpu` (the GPU, through the bridge) and `cpu` (the same kernels as JavaScript)."""

from __future__ import annotations

from typing import Any

_cuda_alias = False  # set by tabtorch.install(): "cuda" then means webgpu


class device:
    """`torch.device(type, index)`. Types: "webgpu", "cpu", and after install() "cuda", which means "webgpu"."""

    __slots__ = ("index", "number", "public", "type")

    type: str
    index: int | None
    number: int  # as in the command stream: 0 webgpu, 1 cpu; devices of one number are one device
    public: device  # what `Tensor.device` shows
    _known: dict[tuple[str, int | None], device] = {}

    def __new__(cls, type: Any = None, index: int | None = None, **kw: Any) -> device:
        if isinstance(type, device):
            return type
        if isinstance(type, int):
            type, index = default_device().type, type
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
            name = "webgpu"
        if name not in ("webgpu", "cpu", "meta"):
            if name == "cuda":
                raise RuntimeError("Torch not compiled with CUDA enabled")
            raise RuntimeError("Expected one of cpu, cuda, webgpu device type at start of device string: " + name)
        if index not in (None, 0):
            if name == "cpu":
                raise RuntimeError(f"CPU device index must be -1 or zero, got {index}")
            raise RuntimeError(f"invalid device ordinal: {name} has one device, index {index} was asked for")
        known = cls._known.get((name, index))
        if known is None:
            known = object.__new__(cls)
            known.type = name
            known.index = index
            known.number = 0 if name == "webgpu" else 1
            known.public = known
            cls._known[name, index] = known
        return known

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + ("" if self.index is None else f", index={self.index}") + ")"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self) -> Any:
        return (device, (str(self),))

    def __deepcopy__(self, memo: Any) -> device:
        return self

    def __enter__(self) -> device:
        _stack.append(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        _stack.pop()


_stack: list[device] = []
_chosen: device | None = None

cpu = device("cpu")
webgpu = device("webgpu", 0)


def _roaming() -> device:
    d = object.__new__(device)
    d.type, d.index, d.number, d.public = "cpu", None, 1, cpu
    return d


#: cpu, for 64-bit floats that named no device: they are there only until they are converted to a type that webgpu has.
#: It is the cpu in every other way, and results of operations have it if an operand has.
roaming = _roaming()


def default_device() -> device:
    """Where tensors with no device named are made: webgpu where an adapter exists, else cpu."""
    global _chosen
    if _stack:
        return resolve(_stack[-1])
    if _chosen is None:
        from .bridge import get_bridge

        _chosen = webgpu if get_bridge().info.get("webgpu") else cpu
    return _chosen


def set_default_device(d: Any) -> None:
    """`torch.set_default_device`. None goes back to the automatic choice."""
    global _chosen
    _chosen = None if d is None else resolve(d)


def resolve(d: Any) -> device:
    """A device argument -> the one device object tensors carry. Raises RuntimeError if it is not there."""
    d = default_device() if d is None else device(d)
    if d.type == "cpu":
        return d if d is roaming else cpu
    if d.type == "webgpu":
        from .bridge import get_bridge

        if not get_bridge().info.get("webgpu"):
            why = get_bridge().info.get("reason") or "no adapter was found"
            raise RuntimeError(f"No WebGPU device is available ({why}); use device='cpu'.")
        return webgpu
    raise NotImplementedError(f"device type '{d.type}' is not supported by tabtorch")
