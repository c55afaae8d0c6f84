"""Random uses of indices, most of which only the device knows, some out of range: what PyTorch's CPU says, and tabtorch.

`python tests/index_programs.py SECONDS [SEED]` runs as many as there is time for, eager and compiled, on every device, and
prints the seed of each that differs.
"""

from __future__ import annotations

import random
import sys
import time
import warnings
from typing import Any

import torch

import tabtorch
from sidebyside import DEVICES

#: shape of x -> (expression, bounds of `i`, bounds of `j` or None, shape of `i`); bounds: (lowest, highest) that is allowed
Program = tuple[str, tuple[int, int], Any, tuple[int, ...]]


def programs(n: int, m: int, k: int) -> list[Program]:
    """Of an x of shape (n, m), with k indices."""
    a, b, f = (-n, n - 1), (-m, m - 1), (-n * m, n * m - 1)
    rows, cols = (0, n - 1), (0, m - 1)
    wide = f"L.arange({k}.0 * {m}).reshape({k}, {m})"
    same = f"L.arange({m}.0).repeat({k}, 1)"  # several of them may be written to one place, and a GPU has no last one
    logits = f"L.arange({k}.0 * {m}).reshape({k}, {m}).sin()"
    return [
        ("x[i]", a, None, (k,)),
        ("x[i]", a, None, (2, k)),
        ("x[:, i]", b, None, (k,)),
        ("x[i, j]", a, b, (k,)),
        ("x[None, i]", a, None, (k,)),
        ("x.index_select(0, i)", rows, None, (k,)),
        ("x.index_select(1, i)", cols, None, (k,)),
        ("x.gather(0, i)", rows, None, (k, m)),
        ("x.gather(1, i)", cols, None, (n, k)),
        ("x.take(i)", f, None, (k,)),
        ("L.take_along_dim(x, i, 1)", cols, None, (n, k)),
        ("F.embedding(i, x)", rows, None, (k,)),
        ("F.embedding(i, x)", rows, None, (2, k)),
        ("F.one_hot(i, " + str(m) + ")", cols, None, (k,)),
        (f"F.cross_entropy({logits}, i)", cols, None, (k,)),
        (f"F.cross_entropy({logits}, i, weight=L.ones({m}), reduction='none')", cols, None, (k,)),
        (f"F.nll_loss({logits}, i, ignore_index=-100)", cols, None, (k,)),
        (f"F.multi_margin_loss({logits}, i)", cols, None, (k,)),
        ("F.embedding_bag(i, x, mode='sum')", rows, None, (2, k)),
        (f"L.zeros({n}, {m}).scatter_(1, i, 1.0)", cols, None, (n, k)),
        (f"L.zeros({n}, {m}).scatter(0, i, {same})", rows, None, (k, m)),
        (f"L.zeros({n}, {m}).scatter_add(0, i, {wide})", rows, None, (k, m)),
        (f"L.zeros({n}, {m}).scatter_reduce(0, i, {wide}, 'amax')", rows, None, (k, m)),
        (f"L.zeros({n}, {m}).index_add_(0, i, {wide})", rows, None, (k,)),
        (f"L.zeros({n}, {m}).index_copy_(0, i, {same})", rows, None, (k,)),
        (f"L.zeros({n}, {m}).index_fill_(0, i, 1.0)", a, None, (k,)),
        (f"L.zeros({n}, {m}).index_put((i, j), L.ones({k}), accumulate=True)", a, b, (k,)),
        (f"L.zeros({n}, {m}).put(i, L.ones({k}))", f, None, (k,)),
        (f"L.zeros({n}, {m}).index_reduce(0, i, {wide}, 'amin')", rows, None, (k,)),
        (f"L.zeros({n}, {m}).index_reduce(0, i, {wide}, 'amin', include_self=False)", rows, None, (k,)),
        (f"L.searchsorted(L.arange({n}.0), L.ones({m}), sorter=i)", rows, None, (n,)),
        (f"F.max_unpool1d(L.ones(1, {k}), i, 2)", (0, 2 * k - 1), None, (1, k)),
        (
            f"F.ctc_loss(L.ones({n}, {k}, 3).log_softmax(2), L.ones({k}, {m}).long(), i, j, reduction='none')",
            (0, n),
            (0, m),
            (k,),
        ),
    ]


class Case:
    """One program: its text, the values of its indices, and how those lie in memory."""

    def __init__(self, seed: int) -> None:
        r = random.Random(seed)
        n, m, k = r.randint(1, 6), r.randint(1, 6), r.randint(1, 5)
        self.seed, self.n, self.m = seed, n, m
        self.text, *bounds, self.shape = r.choice(programs(n, m, k))
        if "scatter(" in self.text or "gather(0" in self.text or "amin" in self.text:
            k = min(k, n)
        self.dtype = "int32" if r.random() < 0.2 and not any(w in self.text for w in self.LONG) else "int64"
        self.good = [self._values(r, b) for b in bounds if b]
        self.bad = [list(v) for v in self.good]
        which = r.randrange(len(self.bad))
        low, high = bounds[which]
        far = [2**33, -(2**33), 2**32] if self.dtype == "int64" else [2**31 - 1]
        wrong = r.choice([high + 1, low - 1, high + r.randint(1, 90), low - r.randint(1, 90), *far])
        self.bad[which][r.randrange(len(self.bad[which]))] = wrong
        self.strided = r.random() < 0.3
        #: of each call of the compiled form: whether it is a bad one, whether the host knows its indices
        self.calls = [(r.random() < 0.5, r.random() < 0.25) for _ in range(6)]

    LONG = (
        "take",
        "one_hot",
        "cross_entropy",
        "nll",
        "margin",
        "put",
        "fill",
        "copy",
        "index_add",
        "amin",
        "x[",
        "sorter",
        "unpool",
    )

    def _values(self, r: random.Random, bounds: tuple[int, int]) -> list[int]:
        total = 1
        for s in self.shape:
            total *= s
        return [r.randint(*bounds) for _ in range(total)]

    def indices(self, lib: Any, values: list[list[int]], known: bool) -> list[Any]:
        """The index tensors, known to the host, or made on the device so that nothing on the host tells what is in them."""
        if known:
            return [lib.tensor(v, dtype=self._type(lib)).reshape(self.shape) for v in values]
        made = []
        for v in values:
            if self.strided:
                t = lib.tensor([[x, 0] for x in v], dtype=lib.float64, device="cpu").to(self._type(lib))[:, 0]
            else:
                t = lib.tensor([float(x) for x in v], dtype=lib.float64, device="cpu").to(self._type(lib))
            if lib is tabtorch and tabtorch.empty(0).device.type != "cpu":
                t = t.to(tabtorch.empty(0).device)
            made.append(t.reshape(self.shape) if not self.strided or len(self.shape) == 1 else t.view(self.shape))
        return made

    def _type(self, lib: Any) -> Any:
        return getattr(lib, self.dtype)

    def function(self, lib: Any) -> Any:
        return eval(f"lambda x, i, j=None: {self.text}", {"L": lib, "F": lib.nn.functional})

    def x(self, lib: Any) -> Any:
        return lib.arange(float(self.n * self.m)).reshape(self.n, self.m)


def outcome(call: Any) -> tuple[str, Any]:
    """What came of it, once it has been read: ("value", list) or (type of the exception, the first line of its message)."""
    try:
        return "value", call().tolist()
    except Exception as e:
        return type(e).__name__, str(e).split("\n")[0]


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(alike, a, b))
    return (
        a == b
        or (a != a and b != b)
        or (isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 1e-5 * max(1, abs(a)))
    )


def differences(seed: int, device: str, compiled: bool) -> list[str]:
    """What PyTorch and tabtorch say otherwise of the program of this seed."""
    case = Case(seed)
    found = []
    with tabtorch.device(device):
        theirs, mine = case.function(torch), case.function(tabtorch)
        if compiled:
            mine = tabtorch.compile(mine)
        calls = case.calls if compiled else [(True, False), (False, False)]
        for call, (bad, known) in enumerate(calls):
            values = case.bad if bad else case.good
            want = outcome(lambda values=values: theirs(case.x(torch), *case.indices(torch, values, True)))
            ready = case.indices(tabtorch, values, known)
            got = outcome(lambda ready=ready: mine(case.x(tabtorch), *ready))
            if "Could this error message be improved" in str(want[1]):  # a slip of theirs
                want, got = (want[0], ""), (got[0], "")
            if want[0] != got[0] or not alike(want[1], got[1]):
                found.append(f"seed {seed}, call {call}, {device}: {case.text} of {values}: {got}, not {want}")
    return found


def main() -> int:
    seconds = float(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**40)
    warnings.simplefilter("ignore")
    end, done, wrong = time.monotonic() + seconds, 0, 0
    print(f"from seed {seed} on")
    while time.monotonic() < end:
        for device in DEVICES:
            for text in differences(seed, device, bool(done % 2)):
                print(text, flush=True)
                wrong += 1
        seed, done = seed + 1, done + 1
    print(f"{done} programs, {wrong} differences")
    return wrong > 0


if __name__ == "__main__":
    raise SystemExit(main())
