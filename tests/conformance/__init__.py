"""PyTorch's own table of operators, `op_db`, against tabtorch on both devices, with real PyTorch in the same process.

    python -m conformance [PATTERN ...] [--device cpu|webgpu] [--check forward,gradient,...] [--samples N] [-j N] [-v]

`translate` turns PyTorch's values and callables into tabtorch's, `compare` says when two results are the same, `checks` are
the questions asked of an operator, `workers` asks them in parallel, `left_out` is the list of what need not pass, and why,
and `report` writes COMPATIBILITY.md.
"""
