"""What autocast does with which operation: PyTorch's own lists. See https://docs.pytorch.org/docs/stable/amp.html

PyTorch has a list for each kind of device: "webgpu" goes by that of CUDA, "cpu" by that of the CPU. An operation on no list
runs in the type of its inputs; what PyTorch makes of others goes by what those do. tests/test_amp.py holds the lists against PyTorch's.
"""

from __future__ import annotations

import math
from typing import Any

_LOW = (
    "conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d prelu addmm matmul __matmul__ "
    "linalg_matmul mm linear linalg_vecdot addbmm baddbmm bmm scaled_dot_product_attention"
)
#: as the lists have these by their parts, or as PyTorch makes them of such
_LOW_PARTS = "einsum chain_matmul linalg_multi_dot cov corrcoef lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell"
_LOSSES = (
    "cosine_embedding_loss hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss "
    "multi_margin_loss multilabel_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss "
    "triplet_margin_loss binary_cross_entropy_with_logits cross_entropy cdist"
)

#: for each device number (0 webgpu, 1 cpu): policy -> names
_LISTS = (
    {
        "low": f"{_LOW} {_LOW_PARTS} addmv addr mv",
        "wide": f"{_LOSSES} acos arccos asin arcsin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow "
        "square softplus layer_norm native_layer_norm group_norm rms_norm frobenius_norm nuclear_norm "
        "cosine_similarity dist pdist renorm logsumexp trapz trapezoid cumulative_trapezoid sum_to_size interpolate "
        "upsample upsample_nearest upsample_bilinear",
        "sums": "prod softmax log_softmax cumprod cumsum linalg_norm linalg_vector_norm linalg_matrix_norm sum norm softmin",
        "promote": "addcdiv addcmul atan2 arctan2 bilinear cross linalg_cross dot vdot grid_sampler grid_sample index_put "
        "tensordot scatter_add",
        "banned": "binary_cross_entropy",
    },
    {
        "low": f"{_LOW} {_LOW_PARTS} inner tensordot",
        "wide": f"{_LOSSES} binary_cross_entropy avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d max_pool3d max_unpool1d max_unpool2d "
        "max_unpool3d fractional_max_pool2d fractional_max_pool3d grid_sampler grid_sampler_2d grid_sampler_3d grid_sample pad "
        "polar quantile nanquantile "
        "stft trace view_as_complex cholesky cholesky_inverse cholesky_solve inverse linalg_inv linalg_inv_ex lu_solve "
        "orgqr ormqr linalg_householder_product pinverse ctc_loss linalg_cond linalg_matrix_rank linalg_solve "
        "linalg_cholesky linalg_cholesky_ex linalg_svd linalg_svdvals linalg_eig linalg_eigh linalg_eigvals "
        "linalg_eigvalsh linalg_qr linalg_lstsq linalg_tensorinv linalg_tensorsolve qr svd geqrf triangular_solve "
        + " ".join(f"fft_{a}{b}" for a in ("fft", "ifft", "rfft", "irfft") for b in ("", "2", "n"))
        + " fft_hfft fft_ihfft",
        "sums": "prod",
        "promote": "stack cat concat concatenate index_copy",
    },
)

#: name -> policy, for each device number
POLICIES: tuple[dict[str, str], ...] = tuple(
    {n: policy for policy, names in lists.items() for n in names.split()} for lists in _LISTS
)
#: in PyTorch these are one operation; here they are formulas of some that are on the lists, which must not see it
WHOLE = (
    "batch_norm instance_norm layer_norm group_norm rms_norm embedding_bag gelu logsigmoid glu dropout alpha_dropout "
    "softmax log_softmax softmin scaled_dot_product_attention interpolate upsample native_batch_norm native_group_norm "
    "_native_batch_norm_legit _batch_norm_with_update _safe_softmax _softmax_backward_data _segment_reduce segment_reduce _chunk_cat "
    "_unsafe_masked_index_put_accumulate repeat_interleave float_power gradient histc histogram histogramdd index_reduce "
    "scatter_reduce masked_scatter matrix_exp linalg_matrix_exp median mode multinomial nanmean nanmedian nonzero_static "
    "unique unique_consecutive vander linalg_vander logspace mvlgamma special_multigammaln"
)
NAMES = frozenset((*POLICIES[0], *POLICIES[1], *WHOLE.split()))


def _contracts(equation: Any, *operands: Any) -> bool:
    """Whether an einsum multiplies and sums, so that PyTorch makes a product of matrices of it."""
    if not isinstance(equation, str) or len(operands) < 2:
        return not isinstance(equation, str)
    inputs, arrow, out = equation.replace(" ", "").partition("->")
    parts = [set(p) for p in inputs.split(",")]
    shared = {c for p in parts for c in p if c.isalpha() and sum(c in q for q in parts) > 1}
    return bool(shared - set(out)) if arrow else bool(shared)


def _is_dot(a: Any, b: Any, dims: Any = 2, **kw: Any) -> bool:
    """Whether nothing is left after a tensordot, so that PyTorch multiplies and sums."""
    n = dims if isinstance(dims, int) else None
    da, db = (
        (range(a.ndim - n, a.ndim), range(n)) if n is not None else ([x] if isinstance(x, int) else x for x in dims)
    )
    return all(math.prod(t.shape[d] for d in ds) == t.numel() for t, ds in ((a, da), (b, db)))


def holds(name: str, number: int, args: tuple[Any, ...], kw: dict[str, Any]) -> bool:
    """Whether this call of an operation is what the list means: some go by their arguments."""
    words = [a for a in (*args, *kw.values()) if isinstance(a, str)]
    if name == "interpolate":
        return "area" not in words
    if name == "inner":
        return len(args) < 2 or (min(args[0].ndim, args[1].ndim) > 0 and max(args[0].ndim, args[1].ndim) > 1)
    if number == 1:
        if name == "einsum":
            return _contracts(*args)
        if name == "tensordot":
            return not _is_dot(*args, **kw)
        if name == "pad":
            return "reflect" in words or "replicate" in words
        if name == "max_pool3d":
            return not kw.get("return_indices")
    return True


BANNED = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast."
)
