"""`torch._library`: parts of `torch.library`."""
