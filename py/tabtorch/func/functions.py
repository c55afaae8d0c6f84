"""Custom `autograd.Function`s under transforms: their `vmap` staticmethod, and what they must define."""

from __future__ import annotations

from typing import Any, NamedTuple

from tabtorch.autograd.function import Function
from tabtorch.base.thread_state import STATE
from tabtorch.core.tensor import Tensor
from tabtorch.func.batch import enter, leave, unwrap_level
from tabtorch.utils import _pytree as pytree

_MORE = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"


class VmapInfo(NamedTuple):
    """What a `vmap` staticmethod is told: the size of the batch, and `vmap`'s randomness."""

    batch_size: int
    randomness: str


def apply(cls: Any, args: tuple[Any, ...]) -> Any:
    """`cls.apply(*args)` by its `vmap` staticmethod; NotImplemented where it can run as it is. RuntimeError as PyTorch's."""
    if cls.setup_context is Function.setup_context:
        raise RuntimeError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must override "
            f"the setup_context staticmethod. {_MORE}"
        )
    flat, spec = pytree.tree_flatten(args)
    tensors = [t for t in flat if isinstance(t, Tensor)]
    own = [level for level in STATE.levels if any(unwrap_level(t._tab_storage.node, level) for t in tensors)]
    if not own:
        return NotImplemented
    overridden = cls.vmap is not Function.vmap
    if cls.generate_vmap_rule:
        if overridden:
            raise RuntimeError(
                f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overridden vmap "
                "staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid "
                f"ambiguity. {_MORE}"
            )
        return NotImplemented
    if not overridden:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and implement the "
            f"vmap staticmethod or set generate_vmap_rule=True. {_MORE}"
        )
    level = own[-1]
    dims = [
        0 if isinstance(t, Tensor) and (t._tab_requires_grad or unwrap_level(t._tab_storage.node, level)) else None
        for t in flat
    ]
    every = [t if d is None else leave(t, level) for t, d in zip(flat, dims)]
    before, STATE.levels = STATE.levels, tuple([x for x in STATE.levels if x is not level])
    try:
        result = cls.vmap(
            VmapInfo(level.size, level.randomness),
            pytree.tree_unflatten(dims, spec),
            *pytree.tree_unflatten(every, spec),
        )
    finally:
        STATE.levels = before
    if not isinstance(result, tuple) or len(result) != 2:
        got = f"a tuple with {len(result)} elements" if isinstance(result, tuple) else f"{type(result)}"
        raise RuntimeError(
            "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible with "
            f"the output. Got {got} instead"
        )
    out, out_dims = result
    leaves, out_spec = pytree.tree_flatten(out)
    where = pytree._broadcast_to_and_flatten(out_dims, out_spec)
    if where is None:
        raise RuntimeError(
            "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. Expected "
            f"out_dims={out_dims} to be compatible with the structure of `output`. out_dims has structure "
            f"{pytree.tree_flatten(out_dims)[1]} but output has structure {out_spec}. {_MORE}"
        )
    return pytree.tree_unflatten(
        [t if d is None else enter(t, level, d % t.dim()) for t, d in zip(leaves, where)], out_spec
    )


__all__ = ["VmapInfo", "apply"]
