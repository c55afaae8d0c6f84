"""``torch.optim``: optimizers and learning-rate schedules."""

from ..nn._missing import missing_class
from . import lr_scheduler
from .adadelta import Adadelta
from .adagrad import Adagrad
from .adam import Adam, AdamW
from .adamax import Adamax
from .optimizer import Optimizer
from .rmsprop import RMSprop
from .sgd import SGD

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Optimizer", "RMSprop", "lr_scheduler"]

__getattr__ = missing_class("torch.optim", "ASGD Adafactor LBFGS Muon NAdam RAdam Rprop SparseAdam", Optimizer)
