"""`torch.ao`: quantization; tabtorch has the marks of it, and weights that stay packed (`tabtorch.packed`)."""

from tabtorch.ao import quantization

__all__ = ["quantization"]
