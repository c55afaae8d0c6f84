"""Memory that runs out, and devices that are lost, at moments drawn at random: `python -m faults memory --moments 100`.

Each time: the right exception, nothing half done that goes on as if it were whole, no bytes left behind, and the same
program run again gives the right numbers.
"""

from __future__ import annotations

import argparse
import gc
import io
import random
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tabtorch as torch
from host import host
from reliability import record
from tabtorch import nn
from tabtorch.bridge import get_bridge

STEPS = 4


class Training:
    """A small training whose parts can be looked at after it has failed. `compiled`: its steps are."""

    def __init__(self, optimizer: str, compiled: bool) -> None:
        self.name = f"{optimizer}, {'compiled' if compiled else 'eager'}"
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        self.optimizer: Any = getattr(torch.optim, optimizer)(self.model.parameters(), lr=0.05)
        if optimizer == "SGD":
            self.optimizer.param_groups[0]["momentum"] = 0.9
        self.data = [(torch.randn(5, 6), torch.randint(0, 3, (5,))) for _ in range(STEPS)]
        self.one = torch.compile(self._one) if compiled else self._one
        self.losses: list[float] = []

    def _one(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self) -> list[Any]:
        """All steps; (losses, parameters, buffers), read."""
        for x, y in self.data[len(self.losses) :]:
            self.losses.append(self.one(x, y).item())
        return [np.array(self.losses), *self.values()]

    def parts(self) -> dict[str, Any]:
        """What the model and the optimizer hold, by name."""
        found = dict(self.model.state_dict())
        for i, state in enumerate(self.optimizer.state.values()):
            found |= {f"{k} of {i}": v for k, v in state.items() if isinstance(v, torch.Tensor)}
        return found

    def values(self) -> list[Any]:
        """The same, as arrays."""
        return [t.detach().numpy().copy() for t in self.parts().values()]

    def restore(self, saved: bytes) -> None:
        """As from a file that was saved before."""
        model, optimizer = torch.load(io.BytesIO(saved))
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
        self.losses.clear()


def mathematics() -> list[Any]:
    """Work with no state: products, reductions, sorts, indices that only the device knows, random numbers, writes, views."""
    torch.manual_seed(1)
    a = torch.randn(17, 23)
    b = (a @ a.t()).softmax(1)
    b[2:5] += 1.0
    c = torch.sort(b.flatten()).values.cumsum(0)
    d = torch.stack([c, c.flip(0)])[:, ::7].clone()
    e = torch.linalg.inv(torch.eye(5) * 2 + b[:5, :5])
    f = nn.functional.conv2d(a[None, None], torch.ones(2, 1, 3, 3)).relu()
    g = c.gather(0, (a.abs().flatten() * 2).long() % 11) + a.argmax(1)[:1]
    return [t.numpy() for t in (b, c, d, e, f, g)] + [np.array(b.sum().item())]


def programs() -> dict[str, Callable[[], Any]]:
    made: dict[str, Callable[[], Any]] = {"mathematics": mathematics}
    for optimizer in ("SGD", "AdamW"):
        for compiled in (False, True):
            name = f"{optimizer}, {'compiled' if compiled else 'eager'}"
            made[name] = lambda optimizer=optimizer, compiled=compiled: Training(optimizer, compiled)
    return made


def result(program: Any) -> list[Any]:
    found: list[Any] = program.run() if isinstance(program, Training) else program
    return found


def alike(want: list[Any], got: list[Any]) -> bool:
    return len(want) == len(got) and all(np.array_equal(w, g, equal_nan=True) for w, g in zip(want, got))


def settled() -> tuple[int, int]:
    """(buffers, bytes) that are live when everything that could go has gone."""
    torch.compiler.reset()
    for _ in range(2):
        gc.collect()
    bridge = get_bridge()
    bridge.synchronize()
    stats = bridge.stats()
    return stats["buffers"], stats["bytes"]


class Checks:
    """What was tried, and what was found."""

    def __init__(self, device: str, seed: str) -> None:
        self.device = device
        self.seed = seed
        self.random = random.Random(seed)
        self.tried = 0
        self.kinds: dict[str, int] = {}
        self.found: list[str] = []
        self.saved: dict[str, bytes] = {}

    def wrong(self, what: str) -> None:
        self.found.append(what)
        print(f"  found: {what}", flush=True)

    def note(self, kind: str) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + 1

    # -- devices that are lost

    def loss(self, moments: int) -> None:
        """The GPU device goes at a command of a block (an upload, a kernel, a plan, a run), or while a read waits."""
        made = programs()
        clean: dict[str, tuple[list[Any], dict[str, int]]] = {}
        kept = np.arange(5.0, dtype=np.float32)
        for name, make in made.items():
            result(make())
            torch.compiler.reset()
            get_bridge().fault()
            want = result(make())
            clean[name] = want, get_bridge().fault()
        for i in range(moments):
            name = list(made)[i % len(made)]
            want, counts = clean[name]
            kind = self.random.choice(["commands", "commands", "reads"])
            at = self.random.randrange(counts[kind])
            where = f"{name}, {kind} {at} of {counts[kind]}"
            self.tried += 1
            torch.compiler.reset()
            on_cpu, on_gpu = torch.tensor(kept, device="cpu"), torch.tensor(kept) * 2
            on_gpu.numpy()
            get_bridge().fault(**{kind: at})
            try:
                result(made[name]())
                self.wrong(f"{where}: no exception")
            except torch.AcceleratorError as error:
                self.note("lost" if "GPU device was lost" in str(error) else "used what was lost")
            except Exception as error:
                self.wrong(f"{where}: {type(error).__name__}: {str(error)[:200]}")
            get_bridge().fault()
            if not np.array_equal(on_cpu.numpy(), kept):
                self.wrong(f"{where}: what was on the cpu has other numbers")
            try:
                on_gpu.numpy()
                self.wrong(f"{where}: what was on the GPU can be read")
            except torch.AcceleratorError:
                pass
            try:
                if not alike(want, result(made[name]())):
                    self.wrong(f"{where}: the next run has other numbers")
            except Exception as error:
                self.wrong(f"{where}: the next run: {type(error).__name__}: {str(error)[:200]}")

    # -- memory that runs out

    def memory(self, moments: int) -> None:
        made = programs()
        clean: dict[str, tuple[list[Any], list[dict[str, Any]], int]] = {}
        for name, make in made.items():
            result(make())  # plans and kernels are there
            torch.compiler.reset()
            get_bridge().fault()
            stages: list[dict[str, Any]] = []
            program = make()
            if isinstance(program, Training):
                file = io.BytesIO()
                torch.save([program.model.state_dict(), program.optimizer.state_dict()], file)
                self.saved[name] = file.getvalue()
                stages.append(dict(zip(program.parts(), program.values())))
                for x, y in program.data:
                    program.losses.append(program.one(x, y).item())
                    stages.append(dict(zip(program.parts(), program.values())))
            want = result(program)
            torch.compiler.reset()
            program = make() if make is not mathematics else None
            get_bridge().fault()
            assert alike(want, result(make() if program is None else program)), f"{name} is not the same twice"
            clean[name] = want, stages, get_bridge().fault()["allocations"]
            program = None
        before = settled()
        for i in range(moments):
            name = list(made)[i % len(made)]
            want, stages, allocations = clean[name]
            at = self.random.randrange(allocations)
            where = f"{name}, allocation {at} of {allocations}"
            self.tried += 1
            torch.compiler.reset()
            make, program = made[name], None
            if make is not mathematics:
                program = make()
            get_bridge().fault(allocations=at)
            try:
                result(make() if program is None else program)
                self.wrong(f"{where}: no exception")
            except torch.OutOfMemoryError:
                pass
            except Exception as error:
                self.wrong(f"{where}: {type(error).__name__}: {str(error)[:200]}")
            get_bridge().fault()
            if isinstance(program, Training):
                self.consistent(program, stages, want, where)
            program = None
            torch.compiler.reset()
            try:
                if not alike(want, result(made[name]())):
                    self.wrong(f"{where}: the next run has other numbers")
            except Exception as error:
                self.wrong(f"{where}: the next run: {type(error).__name__}: {str(error)[:200]}")
            after = settled()
            if after != before:
                self.wrong(f"{where}: (buffers, bytes) were {before}, and are {after}")
                before = after

    def consistent(self, program: Training, stages: list[dict[str, Any]], want: list[Any], where: str) -> None:
        """What can be read is what it was before or after the step that failed; the rest says that it is gone.

        The parameters and their states that can be read are all of one moment. The same model can be given what was saved
        before, and goes on to the right numbers.
        """
        done = len(program.losses)
        moments: dict[str, set[int]] = {}
        for name, t in program.parts().items():
            try:
                now = t.detach().numpy()
            except (torch.OutOfMemoryError, torch.AcceleratorError):
                self.note("values gone")
                continue
            except Exception as error:
                self.wrong(f"{where}: {name}: {type(error).__name__}: {str(error)[:120]}")
                continue
            at = {k for k in (done, done + 1) if k < len(stages) and np.array_equal(stages[k].get(name, 0), now)}
            moments[name] = at
            if not at and done < len(stages) and name in stages[done]:
                self.wrong(f"{where}: {name} is neither of step {done} nor of the next")
        trained = [at for name, at in moments.items() if "running" not in name and "num_batches" not in name]
        together = set.intersection(*trained) if trained else {done}
        if not together:
            self.wrong(
                f"{where}: of step {done}, some parameters or states have been stepped, and others not: {moments}"
            )
        self.note("not stepped" if done in together else "stepped")
        try:
            program.restore(self.saved[program.name])
            if not alike(want, program.run()):
                self.wrong(f"{where}: after what was saved is loaded, it has other numbers")
        except Exception as error:
            self.wrong(f"{where}: what was saved cannot be loaded: {type(error).__name__}: {str(error)[:200]}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("fault", choices=["memory", "loss"])
    parser.add_argument("--moments", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", default=None, help="a fresh one is drawn and printed")
    parser.add_argument("--results", type=Path, default=None, help="append a line of JSON (see reliability.py)")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else secrets.token_hex(4)
    begun = time.monotonic()
    print(f"seed {seed}", flush=True)
    with torch.device(args.device):
        checks = Checks(args.device, seed)
        getattr(checks, args.fault)(args.moments)
    took = time.monotonic() - begun
    print(f"{checks.tried} moments in {took:.0f} s, {checks.kinds}: found {len(checks.found)}")
    record(
        args.results,
        {"memory": "out of memory", "loss": "device lost"}[args.fault],
        count=checks.tried,
        unit="moments",
        found=len(checks.found),
        seconds=took,
        on=f"{args.device}, {host()}",
        seed=seed,
        **checks.kinds,
    )
    return 1 if checks.found else 0


if __name__ == "__main__":
    sys.exit(main())
