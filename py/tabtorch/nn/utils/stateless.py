"""`functional_call` under its older name."""

from __future__ import annotations

import warnings
from typing import Any

from tabtorch import _lazy

__all__ = ["functional_call"]


def functional_call(
    module: Any,
    parameters_and_buffers: Any,
    args: Any = None,
    kwargs: Any = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """See `torch.func.functional_call`."""
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future version of "
        "PyTorch. Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    return _lazy.func.functional_call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )
