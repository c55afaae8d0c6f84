"""What is looked up in a tensor whose gradient is sparse: one element, or one row, for each index."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.tape import needs_record, record
from tabtorch.sparse.tensor import COO, made


def gradient(g: Any, indices: Any, rows: int, padding_idx: int = -1, scale_grad_by_freq: bool = False) -> Any:
    """The gradient (rows, D) of a table, of that of what was looked up (*indices, D). RuntimeError with `scale_grad_by_freq`."""
    if scale_grad_by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    wide = g.shape[-1]
    at, g = indices.reshape(-1).long(), g.reshape(-1, wide)
    if padding_idx >= 0:
        kept = (at != padding_idx).nonzero().reshape(-1)
        at, g = at.index_select(0, kept), g.index_select(0, kept)
    return made("EmbeddingSparse", COO, (at.unsqueeze(0),), g, (rows, wide))


def gathered_gradient(g: Any, dim: int, index: Any, shape: Any) -> Any:
    """The gradient, of this shape, of what `gather(dim, index, sparse_grad=True)` took from, of that of what it gave."""
    if not shape:
        at = index.new_empty((0, g.numel()))
    elif not index.ndim:
        at = index.reshape(1, 1)
    else:
        own = _lazy.torch.meshgrid(*[_lazy.torch.arange(n, device=index.device) for n in index.shape], indexing="ij")
        at = _lazy.torch.stack([(index if d == dim else place).reshape(-1) for d, place in enumerate(own)])
    return made("Gather", COO, (at.long(),), g.reshape(-1), shape)


def looked_up(weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False) -> Any:
    """`weight[indices]`, whose gradient for `weight` is sparse."""
    r: Any = weight.detach().index_select(0, indices.reshape(-1)).reshape(*indices.shape, weight.shape[1])
    if needs_record(weight):
        rows = weight.shape[0]
        record(
            "EmbeddingBackward0",
            (weight,),
            r,
            lambda g, at: gradient(g, at, rows, padding_idx, scale_grad_by_freq),
            (indices,),
        )
    return r
