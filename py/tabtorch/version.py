"""`torch.version`: the PyTorch whose behaviour is followed, and that this is tabtorch."""

from __future__ import annotations

TORCH = "2.13.0"
TABTORCH = "0.1.0"

__version__ = f"{TORCH}+tabtorch.{TABTORCH}"
git_version = ""
debug = False
cuda = None
hip = None
xpu = None
