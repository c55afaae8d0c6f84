"""`torch.masked`: operations under a mask, and `MaskedTensor`. See https://docs.pytorch.org/docs/stable/masked.html"""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.masked._ops import (
    _input_mask,  # noqa: F401
    _output_mask,  # noqa: F401
    amax,
    amin,
    argmax,
    argmin,
    cumprod,
    cumsum,
    log_softmax,
    logaddexp,
    logsumexp,
    mean,
    median,
    norm,
    normalize,
    prod,
    softmax,
    softmin,
    std,
    sum,
    var,
)
from tabtorch.ops.machinery.registry import Missing

__all__ = [
    "MaskedTensor",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "as_masked_tensor",
    "cumprod",
    "cumsum",
    "is_masked_tensor",
    "log_softmax",
    "logaddexp",
    "logsumexp",
    "masked_tensor",
    "mean",
    "median",
    "norm",
    "normalize",
    "prod",
    "softmax",
    "softmin",
    "std",
    "sum",
    "var",
]


def __getattr__(name: str) -> Any:
    if name == "maskedtensor" or name in __all__:  # few programs have one
        package = _lazy.maskedtensor
        return package if name == "maskedtensor" else getattr(package, name)
    raise Missing(f"module 'torch.masked' has no attribute '{name}'")
