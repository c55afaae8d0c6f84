"""`torch.NAME` of what `torch.nn.functional` defines, with the arguments of `torch.NAME`.

Their order differs in places; reductions are numbers (0 none, 1 mean, 2 sum; PyTorch's parser takes 0 where none is given),
and the checks that only torch.nn.functional makes are left out.
"""

from __future__ import annotations

from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.ops.functional import activation, linear, loss, norm, vision
from tabtorch.ops.functional.cells import recurrent_step
from tabtorch.ops.machinery.operation import into
from tabtorch.ops.machinery.out_types import EXACT
from tabtorch.ops.machinery.registry import register


def _need_int(name: str, dim: Any) -> None:
    if not hasattr(type(dim), "__index__") or isinstance(dim, bool):
        raise TypeError(f"{name}(): argument 'dim' (position 2) must be int, not {type(dim).__name__}")


# ---- activations


@register("softmax", method=True)
def softmax(input: Tensor, dim: int, dtype: Any = None, *, out: Tensor | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`; with `dtype`, of the input converted first."""
    _need_int("softmax", dim)
    return into(out, activation.softmax(input, dim, dtype=dtype), rule=EXACT)


@register("log_softmax", method=True)
def log_softmax(input: Tensor, dim: int, dtype: Any = None, *, out: Tensor | None = None) -> Tensor:
    """log(softmax(x)) along `dim`; with `dtype`, of the input converted first."""
    _need_int("log_softmax", dim)
    return into(out, activation.log_softmax(input, dim, dtype=dtype), rule=EXACT)


@register("prelu", method=True)
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """max(x, 0) + weight · min(x, 0). `weight`: one number, or one for each channel (dimension 1)."""
    return activation.prelu(input, weight)


# ---- normalizations


@register("layer_norm")
def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) · weight + bias over the last dimensions."""
    _shape_tuple("layer_norm", normalized_shape)
    return norm.layer_norm(input, normalized_shape, weight, bias, eps)


@register("rms_norm")
def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """x / sqrt(mean(x²) + eps) · weight over the last dimensions."""
    _shape_tuple("rms_norm", normalized_shape)
    return norm.rms_norm(input, normalized_shape, weight, eps)


def _shape_tuple(name: str, shape: Any) -> None:
    if not isinstance(shape, (tuple, list)):
        raise TypeError(
            f"{name}(): argument 'normalized_shape' (position 2) must be tuple of ints, not {type(shape).__name__}"
        )


@register("batch_norm")
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Each channel (dimension 1) normalized over all others; in training the running statistics move, in place."""
    return norm.normalize_batch(input, running_mean, running_var, weight, bias, training, momentum, eps)


@register("instance_norm")
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Each channel of each sample normalized over its positions. `input` (N, C, …)."""
    return norm.normalize_instances(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@register("group_norm")
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Groups of channels of each sample normalized. `input` (N, C, *)."""
    return norm.normalize_groups(input, num_groups, weight, bias, eps)


# ---- shuffles, distances


@register("pixel_shuffle")
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C · r², H, W) to (*, C, H · r, W · r)."""
    return vision.pixel_shuffle(input, upscale_factor)


@register("pixel_unshuffle")
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H · r, W · r) to (*, C · r², H, W)."""
    return vision.pixel_unshuffle(input, downscale_factor)


@register("channel_shuffle")
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels dealt out anew: (g, C / g) transposed. `input` (N, C, *)."""
    return vision.channel_shuffle(input, groups)


@register("bilinear")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1ᵀ W_o x2 + b_o. `input1` (*, I), `input2` (*, J), `weight` (O, I, J) to (*, O)."""
    return linear.bilinear(input1, input2, weight, bias)


@register("cosine_similarity")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-08) -> Tensor:
    """x1 · x2 / (max(‖x1‖, eps) · max(‖x2‖, eps)) along `dim`."""
    return linear.cosine_similarity(x1, x2, dim, eps)


@register("pairwise_distance")
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2, eps: float = 1e-06, keepdim: bool = False) -> Tensor:
    """‖x1 - x2 + eps‖_p along the last dimension."""
    return linear.pairwise_distance(x1, x2, p, eps, keepdim)


@register("pdist")
def pdist(input: Tensor, p: float = 2) -> Tensor:
    """Distances between all pairs of rows: (N, M) to (N · (N - 1) / 2,)."""
    return linear.pdist(input, p)


# ---- losses


def _reduced(each: Tensor, reduction: int) -> Tensor:
    return each.mean() if reduction == 1 else each.sum() if reduction == 2 else each


@register("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 0,
) -> Tensor:
    """(1 - t) · x - (1 + (pos_weight - 1) · t) · log(sigmoid(x)) for logits x."""
    each = loss.binary_cross_entropy_with_logits(input, target, weight, reduction="none", pos_weight=pos_weight)
    return _reduced(each, reduction)


@register("kl_div")
def kl_div(input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False) -> Tensor:
    """target · (log(target) - input), `input` being log-probabilities."""
    return _reduced(loss.kl_div(input, target, reduction="none", log_target=log_target), reduction)


@register("hinge_embedding_loss")
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0) -> Tensor:
    """x where y = 1, max(0, margin - x) where y = -1."""
    return _reduced(loss.hinge_embedding_loss(input, target, margin, reduction="none"), reduction)


@register("margin_ranking_loss")
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """max(0, -y · (x1 - x2) + margin)."""
    return _reduced(loss.margin_ranking_loss(input1, input2, target, margin, reduction="none"), reduction)


@register("cosine_embedding_loss")
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """1 - cos(x1, x2) where y = 1, max(0, cos - margin) where y = -1."""
    return _reduced(loss.cosine_embedding_loss(input1, input2, target, margin, reduction="none"), reduction)


@register("triplet_margin_loss")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: int = 0,
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d being the p-norm."""
    near, far = linear.pairwise_distance(anchor, positive, p, eps), linear.pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = far.minimum(linear.pairwise_distance(positive, negative, p, eps))
    return _reduced((margin + near - far).clamp_min(0), reduction)


@register("poisson_nll_loss")
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """exp(x) - t · x for log-rates x, or x - t · log(x + eps) for rates; `full` adds Stirling's term."""
    return _reduced(loss.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction="none"), reduction)


# ---- cells of recurrent layers


def _cell(mode: str, input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any, c: Any = None) -> Any:
    return recurrent_step(mode, linear.linear(input, w_ih, b_ih), hx, w_hh, b_hh, c)


@register("lstm_cell")
def lstm_cell(
    input: Tensor,
    hx: Any,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM; `hx` = (h, c). Returns the next (h, c)."""
    r: tuple[Tensor, Tensor] = _cell("LSTM", input, hx[0], w_ih, w_hh, b_ih, b_hh, hx[1])
    return r


@register("gru_cell")
def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """One step of a GRU."""
    return _cell("GRU", input, hx, w_ih, w_hh, b_ih, b_hh)[0]


@register("rnn_tanh_cell")
def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """tanh(W_ih x + b_ih + W_hh h + b_hh)."""
    return _cell("RNN_TANH", input, hx, w_ih, w_hh, b_ih, b_hh)[0]


@register("rnn_relu_cell")
def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """max(0, W_ih x + b_ih + W_hh h + b_hh)."""
    return _cell("RNN_RELU", input, hx, w_ih, w_hh, b_ih, b_hh)[0]
