"""`python -m fuzz.exported_files --files 10000 [--seed S]`: mutated archives of `torch.export`; exits 1 on a finding.

Bytes of an archive are changed, or the JSON of its program. Of each comes an error as `load` and `module` raise them, or a program,
which is then run: what that raises is an error of an operator. Nothing takes long, and nothing of an archive is called by name.
"""

from __future__ import annotations

import argparse
import io
import json
import secrets
import sys
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import torch

import export_models
import tabtorch
from conformance.translate import Translator

#: seconds of the processor that one file may take
LIMIT = 10.0
SEEDS = ("linear", "cnn", "gpt", "containers", "numbers_of_sizes", "lstm", "counting")
READING = (RuntimeError, NotImplementedError, TypeError, ValueError)
RUNNING = (
    *READING,
    AttributeError,
    IndexError,
    AssertionError,
    KeyError,
    OverflowError,
    MemoryError,
    ZeroDivisionError,
)


@cache
def seed(name: str) -> tuple[bytes, tuple[Any, ...]]:
    """(archive, inputs here)."""
    torch.manual_seed(0)
    module, args, sizes = export_models.cases(torch)[name]()
    dims: dict[str, Any] = {}
    shapes = tuple(
        {d: dims.setdefault(s, torch.export.Dim(s, min=1, max=64)) for d, (s, _) in sizes.get(i, {}).items()} or None
        for i in range(len(args))
    )
    file = io.BytesIO()
    torch.export.save(torch.export.export(module, args, dynamic_shapes=shapes), file)
    return file.getvalue(), tuple(map(Translator("cpu"), args))


def rewritten(archive: bytes, change: Callable[[bytes], bytes], name: str = "models/model.json") -> bytes:
    """The archive with another program."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.namelist():
            data = old.read(entry)
            new.writestr(entry, change(data) if entry.endswith(name) else data)
    return out.getvalue()


def mutated(value: Any, random: Random) -> Any:
    """JSON with something else at one place."""
    if isinstance(value, (dict, list)) and value and random.random() < 0.93:
        key = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
        found: Any = dict(value) if isinstance(value, dict) else list(value)
        if random.random() < 0.05:
            del found[key]
        else:
            found[key] = mutated(found[key], random)
        return found
    if isinstance(value, str):
        return random.choice(["", value + "x", "torch.ops.aten.add.Tensor", "os.system", "9**9**9", "(" * 500, 3])
    return random.choice([None, -1, 2**70, 1e400, "x", [], {}, [value], {"as_int": 2**40}, True])


def drawn(random: Random) -> tuple[bytes, tuple[Any, ...]]:
    """A mutated archive, and inputs for it."""
    archive, args = seed(random.choice(SEEDS))
    kind = random.randrange(4)
    if kind < 2:
        name = random.choice(["models/model.json"] * 4 + ["model_weights_config.json", "model_constants_config.json"])

        def change(data: bytes) -> bytes:
            program = json.loads(data)
            for _ in range(random.randint(1, 3)):
                program = mutated(program, random)
            return json.dumps(program).encode()

        return rewritten(archive, change, name), args
    data = bytearray(archive[: random.randrange(len(archive))] if kind == 3 else archive)
    for _ in range(random.randint(1, 8)):
        if data:
            data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data), args


def run(files: int, seed_: str) -> tuple[list[str], Counter[str]]:
    """(what was found, how many were refused, how many ran, and how many failed as they ran)."""
    found: list[str] = []
    counts: Counter[str] = Counter()
    with warnings.catch_warnings():  # PyTorch's, of its own code
        warnings.simplefilter("ignore")
        for number in range(files):
            data, args = drawn(Random(f"{seed_}-{number}"))
            start = time.process_time()
            try:
                module = tabtorch.export.load(data, map_location="cpu").module()
            except READING:
                counts["refused"] += 1
            except Exception as e:
                found.append(f"{number} loading: {type(e).__name__}: {e}"[:400])
            else:
                try:
                    with tabtorch.no_grad():
                        for t in tabtorch.utils._pytree.tree_leaves(module(*args)):
                            if isinstance(t, tabtorch.Tensor):
                                t.sum().tolist()
                    counts["ran"] += 1
                except RUNNING:
                    counts["failed as they ran"] += 1
                except Exception as e:
                    found.append(f"{number} running: {type(e).__name__}: {e}"[:400])
            if time.process_time() - start > LIMIT:
                found.append(f"{number}: takes too long")
    return found, counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    args = parser.parse_args()
    found, counts = run(args.files, args.seed)
    print(*found, sep="\n")
    print(f"{args.files} files of seed {args.seed}: {dict(counts)}, {len(found)} findings")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
