"""`torch.utils.dlpack`: tensors of other libraries, and tensors for them; each way a copy, for a device keeps its own memory."""

import enum
from typing import Any

from tabtorch.ops.compatibility.settings import from_dlpack

__all__ = ["DLDeviceType", "from_dlpack"]


class DLDeviceType(enum.IntEnum):
    """The numbers that the DLPack specification gives to kinds of memory."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17


def to_dlpack(tensor: Any) -> Any:
    """A DLPack capsule with a copy of the elements, in memory that NumPy made."""
    return tensor.__dlpack__()
