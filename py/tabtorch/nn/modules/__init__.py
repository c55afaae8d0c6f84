"""The layers, one file per family, which is loaded when one of them is asked for."""

import importlib

from tabtorch.base.lazy_namespace import homes, whole
from tabtorch.nn.modules.module import Module

#: layer -> its module
_WHERE = {name: home for name, home in homes(__name__).items() if not home.endswith(".module")}
#: files, and names that PyTorch has for them, which programs import and whole pickled models name
_FILES = {
    *(home.rpartition(".")[2] for home in _WHERE.values()),
    "channelshuffle",
    "fold",
    "instancenorm",
    "lazy",
    "padding",
    "pixelshuffle",
    "upsampling",
    "utils",
}

__all__ = [*_WHERE, "Module"]
whole(__name__)


def __getattr__(name):
    if name in _FILES:
        return importlib.import_module(f"{__name__}.{name}")
    if name.startswith("Lazy") and hasattr(__getattr__("lazy"), name):
        return getattr(__getattr__("lazy"), name)
    if name not in _WHERE:
        raise AttributeError(f"module 'torch.nn.modules' has no attribute '{name}'")
    return globals().setdefault(name, getattr(importlib.import_module(_WHERE[name]), name))
