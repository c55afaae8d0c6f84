"""Parameters as one vector, and back."""

import tabtorch as torch


def _same_device(param, device):
    if device is not None and param.device != device:
        raise TypeError("Found two parameters on different devices, this is currently not supported.")
    return param.device


def parameters_to_vector(parameters):
    """All parameters, flattened, in one tensor (n,)."""
    device, parts = None, []
    for param in parameters:
        device = _same_device(param, device)
        parts.append(param.reshape(-1))
    return torch.cat(parts)


def vector_to_parameters(vec, parameters):
    """Makes each parameter's data a slice of ``vec``."""
    if not isinstance(vec, torch.Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {torch.typename(vec)}")
    device, start = None, 0
    for param in parameters:
        device = _same_device(param, device)
        n = param.numel()
        param.data = vec[start : start + n].view_as(param).data
        start += n
