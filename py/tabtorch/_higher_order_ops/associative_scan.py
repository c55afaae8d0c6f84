"""`associative_scan`: all prefixes of x₀ ∘ x₁ ∘ … at a depth that is logarithmic in their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tabtorch as torch
from tabtorch import Tensor
from tabtorch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """The inclusive scan of the slices of `xs` along `dim` with an associative `combine_fn(left, right)`.

    xs: a tensor, or a tree of them of one size along `dim`; the result is the same. reverse: from the end.
    combine_mode: "pointwise" (tensors on the GPU) or "generic"; `combine_fn` sees one slice at a time in both, through `vmap`.
    """
    leaves, spec = tree_flatten(xs)
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise ValueError("Dim must be an int, but got " + str(type(dim)))
    if not isinstance(reverse, bool):
        raise RuntimeError("Reverse must be a bool, but got " + str(type(reverse)))
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    if any(not isinstance(x, Tensor) for x in leaves):
        raise ValueError("xs leaves must be a Tensor")
    if combine_mode == "pointwise" and any(x.device.type == "cpu" for x in leaves):
        raise ValueError("For combine_mode='pointwise', all input tensors need to be on CUDA or XPU")
    dim = dim % leaves[0].ndim
    if any(x.ndim <= dim or x.shape[dim] == 0 for x in leaves):
        raise ValueError("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")
    mapped = torch.vmap(combine_fn)

    def combine(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
        made = tree_leaves(mapped(tree_unflatten(left, spec), tree_unflatten(right, spec)))
        if len(made) != len(left):
            raise RuntimeError(
                f"The number of leaves of the pytree of the output of the operator needs to match the length of the pytree "
                f"of the input: expected {len(left)}, got {len(made)}"
            )
        return made

    moved = [x.movedim(dim, 0) for x in leaves]
    if reverse:
        moved = [x.flip(0) for x in moved]
    out = _scan(combine, moved)
    if reverse:
        out = [x.flip(0) for x in out]
    return tree_unflatten([x.movedim(0, dim) for x in out], spec)


def _scan(combine: Callable[[list[Tensor], list[Tensor]], list[Tensor]], xs: list[Tensor]) -> list[Tensor]:
    """Pairs are combined, the pairs are scanned, and the places between follow from those (Blelloch's scan)."""
    n = xs[0].shape[0]
    if n < 2:
        return xs
    pairs = combine([x[: n - 1 : 2] for x in xs], [x[1::2] for x in xs])
    odd = _scan(combine, pairs)  # the prefixes that end at 1, 3, 5, …
    rest = n - n // 2 - 1  # how many end at 2, 4, …
    even = [x[:1] for x in xs]
    if rest:
        even = [torch.cat([e, t]) for e, t in zip(even, combine([x[:rest] for x in odd], [x[2::2] for x in xs]))]
    return [_interleaved(e, o) for e, o in zip(even, odd)]


def _interleaved(even: Tensor, odd: Tensor) -> Tensor:
    """e₀ o₀ e₁ o₁ …, where there is as much of `even`, or one more."""
    n = odd.shape[0]
    both = torch.stack([even[:n], odd], 1).flatten(0, 1)
    return both if even.shape[0] == n else torch.cat([both, even[n:]])
