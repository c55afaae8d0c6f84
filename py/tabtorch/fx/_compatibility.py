"""`torch.fx._compatibility`: the mark that says how stable a name is."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

_BACK_COMPAT_OBJECTS: dict[Any, None] = {}
_MARKED_WITH_COMPATIBILITY: dict[Any, None] = {}

_NOTES = {
    True: ".. note::\n    Backwards-compatibility for this API is guaranteed.\n",
    False: ".. warning::\n    This API is experimental and is *NOT* backward-compatible.\n",
}


def compatibility(is_backward_compatible: bool) -> Callable[[_T], _T]:
    """Decorator: what it marks says so in its docstring."""

    def mark(fn: _T) -> _T:
        fn.__doc__ = textwrap.dedent(fn.__doc__ or "") + "\n\n" + _NOTES[is_backward_compatible]
        if is_backward_compatible:
            _BACK_COMPAT_OBJECTS.setdefault(fn)
        _MARKED_WITH_COMPATIBILITY.setdefault(fn)
        return fn

    return mark
