"""``torch.utils``: hooks, data loading."""

from . import data, hooks

__all__ = ["data", "hooks"]
