"""`torch.utils.tensorboard`: not there, which importing it says."""

raise ImportError(
    "torch.utils.tensorboard is not part of tabtorch: TensorBoard does not run in a browser tab. Print the figures, keep them in "
    "a list and plot them (matplotlib runs in Pyodide), or write them to a file; torch.profiler exports Chrome traces."
)
