"""The layers, one file per family."""

import sys

from . import activation, batchnorm, container, reshape
from .activation import *  # noqa: F403
from .adaptive import *  # noqa: F403
from .attention import *  # noqa: F403
from .batchnorm import *  # noqa: F403
from .container import *  # noqa: F403
from .conv import *  # noqa: F403
from .distance import *  # noqa: F403
from .dropout import *  # noqa: F403
from .flatten import *  # noqa: F403
from .linear import *  # noqa: F403
from .loss import *  # noqa: F403
from .module import Module as Module
from .normalization import *  # noqa: F403
from .parameters import *  # noqa: F403
from .pooling import *  # noqa: F403
from .reshape import *  # noqa: F403
from .rnn import *  # noqa: F403
from .sparse import *  # noqa: F403
from .transformer import *  # noqa: F403

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
        from . import lazy

        if hasattr(lazy, name):
            return getattr(lazy, name)
    raise AttributeError(f"module 'torch.nn.modules' has no attribute '{name}'")
