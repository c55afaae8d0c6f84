"""What may not depend on how large a tensor is: compiled shaders, dispatches, nodes. And what should not be: reads in the middle.

    python -m conformance.sizes [PATTERN ...] [--samples N] [--gradient] [-j N] [--json FILE]

A sample of PyTorch's table is run at its own sizes, and with every size mapped to larger ones. The second may pass a threshold,
beyond which a reduction is split; from the third on nothing should be compiled, and nothing should take more dispatches or
nodes. What does is asked at further sizes, where only what compiles again and again, or grows as the sizes do, is at fault: a
threshold that lies elsewhere, or the passes of a sort, a scan or a long reduction, which grow as a logarithm, are not.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing as mp
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

import tabtorch
from tabtorch.bridge import get_bridge
from tabtorch.bridge.block import WEBGPU
from tabtorch.engine import graph

from . import checks, translate
from .translate import Translator, tensors

#: what every size becomes: first where no sizes need to divide each other, then where they must
_MAPS: tuple[Callable[[int, int], int], ...] = (lambda n, k: k * n + k - 1, lambda n, k: k * n)
_SCALES = (2, 3, 4, 5)

#: kernels of which there is one for a kind of length, not for a length: the radices that a length is made of
_FAMILIES = ("fft ",)


class Cost(NamedTuple):
    """What one call took. `made` names the shaders that were compiled for it, `results` counts its tensors."""

    made: list[str]
    dispatches: int
    reads: int
    nodes: int
    results: int


class Found(NamedTuple):
    """A sample at growing sizes; `args` describes it at its own size."""

    op: str
    args: str
    costs: list[Cost]

    def suspect(self) -> bool:
        """Whether the third size compiled anything, or took more than the second."""
        _, second, third = self.costs[:3]
        return bool(third.made) or third.dispatches > second.dispatches or third.nodes > second.nodes

    def faults(self) -> list[str]:
        """What is not as it should be."""
        if len(self.costs) < 5 or len({x.results for x in self.costs[1:]}) > 1:
            return []
        out = [f"compiles {x}" for x in self.costs[-1].made] if self.costs[-2].made else []
        for what in ("dispatches", "nodes"):
            counts = [getattr(x, what) for x in self.costs]
            if counts[-1] - counts[1] > 4:
                out.append(f"{what} {counts}")
        return out


@contextmanager
def counted() -> Iterator[Callable[[int], Cost]]:
    """Counts what follows, until the function it gives is called."""
    made: list[str] = []
    nodes = [0]
    graph.flush()
    bridge = get_bridge()
    define, emit = bridge.define_kernel, graph.Node.__init__

    def define_kernel(spec: dict[str, Any]) -> int:
        if spec["device"] == WEBGPU and not spec["name"].startswith(_FAMILIES):
            made.append(spec["name"])
        return define(spec)

    def count(self: Any, *args: Any) -> None:
        nodes[0] += 1
        emit(self, *args)

    bridge.reset_stats()
    bridge.define_kernel, graph.Node.__init__ = define_kernel, count  # type: ignore[method-assign]

    def cost(results: int) -> Cost:
        graph.flush()
        stats = bridge.stats()
        return Cost(made, stats["dispatches"], stats["reads"], nodes[0], results)

    try:
        yield cost
    finally:
        bridge.define_kernel, graph.Node.__init__ = define, emit  # type: ignore[method-assign]


def _wider(t: torch.Tensor, to: Callable[[int], int]) -> torch.Tensor:
    """The same values over and over, a little less each time where they are real: indices stay valid."""
    t = t.detach()
    for d, n in enumerate(t.shape):
        if n > 1:
            t = t.index_select(d, torch.arange(to(n)) % n)
    return t * (1 - 0.1 * torch.rand(t.shape)) if t.is_floating_point() or t.is_complex() else t


def _mapped(x: Any, to: Callable[[int], int], lists: bool) -> Any:
    """A sample's argument at other sizes; lists: and the sizes in lists, such as those that `expand` takes."""
    if isinstance(x, torch.Tensor):
        return _wider(x, to)
    if isinstance(x, dict):
        return {k: _mapped(v, to, lists) for k, v in x.items()}
    if type(x) in (list, tuple, torch.Size):
        if lists and x and all(type(v) is int for v in x):
            return type(x)(to(v) if v > 1 else v for v in x)
        return type(x)(_mapped(v, to, lists) for v in x)
    return x


def _only(to: Callable[[int, int], int], size: int) -> Callable[[int, int], int]:
    return lambda n, k: to(n, k) if n == size else n


def enlarged(op: OpInfo, sample: SampleInput) -> list[Any]:
    """The arguments at each of the larger sizes, in the first way that PyTorch accepts; empty where there is none."""
    values = (sample.input, tuple(sample.args), dict(sample.kwargs))
    sizes = sorted({n for t in tensors(values) for n in t.shape if n > 1}, reverse=True)
    ways = [*_MAPS, *(_only(to, n) for n in sizes if len(sizes) > 1 for to in _MAPS)] if sizes else []
    for to in ways:
        for lists in (False, True):
            try:
                out = [_mapped(values, lambda n, k=k, to=to: to(n, k), lists) for k in _SCALES]
                for x in out:
                    op.op(x[0], *x[1], **x[2])
            except Exception:
                continue
            return out
    return []


def cost_of(f: Any, values: Any, gradient: bool = False) -> Cost:
    """What a call on webgpu takes, or its gradient, with arguments whose values only the GPU knows."""

    def computed(x: Any) -> Any:
        if isinstance(x, tabtorch.Tensor):
            new = x.detach() | x.detach() if x.dtype is tabtorch.bool else x.detach() + 0
            return new.requires_grad_(gradient and (x.is_floating_point() or x.is_complex()))
        if isinstance(x, dict):
            return {k: computed(v) for k, v in x.items()}
        return type(x)(computed(v) for v in x) if type(x) in (list, tuple) else x

    with tabtorch.device("webgpu"):
        args = computed(Translator("webgpu")(values))
        checks._seed()
        if not gradient:
            with counted() as cost:
                result = f(args[0], *args[1], **args[2])  # held: what nobody holds is not computed
                return cost(len(tensors(result)))
        outputs = [t for t in tensors(f(args[0], *args[1], **args[2])) if t.requires_grad]
        weights = [tabtorch.ones_like(t) for t in outputs]
        leaves = [t for t in tensors(args) if t.requires_grad]
        with counted() as cost:
            result = tabtorch.autograd.grad(outputs, leaves, weights, allow_unused=True)
            return cost(len(outputs))


def audit(op: OpInfo, limit: int = 3, gradient: bool = False, f: Any = None) -> Iterator[Found]:
    """The samples of an operator that can be made larger, with what they take. f: in place of tabtorch's function."""
    f = f or translate.function(op.op, op.name)
    dtype = next((d for _, d in checks.asked(op, "webgpu")), "float32")
    if gradient and ("gradient", dtype) not in checks.asked(op, "webgpu"):
        return
    for sample in checks._samples(op, dtype, limit=limit):
        found = Found(checks.title(op), sample.summary()[:200], [])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            larger = enlarged(op, sample)
            if not larger:
                continue
            try:
                for x in [(sample.input, tuple(sample.args), dict(sample.kwargs)), *larger]:
                    if len(found.costs) == 3 and not found.suspect():
                        break
                    found.costs.append(cost_of(f, x, gradient))
            except Exception:  # what tabtorch leaves out, or has no gradient; the other checks tell
                continue
        yield found


def _answer(name: str, limit: int, gradient: bool) -> list[Found]:
    try:
        return list(audit(checks.operators()[name], limit, gradient))
    except Exception:
        return []


def main() -> int:
    p = argparse.ArgumentParser(prog="conformance.sizes", description=__doc__)
    p.add_argument("patterns", nargs="*", default=["*"], help="names of OpInfos, with * and ?")
    p.add_argument("--samples", type=int, default=3, help="at most so many an operator")
    p.add_argument("--gradient", action="store_true", help="of the gradients, not the functions")
    p.add_argument("-j", type=int, default=2, help="processes")
    p.add_argument("--json", type=Path, help="write what every sample took there, one a line")
    a = p.parse_args()
    torch.set_num_threads(1)
    names = [n for n in checks.operators() if any(fnmatch.fnmatchcase(n, x) for x in a.patterns)]
    record = a.json.open("w") if a.json else None
    start, samples, bad = time.monotonic(), 0, 0
    with mp.get_context("fork").Pool(a.j) as pool:
        waiting = [pool.apply_async(_answer, (n, a.samples, a.gradient)) for n in names]
        for name, w in zip(names, waiting, strict=True):
            try:
                found = w.get(timeout=120)
            except mp.TimeoutError:  # PyTorch itself may end the process, with sizes that nobody tried
                print(f"{name}: no answer", flush=True)
                continue
            for x in found:
                samples += 1
                if record:
                    print(json.dumps([x.op, x.args, x.costs]), file=record, flush=True)
                for fault in x.faults():
                    bad += 1
                    print(f"{x.op}: {fault}    {x.args[:120]}", flush=True)
    print(f"{len(names)} operators, {samples} samples, {bad} faults, in {time.monotonic() - start:.0f} s")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
