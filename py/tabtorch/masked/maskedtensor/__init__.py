"""`MaskedTensor`: a tensor some of whose elements are hidden. See https://docs.pytorch.org/docs/stable/masked.html"""

from tabtorch.masked.maskedtensor.core import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]
