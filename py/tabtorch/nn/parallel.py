"""``torch.nn.parallel``: there is one device, so nothing is spread over several."""

import tabtorch as torch
from tabtorch.nn.modules.module import Module

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "scatter"]


class DataParallel(Module):
    """Holds ``module``, and calls it: a model written for several devices runs on the one, and its state has the same names."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        self.module = module
        self.device_ids: list = [0] if torch.accelerator.is_available() else []
        if self.device_ids:
            self.dim = dim
            self.output_device = 0
            self.module.to(torch.accelerator.current_accelerator())

    def forward(self, *inputs, **kwargs):
        if self.device_ids:
            inputs, kwargs = _moved((inputs, kwargs), torch.accelerator.current_accelerator())
        return self.module(*inputs, **kwargs)


def _moved(x, device):
    """The tensors in tuples, lists and dicts on the device."""
    if isinstance(x, torch.Tensor):
        return x.to(device)
    if isinstance(x, dict):
        return type(x)((k, _moved(v, device)) for k, v in x.items())
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_moved(v, device) for v in x))
    return type(x)(_moved(v, device) for v in x) if isinstance(x, (list, tuple)) else x


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    """Calls ``module``."""
    return module(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))


def scatter(inputs, target_gpus, dim=0):
    """One object for each device: tensors are cut along ``dim`` and moved there, containers rebuilt, the rest repeated.

    ``target_gpus``: devices, or numbers of accelerators. Fewer objects where a tensor has fewer rows than there are devices.
    """
    if isinstance(inputs, torch.Tensor):
        chunks = inputs.chunk(len(target_gpus), dim)
        return tuple(chunk.to(_target(target)) for chunk, target in zip(chunks, target_gpus, strict=False))
    if isinstance(inputs, (tuple, list, dict)) and len(inputs) > 0:
        items = inputs.items() if isinstance(inputs, dict) else inputs
        parts = zip(*(scatter(item, target_gpus, dim) for item in items), strict=False)
        if hasattr(inputs, "_fields"):
            return [type(inputs)(*part) for part in parts]
        return [part if isinstance(inputs, tuple) else type(inputs)(part) for part in parts]
    return [inputs for _ in target_gpus]


def scatter_kwargs(inputs, kwargs, target_gpus, dim=0):
    """``scatter`` of positional and named arguments: as many tuples as dicts."""
    args = list(scatter(inputs, target_gpus, dim)) if inputs else []
    named = list(scatter(kwargs, target_gpus, dim)) if kwargs else []
    args += [()] * (len(named) - len(args))
    named += [{}] * (len(args) - len(named))
    return tuple(args), tuple(named)


def gather(outputs, target_device, dim=0):
    """One object of those of several devices: tensors are joined along ``dim`` (numbers become a vector).

    ValueError for dicts of different lengths.
    """
    out = outputs[0]
    if isinstance(out, torch.Tensor):
        tensors = [each.to(_target(target_device)) for each in outputs]
        return torch.stack(tensors) if out.ndim == 0 and dim == 0 else torch.cat(tensors, dim)
    if out is None:
        return None
    if isinstance(out, dict):
        if any(len(out) != len(each) for each in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(out)((k, gather([each[k] for each in outputs], target_device, dim)) for k in out)
    joined = [gather(list(each), target_device, dim) for each in zip(*outputs, strict=True)]
    return type(out)(*joined) if hasattr(out, "_fields") else type(out)(joined)


def _target(device):
    """The device that PyTorch's functions mean by a device, or by the number of an accelerator (-1: the cpu)."""
    if not isinstance(device, int):
        return torch.device(device)
    return torch.device("cpu") if device < 0 else torch.accelerator.current_accelerator() or torch.device("cpu")


class DistributedDataParallel(Module):
    """Needs several processes, which a tab does not have."""

    def __init__(self, module, *args, **kwargs):
        super().__init__()
        raise RuntimeError(
            "DistributedDataParallel needs torch.distributed, which tabtorch does not have: call the module itself"
        )
