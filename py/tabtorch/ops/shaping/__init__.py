"""Tensors in another shape, order, type or place: joining, padding, conversion."""
