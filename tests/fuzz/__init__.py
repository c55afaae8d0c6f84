"""Differential fuzzers: random programs whose every result must be that of real PyTorch, or of eager mode."""
