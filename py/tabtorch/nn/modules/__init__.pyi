# ruff: noqa: F403
"""For type checkers: what `__init__.py` loads when it is asked for."""

from tabtorch.nn.modules.activation import *
from tabtorch.nn.modules.adaptive import *
from tabtorch.nn.modules.attention import *
from tabtorch.nn.modules.batchnorm import *
from tabtorch.nn.modules.container import *
from tabtorch.nn.modules.conv import *
from tabtorch.nn.modules.distance import *
from tabtorch.nn.modules.dropout import *
from tabtorch.nn.modules.flatten import *
from tabtorch.nn.modules.lazy import *
from tabtorch.nn.modules.linear import *
from tabtorch.nn.modules.loss import *
from tabtorch.nn.modules.module import Module as Module
from tabtorch.nn.modules.normalization import *
from tabtorch.nn.modules.parameters import *
from tabtorch.nn.modules.pooling import *
from tabtorch.nn.modules.reshape import *
from tabtorch.nn.modules.rnn import *
from tabtorch.nn.modules.sparse import *
from tabtorch.nn.modules.transformer import *
