"""Reading and writing at places that depend on data."""
