"""Linear maps and lookups by index."""

import math

import tabtorch as torch
from tabtorch import _lazy
from tabtorch.ops.functional._common import assert_between, check_argument, named, scalar_type
from tabtorch.ops.linalg.matmul import bilinear as _bilinear
from tabtorch.ops.linalg.matmul import linear as _linear
from tabtorch.ops.machinery.operand_devices import on_device_of
from tabtorch.ops.machinery.operation import into
from tabtorch.ops.machinery.out_types import EXACT
from tabtorch.ops.machinery.promotion import SINGLE_DOUBLE, check_kernel
from tabtorch.ops.shaping.convert import in_order, recorded_in_order

#: what `torch.nn.functional` shows
__all__ = [
    "bilinear",
    "cosine_similarity",
    "embedding",
    "grouped_mm",
    "linear",
    "normalize",
    "one_hot",
    "pairwise_distance",
    "pdist",
]


def linear(input, weight, bias=None, *, out=None):
    """x Wᵀ + b. ``input`` (*, in), ``weight`` (out, in) or (in,), ``bias`` (out,). Returns (*, out) or (*)."""
    if bias is not None:
        w, b = weight._tab_meta, bias._tab_meta
        if w.ndim == 2 and b.ndim == 1 and b.shape[0] not in (1, w.shape[0]):
            n = w.shape[0]
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size ({b.shape[0]}) at "
                f"non-singleton dimension 1.  Target sizes: [{math.prod(input.shape[:-1])}, {n}].  "
                f"Tensor sizes: [{b.shape[0]}]"
            )
    result = _linear(input, weight, bias)
    if out is not None:
        return into(out, result, rule=EXACT)
    if bias is None:
        return result
    m = input._tab_meta
    return result if m.ndim < 3 or m.contiguous else named(result, "AddBackward0")


def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """Products of groups, as in mixtures of experts: ``mat_a`` (total, K), ``mat_b`` (G, K, N), ``offs`` (G,) int32 where each group of
    rows ends. Returns (total, N). The other forms are in `private_names.py`.
    """
    return torch._grouped_mm(mat_a, mat_b, offs=offs, bias=bias, out_dtype=out_dtype)


def bilinear(input1, input2, weight, bias=None):
    """y_o = x1ᵀ W_o x2 + b_o. ``input1`` (*, I), ``input2`` (*, J), ``weight`` (O, I, J). Returns (*, O)."""
    if input1.dim() != input2.dim():
        raise RuntimeError(f"bilinear(): input dimensions do not match: got {input1.dim()} and {input2.dim()}")
    for d in range(input1.dim() - 1):
        if input1.size(d) != input2.size(d):
            raise RuntimeError(
                f"bilinear(): input batch dimensions do not match at dim {d}: got {input1.size(d)} and {input2.size(d)}"
            )
    n_out, n1, n2 = weight.shape
    if input1.size(-1) != n1:
        raise RuntimeError(
            f"bilinear(): input1 size does not match weight size: got {input1.size(-1)} but expected {n1}"
        )
    if input2.size(-1) != n2:
        raise RuntimeError(
            f"bilinear(): input2 size does not match weight size: got {input2.size(-1)} but expected {n2}"
        )
    if bias is not None and bias.size(0) != n_out:
        raise RuntimeError(f"bilinear(): bias size does not match weight size: got {bias.size(0)} but expected {n_out}")
    return _bilinear(input1, input2, weight, bias)


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """Rows of a table. ``input`` (*) of indices, ``weight`` (V, D). Returns (*, D).

    The row ``padding_idx`` gets no gradient. ``sparse``: the gradient is a sparse tensor of the rows that were looked up.
    """
    if padding_idx is not None:
        rows = weight.size(0)
        if padding_idx > 0 and padding_idx >= rows or padding_idx < 0 and padding_idx < -rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= rows
    check_argument("embedding", 1, "indices", input, (torch.int64, torch.int32))
    if weight.dim() != 2:
        raise RuntimeError("'weight' must be 2-D")
    input = on_device_of(weight, input, ("index", "_index_select"))
    assert_between(input, 0, weight.size(0) - 1, "embedding", IndexError, "index out of range in self")
    if max_norm is not None or scale_grad_by_freq:
        if max_norm is not None:
            _lazy.bags.renorm_rows(weight, input, max_norm, norm_type)
    if sparse:
        return _lazy.sparse_embeddings.looked_up(
            weight, input, -1 if padding_idx is None else padding_idx, scale_grad_by_freq
        )
    out = weight[input] if input.dim() else weight[input.reshape(1)].squeeze(0)  # a 0-d index would be read
    if scale_grad_by_freq:
        out = _lazy.bags.scaled(out, _lazy.bags.per_use(weight, input).unsqueeze(-1))
    if padding_idx is not None and weight.requires_grad and torch.is_grad_enabled():
        out = torch.where((input != padding_idx).unsqueeze(-1), out, out.detach())
    return named(recorded_in_order(out), "EmbeddingBackward0", weight)


def one_hot(tensor, num_classes=-1):
    """1 at the index, 0 elsewhere: (*) of int64 to (*, num_classes) of int64. -1: as many as the largest index needs."""
    if tensor.dtype != torch.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if tensor.numel() == 0:
        if num_classes == -1:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return torch.empty(*tensor.shape, num_classes, dtype=torch.int64, device=tensor.device)
    negative = "Class values must be non-negative."
    if num_classes == -1:
        seen = _lazy.index_maps.every_example(tensor)
        values = _lazy.index_maps.host_values(seen)
        if values is None:
            values = torch.stack(seen.aminmax()).tolist()  # one read
        if min(values) < 0:
            raise RuntimeError(negative)
        num_classes = max(values) + 1
    if num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    text = "Class values must be smaller than num_classes."
    assert_between(tensor, 0, num_classes - 1, "one_hot", RuntimeError, text, negative)
    return in_order((tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).to(torch.int64))


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """x1 · x2 / (max(‖x1‖, eps) · max(‖x2‖, eps)) along ``dim``."""
    common = torch.promote_types(x1.dtype, x2.dtype)
    if not common.is_floating_point:
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {scalar_type(common)}")
    x1, x2 = torch.broadcast_tensors(x1, x2)
    n1 = x1.norm(2, dim, keepdim=True).clamp_min(eps)
    n2 = x2.norm(2, dim, keepdim=True).clamp_min(eps)
    return ((x1 / n1) * (x2 / n2)).sum(dim)


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """‖x1 - x2 + eps‖_p along the last dimension."""
    return named((x1 - x2 + eps).norm(p, -1, keepdim=keepdim), "NormBackward1")


def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    """x / max(‖x‖_p, eps) along ``dim``."""
    result = input / input.norm(p, dim, keepdim=True).clamp_min(eps)
    return into(out, result)


def pdist(input, p=2.0):
    """Distances between all pairs of rows: (N, M) to (N·(N-1)/2,)."""
    if input.dim() != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.dim()}D")
    if not input.dtype.is_floating_point:
        raise RuntimeError("pdist only supports floating-point dtypes")
    n = input.size(0)
    if n < 2:
        return named(input.sum(1)[:0], "PdistBackward0")
    if input.numel():
        check_kernel("pdist", input.dtype, SINGLE_DOUBLE)
    i, j = torch.triu_indices(n, n, 1, device=input.device)
    return named(_lazy.norms.distances(input[i] - input[j], p), "PdistBackward0")
