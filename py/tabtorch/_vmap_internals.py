"""Where `torch.vmap` was before `torch.func`; libraries still import `_vmap` from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch.func import vmap


def _vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, allow_none_pass_through: bool = False
) -> Callable[..., Any]:
    """`torch.vmap(func, in_dims, out_dims)`. With `allow_none_pass_through` a result of None stays None."""
    if not allow_none_pass_through:
        return vmap(func, in_dims, out_dims)

    def call(*args: Any) -> Any:
        absent: Any = None

        def inner(*inputs: Any) -> Any:
            nonlocal absent
            r = func(*inputs)
            if not isinstance(r, tuple):
                absent = r is None
                return () if r is None else r
            absent = [x is None for x in r]
            return tuple(x for x in r if x is not None)

        dims = out_dims
        r = vmap(inner, in_dims, dims)(*args)
        if absent is True:
            return None
        if not isinstance(absent, list):
            return r
        given = iter(r if isinstance(r, tuple) else (r,))
        return tuple(None if a else next(given) for a in absent)

    return call


__all__ = ["vmap"]
