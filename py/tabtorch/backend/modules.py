"""`Module.to("webgpu")` keeps its parameters: what is tied stays tied, and an optimizer made before still has them.

Between the CPU and CUDA PyTorch sets `parameter.data`. Between kinds of tensors that have no common form, as here, it makes new
parameters, one for each module that has one. So after such a move the contents of the old and the new ones are swapped.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from tabtorch.backend.tensors import NAME

_moving: list[Any] = []  # the outermost module that is being moved


def _places(module: torch.nn.Module) -> list[tuple[dict[str, Any], str, Any]]:
    return [(m._parameters, name, p) for m in module.modules() for name, p in m._parameters.items() if p is not None]


def register() -> None:
    """Wraps `Module._apply`, by which all conversions go. PyTorch has no hook there."""
    plain = torch.nn.Module._apply

    @functools.wraps(plain)
    def _apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        if _moving:
            return plain(self, fn, recurse)
        before = _places(self)
        _moving.append(self)
        try:
            result = plain(self, fn, recurse)
        finally:
            _moving.pop()
        _keep(before)
        return result

    torch.nn.Module._apply = _apply  # type: ignore[method-assign]


def _keep(before: list[tuple[dict[str, Any], str, Any]]) -> None:
    """Puts the parameters that were there back in their places, with what they have become."""
    moved: dict[int, Any] = {}
    for parameters, name, old in before:
        new = parameters.get(name)
        if new is None or new is old or (old.device.type != NAME and new.device.type != NAME and id(old) not in moved):
            continue
        if id(old) not in moved:
            try:
                torch.utils.swap_tensors(old, new)
                moved[id(old)] = old
            except RuntimeError:  # somebody holds a weak reference, or the history of a result that is still there
                moved[id(old)] = new
        parameters[name] = moved[id(old)]
