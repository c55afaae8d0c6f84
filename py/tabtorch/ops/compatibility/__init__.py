"""Other names and older forms under which PyTorch shows its operations."""
