"""Weights that stay packed: block formats of GGUF, GPTQ, AWQ, and what is quantized here.

A `Packed` weight stands in the place of a module's parameter. Where a product or an embedding reads it, its kernel unpacks.
"""

from tabtorch.packed.checkpoints import load_quantized
from tabtorch.packed.formats import FORMATS, Format
from tabtorch.packed.quantization import quantize_4bit, quantize_int4, quantize_int8
from tabtorch.packed.weight import SCHEMES, Packed

__all__ = [
    "FORMATS",
    "SCHEMES",
    "Format",
    "Packed",
    "load_quantized",
    "quantize_4bit",
    "quantize_int4",
    "quantize_int8",
]
