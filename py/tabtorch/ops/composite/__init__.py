"""Functions that are formulas over others."""
