"""`python -m fuzz.onnx_files --files 10000 [--seed S]`: mutated ONNX files; exits 1 if one is not refused as a file is refused.

A file loads, or is a ValueError or a NotImplementedError, and takes no longer than a file of its length may.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import time

import onnx_cases
import tabtorch as torch

#: seconds that one file may take
LIMIT = 10.0


def mutated(seeds: list[bytes], draw: random.Random) -> bytes:
    """A file with a few bytes changed, taken away, or put in."""
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        at = draw.randrange(len(data))
        what = draw.randrange(4)
        if what == 0:
            data[at] = draw.randrange(256)
        elif what == 1:
            data[at] ^= 1 << draw.randrange(8)
        elif what == 2:
            del data[at : at + draw.randrange(1, 8)]
        else:
            data[at:at] = bytes(draw.choice((0, 127, 128, 255)) for _ in range(draw.randrange(1, 6)))
        if not data:
            data = bytearray(1)
    return bytes(data)


def run(files: int, seed: str) -> tuple[list[str], int]:
    """(what was found, how many files loaded)."""
    seeds = [c.model for c in onnx_cases.nodes()[::5]] + [c.model for c in onnx_cases.folders("pytorch-operator")]
    found, loaded = [], 0
    for number in range(files):
        data = mutated(seeds, random.Random(f"{seed}-{number}"))
        start = time.process_time()
        try:
            torch.onnx.load(data, device="cpu")
            loaded += 1
        except (ValueError, NotImplementedError):
            pass
        except Exception as e:
            found.append(f"{number}: {type(e).__name__}: {e}")
        if time.process_time() - start > LIMIT:
            found.append(f"{number}: takes too long")
    return found, loaded


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    args = parser.parse_args()
    found, loaded = run(args.files, args.seed)
    print(*found, sep="\n")
    print(f"{args.files} files of seed {args.seed}: {loaded} load, {len(found)} findings")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
