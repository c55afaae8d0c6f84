"""Pictures of tensors, and charts: `tabtorch.show` and `tabtorch.plot`. In the page, in notebooks and in terminals."""
