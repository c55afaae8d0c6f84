"""`torch._ops`: the classes of operators."""

from __future__ import annotations

from tabtorch import ops
from tabtorch.ops.aten import Overload as OpOverload
from tabtorch.ops.aten import Packet as OpOverloadPacket

__all__ = ["OpOverload", "OpOverloadPacket", "ops"]
