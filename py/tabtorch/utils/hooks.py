"""Handles of registered hooks; `BackwardHook`, which few programs meet, is loaded when it is asked for."""

import weakref
from collections import OrderedDict
from typing import Any

from tabtorch import _lazy

__all__ = ["RemovableHandle", "BackwardHook"]  # noqa: F822


def __getattr__(name: str) -> Any:
    if name == "BackwardHook":
        return _lazy.backward_hooks.BackwardHook
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class RemovableHandle:
    """What a ``register_*hook`` returns: ``remove()`` takes the hook out; also a context manager.

    ``extra_dict``: one dict or a list of dicts keyed by the same hook id, cleaned along with ``hooks_dict``.
    """

    next_id: int = 0

    def __init__(self, hooks_dict, *, extra_dict=None):
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extras = [extra_dict] if isinstance(extra_dict, dict) else extra_dict or []
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extras)

    def remove(self):
        """Takes the hook out. Doing so twice is harmless."""
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = ref()
            if hooks is not None and self.id in hooks:
                del hooks[self.id]

    def __getstate__(self):
        extras = tuple(ref() for ref in self.extra_dict_ref)
        return (self.hooks_dict_ref(), self.id, extras) if extras else (self.hooks_dict_ref(), self.id)

    def __setstate__(self, state):
        # A dict that died is replaced by an empty one, so that `remove` still works.
        self.hooks_dict_ref = weakref.ref(OrderedDict() if state[0] is None else state[0])
        self.id = state[1]
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)
        extras = state[2] if len(state) > 2 else ()
        self.extra_dict_ref = tuple(weakref.ref(OrderedDict() if d is None else d) for d in extras)

    def __enter__(self):
        return self

    def __exit__(self, type, value, tb):
        self.remove()
