"""PyTorch's name for a part of what is in ``batchnorm.py``: the same module."""

import sys

from tabtorch.nn.modules import batchnorm

sys.modules[__name__] = batchnorm
