"""`tabtorch run` has made `torch` mean tabtorch; in these tests it means PyTorch."""

from __future__ import annotations

import sys

import tabtorch
from tabtorch import device as _  # noqa: F401
from tabtorch import install as _install  # noqa: F401


def uninstall() -> None:
    """Undo `tabtorch.install()`."""
    for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
        del sys.modules[name]
    module = sys.modules["tabtorch.install"]
    sys.meta_path[:] = [f for f in sys.meta_path if f not in (module._finder, module._safetensors, module._torchao)]
    tabtorch.__name__ = "tabtorch"
    sys.modules["tabtorch.base.device"]._cuda_alias = False
