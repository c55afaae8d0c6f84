"""Real PyTorch on this engine: `device="webgpu"` for an installed torch.

    import torch                                 # pip install "tabtorch[torch]": nothing else
    x = torch.ones(3, device="webgpu") + 1

`import torch` imports this package, by the entry point group `torch.backends` (tabtorch/_autoload.py). `import tabtorch.backend`
does the same where that is turned off (TORCH_DEVICE_BACKEND_AUTOLOAD=0), and where PyTorch has another accelerator: CUDA, ROCm,
XPU or MPS, beside which it is not done unasked. Node is started by the first tensor.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

from tabtorch._autoload import other_accelerator

#: what PyTorch has no public name for, and this needs: (module, name)
_NEEDED = (
    ("torch.utils.backend_registration", "_setup_privateuseone_for_python_backend"),
    ("torch._C", "_construct_storage_from_data_pointer"),
    ("torch._C", "_dispatch_get_all_op_names"),
    ("torch._C", "_dispatch_has_kernel_for_dispatch_key"),
    ("torch._C", "_dispatch_library"),
    ("torch._C", "_from_dlpack"),
    ("torch._C", "_get_schema"),
    ("torch._C._acc", "create_empty_tensor"),
)
_installed: list[bool] = []


def _check(torch: Any) -> None:
    """ImportError, in one sentence, for a torch that this cannot serve."""
    if torch.Tensor is sys.modules["tabtorch"].Tensor:
        raise ImportError(
            "tabtorch.backend is for real PyTorch; here `import torch` means tabtorch, which has the device itself"
        )
    lacking = [
        f"{module}.{name}"
        for module, name in _NEEDED
        if not hasattr(sys.modules.get(module) or importlib.import_module(module), name)
    ]
    if lacking:
        raise ImportError(
            f'tabtorch.backend was made with torch 2.13, and torch {torch.__version__} has no {", ".join(lacking)}: device="webgpu" '
            "is not there"
        )
    other = torch._C._get_privateuse1_backend_name()
    if other != "privateuseone":
        raise ImportError(
            f'PyTorch has place for one more device, which is taken by "{other}": device="webgpu" is not there'
        )


def install() -> None:
    """Gives PyTorch the device "webgpu"; once is enough. ImportError, in one sentence, where that cannot be."""
    if _installed:
        return
    torch = importlib.import_module("torch")
    _check(torch)
    other = other_accelerator(torch)
    try:
        importlib.import_module("tabtorch.backend.registration").register()
    except (AttributeError, LookupError, RuntimeError, TypeError) as error:
        raise ImportError(
            f'tabtorch.backend has no place in torch {torch.__version__}, device="webgpu" is not there: {error}'
        ) from error
    _installed.append(True)
    if other:
        warnings.warn(
            f'device="webgpu" is now the accelerator of this process: backward() on "{other}" fails, as PyTorch keeps the streams '
            "of one accelerator",
            stacklevel=2,
        )


def _import_torch() -> None:
    """Installs. While `import torch` runs, a torch that cannot be served is left as it is, with a warning."""
    torch = importlib.import_module("torch")
    try:
        install()
    except ImportError as error:
        if not getattr(torch.__spec__, "_initializing", False):
            raise
        warnings.warn(str(error), stacklevel=2)


_import_torch()
