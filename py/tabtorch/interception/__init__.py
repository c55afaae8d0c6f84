"""What `__torch_function__`, autocast and the profiler stand on: how a call of a torch function is led elsewhere. Private."""
