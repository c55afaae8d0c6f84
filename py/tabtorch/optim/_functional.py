"""The functions under the optimizers, by the names of ``torch.optim._functional``."""

from tabtorch.optim.adadelta import adadelta
from tabtorch.optim.adagrad import adagrad
from tabtorch.optim.adam import adam
from tabtorch.optim.adamax import adamax
from tabtorch.optim.adamw import adamw
from tabtorch.optim.asgd import asgd
from tabtorch.optim.nadam import nadam
from tabtorch.optim.radam import radam
from tabtorch.optim.rmsprop import rmsprop
from tabtorch.optim.rprop import rprop
from tabtorch.optim.sgd import sgd

__all__ = ["adadelta", "adagrad", "adam", "adamax", "adamw", "asgd", "nadam", "radam", "rmsprop", "rprop", "sgd"]
