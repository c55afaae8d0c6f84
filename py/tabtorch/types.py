"""`torch.types`: names for the types of arguments, as annotations write them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO, TypeAlias

from tabtorch.autograd.graph import GradientEdge
from tabtorch.base.device import device as _device
from tabtorch.base.dtypes import dtype
from tabtorch.core.layout import layout
from tabtorch.core.tensor import Tensor
from tabtorch.engine.view import Size
from tabtorch.storage import UntypedStorage as Storage

__all__ = ["Device", "FileLike", "Number", "Storage"]

# the built-in types, and torch's, by names that no argument hides
_bool, _bytes, _complex, _float, _int, _str = bool, bytes, complex, float, int, str
_dtype, _layout = dtype, layout


class SymInt:
    """A size that is not known yet. No object is one: sizes are numbers here, in `torch.compile` too."""


class SymFloat:
    """A number that is not known yet. No object is one."""


class SymBool:
    """A truth that is not known yet. No object is one."""


py_sym_types = (SymInt, SymFloat, SymBool)

_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_TensorOrOptionalTensors: TypeAlias = Tensor | Sequence[Tensor | None]
_TensorOrTensorsOrGradEdge: TypeAlias = Tensor | Sequence[Tensor] | GradientEdge | Sequence[GradientEdge]
_size: TypeAlias = Size | list[int] | tuple[int, ...]

Number: TypeAlias = int | float | bool
_Number = (int, float, bool)
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
Device: TypeAlias = _device | str | int | None

_symsize: TypeAlias = Size | Sequence[int | SymInt]
IntLikeType: TypeAlias = int | SymInt
FloatLikeType: TypeAlias = float | SymFloat
BoolLikeType: TypeAlias = bool | SymBool
PySymType: TypeAlias = SymInt | SymFloat | SymBool
