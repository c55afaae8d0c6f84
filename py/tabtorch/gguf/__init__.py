"""Models in GGUF files: `load` reads metadata and tensors, `model` makes a module of them that writes text.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. What is quantized stays packed on the device.
"""

from tabtorch.gguf.header import GGUFError
from tabtorch.gguf.llama import Llama, model
from tabtorch.gguf.reader import GGUF, load, load_async

__all__ = ["GGUF", "GGUFError", "Llama", "load", "load_async", "model"]
