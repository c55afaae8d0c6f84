"""`torch.xpu`: not available; Intel's GPUs are reached through WebGPU, as the device "webgpu"."""

from tabtorch.mps import device_count, empty_cache, is_available, manual_seed

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed"]
