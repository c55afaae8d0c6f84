"""Imported before real PyTorch, which is the oracle, this keeps `tabtorch.backend` from giving it a device of ours."""

import os

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
