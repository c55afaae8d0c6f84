"""Hostile files: mutated checkpoints and safetensors, loaded by tabtorch and by real PyTorch, which must agree.

`python -m fuzz.files --programs 10000` in tests/. A program is a file; its number and the seed say how it was made.
"""
