"""`torch._functorch.vmap`: names that other packages import, over `func/mapping.py`. A level is an object here, and no number."""

from __future__ import annotations

from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.func.batch import Level, enter, leave
from tabtorch.func.mapping import _check_randomness as _check_randomness_arg
from tabtorch.func.mapping import _name as _get_name
from tabtorch.func.mapping import _output, vmap
from tabtorch.utils._pytree import TreeSpec, _broadcast_to_and_flatten, tree_flatten, tree_map_, tree_unflatten

__all__ = [
    "Tensor",
    "TreeSpec",
    "_add_batch_dim",
    "_broadcast_to_and_flatten",
    "_check_randomness_arg",
    "_get_name",
    "_maybe_remove_batch_dim",
    "_remove_batch_dim",
    "tree_flatten",
    "tree_map_",
    "tree_unflatten",
    "vmap",
]


def _add_batch_dim(self: Tensor, batch_dim: int, level: Level) -> Tensor:
    """One example of a tensor along a dimension."""
    return enter(self, level, batch_dim % self.dim())


def _remove_batch_dim(self: Tensor, level: Level, batch_size: int, out_dim: int) -> Tensor:
    """All examples of a tensor, along a new dimension."""
    return leave(self, level, out_dim % (self.dim() + 1))


def _maybe_remove_batch_dim(
    name: str, batched_output: Any, vmap_level: Level, batch_size: int, out_dim: int | None
) -> Any:
    """The same for a result of a function of that name. ValueError where None is the dimension, and the examples differ."""
    return _output(name, batched_output, out_dim, vmap_level)
