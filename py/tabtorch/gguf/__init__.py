"""Models in GGUF files: `load` reads metadata and tensors, `model` makes a module of them that writes text.

    llm = tabtorch.gguf.model("model-Q4_K_M.gguf")          # or a URL, bytes, a file that was chosen; `await model_async(…)`
    for text in llm.generate([{"role": "user", "content": "Hi"}], temperature=0.7):
        print(text, end="")

`generate` and `generate_async` take a text, messages, or numbers of tokens. `llm.tokenizer` is the file's: `encode`, `decode`,
`chat`, `stops`. The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. What is quantized stays packed on the device.
"""

from tabtorch.gguf.header import GGUFError
from tabtorch.gguf.llama import Llama, model, model_async
from tabtorch.gguf.reader import GGUF, load, load_async
from tabtorch.gguf.tokenizer import Tokenizer

__all__ = ["GGUF", "GGUFError", "Llama", "Tokenizer", "load", "load_async", "model", "model_async"]
