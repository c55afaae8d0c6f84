"""Operations on lists of tensors: those of optimizers that PyTorch has as one kernel, and of gradient scalers."""

from __future__ import annotations
