"""The deferred graph, its fusion into kernels, memory planning, and kept plans."""
