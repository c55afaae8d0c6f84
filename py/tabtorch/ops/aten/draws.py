"""Random numbers as functions of a tensor whose shape and type they have; what PyTorch writes in place gives a new tensor here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch import ops
from tabtorch.base import dtypes
from tabtorch.ops.aten.table import ADAPTERS, Tensor, aten


def _functional(method: str) -> Callable[..., Tensor]:
    def draw(self: Tensor, *args: Any, generator: Any = None, **kw: Any) -> Tensor:
        return getattr(ops.empty_like(self), method)(*args, generator=generator, **kw)

    return draw


for _name in ("uniform", "exponential", "geometric", "cauchy", "log_normal", "random"):
    ADAPTERS[_name] = _functional(_name + "_")
ADAPTERS["normal_functional"] = _functional("normal_")
ADAPTERS["bernoulli.Tensor"] = _functional("bernoulli_")


@aten("random.from")
def _random_from(self: Tensor, start: int, to: int | None, *, generator: Any = None) -> Tensor:
    """Integers from `start` to below `to`, or to what the type holds."""
    return _random_from_(ops.empty_like(self), start, to, generator=generator)


@aten("random_.from")
def _random_from_(self: Tensor, start: int, to: int | None, *, generator: Any = None) -> Tensor:
    return self.random_(start, to, generator=generator)


@aten("_fused_dropout")
def _fused_dropout(self: Tensor, p: float, generator: Any = None) -> tuple[Tensor, Tensor]:
    """(x with each element kept with chance p, times 1 / p; which were kept, uint8)."""
    mask = ops.empty_like(self).bernoulli_(p, generator=generator)
    return self * mask * (1 / p), mask.to(dtypes.uint8)


@aten("_masked_scale")
def _masked_scale(self: Tensor, mask: Tensor, scale: float) -> Tensor:
    return self * mask.to(self.dtype) * scale
