"""`torch.nested`: tensors of rows of several lengths. There are none: making one is a NotImplementedError."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["as_nested_tensor", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor"]


def nested_tensor(*args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError."""
    raise NotImplementedError(
        "torch.nested: tabtorch has no nested tensors; pad (torch.nn.utils.rnn.pad_sequence) and mask, or pack (pack_sequence)"
    )


as_nested_tensor = nested_tensor_from_jagged = narrow = masked_select = to_padded_tensor = nested_tensor
