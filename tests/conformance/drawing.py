"""Samples of modules that draw, of which PyTorch's table has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal.common_modules import FunctionInput, ModuleInfo, ModuleInput

Sample = tuple[tuple[Any, ...], dict[str, Any], tuple[tuple[int, ...], ...], dict[str, Any]]


def _of(*args: Any, shapes: tuple[tuple[int, ...], ...], call: dict[str, Any] | None = None, **kwargs: Any) -> Sample:
    return args, kwargs, shapes, call or {}


def _layer(**kwargs: Any) -> torch.nn.Module:
    return torch.nn.TransformerEncoderLayer(4, 2, 8, 0.3, **kwargs)


_THREE = ((3, 2, 4),) * 3
#: class -> the arguments of the constructor, the shapes of the inputs of the call, and its other arguments
SAMPLES: dict[str, Callable[[], list[Sample]]] = {
    "Dropout": lambda: [_of(*p, shapes=((40, 50),)) for p in ((), (0.2,), (0.0,), (1.0,))],
    "Dropout1d": lambda: [_of(0.3, shapes=(shape,)) for shape in ((20, 80, 3), (4, 5))],
    "Dropout2d": lambda: [_of(0.3, shapes=((20, 80, 2, 2),))],
    "Dropout3d": lambda: [_of(0.3, shapes=(shape,)) for shape in ((4, 5, 2, 2, 2), (5, 2, 2, 2))],
    "AlphaDropout": lambda: [_of(0.3, shapes=((40, 50),)), _of(shapes=((7,),))],
    "FeatureAlphaDropout": lambda: [_of(0.3, shapes=((4, 5, 3),))],
    "RReLU": lambda: [_of(shapes=((40, 50),)), _of(0.1, 0.9, shapes=((7,),))],
    "MultiheadAttention": lambda: [
        _of(4, 2, dropout=0.4, shapes=_THREE),
        _of(4, 2, dropout=0.4, shapes=_THREE, call={"need_weights": False}),
        _of(4, 2, dropout=0.4, batch_first=True, shapes=_THREE, call={"average_attn_weights": False}),
    ],
    "TransformerEncoderLayer": lambda: [
        _of(4, 2, 8, 0.3, norm_first=first, shapes=((3, 2, 4),)) for first in (False, True)
    ],
    "TransformerEncoder": lambda: [_of(_layer(batch_first=True), 2, shapes=((3, 2, 4),))],
    "TransformerDecoderLayer": lambda: [_of(4, 2, 8, 0.3, shapes=((3, 2, 4), (5, 2, 4)))],
    "Transformer": lambda: [_of(4, 2, 1, 1, 8, 0.3, shapes=((3, 2, 4), (5, 2, 4)))],
}


def inputs(name: str, dtype: torch.dtype, requires_grad: bool) -> list[ModuleInput]:
    """The samples of a class, none for one that does not draw."""
    found = []
    for args, kwargs, shapes, call in SAMPLES.get(name, list)():
        tensors = [torch.randn(shape, dtype=dtype).requires_grad_(requires_grad) for shape in shapes]
        found.append(ModuleInput(FunctionInput(*args, **kwargs), FunctionInput(*tensors, **call)))
    return found


def infos(known: set[str]) -> list[ModuleInfo]:
    """Those of the classes that are not known."""
    return [
        ModuleInfo(getattr(torch.nn, name), module_inputs_func=lambda *_, **__: [], train_and_eval_differ=True)
        for name in SAMPLES
        if f"nn.{name}" not in known
    ]
