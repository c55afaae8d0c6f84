"""What `import torch` calls, by the entry point group `torch.backends`: the device "webgpu", where PyTorch has no accelerator.

PyTorch has one accelerator a process, and a device that is registered in Python is it: `torch.accelerator` means that device,
and autograd keeps the order of its streams alone. `backward()` on CUDA ends in an internal assertion beside it (torch 2.11 on
an H200). So where there is another accelerator the device is registered for those who ask: by `import tabtorch.backend`, or by
`torch.compile(backend="webgpu")`.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from typing import Any


def _gpus_of_cuda(torch: Any) -> int:
    """How many GPUs there are that this process may use; -1 where it cannot be known. CUDA itself is not started: it would not
    survive a fork."""
    if torch.version.hip is not None:
        return -1 if os.path.exists("/dev/kfd") else 0
    try:
        ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:  # no driver
        return 0
    count = getattr(torch.cuda, "_device_count_nvml", None)
    return -1 if count is None else int(count())


def other_accelerator(torch: Any) -> str:
    """The accelerator that real PyTorch has here by itself, as "cuda" or "mps"; "" for none."""
    built_for = torch.accelerator.current_accelerator()
    if built_for is None or built_for.type not in ("cuda", "mps", "mtia", "xpu"):
        return ""
    kind = str(built_for.type)
    there = _gpus_of_cuda(torch) if kind == "cuda" else torch.get_device_module(kind).is_available()
    return kind if there else ""


def autoload() -> None:
    """Imports `tabtorch.backend`, which gives PyTorch the device, unless there is another accelerator."""
    torch = importlib.import_module("torch")
    if not other_accelerator(torch):
        importlib.import_module("tabtorch.backend")
