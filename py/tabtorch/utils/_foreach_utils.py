"""`torch.utils._foreach_utils`: what optimizers of other packages ask before they call `torch._foreach_…`."""

from typing import Any

from tabtorch.autograd.grad_mode import no_grad
from tabtorch.base.device import device as Device
from tabtorch.base.dtypes import dtype as Dtype
from tabtorch.core.tensor import Tensor

_foreach_supported_types = [Tensor]


def _get_foreach_kernels_supported_devices() -> list[str]:
    """The types of devices, beside "cpu", on which the functions are worth calling."""
    return ["cuda", "xpu", "mtia", "webgpu"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """The types of devices on which optimizers take `fused=True`."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "webgpu"]


@no_grad()
def _group_tensors_by_device_and_dtype(
    tensorlistlist: list[list[Any]], with_indices: bool = False
) -> dict[tuple[Device, Dtype], tuple[list[list[Any]], list[int]]]:
    """The lists, which are equally long, cut by the device and the type of what the first of them holds.

    with_indices: each group also says the places of its tensors in the lists. An empty list stays empty.
    RuntimeError if the first list is not full, or the lists are of different lengths.
    """
    first = tensorlistlist[0]
    missing = next((i for i, each in enumerate(first) if each is None), None)
    if missing is not None:
        raise RuntimeError(
            f"Tensors of the first list of nested Tensor lists are supposed to be defined but the {missing}-th Tensor is not."
        )
    if any(each and len(each) != len(first) for each in tensorlistlist):
        raise RuntimeError("All nested Tensor lists must have the same number of elements")
    groups: dict[tuple[Device, Dtype], tuple[list[list[Any]], list[int]]] = {}
    for place, tensor in enumerate(first):
        lists, places = groups.setdefault((tensor.device, tensor.dtype), ([[] for _ in tensorlistlist], []))
        for part, whole in zip(lists, tensorlistlist, strict=True):
            if whole:
                part.append(whole[place])
        if with_indices:
            places.append(place)
    return groups


def _device_has_foreach_support(device: Device) -> bool:
    """Whether the type of the device is one of those, or "cpu"."""
    return device.type in [*_get_foreach_kernels_supported_devices(), "cpu"]


def _has_foreach_support(tensors: list[Any], device: Device) -> bool:
    """Whether the device has it, and no tensor is of a class of somebody's own."""
    return _device_has_foreach_support(device) and all(
        t is None or type(t) in _foreach_supported_types for t in tensors
    )
