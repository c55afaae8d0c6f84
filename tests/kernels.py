"""Runs single expressions through the renderers and the bridge, without tensors or the scheduler. For tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tabtorch.base import dtypes
from tabtorch.bridge import get_bridge
from tabtorch.engine.expr import cast, fit
from tabtorch.engine.lower import Kernel, Ref
from tabtorch.engine.map_kernel import map_kernel


def build(
    device: int, name: str, expr: Callable[..., Any], ins: Sequence[Any], out: Any, compute: str, total: int
) -> tuple[Kernel, str, list[int]]:
    """The kernel of `out[i] = expr(ins[0][i], …)`, calculated in `compute` as the engine does for a Map."""
    k = Kernel(device, name)

    def body(i: Any) -> list[tuple[Ref, Any]]:
        args = [cast(k.load(Ref(j, d), i), compute) for j, d in enumerate(ins)]
        return [(Ref(len(ins), out), fit(cast(expr(*args), out.compute), out.name))]

    source, grid = map_kernel(k, total, body)
    return k, source, grid


def run_all(device: int, cases: Sequence[tuple[str, Callable[..., Any], Sequence[np.ndarray], str, str]]) -> list[Any]:
    """Each case is (name, expr, arrays, output dtype, compute type). Compiles all, runs all, then reads all."""
    bridge = get_bridge()
    pending = []
    for name, expr, arrays, out_name, compute in cases:
        ins = [dtypes.PUBLIC[a.dtype.name] for a in arrays]
        out = dtypes.PUBLIC[out_name]
        total = arrays[0].size
        k, source, grid = build(device, name, expr, ins, out, compute, total)
        slots = [*range(len(ins)), len(ins)]
        bound = [key for key, _, _ in k.bindings]
        kernel = bridge.define_kernel(
            {
                "name": name,
                "device": device,
                "source": source,
                "bindings": [{"type": t, "access": a} for _, t, a in k.bindings],
                "constants": {},
            }
        )
        nbytes = -(-total * out.itemsize // 4) * 4
        plan = bridge.define_plan(
            {
                "name": name,
                "device": device,
                "slots": len(slots),
                "outputs": {},
                "temps": [],
                "scalars": [],
                "steps": [
                    {"kernel": kernel, "bind": bound, "words": k.words, "patch": [], "grid": grid, "label": name}
                ],
            }
        )
        ids = [bridge.upload(device, np.ascontiguousarray(a).tobytes()) for a in arrays]
        result = bridge.alloc(device, nbytes)
        bridge.run_packer(plan, len(slots), [])(*ids, result)
        pending.append((result, total, out))
    found = []
    for result, total, out in pending:
        data = bridge.read(result, device, 0, -(-total * out.itemsize // 4) * 4)
        dtype = np.dtype("uint8") if out.name == "bool" else np.dtype(out.name)
        found.append(np.frombuffer(data, dtype=dtype)[:total])
    return found
