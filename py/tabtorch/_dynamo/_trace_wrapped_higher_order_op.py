"""`TransformGetItemToIndex`, by the name under which PyTorch has it."""

from __future__ import annotations

from contextlib import nullcontext


class TransformGetItemToIndex(nullcontext[None]):
    """A with block in which `x[i]` takes an index `i` that `vmap` maps over. Here it always may be one: nothing is switched."""
