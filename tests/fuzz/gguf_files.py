"""Mutated GGUF files: each is read, or refused with GGUFError, and takes no more memory than the file has bytes.

`python -m fuzz.gguf_files [--files 10000] [--seed S]`, from tests/: exits 1 if anything is found.
"""

from __future__ import annotations

import argparse
import random
import secrets
import struct
import sys
import time
from typing import Any

import tabtorch
from tabtorch import gguf
from tabtorch.engine import graph
from tabtorch.engine.memory import memory
from tabtorch.packed import FORMATS

#: seconds that one file may take
LIMIT = 5.0


def text(s: str) -> bytes:
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def whole(rng: random.Random) -> bytearray:
    """A file in the format, of random metadata and tensors."""
    values = [
        struct.pack("<II", 4, rng.randrange(100)),
        struct.pack("<I", 8) + text("héllo"),
        struct.pack("<IB", 7, 1),
        struct.pack("<Id", 12, 0.5),
        struct.pack("<IIQ", 9, 8, 3) + text("a") + text("") + text("bc"),
        struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
        struct.pack("<IIQ", 9, 9, 2) + struct.pack("<IQ2i", 5, 2, 1, 2) + struct.pack("<IQ", 8, 1) + text("x"),
    ]
    chosen = rng.sample(values, rng.randrange(len(values)))
    alignment = rng.choice((8, 32, 64))
    pairs = [text("general.alignment") + struct.pack("<II", 4, alignment)]
    pairs += [text(f"k{i}") + v for i, v in enumerate(chosen)]
    infos, at, data = [], 0, b""
    for k in range(rng.randrange(1, 4)):
        f = rng.choice(list(FORMATS.values()))
        dims = (f.weights * rng.randrange(1, 3), rng.randrange(1, 4))
        number, nbytes = f.number, dims[0] * dims[1] // f.weights * f.nbytes
        if rng.random() < 0.4:
            number, nbytes = 0, dims[0] * dims[1] * 4
        infos.append(text(f"t{k}") + struct.pack("<IQQIQ", 2, *dims, number, at))
        padded = -(-nbytes // alignment) * alignment
        data += rng.randbytes(nbytes) + bytes(padded - nbytes)
        at += padded
    head = b"GGUF" + struct.pack("<IQQ", rng.choice((2, 3)), len(infos), len(pairs)) + b"".join(pairs + infos)
    return bytearray(head + bytes(-len(head) % alignment) + data)


def mutated(seed: str, number: int) -> bytes:
    """File `number` of a seed; it is the same in every process."""
    rng = random.Random(f"{seed}/{number}")
    data = whole(rng)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        at = rng.randrange(len(data)) if rng.random() < 0.2 else rng.randrange(min(len(data), 400))
        match rng.randrange(6):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.randrange(256)
            case 2:  # a number
                width, code = rng.choice(((4, "<I"), (8, "<Q")))
                value = rng.choice((0, 1, 2, 9, 255, 2**31, 2**32 - 1, 2**63, 2**64 - 1)) % 256**width
                data[at : at + width] = struct.pack(code, value)
            case 3:
                del data[at:]
            case 4:
                del data[at : at + rng.randrange(1, 40)]
            case _:
                data[at:at] = data[at : at + rng.randrange(1, 40)]
        if not data:
            break
    return bytes(data)


def judge(data: bytes) -> tuple[bool, str | None]:
    """Whether the file is refused, and what is wrong with how it is read."""
    begin = time.monotonic()
    graph.flush()
    memory.peak[:] = memory.live
    before = max(memory.live)
    refused, wrong = False, None
    try:
        found = gguf.load(data)
        for t in found.tensors.values():
            (t.dequantize() if hasattr(t, "dequantize") and type(t) is not tabtorch.Tensor else t).numpy()
            assert t.numel() >= 1
        del found
    except gguf.GGUFError:
        refused = True
        if max(memory.peak) - before > 4 * len(data) + 65536:
            wrong = f"{max(memory.peak) - before} bytes for a file of {len(data)}"
    except Exception as e:
        wrong = f"{type(e).__name__}: {e}"
    if time.monotonic() - begin > LIMIT:
        wrong = "slow"
    return refused, wrong


def run(seed: str, files: int) -> tuple[int, int, list[Any]]:
    """How many were judged, how many of them refused, and what was found, with the files' numbers."""
    refused, found = 0, []
    with tabtorch.device("cpu"):
        for number in range(files):
            no, wrong = judge(mutated(seed, number))
            refused += no
            if wrong:
                found.append((number, wrong))
    return files, refused, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    options = parser.parse_args()
    done, refused, found = run(options.seed, options.files)
    print(f"seed {options.seed}: {done} files, {refused} refused, {len(found)} found")
    for number, wrong in found[:20]:
        print(f"  file {number}: {wrong}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
