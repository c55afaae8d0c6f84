"""Mutated TorchScript archives: each is read, or refused with an error that says so, in bounded time. None of it is run.

`python -m fuzz.script_files [--files 10000] [--seed S]`, from tests/: exits 1 if anything is found.
"""

from __future__ import annotations

import argparse
import collections
import io
import pickle
import random
import secrets
import sys
import time
import traceback
import warnings
import zipfile

import tabtorch

from . import scripted

#: seconds that one file may take
LIMIT = 5.0
REFUSED = (RuntimeError, pickle.UnpicklingError, EOFError, NotImplementedError)


def archives(count: int = 12) -> list[dict[str, bytes]]:
    """The records of some programs' archives."""
    found = []
    for seed in range(10 * count):
        _, data = scripted.scripted(seed)
        if data is not None and len(found) < count:
            with zipfile.ZipFile(io.BytesIO(data)) as file:
                found.append({k: file.read(k) for k in file.namelist()})
    return found


def mutated(records: dict[str, bytes], rng: random.Random) -> bytes:
    """An archive with some bytes of some records changed, taken out or doubled; now and then of the archive itself."""
    made = dict(records)
    for _ in range(rng.randrange(1, 4)):
        name = rng.choice([k for k in made if k.endswith((".py", ".pkl", "version"))])
        data = bytearray(made[name])
        for _ in range(rng.randrange(1, 5)):
            if not data:
                break
            at, kind = rng.randrange(len(data)), rng.randrange(4)
            if kind == 0:
                data[at] = rng.randrange(256)
            elif kind == 1:
                del data[at : at + rng.randrange(1, 20)]
            elif kind == 2:
                other = rng.randrange(len(data))
                data[at:at] = data[other : other + rng.randrange(1, 30)]
            else:
                data[at:at] = rng.choice(
                    [b"(" * 200, b"999999999999", b"import os\n", b"torch.save", b"__class__", b"\x80\x02c"]
                )
        made[name] = bytes(data)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as z:
        for name, record in made.items():
            z.writestr(name, record)
    whole = bytearray(file.getvalue())
    if rng.random() < 0.2:
        for _ in range(rng.randrange(1, 4)):
            whole[rng.randrange(len(whole))] = rng.randrange(256)
    return bytes(whole[: rng.randrange(len(whole))] if rng.random() < 0.05 else whole)


def findings(files: int, seed: int) -> tuple[list[str], collections.Counter[str]]:
    """What went wrong, and how many files ended how."""
    rng, bad, ends = random.Random(seed), [], collections.Counter[str]()
    known = archives()
    for n in range(files):
        data = mutated(rng.choice(known), rng)
        start = time.monotonic()
        try:
            tabtorch.jit.load(data, map_location="cpu")
            ends["read"] += 1
        except REFUSED as error:
            ends[type(error).__name__] += 1
        except Exception:
            bad.append(f"file {n} of seed {seed}: {traceback.format_exc(limit=-3)}")
        if time.monotonic() - start > LIMIT:
            bad.append(f"file {n} of seed {seed}: {time.monotonic() - start:.1f} s")
    return bad, ends


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    bad, ends = findings(given.files, seed)
    print("\n".join(bad))
    print(f"seed {seed}: {dict(ends)}; {len(bad)} findings")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
