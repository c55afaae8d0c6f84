"""IPython's own modules, as far as scripts name them."""
