"""Other people's libraries, unchanged, on tabtorch as `torch`, beside the same on real PyTorch."""
