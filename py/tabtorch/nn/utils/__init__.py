"""``torch.nn.utils``: gradients clipped, parameters as one vector, sequences padded, weights normalized, layers fused and pruned."""

import importlib

from tabtorch.nn.utils import rnn
from tabtorch.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from tabtorch.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from tabtorch.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from tabtorch.nn.utils.weight_norm import remove_weight_norm, weight_norm

#: name -> the module it is in, which is imported when it is first asked for
_LATER = {
    "convert_conv2d_weight_memory_format": "memory_format",
    "convert_conv3d_weight_memory_format": "memory_format",
    "fuse_conv_bn_eval": "fusion",
    "fuse_conv_bn_weights": "fusion",
    "fuse_linear_bn_eval": "fusion",
    "fuse_linear_bn_weights": "fusion",
    "skip_init": "init",
}
_MODULES = ("fusion", "memory_format", "parametrizations", "parametrize", "prune", "stateless")

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "parameters_to_vector",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
    *_LATER,
]


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module("tabtorch.nn.utils." + name)
    if name in _LATER:
        return getattr(importlib.import_module("tabtorch.nn.utils." + _LATER[name]), name)
    raise AttributeError(f"module 'torch.nn.utils' has no attribute '{name}'")
