"""``torch.nn``: modules, their parameters, and what belongs to them."""

import importlib

from tabtorch.nn import functional, init, modules, utils
from tabtorch.nn.modules import *  # noqa: F403
from tabtorch.nn.modules.module import Module
from tabtorch.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    "Buffer",
    "Module",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "functional",
    "init",
    "modules",
    "utils",
]
__all__ += [name for name in modules.__all__ if name not in __all__]


def __getattr__(name):
    # what few programs use is read when it is asked for
    if name in ("attention", "grad", "parallel"):
        return importlib.import_module(f".{name}", __name__)
    home = ".parallel" if name == "DataParallel" else ".modules.lazy" if name.startswith("Lazy") else ""
    found = getattr(importlib.import_module(home, __name__), name, None) if home else None
    if found is None:
        raise AttributeError(f"module 'torch.nn' has no attribute '{name}'")
    return found


def factory_kwargs(kwargs):
    """The arguments of a module that say how its tensors are made: device, dtype, memory_format. TypeError for others."""
    if kwargs is None:
        return {}
    simple = {"device", "dtype", "memory_format"}
    if not kwargs.keys() <= simple | {"factory_kwargs"}:
        raise TypeError(f"unexpected kwargs {kwargs.keys() - simple - {'factory_kwargs'}}")
    made = dict(kwargs.get("factory_kwargs", {}))
    for k in simple & kwargs.keys():
        if k in made:
            raise TypeError(f"{k} specified twice, in **kwargs and in factory_kwargs")
        made[k] = kwargs[k]
    return made
