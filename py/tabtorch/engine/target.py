"""What the planner has to know of a device: limits, and which forms of a kernel pay on it."""

from __future__ import annotations

from typing import Any

from tabtorch.base.device import BACKENDS

from .. import bridge as _bridges
from .memory import bridge
from .render import renderer_of

#: (elements of all rows, at most; elements of a chunk)
_CHUNKS = ((2**22, 4096), (2**24, 16384), (2**26, 32768), (2**28, 65536))
#: the same of a tile of rows whose elements lie apart
_TILES = ((2**21, 4096), (2**24, 16384))


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
        # whether its own quotients and square roots are correctly rounded, and whether its `fma` rounds once, see wgsl_math.py
        self.exact = bool(known and known.get("exact"))
        self.fused = bool(known and known.get("fused"))
        # whether a subgroup multiplies matrices of 16 x 16 halves at once, and whether that may be used
        self.has_matrices = 16 in (known or {}).get("matrices", ())
        self.matrices = self.has_matrices and permitted[0]
        # whether a text that compiles sooner runs at first: software compiles that no sooner
        self.baselines = self.barriers
        self.workgroup_bytes = limits.get("maxComputeWorkgroupStorageSize", 16384)
        self.invocations = limits.get("maxComputeInvocationsPerWorkgroup", 256)
        self.features = frozenset(known["features"]) if known else frozenset()  # of the device, as WebGPU names them
        # whether joins may go by subgroups: where these are as large as the shader is told, and full. Where a driver may choose
        # (Intel's and Qualcomm's, on Vulkan) that is not known.
        sure = any(name in words for name in ("nvidia", "apple", "amd", "swiftshader"))
        self.subgroups = "subgroups" in self.features and sure

    def split(self, rows: int, length: int, neighbours: bool) -> tuple[int, int] | None:
        """How to cut long rows that are too few to keep the device busy: (chunks, chunk length).

        `neighbours`: a row's elements lie next to each other, so a workgroup can walk it; else a thread does.
        The thresholds are coarse, so that a batch of another size seldom means another kernel.
        """
        if self.serial:
            return None
        work = rows * length
        if self.software or neighbours:
            if length < 8192 or rows >= 256:
                return None
            # about a thousand workgroups, so many as a large GPU has at a time, once there is work enough for them
            chunk = 2048 if self.software else next((n for most, n in _CHUNKS if work < most), 131072)
        else:  # a tile has 256 rows side by side, or as many as there are, and so many elements in all
            if length < 256 or rows >= 2**17:
                return None
            chunk = next((n for most, n in _TILES if work < most), 65536) // (
                256 if rows > 128 else 64 if rows > 32 else 16
            )
        return -(-length // chunk), chunk


#: whether float32 products may be less than exact: `torch.set_float32_matmul_precision`
permitted = [False]


def permit(less: bool) -> bool:
    """Says whether they may. Returns whether that changes what kernels are like."""
    permitted[0] = less
    changed = [t for t in _targets.values() if t.matrices != (t.has_matrices and less)]
    for t in changed:
        t.matrices = less
    return bool(changed)


_targets: dict[int, Target] = {}
_bridges.on_close(lambda: _targets.clear())
_bridges.keeps(globals(), "_targets")


def on_gpu(device: Any) -> bool:
    """Whether kernels have the forms of a GPU there. On meta nothing is computed, and no runtime is asked."""
    return device.type == "webgpu" and target(device.number).barriers


def target(number: int) -> Target:
    t = _targets.get(number)
    if t is None:
        t = _targets[number] = Target(number, bridge().info)
    return t
