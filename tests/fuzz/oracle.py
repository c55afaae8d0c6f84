"""PyTorch's side of `fuzz.aliases`: programs that were drawn and run there, as plain data. In Pyodide the CPython next door has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .draws import Draw, Spoiled, draw, replay, without
from .steps import plain


def record(seeds: Iterable[int], wide: bool = True) -> list[dict[str, Any]]:
    """The programs of these seeds with what PyTorch makes of them. wide: with float64, which webgpu lacks."""
    return [recorded(draw(seed, wide)) for seed in seeds]


def recorded(g: Draw) -> dict[str, Any]:
    return {"seed": g.seed, "steps": g.steps, "results": g.results, **final(g)}


def final(g: Draw) -> dict[str, Any]:
    """The values at the end of a program that was run with PyTorch; None where they are not defined."""
    with g.p.lib.inference_mode():
        values = [None if g.is_tainted(t) or g.bits(t) or g.loose(t) else seen(t) for t in g.tensors]
        log = [None if g.grads_tainted else plain(t) for t in g.p.log]
    own = [i for i, t in enumerate(g.tensors) if g.storage(t) in g.gradients]
    return {"values": values, "log": log, "gradients": own}


def seen(t: Any) -> Any:
    try:
        return plain(t)
    except RuntimeError:  # PyTorch now and then loses a storage of no bytes
        return None


def shrunk(seed: int, wide: bool, fails: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """A program that fails as that of the seed does, with as few steps as leaving out one after the other gives."""
    g = draw(seed, wide)
    k = len(g.steps) - 1
    while k >= 0:
        if k < len(g.steps):
            try:
                shorter = replay(g.seed, *without(g, k))
            except (IndexError, KeyError, Spoiled):
                shorter = None
            if shorter is not None and len(shorter.steps) < len(g.steps) and fails(recorded(shorter)):
                g = shorter
        k -= 1
    return recorded(g)
