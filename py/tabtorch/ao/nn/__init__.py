"""`torch.ao.nn`: of its layers there are the names of those of quantized tensors."""

from tabtorch.ao.nn import quantized

__all__ = ["quantized"]
