"""`torch.utils.cpp_extension`: libraries import it to build operators in C++ or CUDA where that can be. Here it cannot: whatever
would compile or load one is a RuntimeError, so that they go on without, or say so."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = [
    "BuildExtension",
    "CUDA_HOME",
    "CUDAExtension",
    "CppExtension",
    "IS_WINDOWS",
    "ROCM_HOME",
    "SyclExtension",
    "check_compiler_is_gcc",
    "get_default_build_root",
    "include_paths",
    "is_ninja_available",
    "library_paths",
    "load",
    "load_inline",
    "verify_ninja_availability",
]

#: where toolkits are installed: none is looked for
CUDA_HOME: str | None = None
ROCM_HOME: str | None = None
IS_WINDOWS = False


def _refuse(what: str) -> NoReturn:
    raise RuntimeError(f"torch.utils.cpp_extension: {what}: tabtorch is Python and runs no compiled extensions")


def load(name: str, sources: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError."""
    _refuse(f"{name!r} cannot be built")


def load_inline(name: str, cpp_sources: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError."""
    _refuse(f"{name!r} cannot be built")


def CppExtension(name: str, sources: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError, as `CUDAExtension` and `SyclExtension`: there are no headers and no library to build against."""
    _refuse(f"{name!r} cannot be built")


CUDAExtension = SyclExtension = CppExtension


class BuildExtension:
    """A command of setuptools. RuntimeError when one is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("there is nothing to build against")

    @classmethod
    def with_options(cls, **options: Any) -> type[BuildExtension]:
        """Itself: options matter to a build."""
        return cls


def include_paths(*args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError: there are no headers."""
    _refuse("there are no headers")


def library_paths(*args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError: there are no libraries."""
    _refuse("there are no libraries")


def get_default_build_root() -> NoReturn:
    """RuntimeError: nothing is built."""
    _refuse("nothing is built")


def is_ninja_available() -> bool:
    """False: nothing is built."""
    return False


def verify_ninja_availability() -> NoReturn:
    """RuntimeError, as PyTorch's where there is no ninja."""
    raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")


def check_compiler_is_gcc(compiler: str) -> bool:
    """False: no compiler is asked."""
    return False
