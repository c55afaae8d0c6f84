"""`torch._subclasses.fake_tensor`: whether a tensor is one without values, made by a tracing compiler. None is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tabtorch.core.tensor import Tensor

__all__ = ["FakeTensor", "is_fake", "unset_fake_temporarily"]


class FakeTensor(Tensor):
    """RuntimeError: nothing here traces with such tensors. `device="meta"` gives tensors without values."""

    def __new__(cls, *args: Any, **kwargs: Any) -> FakeTensor:
        raise RuntimeError('FakeTensor: tabtorch does not trace with tensors without values; use device="meta"')


def is_fake(x: object) -> bool:
    """Whether `x` is a FakeTensor: False for whatever there is."""
    return isinstance(x, FakeTensor)


@contextmanager
def unset_fake_temporarily() -> Iterator[None]:
    """A context outside of any tracing with such tensors, as everything is here."""
    yield
