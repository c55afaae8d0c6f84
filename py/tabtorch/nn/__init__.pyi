"""For type checkers: what `__init__.py` loads when it is asked for."""

from typing import Any

from tabtorch.nn import attention as attention
from tabtorch.nn import functional as functional
from tabtorch.nn import grad as grad
from tabtorch.nn import init as init
from tabtorch.nn import modules as modules
from tabtorch.nn import parallel as parallel
from tabtorch.nn import utils as utils
from tabtorch.nn.modules import *  # noqa: F403
from tabtorch.nn.parallel import DataParallel as DataParallel
from tabtorch.nn.parameter import Buffer as Buffer
from tabtorch.nn.parameter import Parameter as Parameter
from tabtorch.nn.parameter import UninitializedBuffer as UninitializedBuffer
from tabtorch.nn.parameter import UninitializedParameter as UninitializedParameter

def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]: ...
