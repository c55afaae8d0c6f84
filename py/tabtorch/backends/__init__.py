"""`torch.backends`: what scripts ask of the libraries below PyTorch. There are none: the engine is one of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tabtorch.backends import cuda, cudnn, mps

__all__ = [
    "cpu",
    "cuda",
    "cudnn",
    "mha",
    "mkl",
    "mkldnn",
    "mps",
    "nnpack",
    "openmp",
    "opt_einsum",
    "quantized",
    "xnnpack",
]

fp32_precision = "none"


def flags_frozen() -> bool:
    """False: the flags may be set."""
    return False


@contextmanager
def __allow_nonbracketed_mutation() -> Iterator[None]:
    """A with block in which flags may be set, as they may be anywhere; monai asks for it."""
    yield


class _Backend(ModuleType):
    """A library that is not there: its flags can be set, and choose nothing."""

    def __init__(self, name: str, **flags: Any) -> None:
        super().__init__(f"{__name__}.{name}", f"`torch.backends.{name}`: not there; its flags choose nothing.")
        self.__dict__.update(flags)
        self._flags = flags
        self.__spec__ = ModuleSpec(self.__name__, None)
        sys.modules[self.__name__] = self

    def is_available(self) -> bool:
        """False."""
        return False

    def get_flags(self) -> dict[str, Any]:
        """The flags as they are."""
        return {name: getattr(self, name) for name in self._flags}

    @contextmanager
    def flags(self, *args: Any, **new: Any) -> Iterator[None]:
        """Sets flags for the length of a with block."""
        before = self.get_flags()
        self.__dict__.update(zip(before, args), **new)
        try:
            yield
        finally:
            self.__dict__.update(before)


mkldnn = _Backend("mkldnn", enabled=True, deterministic=False, allow_tf32=True, fp32_precision="none")
mkl = _Backend("mkl")
openmp = _Backend("openmp")
nnpack = _Backend("nnpack", enabled=False)
xnnpack = _Backend("xnnpack", enabled=False)
quantized = _Backend("quantized", engine="none", supported_engines=["none"])
opt_einsum = _Backend("opt_einsum", enabled=False, strategy=None)
mha = _Backend("mha", fastpath=True)
cpu = _Backend("cpu")
mha.__dict__.update(
    get_fastpath_enabled=lambda: mha.fastpath, set_fastpath_enabled=lambda value: setattr(mha, "fastpath", value)
)
# what libraries ask it for: whether bytes are resized as bytes, with weights of 16 bits, as PyTorch does on every present machine
cpu.__dict__.update(get_cpu_capability=lambda: "AVX2")
