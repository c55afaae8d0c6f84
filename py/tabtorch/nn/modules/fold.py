"""PyTorch's name for a part of what is in ``reshape.py``: the same module."""

import sys

from tabtorch.nn.modules import reshape

sys.modules[__name__] = reshape
