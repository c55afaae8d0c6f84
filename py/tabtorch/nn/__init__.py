"""``torch.nn``: modules, their parameters, and what belongs to them."""

from . import functional, init, modules, utils
from ._missing import missing_class
from .modules import *  # noqa: F403
from .modules.module import Module
from .parameter import Buffer, Parameter

__all__ = ["Buffer", "Module", "Parameter", "functional", "init", "modules", "utils"]
__all__ += [name for name in modules.__all__ if name not in __all__]

__getattr__ = missing_class(
    "torch.nn",
    "AdaptiveLogSoftmaxWithLoss CTCLoss CrossMapLRN2d DataParallel EmbeddingBag FractionalMaxPool2d FractionalMaxPool3d "
    "LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d "
    "LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear "
    "LinearCrossEntropyLoss SyncBatchNorm UninitializedBuffer UninitializedParameter",
    Module,
)
