"""What every other part may use, and uses none of them: data types, devices, errors, the state of a thread, PyTorch's random numbers."""
