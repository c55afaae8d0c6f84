"""Sums, means and maxima of bags of embeddings."""

import warnings

import tabtorch as torch
from tabtorch import _lazy
from tabtorch.ops.functional._common import assert_between, check_argument, named
from tabtorch.ops.indexing.index_maps import row_steps

#: what `torch.nn.functional` shows
__all__ = [
    "embedding_bag",
]

_MODES = ("sum", "mean", "max")


def renorm_rows(weight, input, max_norm, norm_type):
    """Scales the rows that ``input`` names to a norm of at most ``max_norm``, in place."""
    with torch.no_grad():
        norms = weight.norm(norm_type, 1, keepdim=True)
        used = torch.zeros(weight.size(0), dtype=torch.bool, device=weight.device)
        used = used.index_fill(0, input.reshape(-1).long(), True).unsqueeze(1)
        weight.mul_(torch.where(used & (norms > max_norm), max_norm / (norms + 1e-7), 1.0).to(weight.dtype))


def per_use(weight, input):
    """1 over how often each element of ``input`` occurs in it: what ``scale_grad_by_freq`` multiplies gradients by."""
    flat = input.reshape(-1).long()
    count = torch.zeros(weight.size(0), device=weight.device).index_add(
        0, flat, torch.ones(flat.shape, device=weight.device)
    )
    return count[flat].reciprocal().reshape(input.shape).to(weight.dtype)


def scaled(x, factor):
    """``x``, whose gradient is multiplied by ``factor``."""
    return x.detach() + (x * factor - (x * factor).detach())


def _check_offsets(offsets, n):
    """Raises for offsets that do not rise from 0 to at most ``n``. Where they fall, PyTorch's CPU reads what is not there."""
    if not offsets.numel():
        return
    first = (
        "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
        "However, got {i}"
    )
    last = f"offsets[-1] can not be greater than input's length {n} but got offsets[-1] of {{i}}"
    name, least, most = "embedding_bag", -(2**63), 2**63 - 1
    assert_between(offsets[:1], 0, 0, name, RuntimeError, first)
    assert_between(offsets[-1:], least, n, name, RuntimeError, last)
    assert_between(row_steps(offsets), 0, most, name, IndexError, "index out of range in self")


def embedding_bag(
    input,
    weight,
    offsets=None,
    max_norm=None,
    norm_type=2,
    scale_grad_by_freq=False,
    mode="mean",
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """Rows of ``weight`` (rows, D), reduced over bags: (bags, D).

    ``input``: (bags, L), or (N) in bags that begin at ``offsets``. ``mode``: sum, mean or max; a sum may have
    ``per_sample_weights`` of the shape of ``input``. An empty bag gives 0; ``padding_idx`` counts as not there.
    ``sparse``: the gradient is a sparse tensor of the rows that were looked up.
    """
    if weight.dtype == torch.long and input.is_floating_point():
        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is "
            "deprecated, and should now be `embedding_bag(input, weight, ...)`.",
            stacklevel=2,
        )
        weight, input = input, weight
    if per_sample_weights is not None and input.size() != per_sample_weights.size():
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, "
            f"then it must have the same shape as the input ({input.shape})"
        )
    if weight.dim() != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}")
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
                f"sequences. However, found offsets of type {type(offsets)}"
            )
    elif input.dim() != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    elif offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    elif offsets.dim() != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    if mode not in _MODES:
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max":
        if scale_grad_by_freq:
            raise ValueError("max mode does not support scaling the gradient by the frequency")
        if sparse:
            raise ValueError("max mode does not support sparse weights")
    check_argument("embedding_bag", 1, "weight", weight, (torch.half, torch.bfloat16, torch.float, torch.double))
    rows = weight.size(0)
    text = f"Index {{k}} of input takes value {{i}} which is not in the valid range [0, {rows})"
    if padding_idx is not None:
        text = "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {i}"
    assert_between(input, 0, rows - 1, "embedding_bag", RuntimeError, text)
    if max_norm is not None:
        renorm_rows(weight, input, max_norm, norm_type)
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
            f"(got mode='{mode}'). Please open a feature request on GitHub."
        )
    rows = _lazy.sparse_embeddings.looked_up(weight, input) if sparse else weight[input]
    if rows.dtype in (torch.float16, torch.bfloat16) and mode != "max":
        rows = rows.float()  # weighted and summed in single precision, rounded once
    if scale_grad_by_freq:
        rows = scaled(rows, per_use(weight, input).unsqueeze(-1))
    kept = None if padding_idx is None else (input != padding_idx % weight.size(0)).unsqueeze(-1)
    hidden = float("-inf") if mode == "max" else 0.0
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if kept is not None:
        rows = torch.where(kept, rows, hidden)
    if input.dim() == 2:
        bags, length = input.shape
        size = length if kept is None else kept.sum(1)
        if mode == "max":
            out = rows.amax(1) if length else rows.new_zeros((bags, weight.size(1)))
        else:
            out = rows.sum(1)
    else:
        _check_offsets(offsets, input.size(0))
        starts = offsets[:-1] if include_last_offset else offsets
        bags, width = starts.size(0), weight.size(1)
        place = torch.arange(input.size(0), device=input.device)
        # without an offset of 0, which is complained of, what lies before the first bag counts to it
        bag = (torch.searchsorted(starts.long(), place, right=True) - 1).clamp(min=0)
        size = torch.zeros((bags, 1), dtype=torch.int64, device=input.device)
        one = (
            kept.long() if kept is not None else torch.ones((input.size(0), 1), dtype=torch.int64, device=input.device)
        )
        size = size.index_add(0, bag, one)
        if mode == "max":
            target = rows.new_full((bags, width), hidden)
            out = target.scatter_reduce(0, bag.unsqueeze(1).expand(rows.shape), rows, "amax", include_self=True)
        else:
            if include_last_offset and padding_idx is None:  # it ends the last bag, as long as nothing is padding
                rows = torch.where((place < offsets[-1:]).unsqueeze(-1), rows, 0.0)
            out = rows.new_zeros((bags, width)).index_add(0, bag, rows)
    counted = isinstance(size, torch.Tensor)
    if mode == "mean":
        out = out / (size.clamp(min=1) if counted else max(size, 1))
    elif mode == "max" and counted:
        out = torch.where(size.bool(), out, 0.0)
    return named(out.to(weight.dtype), "EmbeddingBagBackward0")
