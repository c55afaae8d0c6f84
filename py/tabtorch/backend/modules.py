"""`Module.to("webgpu")` keeps its parameters: what is tied stays tied, and an optimizer made before still has them.

Between the CPU and CUDA PyTorch sets `parameter.data`. Between kinds of tensors that have no common form, as here, it makes new
parameters, one for each module that has one. So after such a move the contents of the old and the new one are swapped.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from tabtorch.backend.tensors import NAME


def register() -> None:
    """Wraps `Module._apply`, by which all conversions go. PyTorch has no hook there."""
    plain = torch.nn.Module._apply

    @functools.wraps(plain)
    def _apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        before = [(name, p) for name, p in self._parameters.items() if p is not None]
        result = plain(self, fn, recurse)
        parameters = self._parameters
        for name, old in before:
            new = parameters.get(name)
            if new is not None and new is not old and NAME in (old.device.type, new.device.type):
                kind = type(old) if is_lazy(old) else None
                try:
                    torch.utils.swap_tensors(old, new)
                    if kind is not None:  # the new one is a parameter, as if it had a size
                        old.__class__ = kind
                except RuntimeError:  # somebody holds a weak reference, or a history that is still there
                    continue
                parameters[name] = old
        return result

    torch.nn.Module._apply = _apply
