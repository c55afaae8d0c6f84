"""`make bench`, `make bench-gpu`: what tensor programs cost here, beside native PyTorch and other libraries of the web."""
