"""The layers, one file per family."""

import sys

from tabtorch import _lazy
from tabtorch.nn.modules import activation, batchnorm, container, reshape
from tabtorch.nn.modules.activation import *  # noqa: F403
from tabtorch.nn.modules.adaptive import *  # noqa: F403
from tabtorch.nn.modules.attention import *  # noqa: F403
from tabtorch.nn.modules.batchnorm import *  # noqa: F403
from tabtorch.nn.modules.container import *  # noqa: F403
from tabtorch.nn.modules.conv import *  # noqa: F403
from tabtorch.nn.modules.distance import *  # noqa: F403
from tabtorch.nn.modules.dropout import *  # noqa: F403
from tabtorch.nn.modules.flatten import *  # noqa: F403
from tabtorch.nn.modules.linear import *  # noqa: F403
from tabtorch.nn.modules.loss import *  # noqa: F403
from tabtorch.nn.modules.module import Module as Module
from tabtorch.nn.modules.normalization import *  # noqa: F403
from tabtorch.nn.modules.parameters import *  # noqa: F403
from tabtorch.nn.modules.pooling import *  # noqa: F403
from tabtorch.nn.modules.reshape import *  # noqa: F403
from tabtorch.nn.modules.rnn import *  # noqa: F403
from tabtorch.nn.modules.sparse import *  # noqa: F403
from tabtorch.nn.modules.transformer import *  # noqa: F403

__all__ = [name for name, value in list(globals().items()) if isinstance(value, type)]

# where PyTorch has them, which programs import and whole pickled models name
_HOMES = dict.fromkeys(("channelshuffle", "fold", "padding", "pixelshuffle", "upsampling"), reshape)
for _name, _home in {**_HOMES, "instancenorm": batchnorm}.items():
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _home
for _name, _home in (
    ("MultiheadAttention", activation),
    ("ParameterDict", container),
    ("ParameterList", container),
):
    setattr(_home, _name, globals()[_name])


def __getattr__(name):
    if name.startswith("Lazy"):
        if hasattr(_lazy.modules_lazy, name):
            return getattr(_lazy.modules_lazy, name)
    raise AttributeError(f"module 'torch.nn.modules' has no attribute '{name}'")
