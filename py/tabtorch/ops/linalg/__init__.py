"""Products, einsum, decompositions, equations."""
