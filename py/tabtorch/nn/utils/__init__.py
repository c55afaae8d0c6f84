"""``torch.nn.utils``: gradients clipped, parameters as one vector, sequences padded."""

from .._missing import missing_function
from . import rnn
from .clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from .convert_parameters import parameters_to_vector, vector_to_parameters

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "parameters_to_vector",
    "rnn",
    "vector_to_parameters",
]

__getattr__ = missing_function(
    "torch.nn.utils",
    "fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights remove_spectral_norm "
    "remove_weight_norm skip_init spectral_norm weight_norm",
)
