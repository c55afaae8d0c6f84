"""``torch.optim``: optimizers and learning-rate schedules. Each is loaded when it is first named."""

import importlib

from tabtorch.base.lazy_namespace import whole

_WHERE = {
    "Adafactor": "_adafactor",
    "Adadelta": "adadelta",
    "Adagrad": "adagrad",
    "Adam": "adam",
    "Adamax": "adamax",
    "AdamW": "adamw",
    "ASGD": "asgd",
    "LBFGS": "lbfgs",
    "Muon": "_muon",
    "NAdam": "nadam",
    "Optimizer": "optimizer",
    "RAdam": "radam",
    "RMSprop": "rmsprop",
    "Rprop": "rprop",
    "SGD": "sgd",
    "SparseAdam": "sparse_adam",
    "swap_in_optimizer_params_and_state": "_stateless",
}
_MODULES = ("lr_scheduler", "swa_utils")

__all__ = [*_WHERE, *_MODULES]
whole(__name__)


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module("." + name, __name__)
    if name not in _WHERE:
        raise AttributeError(f"module 'torch.optim' has no attribute '{name}'")
    found = globals()[name] = getattr(importlib.import_module("." + _WHERE[name], __name__), name)
    return found
