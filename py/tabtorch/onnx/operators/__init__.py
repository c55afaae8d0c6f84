"""ONNX's operators, a file a family. Each function is written over the public namespace, as a script is."""

from __future__ import annotations

import importlib

FAMILIES = (
    "elementwise",
    "shaping",
    "indexing",
    "reductions",
    "products",
    "convolution",
    "normalization",
    "control",
    "quantization",
    "attention",
    "recurrent",
    "losses",
    "images",
    "signal",
    "draws",
    "texts",
    "training",
    "contrib",
    "contrib_quantized",
)


def load() -> None:
    """Makes all operators known to the registry."""
    for family in FAMILIES:
        importlib.import_module(f"tabtorch.onnx.operators.{family}")
