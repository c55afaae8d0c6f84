# ruff: noqa: F401, F403, F405
"""``torch.nn.functional``: layers as functions. They are in ``tabtorch.ops.functional``, a file a family, and are shown here."""

import importlib
from types import FunctionType as _Function

from tabtorch.nn._missing import missing_function
from tabtorch.ops.functional.activation import *
from tabtorch.ops.functional.attention import *
from tabtorch.ops.functional.attention import _canonical_mask, _none_or_dtype
from tabtorch.ops.functional.bags import *
from tabtorch.ops.functional.classification import *
from tabtorch.ops.functional.dropout import *
from tabtorch.ops.functional.fold import *
from tabtorch.ops.functional.fractional import *
from tabtorch.ops.functional.linear import *
from tabtorch.ops.functional.loss import *
from tabtorch.ops.functional.norm import *
from tabtorch.ops.functional.pooling import *
from tabtorch.ops.functional.sampling import *
from tabtorch.ops.functional.vision import *
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
