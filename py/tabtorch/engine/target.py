"""What the planner has to know of a device: limits, and which forms of a kernel pay on it."""

from __future__ import annotations

from typing import Any

from tabtorch.base.device import BACKENDS

from .. import bridge as _bridges
from .memory import bridge
from .render import renderer_of


class Target:
    """What the planner has to know of a device."""

    def __init__(self, number: int, info: dict[str, Any]) -> None:
        self.number = number
        known = info.get(BACKENDS[number].name)  # what the runtime says of it
        limits = known["limits"] if known else {}
        adapter = known["adapter"] if known else {}
        self.serial, self.doubles = renderer_of(number).serial, renderer_of(number).doubles
        self.buffers = 64 if self.serial else min(limits.get("maxStorageBuffersPerShaderStage", 8), 16)
        words = " ".join(str(v) for v in adapter.values()).lower()
        # a software adapter pays dearly for barriers, and has few threads to keep busy
        self.software = not self.serial and ("swiftshader" in words or "llvmpipe" in words or "lavapipe" in words)
        self.barriers = not self.serial and not self.software
        self.workgroup_bytes = limits.get("maxComputeWorkgroupStorageSize", 16384)
        self.invocations = limits.get("maxComputeInvocationsPerWorkgroup", 256)
        self.features = frozenset(known["features"]) if known else frozenset()  # of the device, as WebGPU names them

    def split(self, rows: int, length: int, neighbours: bool) -> tuple[int, int] | None:
        """How to cut long rows that are too few to keep the device busy: (chunks, chunk length).

        `neighbours`: a row's elements lie next to each other, so a workgroup can walk it; else a thread does.
        The thresholds are coarse, so that a batch of another size seldom means another kernel.
        """
        if self.serial:
            return None
        if self.software or neighbours:
            if length < 8192 or rows >= 256:
                return None
            chunk = 2048 if self.software else 4096 if length < 2**22 else 16384
        else:
            if length < 256 or rows >= 2**17:
                return None
            work = rows * length
            chunk = 32 if work < 2**22 else 64 if work < 2**25 else 256
        return -(-length // chunk), chunk


_targets: dict[int, Target] = {}
_bridges.on_close(lambda: _targets.clear())
_bridges.keeps(globals(), "_targets")


def target(number: int) -> Target:
    t = _targets.get(number)
    if t is None:
        t = _targets[number] = Target(number, bridge().info)
    return t
