"""The annotations that the layers' `forward` have in PyTorch, which shows them in the code of a graph whose root is a layer.

Ours have none. Most take tensors and give one; the others are listed.
"""

from __future__ import annotations

from typing import Any

from tabtorch.core.tensor import Tensor

_MASK = Tensor | None
_CAUSAL = bool | None
_NO_RESULT = dict.fromkeys(
    "AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d MaxPool1d MaxPool2d MaxPool3d _FractionalMaxPoolNd".split(),
    {"input": Tensor},
)
_STACK = {
    "tgt": Tensor,
    "tgt_mask": _MASK,
    "memory_mask": _MASK,
    "tgt_key_padding_mask": _MASK,
    "memory_key_padding_mask": _MASK,
    "memory_is_causal": bool,
    "return": Tensor,
}

#: class -> the annotations
_OTHERS: dict[str, dict[str, Any]] = {
    **_NO_RESULT,
    "EmbeddingBag": {"input": Tensor, "offsets": _MASK, "per_sample_weights": _MASK, "return": Tensor},
    "GRU": {},
    "GRUCell": {"input": Tensor, "hx": _MASK, "return": Tensor},
    "GaussianNLLLoss": {"input": Tensor, "target": Tensor, "var": Tensor | float, "return": Tensor},
    "LSTM": {},
    "LSTMCell": {"input": Tensor, "hx": tuple[Tensor, Tensor] | None, "return": tuple[Tensor, Tensor]},
    "MultiheadAttention": {
        "query": Tensor,
        "key": Tensor,
        "value": Tensor,
        "key_padding_mask": _MASK,
        "need_weights": bool,
        "attn_mask": _MASK,
        "average_attn_weights": bool,
        "is_causal": bool,
        "return": tuple[Tensor, Tensor | None],
    },
    "RNN": {},
    "RNNCell": {"input": Tensor, "hx": _MASK, "return": Tensor},
    "Sequential": {},
    "Transformer": {
        "src": Tensor,
        **_STACK,
        "src_mask": _MASK,
        "src_key_padding_mask": _MASK,
        "src_is_causal": _CAUSAL,
        "tgt_is_causal": _CAUSAL,
    },
    "TransformerDecoder": {**_STACK, "memory": Tensor, "tgt_is_causal": _CAUSAL},
    "TransformerDecoderLayer": {**_STACK, "memory": Tensor, "tgt_is_causal": bool},
    "TransformerEncoder": {
        "src": Tensor,
        "mask": _MASK,
        "src_key_padding_mask": _MASK,
        "is_causal": _CAUSAL,
        "return": Tensor,
    },
    "TransformerEncoderLayer": {
        "src": Tensor,
        "src_mask": _MASK,
        "src_key_padding_mask": _MASK,
        "is_causal": bool,
        "return": Tensor,
    },
    "_ConvTransposeNd": {"input": Tensor, "output_size": list[int] | None, "return": Tensor},
    "_MaxUnpoolNd": {"input": Tensor, "indices": Tensor, "output_size": list[int] | None, "return": Tensor},
}


def layer_types(fn: Any) -> dict[str, Any]:
    """A function's annotations; of a layer's `forward`, those that PyTorch's has."""
    own: dict[str, Any] = getattr(fn, "__annotations__", {})
    module = getattr(fn, "__module__", None) or ""  # code that was generated has none
    if own or not module.startswith("tabtorch.nn.modules.") or not fn.__qualname__.endswith(".forward"):
        return own
    known = _OTHERS.get(fn.__qualname__.removesuffix(".forward"))
    if known is not None:
        return known
    code = fn.__code__
    return dict.fromkeys((*code.co_varnames[1 : code.co_argcount], "return"), Tensor)
