"""`functorch`, as PyTorch's wheel still has it: what is in `torch.func`, with a warning that it is there."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import tabtorch
from tabtorch import func
from tabtorch._functorch import make_functional as modules
from tabtorch._functorch.make_functional import FunctionalModule, FunctionalModuleWithBuffers
from tabtorch.fx.experimental.proxy_tensor import make_fx

__all__ = [
    "FunctionalModule",
    "FunctionalModuleWithBuffers",
    "combine_state_for_ensemble",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "make_functional",
    "make_functional_with_buffers",
    "make_fx",
    "vjp",
    "vmap",
]

__version__ = tabtorch.__version__


def _deprecated(function: Callable[..., Any], new: str = "") -> Callable[..., Any]:
    name = function.__name__

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            "We've integrated functorch into PyTorch. As the final step of the integration, "
            f"`functorch.{name}` is deprecated as of PyTorch 2.0 and will be deleted in a future version of PyTorch >= 2.3. "
            f"Please use `{new or f'torch.func.{name}'}` instead; see the PyTorch 2.0 release notes and/or the `torch.func` "
            "migration guide for more details https://pytorch.org/docs/main/func.migrating.html",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    return called


vmap = _deprecated(func.vmap, "torch.vmap")
grad = _deprecated(func.grad)
grad_and_value = _deprecated(func.grad_and_value)
vjp = _deprecated(func.vjp)
jvp = _deprecated(func.jvp)
jacrev = _deprecated(func.jacrev)
jacfwd = _deprecated(func.jacfwd)
hessian = _deprecated(func.hessian)
functionalize = _deprecated(func.functionalize)
make_functional = _deprecated(modules.make_functional, "torch.func.functional_call")
make_functional_with_buffers = _deprecated(modules.make_functional_with_buffers, "torch.func.functional_call")
combine_state_for_ensemble = _deprecated(modules.combine_state_for_ensemble, "torch.func.stack_module_state")
