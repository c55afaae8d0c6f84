"""Random tensors and random draws; generators are `tabtorch.random`, the streams `tabtorch.base.random_streams`."""
