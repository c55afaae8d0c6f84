"""``torch.utils``: hooks, data loading."""

import importlib
import weakref

from tabtorch import _lazy

__all__ = [
    "_pytree",
    "benchmark",
    "checkpoint",
    "collect_env",
    "data",
    "dlpack",
    "flop_counter",
    "hooks",
    "model_zoo",
    "tensorboard",
]


def swap_tensors(t1, t2):
    """Each becomes the other: class, attributes, values, autograd record. RuntimeError where one has weak references."""
    for name, t in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(t):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    a, b = _lazy.tensor_base.inside(t1), _lazy.tensor_base.inside(t2)
    first = dict(a)
    a.clear()
    a.update(b)
    b.clear()
    b.update(first)


def __getattr__(name):
    if name in __all__:  # imported when first asked for
        return importlib.import_module("tabtorch.utils." + name)
    hint = "" if name.startswith("_") else " (if PyTorch has it: tabtorch does not have it yet)"
    raise AttributeError(f"module 'torch.utils' has no attribute '{name}'{hint}")
