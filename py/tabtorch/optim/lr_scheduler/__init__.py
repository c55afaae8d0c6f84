"""``torch.optim.lr_scheduler``: learning rates that change by epoch or by step."""

from tabtorch.optim.lr_scheduler.base import EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING
from tabtorch.optim.lr_scheduler.base import LRScheduler
from tabtorch.optim.lr_scheduler.base import _LRScheduler as _LRScheduler
from tabtorch.optim.lr_scheduler.chained import ChainedScheduler, ReduceLROnPlateau, SequentialLR
from tabtorch.optim.lr_scheduler.cyclic import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from tabtorch.optim.lr_scheduler.decay import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from tabtorch.optim.optimizer import Optimizer as Optimizer

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
