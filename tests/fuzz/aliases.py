"""Random programs of views, in-place writes and gradients: real PyTorch's results against tabtorch's, word for word.

    cd tests && python -m fuzz.aliases --seconds 600           fresh seeds, on both devices
    cd tests && python -m fuzz.aliases --seed 17 --shrink      one program again, as short as it can be
    cd tests && python -m wasm -m fuzz.aliases --seconds 600   the same in Pyodide

`oracle.record` draws programs and runs them with PyTorch; what it gives is JSON. `check` runs them with any module of that
kind; it needs nothing but that.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from host import host
from reliability import record

from . import oracle
from .steps import FIELDS, UNKNOWN, Program, numbers, plain, run_step

#: how far apart numbers of these types may be, of the largest number in the program
_NEAR = {"torch.float16": 4e-3, "torch.float64": 1e-9, "torch.complex128": 1e-9}


#: how a gradient was made, which is not said: of those that `autograd.grad` gives, and of tensors that were moved by `set_`
OWN_AFFAIR = ("_version", "grad_fn", "_is_view", "_base", "stride", "is_contiguous")


def check(recorded: Sequence[dict[str, Any]], lib: Any, device: str) -> list[tuple[int, str]]:
    """Runs programs with `lib`: (seed, what differs first) of each that is not as recorded."""
    wrong: list[tuple[int, str]] = []
    for at in range(0, len(recorded), 16):
        batch = recorded[at : at + 16]
        runs = []
        for r in batch:
            p, why = follow(r, lib, device)
            if why is not None:
                wrong.append((r["seed"], why))
            else:
                runs.append((r, p))
        for (r, p), found in zip(runs, values_of_all([[*p.tensors, *p.log] for _, p in runs], lib), strict=True):
            why = found if type(found) is str else compare_values(r, p, found)
            if why is not None:
                wrong.append((r["seed"], why))
    return wrong


def values_of_all(programs: list[list[Any]], lib: Any) -> Iterable[Any]:
    """For each list of tensors their values, or what went wrong. One wait for all, unless something does."""
    try:
        found = iter(values_of([t for tensors in programs for t in tensors], lib))
        return [[next(found) for _ in tensors] for tensors in programs]
    except Exception:
        return [attempt(tensors, lib) for tensors in programs]


def attempt(tensors: list[Any], lib: Any) -> Any:
    try:
        return values_of(tensors, lib)
    except Exception as e:
        return f"reading: {type(e).__name__}: {e}"


def follow(r: dict[str, Any], lib: Any, device: str) -> tuple[Program, str | None]:
    """Runs a recorded program; what differs first, apart from values."""
    p = Program(lib, device)
    try:
        for k, (step, want) in enumerate(zip(r["steps"], r["results"], strict=True)):
            got = run_step(p, step)
            if step[0] == "grad":  # the layout of a gradient is not said, but that of `.grad` is
                got, want = without_strides(got), without_strides(want)
            if got != want:
                why = difference(want, got, r["gradients"])
                if why:
                    return p, f"step {k} {json.dumps(step)}: {why}"
    finally:
        p.close()
    return p, None


def without_strides(r: Any) -> Any:
    if type(r) is list and r[:1] == ["new"]:
        return [*r[:3], *r[5:]]
    return [without_strides(x) for x in r] if type(r) is list else r


def difference(want: Any, got: Any, gradients: list[int]) -> str | None:
    if want[0] == got[0] == "seen":
        for i, (w, t) in enumerate(zip(want[1], got[1], strict=True)):
            for field, a, b in zip(FIELDS, w, t, strict=True):
                if a != b and a != UNKNOWN and not (field in OWN_AFFAIR and i in gradients):
                    return f"tensor {i}: {field} is {b}, not {a}"
        return None
    return None if alike(want, got) else f"{got}, not {want}"


def alike(want: Any, got: Any) -> bool:
    if type(want) is float and type(got) is float:
        return want == got or abs(want - got) <= 1e-4 * max(1, abs(want))
    if type(want) is list and type(got) is list and len(want) == len(got):
        return all(map(alike, want, got))
    return bool(want == got)


def compare_values(r: dict[str, Any], p: Program, found: list[list[Any]]) -> str | None:
    want = [*r["values"], *r["log"]]
    if len(want) != len(found):
        return f"{len(p.log)} gradients were given to hooks, not {len(r['log'])}"
    scale = 1.0
    coarsest = max(
        (_NEAR.get(str(t.dtype), 2e-5) for t in p.tensors if t.is_floating_point() or t.is_complex()), default=0.0
    )
    for w in want:
        for v in w or ():
            if type(v) is float and scale < abs(v) < 1e30:
                scale = abs(v)
    for i, (w, f) in enumerate(zip(want, found)):
        if w is None:
            continue
        t = p.tensors[i] if i < len(p.tensors) else p.log[i - len(p.tensors)]
        near = coarsest * scale  # numbers of one type become those of another
        if t.is_complex():  # a complex number divided by zero is infinite, in one part or the other, or is none
            w, f = ([v if abs(v) < 1e30 else 1e30 for v in part] for part in (w, f))
        if not same_numbers(w, f, near):
            name = f"tensor {i}" if i < len(p.tensors) else f"gradient {i - len(p.tensors)} of the hooks"
            return f"values of {name}: {f}, not {w}"
    return None


def same_numbers(want: list[Any], got: list[Any], near: float) -> bool:
    if want == got:
        return True
    if len(want) != len(got):
        return False
    for a, b in zip(want, got):
        if a == b or (a != a and b != b):
            continue
        if type(a) is not float or type(b) is not float or not abs(a - b) <= near:
            return False
    return True


def values_of(tensors: list[Any], lib: Any) -> list[list[Any]]:
    """The elements of tensors as numbers. tabtorch is asked for all of them at once."""
    if lib.__name__ != "tabtorch" and not hasattr(lib, "_tabtorch"):
        with lib.inference_mode():
            return [plain(t) for t in tensors]
    import tabtorch
    from tabtorch.core.to_host import _source, decode
    from tabtorch.engine.graph import read_many

    with tabtorch.no_grad():
        wanted = [_source(t) for t in tensors]
    some = [k for k, w in enumerate(wanted) if w[2]]
    data = read_many([wanted[k] for k in some])
    out: list[list[Any]] = [[] for _ in tensors]
    for k, d in zip(some, data):
        out[k] = numbers(decode(bytes(d), tensors[k]._tab_meta.dtype))
    return out


def describe(r: dict[str, Any], why: str) -> str:
    lines = [f"seed {r['seed']}: {why}"]
    for k, (step, result) in enumerate(zip(r["steps"], r["results"])):
        if step[0] != "probe":
            lines.append(f"  {k}: {json.dumps(step)} -> {json.dumps(result)[:150]}")
    return "\n".join(lines)


# ---- the command


def run_many(first: int, device: str, programs: int | None, seconds: float) -> tuple[int, list[tuple[int, str]]]:
    """How many programs from seed `first` on were run, and (seed, what differs) of those that do. programs: None is for `seconds`."""
    import tabtorch

    ran, wrong = 0, []
    start = time.monotonic()
    while ran < programs if programs is not None else time.monotonic() - start < seconds:
        n = min(64, programs - ran) if programs is not None else 64
        with tabtorch.device(device):
            wrong += check(oracle.record(range(first + ran, first + ran + n), device == "cpu"), tabtorch, device)
        ran += n
    return ran, wrong


def shown(seed: int, why: str, device: str, shrink: bool) -> str:
    """A program that differs, step by step; shrink: with as few of them as possible."""
    import tabtorch

    wide = device == "cpu"
    if not shrink:
        return describe(oracle.record([seed], wide)[0], why)
    kind = kind_of(why)
    with tabtorch.device(device):
        r = oracle.shrunk(seed, wide, lambda r: any(kind_of(w) == kind for _, w in check([r], tabtorch, device)))
        return describe(r, check([r], tabtorch, device)[0][1])


def main(argv: Sequence[str] | None = None) -> int:
    ask = argparse.ArgumentParser(prog="python -m fuzz.aliases", description=__doc__)
    ask.add_argument("--seconds", type=float, default=60)
    ask.add_argument("--programs", type=int, help="so many on each device, in place of seconds")
    ask.add_argument("--seed", type=int, help="this program, or the first of --programs")
    ask.add_argument("--device", action="append", choices=["cpu", "webgpu"])
    ask.add_argument("--shrink", action="store_true", help="what fails with as few steps as possible")
    ask.add_argument("--show", type=int, default=10, help="how many failures to print")
    ask.add_argument("--results", type=Path, default=None, help="append a line of JSON (see reliability.py)")
    o = ask.parse_args(argv)
    devices = o.device or ["cpu", "webgpu"]
    first = secrets.randbelow(10**9) * 10**6 if o.seed is None else o.seed
    programs = 1 if o.seed is not None and o.programs is None else o.programs
    failed = 0
    for device in devices:
        start = time.monotonic()
        ran, wrong = run_many(first, device, programs, o.seconds / len(devices))
        seconds = time.monotonic() - start
        kinds: dict[str, list[int]] = {}
        for seed, why in wrong:
            seeds = kinds.setdefault(kind_of(why), [])
            seeds.append(seed)
            if len(seeds) == 1 and len(kinds) <= o.show:
                print(shown(seed, why, device, o.shrink), flush=True)
        for kind, seeds in sorted(kinds.items(), key=lambda k: -len(k[1])):
            print(f"{len(seeds):6} x {kind}: seeds {str(seeds[:5])[1:-1]}{', …' * (len(seeds) > 5)}")
        print(
            f"aliases on {device}: {ran} programs from seed {first}, {ran - len(wrong)} agreed with PyTorch ({seconds:.0f} s)"
        )
        record(
            o.results,
            "alias programs",
            count=ran,
            unit="programs",
            found=len(wrong),
            seconds=seconds,
            on=f"{device}, {host()}",
            seed=first,
        )
        failed += len(wrong)
    return 1 if failed else 0


def kind_of(why: str) -> str:
    """What failures of one cause have in common."""
    text = re.sub(r"step \d+ \[\"(\w+)\", \"(\w*)\".*?\}\]: ", r"\1 \2: ", why)
    return re.sub(r"-?\d+(\.\d+)?(e-?\d+)?|\[[^a-z]*\]", "#", text)[:200]


if __name__ == "__main__":
    raise SystemExit(main())
