"""Random programs on real PyTorch's device="webgpu", eager and compiled for it, against real PyTorch's CPU.

    cd tests && python -m fuzz.backend --seconds 600                         fresh seeds, of each kind
    cd tests && python -m fuzz.backend --kind views --seed 17 --shrink       one program again

TABTORCH_DEVICE says what lies under "webgpu". Kinds: `views` are the programs of `fuzz.aliases`, eager; `traced` the same as
functions in `torch.compile(backend="webgpu")`; `programs` are those of `fuzz.compiled`, eager; `compiled` the same, compiled.
What PyTorch does in another way on any device but its CPU, or when it compiles (`aot_eager`), is no difference.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
import torch

import tabtorch.backend.dynamo  # noqa: F401  # which installs the device, too

from . import oracle
from .aliases import check, describe, kind_of
from .compiled import carried_out, draft
from .observe import differences
from .traced import Traced

DEVICE = "webgpu"
#: the CPU's optimizers take many tensors at once, too, as those of other devices do: SGD with Nesterov's momentum writes to
#: gradients then
sys.modules["torch.optim.optimizer"].__dict__["_get_foreach_kernels_supported_devices"] = lambda: ["cpu", DEVICE]
#: words of features whose draws are other ones in a compiled graph: those of the device's own stream
_DRAWS = ("dropout", "noise", "rand", "seed", "generator", "bernoulli", "gumbel", "multinomial", "permutation", "rrelu")


def wide() -> bool:
    """Whether the device has float64."""
    return os.environ.get("TABTORCH_DEVICE") == "cpu"


# ---- views


def of_any_device(r: dict[str, Any], why: str) -> bool:
    """Whether a difference is PyTorch's own: between its CPU and every other device, or as to a storage that has grown, which is
    another one on a device whose allocator is not PyTorch's."""
    steps = r["steps"]
    if "grad_fn is torch::autograd::CopyBackwards, not FillBackward" in why:
        return (
            True  # a number, or a tensor of no dimensions, is put by `fill_` where both are on the CPU, else by `copy_`
        )
    if '["get", "grad"' in why:
        return True  # how a gradient lies is not said
    if '["set", "data"' in why and "incompatible tensor type" in why:
        return any(
            s[1] in ("_neg_view", "conj", "imag") for s in steps
        )  # PyTorch's CPU alone lets a view with a mark be one
    sets = any(s[0] in ("setitem", "augmented") for s in steps)
    if sets and (("setitem" in why and "single memory location" in why) or "requires_grad is False, not True" in why):
        return True
    if why.startswith("step") and "['error'" in why and "not ['error', 'RuntimeError', 'unsupported operation" in why:
        return True  # which of two errors comes first
    grown = any(s[1] == "resize_" or s[3].get("out") for s in steps)
    return grown and ("memory is" in why or "data_ptr is" in why)


def views(seeds: range) -> list[tuple[int, str]]:
    recorded = oracle.record(seeds, wide())
    by_seed = {r["seed"]: r for r in recorded}
    return [(seed, why) for seed, why in check(recorded, torch, DEVICE) if not of_any_device(by_seed[seed], why)]


def shown_views(seed: int, why: str, shrink: bool) -> str:
    if not shrink:
        return describe(oracle.record([seed], wide())[0], why)
    kind = kind_of(why)
    r = oracle.shrunk(seed, wide(), lambda r: any(kind_of(w) == kind for _, w in check([r], torch, DEVICE)))
    return describe(r, check([r], torch, DEVICE)[0][1])


# ---- the same, compiled


def compiler(backend: str) -> Callable[[Any], Any]:
    torch._dynamo.reset()
    return partial(torch.compile, backend=backend)


def traced_differences(t: Traced) -> list[str]:
    """What differs in one function."""

    def same(f: Any) -> Any:
        return f

    try:
        want = t.run("cpu", same)
    except Exception:
        return []  # with gradients it is none
    try:
        got = t.run(DEVICE, compiler(DEVICE))
    except Exception as e:
        got = {"error": f"{type(e).__name__}: {str(e).strip().splitlines()[0][:300]}"}
    found = differences(want, got, 1e-4, 1e-5)
    if not found:
        return []
    try:
        pytorchs = t.run(DEVICE, compiler("aot_eager"))
    except Exception as e:
        if "error" in got:
            return []  # PyTorch does not compile it either
        return [f"aot_eager: {type(e).__name__}: {str(e)[:200]}", *found]
    return [d for d in found if d.startswith("error")] or differences(pytorchs, got, 1e-4, 1e-5)


def traced(seeds: range) -> list[tuple[int, str]]:
    wrong = []
    for r in oracle.record(seeds, wide()):
        found = traced_differences(Traced(r, r["seed"] % 2 == 1))
        if found:
            wrong.append((r["seed"], found[0]))
    return wrong


def shown_traced(seed: int, why: str, shrink: bool) -> str:
    t = Traced(oracle.record([seed], wide())[0], seed % 2 == 1)
    found = traced_differences(t)
    end = time.monotonic() + 120
    k = len(t.lines) - 1
    while shrink and k >= 0 and time.monotonic() < end:
        lines, outputs = t.lines, t.outputs
        gone = lines[k].split(" = ")[0].strip("[]").split(", ")
        t.lines = lines[:k] + lines[k + 1 :]
        t.outputs = [o for o in outputs if o not in gone or int(o[1:]) in t.inputs]
        try:
            less = traced_differences(t)
        except Exception:
            less = []
        if less and less[0].partition(":")[0].split()[-1:] == found[0].partition(":")[0].split()[-1:]:
            found = less
        else:
            t.lines, t.outputs = lines, outputs
        k -= 1
    inputs = "".join(f"  t{n}: {json.dumps(s)}\n" for n, s in zip(t.inputs, t.made, strict=True))
    return f"seed {seed}: {inputs}{t.text}" + "\n".join(found[:6])


# ---- modules, optimizers, functions


def without_draws(seed: int) -> str:
    """The text of program `seed` with nothing in it that draws random numbers in what is compiled."""
    dropped: frozenset[str] = frozenset()
    while True:
        text, d = draft(seed, dropped)
        more = {f for f in d.features if any(w in f for w in _DRAWS)} - dropped
        if not more:
            return text
        dropped |= more


def looks(text: str, seed: int, device: str, backend: str = "") -> list[dict[str, Any]]:
    text = text.replace("torch.empty(0).device.type == 'cpu'", "False")  # a program for either device
    plain = torch.compile
    if backend:
        torch.compile = compiler(backend)
    try:
        return carried_out(text, seed, torch, device, bool(backend))
    finally:
        torch.compile = plain


def apart(want: list[dict[str, Any]], got: list[dict[str, Any]]) -> list[str]:
    """What differs. How many versions a step of an optimizer counts is its own affair: it takes many tensors at once, or each."""
    found = [f"call {i}: {d}" for i, (a, b) in enumerate(zip(want, got, strict=True)) for d in differences(a, b)]
    return [d for d in found if " version: " not in d]


def shaken(text: str, seed: int, by: float) -> list[dict[str, Any]]:
    """The CPU's run with all normal draws larger by a part. What hangs on the last bits of sums differs then, too: a gradient
    that is nought but for those, of which Adam makes steps of full length."""
    randn = torch.randn

    def larger(*args: Any, **kw: Any) -> Any:
        wants = kw.pop("requires_grad", False)
        return (randn(*args, **kw) * (1 + by)).requires_grad_(wants)

    torch.randn = larger
    try:
        return looks(text, seed, "cpu")
    finally:
        torch.randn = randn


def program_differences(text: str, seed: int, backend: str = "") -> list[str]:
    if "sparse" in text or "use_buffers=True" in text:
        return []  # there are no sparse tensors; whole numbers are not averaged by PyTorch's foreach functions
    want = looks(text, seed, "cpu")
    try:
        got = looks(text, seed, DEVICE, backend)
    except Exception as e:
        got = [{"error": f"{type(e).__name__}: {str(e)[:300]}"}] * len(want)
    found = apart(want, got)
    if found and backend:
        try:
            found = apart(looks(text, seed, DEVICE, "aot_eager"), got)
        except Exception:
            found = []  # PyTorch loses its way, too
    for by in (3e-6, -2e-6, 1e-5):
        if found:
            loose = {d.partition(": wanted")[0].partition(": ")[2] for d in apart(want, shaken(text, seed, by))}
            found = [d for d in found if d.partition(": wanted")[0].partition(": ")[2] not in loose]
    return found


def programs(seeds: range, backend: str = "") -> list[tuple[int, str]]:
    wrong = []
    for seed in seeds:
        text = without_draws(seed) if backend else draft(seed)[0]
        found = program_differences(text, seed, backend)
        if found:
            wrong.append((seed, found[0]))
    return wrong


def shown_programs(seed: int, why: str, shrink: bool, backend: str = "") -> str:
    text = without_draws(seed) if backend else draft(seed)[0]
    return f"seed {seed}: {why}\n{text}"


Kind = tuple[Callable[[range], list[tuple[int, str]]], Callable[[int, str, bool], str], int]
#: kind -> (runs programs, shows one that differs, how many at a time)
KINDS: dict[str, Kind] = {
    "views": (views, shown_views, 32),
    "traced": (traced, shown_traced, 1),
    "programs": (programs, shown_programs, 1),
    "compiled": (partial(programs, backend=DEVICE), partial(shown_programs, backend=DEVICE), 1),
}


def main(argv: Sequence[str] | None = None) -> int:
    ask = argparse.ArgumentParser(prog="python -m fuzz.backend", description=__doc__)
    ask.add_argument("--kind", action="append", choices=KINDS)
    ask.add_argument("--seconds", type=float, default=60, help="for all kinds together")
    ask.add_argument("--programs", type=int, help="so many of each kind, in place of seconds")
    ask.add_argument("--seed", type=int, help="this program, or the first of --programs")
    ask.add_argument("--shrink", action="store_true", help="what differs in fewer steps")
    ask.add_argument("--show", type=int, default=10, help="how many to print of a kind")
    ask.add_argument("--results", type=Path, default=None, help="append a line of JSON (see reliability.py)")
    o = ask.parse_args(argv)
    torch.set_num_threads(1)
    kinds = o.kind or list(KINDS)
    first = secrets.randbelow(10**6) * 10**6 if o.seed is None else o.seed
    most = 1 if o.seed is not None and o.programs is None else o.programs
    failed = 0
    for kind in kinds:
        run, show, batch = KINDS[kind]
        start = time.monotonic()
        wrong: list[tuple[int, str]] = []
        ran = 0
        while ran < most if most is not None else time.monotonic() - start < o.seconds / len(kinds):
            n = batch if most is None else min(batch, most - ran)
            new = run(range(first + ran, first + ran + n))
            ran += n
            for seed, why in new[: max(0, o.show - len(wrong))]:
                print(show(seed, why, o.shrink), flush=True)
            wrong += new
        seconds = time.monotonic() - start
        failed += len(wrong)
        print(f"{kind}: {ran} programs from seed {first}, {len(wrong)} differ ({seconds:.0f} s)", flush=True)
        if o.results is not None:
            noted(o.results, kind, ran, len(wrong), seconds, first)
    return failed > 0


def noted(file: Path, kind: str, ran: int, wrong: int, seconds: float, seed: int) -> None:
    """Appends to the table of the long runs."""
    from host import host
    from reliability import record

    on = f"real PyTorch's webgpu over {os.environ.get('TABTORCH_DEVICE', 'webgpu')}, {host()}"
    record(file, f"{kind} of PyTorch", count=ran, unit="programs", found=wrong, seconds=seconds, on=on, seed=seed)


if __name__ == "__main__":
    sys.exit(main())
