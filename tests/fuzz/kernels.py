"""Random programs for the engine: maps, reductions along any dims, sorts, scans, Fourier transforms, broadcasts, views, products,
halves, bools and in-place writes, so that every form of kernel and every way to fuse them is met. Each result must be PyTorch's.

A program has a line that leads to one form of kernel on a GPU (kernel_forms.py), each form in its turn, among random ones.

    cd tests && python -m fuzz.kernels --seconds 60                 fresh seeds, on all targets
    cd tests && python -m fuzz.kernels --seed 17 --target gpu       one program again, with its text

Targets: `cpu` and `webgpu`, the devices as they are, and `gpu`: the forms that kernels have on a GPU (barriers, more buffers or
fewer), run by whatever adapter is there.
"""

from __future__ import annotations

import argparse
import random
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

import tabtorch
from fuzz.kernel_forms import THEMES, reached, unsent
from tabtorch.engine import builder, graph, map_kernel, row_kernel, row_windows, schedules, tiles
from tabtorch.engine.target import target

TARGETS = ("cpu", "webgpu", "gpu")

#: sizes of dimensions: small ones, and one long enough that a reduction over it goes in chunks
_SMALL = (1, 2, 3, 4, 5, 8, 16, 33)
_LONG = (130, 257, 700, 2600, 9000)
_TYPES = ("float32", "float32", "float32", "float16", "bfloat16", "bool", "uint8", "int16", "int32", "int64")

_UNARY = (
    "({a} * 2 + 1)",
    "{a}.float().relu()",
    "({a}.float() * 0.5).tanh()",
    "(-{a}.float()).exp().clamp(max=10)",
    "({a} > 0)",
    "({a}.float() * 0.5 - 1).sigmoid()",
    "{a}.half()",
    "{a}.bfloat16()",
    "{a}.float()",
    "{a}.float().round().clamp(-100, 100).to(torch.int16)",
    "({a} != 1).to(torch.uint8)",
    "{a}.long()",
)
_BINARY = (
    "({a} + {b})",
    "({a} * {b}.float())",
    "({a}.float() - {b} * 0.5)",
    "torch.where({a} > {b}, {a}.float(), {b}.float())",
    "({a} > {b})",
    "torch.maximum({a}.float(), {b}.float())",
)
_SUMS = (
    "{a}.float().sum({d}, keepdim={k})",
    "{a}.float().mean({d}, keepdim={k})",
    "{a}.float().amax({d}, keepdim={k})",
    "{a}.float().var({d}, correction=0, keepdim={k})",
    "(({a}.float() * 0.1).sum({d}, keepdim={k}) > 0.05)",
    "{a}.float().amin({d}, keepdim={k}).half()",
    "{a}.long().sum({d}, keepdim={k})",
    "({a} > 0).any({one}, keepdim={k})",
    "({a} * 1).argmax({one}, keepdim={k})",
    "{a}.float().logsumexp({d}, keepdim={k})",
)
_ROWS = (
    "{a}.float().softmax({one})",
    "F.layer_norm({a}.float(), {last})",
    "({a}.float() - {a}.float().mean({d}, keepdim=True)).half()",
    "({a}.float() > {a}.float().mean({d}, keepdim=True))",
    "{a}.float().log_softmax({one}).bfloat16()",
)
_ORDERS = (
    "{a}.sort({one}, descending={k}, stable=True)[0]",
    "{a}.long().sort({one}, descending={k})[0]",
    "{a}.float().topk(1, {one}, largest={k})[0]",
    "{a}.float().cumsum({one})",
    "{a}.long().cumsum({one})",
    "{a}.float().cummax({one})[0]",
    "({a}.float() * 0.1).logcumsumexp({one})",
    "torch.fft.rfft({a}.float(), dim={one}, norm='ortho').abs()",
)
_VIEWS = ("{a}.transpose({one}, {two})", "{a}.flatten()", "{a}.unsqueeze(0)", "{a}[..., ::2]", "{a}.flip({one})")
_WRITES = (
    "{a}.copy_({b})",
    "{a}[..., :1] = 1",
    "{a}.zero_()",
    "{a}.mul_(2)",
    "{a}.add_({b})",
)


#: what a themed line reads: the input as it is, or what a kernel computes on its way
_THEMED = ("{a}.float()", "({a}.float() * 0.5 + 1)", "({a}.float() * 0.25).tanh()", "{a}.half().float()")


class Draft:
    """One program: lines that make `x0`, `x1`, … of the inputs, and which of these are held to the end."""

    def __init__(self, seed: int) -> None:
        self.r = r = random.Random(seed)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.inputs: dict[str, torch.Tensor] = {}
        self.lines: list[str] = []
        generator = torch.Generator().manual_seed(seed)
        names = list(THEMES)
        #: the form of kernel that it is to reach; one program in so many is as it comes
        self.theme = [*names, ""][seed % (len(names) + 1)]
        if self.theme:
            dims = THEMES[self.theme].dims(r)
        else:
            dims = [r.choice(_SMALL) for _ in range(r.randint(1, 2))]
            dims.insert(r.randint(0, len(dims)), r.choice(_LONG if r.random() < 0.6 else _SMALL))
            while torch.Size(dims).numel() > 60_000:
                dims[dims.index(min(n for n in dims if n > 1))] = 1
        self.world: dict[str, torch.Tensor] = {}
        for i in range(r.randint(1, 3)):
            shape = dims if self.theme and not i else [n if r.random() < 0.8 or n > 100 else 1 for n in dims]
            kind = getattr(torch, r.choice(_TYPES))
            x = torch.randn(shape, generator=generator) * 3
            self.inputs[f"i{i}"] = (
                (x > 0) if kind is torch.bool else x.abs().to(kind) if kind is torch.uint8 else x.to(kind)
            )
            # held apart from what the program writes
            self.world[f"i{i}"] = self.inputs[f"i{i}"].clone()
        steps = r.randint(2, 10 if self.theme else 14)
        themed: list[str] = []
        at = r.randrange(steps) if self.theme else -1
        for k in range(steps):
            if k == at:
                themed = self.themed()
            self.step()
        made = [n for n in self.world if n[0] == "x"]
        self.kept = sorted({*made[-1:], *themed} | {n for n in made if r.random() < 0.5})

    def themed(self) -> list[str]:
        """Adds the lines of the theme: of an input, or of what is made of that. The values that have to be kept."""
        r = self.r
        theme = THEMES[self.theme]
        x = self.world["i0"]
        a = r.choice(_THEMED) if x.dtype is not torch.bool else "i0.float()"
        kept = []
        for text in r.sample(theme.lines, theme.several):
            c = f"x{len(self.world)}"
            line = f"{c} = " + text.format(a=f"{a.format(a='i0')}", n=x.shape[-1], one=r.randrange(x.dim()))
            exec(line, {"torch": torch, "F": torch.nn.functional}, self.world)
            self.lines.append(line)
            kept.append(c)
        return kept

    def step(self) -> None:
        r = self.r
        a = r.choice([*self.world, *list(self.world)[-2:]])
        x = self.world[a]
        b = r.choice(list(self.world))
        kind = r.choice(
            ["unary", "unary", "binary", "binary", "sum", "sum", "rows", "orders", "view", "write", "product"]
        )
        n = x.dim()
        dims = sorted(r.sample(range(n), r.randint(1, n))) if n else []
        words = {
            "a": a, "b": b, "d": dims, "k": r.random() < 0.5, "one": r.randrange(max(1, n)), "two": r.randrange(max(1, n)),
            "last": list(x.shape[-1:]),
        }  # fmt: skip
        if n == 0 and kind in ("sum", "rows", "orders", "view"):
            return
        if kind == "product":
            y = self.world[b]
            if n < 1 or y.dim() < 1 or max(x.numel(), y.numel()) > 20_000:
                return
            c = f"x{len(self.world)}"
            table = [
                "{c} = {a}.float().unsqueeze(-1).flatten(0, -2)[:64] @ {b}.float().reshape(1, -1)[:, :64]",
                "{c} = {a}.float().flatten() @ {a}.float().flatten()",
            ]
            if n > 1 and x.shape[-1] <= 260 and x.numel() <= 260 * x.shape[-1]:
                table += [
                    "{c} = ({a}.float() * 2 - 1).relu().flatten(0, -2).T @ {a}.float().flatten(0, -2)",
                    "{c} = ({a}.half()[..., :64].flatten(0, -2) @ {a}.half()[..., :64].flatten(0, -2).T)[:32, :32]",
                ]
            text = r.choice(table).format(c=c, **words)
        elif kind == "write":
            text = r.choice(_WRITES).format(**words)
        else:
            table = {
                "unary": _UNARY,
                "binary": _BINARY,
                "sum": _SUMS,
                "rows": _ROWS,
                "orders": _ORDERS,
                "view": _VIEWS,
            }[kind]
            text = f"x{len(self.world)} = " + r.choice(table).format(**words)
        before = dict(self.world)
        try:
            exec(text, {"torch": torch, "F": torch.nn.functional}, self.world)
            new = list(self.world.values())[-1]
            if new.numel() > 80_000 or not new.float().abs().max() < 1e4:  # too large to compare
                raise ValueError
        except (RuntimeError, ValueError, IndexError, TypeError):
            if kind == "write":
                raise RefusedError from None  # it may have been carried out in part
            self.world = before
            return
        self.lines.append(text)


class RefusedError(Exception):
    """PyTorch does not run the program."""


def given(d: Draft, lib: Any, device: str) -> dict[str, Any]:
    """The inputs, with `lib`."""
    world = {n: (x.clone() if lib is torch else lib.tensor(x.float().numpy()).to(device)) for n, x in d.inputs.items()}
    if lib is not torch:
        world = {n: x.to(getattr(lib, str(d.inputs[n].dtype).partition(".")[2])) for n, x in world.items()}
    return world


def run(d: Draft, lib: Any, device: str) -> dict[str, Any]:
    """The values that the program keeps, with `lib`."""
    return carried_out(d, lib, given(d, lib, device))


def carried_out(d: Draft, lib: Any, world: dict[str, Any]) -> dict[str, Any]:
    for line in d.lines:
        exec(line, {"torch": lib, "F": lib.nn.functional}, world)
    return {n: world[n] for n in d.kept}


@contextmanager
def as_target(name: str, buffers: int = 0, large: bool = True, baselines: bool = False) -> Iterator[str]:
    """The device to use for a target, whose kernels have that target's forms meanwhile; large: also those that wait for more work."""
    if name == "cpu" or (name == "webgpu" and not large):
        yield name
        return
    graph.flush()
    t = target(0)
    before, plans, families = (t.software, t.barriers, t.buffers, t.baselines), dict(graph._plans), schedules._families
    graph._plans.clear()
    schedules._families = {}  # those that are known are of the other form
    if name == "gpu":
        t.software, t.barriers, t.buffers = False, True, min(buffers or t.buffers, t.buffers)
        t.baselines = baselines  # a program runs once, so a kernel that has a baseline text runs that
    waits = [(tiles, "_LARGE", 1), (row_windows, "_ROWS", 64)]
    waits += [(row_kernel, "_LARGE", 1), (map_kernel, "MANY_IN_SOFTWARE", 1), (builder, "MANY_IN_SOFTWARE", 1)]
    waits += [(map_kernel, "MANY", 1), (map_kernel, "LEAST_SIDE", 2), (builder, "MOST_SHARED", 0)]
    try:
        with ExitStack() as patches:
            for module, constant, least in waits if large else ():
                patches.enter_context(patch.object(module, constant, least))
            yield "webgpu"
            graph.flush()
    finally:
        graph.flush()
        t.software, t.barriers, t.buffers, t.baselines = before
        graph._plans.clear()
        graph._plans.update(plans)
        schedules._families = families


def forms_of(seed: int) -> set[str]:
    """The forms of kernels that a program leads to on a GPU. It is planned, and not run."""
    try:
        d = Draft(seed)
    except RefusedError:
        return set()
    with as_target("gpu") as device, reached() as found:
        world = given(d, tabtorch, device)
        graph.flush()
        found.clear()
        with unsent():
            kept = carried_out(d, tabtorch, world)
            graph.flush()
            del kept, world
    return set(found)


def check(seed: int, name: str) -> str | None:
    """What is wrong with a program on a target, or None. "" where PyTorch does not run it."""
    try:
        d = Draft(seed)
    except RefusedError:
        return ""
    if not d.kept or not d.lines:
        return ""
    want = run(d, torch, "cpu")
    with as_target(name, 8 if seed % 3 == 0 else 0, seed % 2 == 0, seed // 2 % 2 == 0) as device:
        try:
            found = {n: torch.from_numpy(x.float().numpy()) for n, x in run(d, tabtorch, device).items()}
        except Exception as e:
            return f"{type(e).__name__}: {e}"
    for n, x in want.items():
        y, got = x.float(), found[n]
        if tuple(got.shape) != tuple(y.shape):
            return f"{n}: shape {tuple(got.shape)}, not {tuple(y.shape)}"
        if close(x, y, got, d):
            continue
        far = (got - y).abs().max().item() if y.numel() else 0
        return f"{n} differs by {far}"
    return None


def close(x: torch.Tensor, y: torch.Tensor, got: torch.Tensor, d: Draft) -> bool:
    """Whether a result is right but for roundings. Where something was rounded to few bits, or compared, a last bit may turn an
    element: a few of many may be other ones then."""
    half = any(h in line for line in d.lines for h in ("half", "bfloat16")) or any(
        v.dtype in (torch.float16, torch.bfloat16) for v in d.inputs.values()
    )
    tolerance = 4e-2 if half else 1e-4
    off = ~torch.isclose(
        got, y, rtol=tolerance, atol=tolerance * max(1.0, y.abs().max().item() if y.numel() else 1.0), equal_nan=True
    )
    turns = any(w in line for line in d.lines for w in (">", "!=", "round", "long", "argmax", "int16", "uint8"))
    return int(off.sum()) <= (max(1, y.numel() // 100) if turns else 0)


def shown(seed: int) -> str:
    """The text of a program."""
    d = Draft(seed)
    inputs = [f"{n} = torch.randn({list(x.shape)}).to({x.dtype})" for n, x in d.inputs.items()]
    return "\n".join([f"# program {seed}", *inputs, *d.lines, f"# kept: {', '.join(d.kept)}"])


def run_many(first: int, name: str, seconds: float, most: int = 1 << 30) -> tuple[int, list[tuple[int, str]]]:
    """Programs from that seed on: how many ran, and (seed, what is wrong)."""
    end = time.monotonic() + seconds
    ran, wrong, seed = 0, [], first
    while ran < most and time.monotonic() < end:
        why = check(seed, name)
        if why != "":
            ran += 1
        if why:
            wrong.append((seed, why))
        seed += 1
    return ran, wrong


def main(argv: Sequence[str] | None = None) -> int:
    ask = argparse.ArgumentParser(prog="python -m fuzz.kernels", description=__doc__)
    ask.add_argument("--seconds", type=float, default=60)
    ask.add_argument("--seed", type=int, help="this program, or the first of --programs")
    ask.add_argument("--programs", type=int)
    ask.add_argument("--target", action="append", choices=TARGETS)
    o = ask.parse_args(argv)
    first = secrets.randbelow(10**9) * 1000 if o.seed is None else o.seed
    programs = o.programs or (1 if o.seed is not None else 1 << 30)
    targets = o.target or TARGETS
    failed = 0
    for name in targets:
        with reached() as forms:
            ran, wrong = run_many(first, name, o.seconds / len(targets), programs)
        if forms:
            print(f"# plans on {name} by the forms in them: " + ", ".join(f"{k} {n}" for k, n in forms.most_common()))
        for seed, why in wrong[:10]:
            print(f"{shown(seed)}\n# on {name}: {why}\n")
        print(f"kernels on {name}: {ran} programs from seed {first}, {ran - len(wrong)} agreed with PyTorch")
        failed += len(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
