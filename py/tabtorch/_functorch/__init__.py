"""`torch._functorch`: where other packages look for what is in `tabtorch.func`."""
