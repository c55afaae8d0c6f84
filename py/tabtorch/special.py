"""`torch.special`: the rows named special_NAME, and what torch has under the same name."""

from __future__ import annotations

from typing import Any

from tabtorch.ops.machinery import registry

_SAME = ("exp2", "expm1", "log1p", "sinc", "round", "softmax", "log_softmax", "logsumexp")
_RENAMED = {"multigammaln": "mvlgamma"}


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        f = registry.in_space("special_" + name) or (
            registry.in_space(_RENAMED.get(name, name)) if name in _SAME or name in _RENAMED else None
        )
        if f is not None:
            globals()[name] = f
            return f
    raise registry.Missing(
        f"module 'torch.special' has no attribute '{name}' (if PyTorch has it: tabtorch does not have it yet)"
    )


def __dir__() -> list[str]:
    registry.load_all()
    names = {n.removeprefix("special_") for n in (*registry.FUNCTIONS, *registry.ROW_NAMES) if n.startswith("special_")}
    return sorted({*names, *_SAME, *_RENAMED})
