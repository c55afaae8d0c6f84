"""Random programs, compiled and not: every value that a program can still reach after each call, and which of them are one object
or share memory, must be the same.

    python -m fuzz.compiled --programs 1000 --seed 0 --device cpu       from `tests`, with tabtorch importable
    python -m fuzz.compiled --seconds 3600                              from a seed of the clock's
    python -m fuzz.compiled --show 17                                   the text of program 17, and what differs in it
    python -m wasm -m fuzz.compiled --programs 1000                     any of these in Pyodide

Needs nothing but tabtorch: it runs in a tab too, as `run_many(first_seed, count, device)`.
"""

from __future__ import annotations

import argparse
import copy
import gc
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from .draft import Draft
from .inference import inference
from .observe import World, differences
from .training import training

CALLS = 7


def draft(seed: int, dropped: frozenset[str] = frozenset()) -> tuple[str, Draft]:
    """Program `seed` without some features: its text, and what may be dropped."""
    d = Draft(seed, dropped)
    return (training(d) if d.roll("kind", 3) else inference(d)), d


def carried_out(text: str, seed: int, torch: Any, device: str, compiled: bool) -> list[dict[str, Any]]:
    """What there is to see after each call. An exception is one of the things to see."""
    looks: list[dict[str, Any]] = []

    def same(f: Any) -> Any:
        return f

    names: dict[str, Any] = {
        "__name__": "program",
        "same": same,
        "copy": copy,
        "gc": gc,
        "torch": torch,
        "nn": torch.nn,
    }
    names["F"] = torch.nn.functional
    names["checkpoint"] = torch.utils.checkpoint.checkpoint
    names["AveragedModel"] = torch.optim.swa_utils.AveragedModel
    names["get_ema_multi_avg_fn"] = torch.optim.swa_utils.get_ema_multi_avg_fn
    names["compile"] = torch.compile if compiled else same
    given = set(names)
    when = Draft(seed).choice("when to look", ["always", "always", "at the end", "now and then"])
    world = World(torch)
    # a program that ends between two changes of the grad mode leaves it as it is
    with torch.device(device), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        exec(builtins_compile(text, f"<program {seed}>"), names)
        for i in range(CALLS):
            try:
                names["call"](i)
                error = ""
            except Exception as e:
                error = f"{type(e).__name__}: {e}"
                e.__traceback__ = None
                del e
            error = error.partition("\n")[0].partition("an inplace operation: ")[0]  # what follows names the operation
            look: dict[str, Any] = {"error": error}
            if when == "always" or i == CALLS - 1 or (when == "now and then" and i % 3 == 2):
                look |= world.look({k: v for k, v in names.items() if k not in given})
            looks.append(look)
        looks[-1]["random state"] = torch.rand(2).tolist()
    return looks


builtins_compile = lambda text, name: compile(text, name, "exec")  # noqa: E731  # `compile` is a name in programs


def judged(text: str, seed: int, torch: Any, device: str) -> list[str]:
    """What differs between the program compiled and not."""
    try:
        want = carried_out(text, seed, torch, device, False)
    except Exception as e:
        return [f"the program fails without compile: {type(e).__name__}: {e}\n{traceback.format_exc()}"]
    try:
        got = carried_out(text, seed, torch, device, True)
    except Exception:
        return ["the program fails compiled: " + traceback.format_exc()]
    out: list[str] = []
    for i, (a, b) in enumerate(zip(want, got)):
        out += [f"call {i}: {d}" for d in differences(a, b)]
        if len(out) > 20:
            break
    return out


def run(seed: int, device: str = "cpu", torch: Any = None) -> list[str]:
    """The differences of program `seed`."""
    if torch is None:
        import tabtorch as torch
    return judged(draft(seed)[0], seed, torch, device)


def shrunk(seed: int, device: str = "cpu", torch: Any = None, seconds: float = 60) -> tuple[str, list[str]]:
    """The text and the differences of the program without what can be dropped while it still differs."""
    if torch is None:
        import tabtorch as torch
    until = time.time() + seconds
    dropped: frozenset[str] = frozenset()
    text, d = draft(seed)
    found = judged(text, seed, torch, device)
    progress = True
    while progress:
        progress = False
        for feature in d.features:
            if feature in dropped or time.time() > until:
                continue
            smaller, new = draft(seed, dropped | {feature})
            if smaller == text:
                dropped |= {feature}
                continue
            less = judged(smaller, seed, torch, device)
            if less and not less[0].startswith("the program fails without"):
                dropped, text, found, d, progress = dropped | {feature}, smaller, less, new, True
    return text, found


def run_many(
    first_seed: int, count: int, device: str = "cpu", seconds: float | None = None, verbose: bool = False
) -> dict[str, Any]:
    """Programs from `first_seed` on, for `seconds` at most: {"programs": how many ran, "differing": {seed: differences}, …}."""
    started = time.time()
    result: dict[str, Any] = {"programs": 0, "first_seed": first_seed, "device": device, "differing": {}}
    for seed in range(first_seed, first_seed + count):
        if seconds is not None and time.time() - started > seconds:
            break
        found = run(seed, device)
        result["programs"] += 1
        if found:
            result["differing"][seed] = found[:4]
            if verbose:
                print(f"program {seed} on {device}:", *found[:3], sep="\n    ", flush=True)
        if result["programs"] % 20 == 0:
            gc.collect()
        if verbose and result["programs"] % 100 == 0:
            print(f"{result['programs']} programs, {len(result['differing'])} differ", flush=True)
    result["seconds"] = round(time.time() - started, 1)
    return result


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--programs", type=int, default=1 << 40)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=int(time.time()) * 100_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--show", type=int)
    parser.add_argument("--whole", action="store_true", help="with --show: do not shrink")
    parser.add_argument("--results", type=Path, help="append a line of JSON (see reliability.py)")
    options = parser.parse_args(argv)
    if options.show is not None:
        seed = options.show
        text, found = (draft(seed)[0], run(seed, options.device)) if options.whole else shrunk(seed, options.device)
        print(text, *found[:8], sep="\n")
        return bool(found)
    if options.seconds is None and options.programs == 1 << 40:
        options.programs = 200
    result = run_many(options.seed, options.programs, options.device, options.seconds, verbose=True)
    print(
        f"{result['programs']} programs from seed {options.seed} on {options.device} in {result['seconds']} s:", end=" "
    )
    print(f"{len(result['differing'])} differ", *sorted(result["differing"]))
    noted(options.results, result)
    return bool(result["differing"])


def noted(file: Path | None, result: dict[str, Any]) -> None:
    """Appends to the table of the long runs what `run_many` gave. In a tab neither of its modules is there."""
    if file is None:
        return
    from host import host
    from reliability import record

    record(
        file,
        "compiled programs",
        count=result["programs"],
        unit="programs",
        found=len(result["differing"]),
        seconds=result["seconds"],
        on=f"{result['device']}, {host()}",
        seed=result["first_seed"],
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
