"""Random programs of views, in-place writes and gradients: real PyTorch's results against tabtorch's, word for word.

    cd tests && python -m fuzz.aliases --seconds 600           fresh seeds, on both devices
    cd tests && python -m fuzz.aliases --seed 17 --shrink      one program again, as short as it can be

`record` draws programs and runs them with PyTorch; what it gives is JSON. `check` runs them with any module of that kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .steps import FIELDS, UNKNOWN, Program, numbers, plain, run_step

#: how far apart numbers of these types may be, of the largest number in the program
_NEAR = {"torch.float16": 4e-3, "torch.float64": 1e-9, "torch.complex128": 1e-9}


#: how a gradient was made, which is not said: of those that `autograd.grad` gives, and of tensors that were moved by `set_`
OWN_AFFAIR = ("_version", "grad_fn", "_is_view", "_base", "stride", "is_contiguous")


def record(seeds: Iterable[int], wide: bool = True) -> list[dict[str, Any]]:
    """The programs of these seeds with what PyTorch makes of them. wide: with float64, which webgpu lacks."""
    from .draws import draw

    return [recorded(draw(seed, wide)) for seed in seeds]


def recorded(g: Any) -> dict[str, Any]:
    return {"seed": g.seed, "steps": g.steps, "results": g.results, **final(g)}


def final(g: Any) -> dict[str, Any]:
    """The values at the end of a program that was run with PyTorch; None where they are not defined."""
    with g.p.lib.inference_mode():
        values = [None if g.is_tainted(t) or g.bits(t) else seen(t) for t in g.tensors]
        log = [None if g.grads_tainted else plain(t) for t in g.p.log]
    own = [i for i, t in enumerate(g.tensors) if g.storage(t) in g.gradients]
    return {"values": values, "log": log, "gradients": own}


def seen(t: Any) -> Any:
    try:
        return plain(t)
    except RuntimeError:  # PyTorch now and then loses a storage of no bytes
        return None


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
    for w in want:
        for v in w or ():
            if type(v) is float and scale < abs(v) < 1e30:
                scale = abs(v)
    for i, (w, f) in enumerate(zip(want, found)):
        if w is None:
            continue
        t = p.tensors[i] if i < len(p.tensors) else p.log[i - len(p.tensors)]
        near = _NEAR.get(str(t.dtype), 2e-5) * scale
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
        return [plain(t) for t in tensors]
    import tabtorch
    from tabtorch.convert import _source, decode
    from tabtorch.engine.graph import read_many

    with tabtorch.no_grad():
        wanted = [_source(t) for t in tensors]
    some = [k for k, w in enumerate(wanted) if w[2]]
    data = read_many([wanted[k] for k in some])
    out: list[list[Any]] = [[] for _ in tensors]
    for k, d in zip(some, data):
        out[k] = numbers(decode(bytes(d), tensors[k]._meta.dtype))
    return out


# ---- shorter


def shrunk(g: Any, fails: Callable[[dict[str, Any]], bool]) -> Any:
    """A program that fails as `g` does, with as few steps as leaving out one after the other gives."""
    from .draws import replay, without

    k = len(g.steps) - 1
    while k >= 0:
        if k < len(g.steps):
            try:
                shorter = replay(g.seed, *without(g, k))
            except (IndexError, KeyError):
                shorter = None
            if shorter is not None and len(shorter.steps) < len(g.steps) and fails(recorded(shorter)):
                g = shorter
        k -= 1
    return g


def describe(g: Any, why: str) -> str:
    lines = [f"seed {g.seed}: {why}"]
    for k, (step, result) in enumerate(zip(g.steps, g.results)):
        if step[0] != "probe":
            lines.append(f"  {k}: {json.dumps(step)} -> {json.dumps(result)[:150]}")
    return "\n".join(lines)


# ---- the command


def main(argv: Sequence[str] | None = None) -> int:
    import argparse
    import secrets
    import time
    from collections import Counter

    import tabtorch

    from .draws import draw

    ask = argparse.ArgumentParser(prog="python -m fuzz.aliases", description=__doc__)
    ask.add_argument("--seconds", type=float, default=60)
    ask.add_argument("--programs", type=int, help="so many on each device, in place of seconds")
    ask.add_argument("--seed", type=int, help="this program, or the first of --programs")
    ask.add_argument("--device", action="append", choices=["cpu", "webgpu"])
    ask.add_argument("--shrink", action="store_true", help="what fails with as few steps as possible")
    ask.add_argument("--show", type=int, default=10, help="how many failures to print")
    o = ask.parse_args(argv)
    devices = o.device or ["cpu", "webgpu"]
    first = secrets.randbelow(10**9) * 10**6 if o.seed is None else o.seed
    left = 1 if o.seed is not None and o.programs is None else o.programs
    failed = 0
    for device in devices:
        wide = device == "cpu"
        ran, wrong = 0, []
        start = time.monotonic()
        while ran < left if left is not None else time.monotonic() - start < o.seconds / len(devices):
            n = min(64, left - ran) if left is not None else 64
            seeds = range(first + ran, first + ran + n)
            with tabtorch.device(device):
                wrong += check(record(seeds, wide), tabtorch, device)
            ran += n
        kinds: Counter[str] = Counter()
        for seed, why in wrong:
            kind = kind_of(why)
            kinds[kind] += 1
            if kinds[kind] > 1 or len(kinds) > o.show:
                continue
            g = draw(seed, wide)
            if o.shrink:
                with tabtorch.device(device):

                    def same(r: dict[str, Any], kind: str = kind, device: str = device) -> bool:
                        return any(kind_of(w) == kind for _, w in check([r], tabtorch, device))

                    g = shrunk(g, same)
                    why = check([recorded(g)], tabtorch, device)[0][1]
            print(describe(g, why), flush=True)
        for kind, n in kinds.most_common(40):
            print(f"{n:6} x {kind}")
        seconds = time.monotonic() - start
        print(
            f"aliases on {device}: {ran} programs from seed {first}, {ran - len(wrong)} agreed with PyTorch ({seconds:.0f} s)"
        )
        failed += len(wrong)
    return 1 if failed else 0


def kind_of(why: str) -> str:
    """What failures of one cause have in common."""
    import re

    text = re.sub(r"step \d+ \[\"(\w+)\", \"(\w*)\".*?\}\]: ", r"\1 \2: ", why)
    return re.sub(r"-?\d+(\.\d+)?(e-?\d+)?|\[[^a-z]*\]", "#", text)[:200]


if __name__ == "__main__":
    raise SystemExit(main())
