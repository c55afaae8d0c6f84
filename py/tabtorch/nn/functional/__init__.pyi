# ruff: noqa: F403, F405
"""For type checkers: what `__init__.py` loads when it is asked for."""

from tabtorch.ops.functional.activation import *
from tabtorch.ops.functional.attention import *
from tabtorch.ops.functional.attention import _canonical_mask as _canonical_mask
from tabtorch.ops.functional.attention import _none_or_dtype as _none_or_dtype
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
from tabtorch.ops.shaping.pad import pad as pad
from tabtorch.ops.sliding.conv import conv1d as conv1d
from tabtorch.ops.sliding.conv import conv2d as conv2d
from tabtorch.ops.sliding.conv import conv3d as conv3d
from tabtorch.ops.sliding.conv import conv_transpose1d as conv_transpose1d
from tabtorch.ops.sliding.conv import conv_transpose2d as conv_transpose2d
from tabtorch.ops.sliding.conv import conv_transpose3d as conv_transpose3d
from tabtorch.ops.sliding.pool import adaptive_avg_pool1d as adaptive_avg_pool1d
from tabtorch.ops.sliding.pool import adaptive_avg_pool2d as adaptive_avg_pool2d
from tabtorch.ops.sliding.pool import adaptive_avg_pool3d as adaptive_avg_pool3d
from tabtorch.ops.sliding.pool import adaptive_max_pool1d as adaptive_max_pool1d
from tabtorch.ops.sliding.pool import adaptive_max_pool2d as adaptive_max_pool2d
from tabtorch.ops.sliding.pool import adaptive_max_pool3d as adaptive_max_pool3d
from tabtorch.ops.sliding.pool import avg_pool1d as avg_pool1d
from tabtorch.ops.sliding.pool import avg_pool2d as avg_pool2d
from tabtorch.ops.sliding.pool import avg_pool3d as avg_pool3d
from tabtorch.ops.sliding.pool import max_pool1d as max_pool1d
from tabtorch.ops.sliding.pool import max_pool2d as max_pool2d
from tabtorch.ops.sliding.pool import max_pool3d as max_pool3d
from tabtorch.ops.sliding.pool import max_unpool1d as max_unpool1d
from tabtorch.ops.sliding.pool import max_unpool2d as max_unpool2d
from tabtorch.ops.sliding.pool import max_unpool3d as max_unpool3d

native_channel_shuffle = channel_shuffle
_threshold = threshold
