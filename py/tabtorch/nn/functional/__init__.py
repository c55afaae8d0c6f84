# ruff: noqa: F401
"""``torch.nn.functional``: layers as functions. They are in ``tabtorch.ops.functional``, a file a family, and are shown here."""

import importlib
from types import FunctionType as _Function

from tabtorch.nn._missing import missing_function
from tabtorch.ops.functional.activation import (
    celu,
    celu_,
    elu,
    elu_,
    gelu,
    glu,
    gumbel_softmax,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    hardtanh_,
    leaky_relu,
    leaky_relu_,
    log_softmax,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    relu_,
    rrelu,
    rrelu_,
    selu,
    selu_,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
    threshold,
    threshold_,
)
from tabtorch.ops.functional.attention import (
    _canonical_mask,
    _none_or_dtype,
    multi_head_attention_forward,
    scaled_dot_product_attention,
)
from tabtorch.ops.functional.bags import embedding_bag
from tabtorch.ops.functional.classification import (
    cross_entropy,
    linear_cross_entropy,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    nll_loss,
)
from tabtorch.ops.functional.dropout import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from tabtorch.ops.functional.fold import fold, unfold
from tabtorch.ops.functional.fractional import (
    fractional_max_pool2d,
    fractional_max_pool2d_with_indices,
    fractional_max_pool3d,
    fractional_max_pool3d_with_indices,
)
from tabtorch.ops.functional.linear import (
    bilinear,
    cosine_similarity,
    embedding,
    grouped_mm,
    linear,
    normalize,
    one_hot,
    pairwise_distance,
    pdist,
)
from tabtorch.ops.functional.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    ctc_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from tabtorch.ops.functional.norm import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    rms_norm,
)
from tabtorch.ops.functional.pooling import (
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d_with_indices,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d_with_indices,
    max_pool2d_with_indices,
    max_pool3d_with_indices,
)
from tabtorch.ops.functional.sampling import affine_grid, grid_sample
from tabtorch.ops.functional.vision import (
    channel_shuffle,
    conv_tbc,
    interpolate,
    pixel_shuffle,
    pixel_unshuffle,
    upsample,
    upsample_bilinear,
    upsample_nearest,
)
from tabtorch.ops.machinery.registry import guard
from tabtorch.ops.shaping.pad import pad
from tabtorch.ops.sliding.conv import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from tabtorch.ops.sliding.pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)

# what most often gets something that is no tensor says so as PyTorch does, and lets its arguments override it
for _name in (
    "linear conv1d conv2d max_pool2d pad embedding layer_norm one_hot cosine_similarity scaled_dot_product_attention nll_loss cross_entropy"
).split():
    globals()[_name] = guard(_name, globals()[_name], words=False)
for _f in list(globals().values()):  # a function says where PyTorch has it: pickles and messages name that place
    if isinstance(_f, _Function) and (_f.__module__ == "torch" or _f.__module__.startswith("tabtorch.ops.functional.")):
        _f.__module__ = __name__

native_channel_shuffle = channel_shuffle
_threshold = threshold
_missing = missing_function("torch.nn.functional", "scaled_grouped_mm scaled_mm")


def __getattr__(name):
    return importlib.import_module("tabtorch.nn.grad") if name == "grad" else _missing(name)
