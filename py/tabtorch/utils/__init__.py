"""``torch.utils``: hooks, data loading."""

import importlib

__all__ = ["data", "hooks"]


def __getattr__(name):
    if name in __all__:  # imported when first asked for
        return importlib.import_module("tabtorch.utils." + name)
    hint = "" if name.startswith("_") else " (if PyTorch has it: tabtorch does not have it yet)"
    raise AttributeError(f"module 'torch.utils' has no attribute '{name}'{hint}")
