"""torch.func: functions of functions. `vmap` batches them; `grad`, `vjp`, `jvp`, `jacrev`, `jacfwd`, `hessian` differentiate them.

They nest in any order. https://docs.pytorch.org/docs/stable/func.html
"""

from __future__ import annotations

import importlib
from typing import Any

#: name -> the module that has it
_PLACES = {
    "debug_unwrap": "transforms",
    "functional_call": "modules",
    "functionalize": "transforms",
    "grad": "transforms",
    "grad_and_value": "transforms",
    "hessian": "jacobians",
    "jacfwd": "jacobians",
    "jacrev": "jacobians",
    "jvp": "forward",
    "linearize": "forward",
    "replace_all_batch_norm_modules_": "modules",
    "stack_module_state": "modules",
    "vjp": "transforms",
    "vmap": "mapping",
}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'torch.func' has no attribute '{name}'")
    value = getattr(importlib.import_module("." + _PLACES[name], __name__), name)
    globals()[name] = value
    return value
