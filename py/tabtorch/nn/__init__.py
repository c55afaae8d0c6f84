"""``torch.nn``: modules, their parameters, and what belongs to them. Layers are loaded when they are asked for."""

import importlib

from tabtorch.base.lazy_namespace import whole
from tabtorch.nn import functional, modules
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
whole(__name__)


def __getattr__(name):
    if name in ("attention", "grad", "init", "parallel", "utils"):
        return importlib.import_module(f".{name}", __name__)
    if name == "DataParallel":
        return importlib.import_module(".parallel", __name__).DataParallel
    if name.startswith("Lazy") and hasattr(modules.lazy, name):
        return getattr(modules.lazy, name)
    if name in modules.__all__:
        return globals().setdefault(name, getattr(modules, name))
    raise AttributeError(f"module 'torch.nn' has no attribute '{name}'")


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
