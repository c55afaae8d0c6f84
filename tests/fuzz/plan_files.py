"""`python -m fuzz.plan_files [--programs 10000] [--seed S]`: files of plans with changed headers, plans and lengths are errors, or load.

What is no error of a file (`KeyError`, `TypeError`, …), or takes longer than LIMIT seconds, is found. Plans are not run: a plan
for the cpu is code.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import random
import secrets
import sys
import time
from typing import Any

import tabtorch as torch
from tabtorch import nn, plan_files
from tabtorch.nn import functional as F
from tabtorch.plan_files import PlanFileError
from tabtorch.safetensors import SafetensorError

LIMIT = 5.0
_ODD = (
    -1,
    0,
    1,
    2,
    7,
    2**31,
    2**32,
    2**53,
    2**64,
    10**30,
    0.5,
    -0.0,
    True,
    None,
    "",
    "x",
    "inf",
    [],
    {},
    [[]],
    {"a": 1},
)


def seed_file() -> bytes:
    """A training step with dropout, a prediction, random numbers of both kinds."""
    with torch.device("cpu"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.1), nn.Linear(6, 3))
        optimizer = torch.optim.Adam(model.parameters())

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return {"loss": loss, "noise": torch.rand(3)}

        file = io.BytesIO()
        plan_files.save(
            file,
            {"step": (step, (torch.randn(4, 4), torch.tensor([0, 1, 2, 1])))},
            model=model,
            optimizer=optimizer,
            dynamic={"x": {0: "n"}, "y": {0: "n"}},
            devices=("cpu",),
        )
    return file.getvalue()


def parts(data: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Header, plan, and the tensors' bytes."""
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + n])
    return header, json.loads(header["__metadata__"]["tabtorch.plan"]), data[8 + n :]


def joined(header: dict[str, Any], plan: Any, rest: bytes) -> bytes:
    header = header | {"__metadata__": header["__metadata__"] | {"tabtorch.plan": json.dumps(plan)}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + rest


def _walk(rng: random.Random, x: Any) -> tuple[Any, Any] | None:
    """A container somewhere within, and a key of it."""
    while True:
        keys = list(x) if isinstance(x, dict) else list(range(len(x)))
        if not keys:
            return None
        k = rng.choice(keys)
        if not isinstance(x[k], (dict, list)) or not x[k] or rng.random() < 0.15:
            return x, k
        x = x[k]


def mutated(rng: random.Random, data: bytes) -> bytes:
    """The file with one to three changes."""
    if rng.random() < 0.1:
        at, n = rng.randrange(len(data)), rng.randrange(1, 9)
        return data[:at] if rng.random() < 0.3 else data[:at] + rng.randbytes(n) + data[at + n :]
    header, plan, rest = parts(data)
    plan = copy.deepcopy(plan)
    for _ in range(rng.randrange(1, 4)):
        found = _walk(rng, plan)
        if found is None:
            continue
        x, k = found
        how = rng.randrange(4)
        if how == 0:
            x[k] = rng.choice(_ODD)
        elif how == 1:
            del x[k]
        elif how == 2 and isinstance(x, list):
            x.insert(k, copy.deepcopy(x[k]))
        elif type(x[k]) is int:
            x[k] += rng.choice((-1, 1, 1000, -(2**31)))
        else:
            other = _walk(rng, plan)
            x[k] = None if other is None else copy.deepcopy(other[0][other[1]])
    return joined(header, plan, rest)


def judge(data: bytes) -> str:
    """What is wrong with how a file is taken; "" if nothing is."""
    begun = time.monotonic()
    try:
        with torch.device("cpu"):
            plan_files.load(data, "cpu")
    except (PlanFileError, SafetensorError, TypeError) as e:
        if isinstance(e, TypeError) and "which is not supported" not in str(e):
            return f"{type(e).__name__}: {e}"
    except RuntimeError as e:  # a kernel whose text was changed
        if "did not compile" not in str(e):
            return f"{type(e).__name__}: {e}"
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    took = time.monotonic() - begun
    return f"takes {took:.1f} s" if took > LIMIT else ""


def run(programs: int, seed: str) -> list[str]:
    """What was found, with the numbers of the programs."""
    data = seed_file()
    assert judge(data) == ""
    found = []
    for k in range(programs):
        why = judge(mutated(random.Random(f"{seed}/{k}"), data))
        if why:
            found.append(f"--seed {seed}, program {k}: {why}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    options = parser.parse_args()
    found = run(options.programs, options.seed)
    print(*found[:20], f"{options.programs} files, seed {options.seed}: {len(found)} found", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
