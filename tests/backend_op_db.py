"""Real PyTorch's own table of operators, `op_db`, on real PyTorch's device="webgpu", against its CPU.

    python tests/backend_op_db.py [PATTERN ...] [--device cpu|webgpu] [--dtype float32] [--samples N] [-j N] [--part K/N] [-v]

Of each entry the forward results of the first samples, and their gradients. The entries run in processes that may be
lost: what reads memory that is not there ends one, and is counted as a crash. `--device` is what lies under "webgpu".
Prints how many entries are right, and for the others why not, by cause.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
#: an entry that takes longer is given up, in seconds
PATIENCE = 120


class Answer(NamedTuple):
    """What became of an entry: "" if right, "none" if it has no such samples, else why not. forms: in-place, and `out=`."""

    name: str
    forward: str
    gradient: str
    forms: str


# ---- in the process that may be lost


def _flat(x: Any) -> list[Any]:
    from torch.utils._pytree import tree_leaves

    return tree_leaves(x)


def _moved(x: Any, leaves: list[Any]) -> Any:
    """A sample's arguments on the device; the leaves that want gradients are kept, in order."""
    import torch
    from torch.utils._pytree import tree_map

    def move(t: Any) -> Any:
        if isinstance(t, torch.Tensor):
            moved = t.detach().to("webgpu")
            if t.layout is torch.strided and t.numel() and not t.is_conj() and not t.is_neg():
                n = t.untyped_storage().nbytes() // t.element_size()
                if n != t.numel() or not t.is_contiguous():  # what it is a view of goes along
                    base = t.detach().as_strided((n,), (1,), 0).to("webgpu")
                    moved = base.as_strided(t.shape, t.stride(), t.storage_offset())
            if t.requires_grad:
                moved.requires_grad_(True)
                leaves.append((t, moved))
            return moved
        return t

    return tree_map(move, x)


def _compare(expected: Any, found: Any, home: bool = False) -> None:
    """home: the result may be on the CPU."""
    import torch

    e, f = _flat(expected), _flat(found)
    assert len(e) == len(f), f"{len(f)} results for {len(e)}"
    for a, b in zip(e, f):
        if isinstance(a, torch.Tensor):
            assert isinstance(b, torch.Tensor), f"{type(b)} for a tensor"
            assert home or b.device.type == "webgpu", f"a result on {b.device}"
            near = (2e-2, 2e-2) if a.dtype in (torch.float16, torch.bfloat16) else (1e-3, 1e-4)
            torch.testing.assert_close(
                b.cpu(), a.detach(), rtol=near[0], atol=near[1], equal_nan=True, check_stride=False
            )
        else:
            assert a == b or a != a, f"{b} for {a}"


def _differentiable(x: Any) -> list[Any]:
    import torch

    return [t for t in _flat(x) if isinstance(t, torch.Tensor) and t.requires_grad]


def _gradients(outs: list[Any], leaves: list[Any]) -> list[Any]:
    import torch

    loss: Any = 0
    for o in outs:
        weights = torch.linspace(0.5, 1.5, max(o.numel(), 1), device="cpu")[: o.numel()].reshape(o.shape).to(o.device)
        loss = loss + ((o * weights).sum().abs() if o.is_complex() else (o * weights.to(o.dtype)).sum())
    return list(torch.autograd.grad(loss, leaves, allow_unused=True))


#: how often the GPU's own generator was asked
_draws = [0]


def _count_draws() -> None:
    from tabtorch.random import PhiloxGenerator

    plain = PhiloxGenerator.next

    def counted(self: Any) -> Any:
        _draws[0] += 1
        return plain(self)

    PhiloxGenerator.next = counted  # type: ignore[method-assign]


def _in_forms(op: Any, s: Any, call: tuple[Any, Any, Any], expected: Any) -> int:
    """Compares the in-place form and that with `out=`: how many of them there were."""
    import torch

    seen = 0
    x, args, kw = call
    if op.inplace_variant is not None and not s.broadcasts_input and isinstance(x, torch.Tensor):
        cpu, here = s.input.detach().clone(), x.detach().clone()
        try:
            wanted = op.inplace_variant(cpu, *s.args, **s.kwargs)
        except Exception:  # this form is not for the sample
            wanted = None
        if wanted is not None:
            found = op.inplace_variant(here, *args, **kw)
            assert found is here, "an in-place operation gave another tensor"
            _compare(wanted, found)
            seen += 1
    if op.supports_out and isinstance(expected, torch.Tensor) and "out" not in s.kwargs:
        try:
            wanted = op(s.input, *s.args, **s.kwargs, out=torch.empty_like(expected))
        except Exception:
            wanted = None
        if wanted is not None:
            out = torch.empty_like(expected, device="webgpu")
            assert op(x, *args, **kw, out=out) is out, "out= gave another tensor"
            _compare(wanted, out)
            seen += 1
    return seen


def _one(op: Any, samples: int, dtype: Any) -> Answer:
    import itertools

    import torch

    why = {"forward": "none", "gradient": "none", "forms": "none"}
    gradients = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    taken = itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=gradients), samples)
    for s in taken:
        kind = "forward"
        try:
            state = torch.get_rng_state()
            try:
                expected = op(s.input, *s.args, **s.kwargs)
            except Exception:  # the sample is not for the CPU
                continue
            if _flat(expected) and any(
                isinstance(t, torch.Tensor) and t.layout is not torch.strided for t in _flat(expected)
            ):
                continue
            if why["forward"] == "none":
                why["forward"] = ""
            leaves: list[Any] = []
            if op.name == "tensor_split":  # where to split is asked of the CPU, on CUDA, too
                s.args = tuple(a.tolist() if isinstance(a, torch.Tensor) else a for a in s.args)
            x, args, kw = _moved((s.input, list(s.args), dict(s.kwargs)), leaves)
            kw = {
                k: torch.device("webgpu") if isinstance(v, torch.device) or k == "device" else v for k, v in kw.items()
            }
            torch.set_rng_state(state)
            before = _draws[0]
            found = op(x, *args, **kw)
            if _draws[0] > before:  # drawn by the GPU: other numbers
                assert [t.shape for t in _flat(expected)] == [t.shape for t in _flat(found)]
                continue
            if op.name.startswith(("empty", "new_empty")):  # whatever is there
                expected, found = ([(t.shape, t.dtype) for t in _flat(x)] for x in (expected, found))
            process = s.output_process_fn_grad if gradients else lambda x: x
            _compare(process(expected), process(found), op.name == "to")
            kind = "forms"
            # a draw, from the same state each time, which hides it; or what is there by chance
            drawn = "wrapper_set_seed" in getattr(getattr(op.op, "__code__", None), "co_names", ())
            drawn = drawn or not torch.equal(state, torch.get_rng_state()) or op.name.startswith(("empty", "new_empty"))
            if not drawn:
                with torch.no_grad():
                    if _in_forms(op, s, (x, args, kw), expected):
                        why[kind] = ""
            if gradients and leaves:
                outs = _differentiable(process(expected))
                if outs:
                    kind = "gradient"
                    if why["gradient"] == "none":
                        why["gradient"] = ""
                    wanted = _gradients(outs, [a for a, _ in leaves])
                    got = _gradients(_differentiable(process(found)), [b for _, b in leaves])
                    for a, b in zip(wanted, got):
                        assert (a is None) == (b is None), "a gradient that is None on one side only"
                        if a is not None:
                            _compare(a, b)
        except Exception as e:
            why[kind] = f"{type(e).__name__}: {str(e)}"[:600]
            if kind == "forward" and gradients:
                why["gradient"] = why["gradient"] or "forward"
            break
    return Answer(
        f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name,
        why["forward"],
        why["gradient"],
        why["forms"],
    )


def entries(dtype: Any) -> list[Any]:
    """The entries of op_db that have a type on the CPU."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if dtype in op.dtypes]


def work() -> None:
    """Answers the numbers of entries that come on the standard input, one a line."""
    import warnings

    import torch

    import tabtorch.backend  # noqa: F401

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    _count_draws()
    samples, dtype = int(sys.argv[2]), getattr(torch, sys.argv[3])
    every = entries(dtype)
    names = [f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name for op in every]
    print(json.dumps(names), flush=True)
    for line in sys.stdin:
        torch.manual_seed(0)
        print(json.dumps(_one(every[int(line)], samples, dtype)), flush=True)


# ---- in the process that asks


class Worker:
    """A process that answers, and is started again when it is lost."""

    def __init__(self, device: str, samples: int, dtype: str) -> None:
        self.device, self.samples, self.dtype = device, samples, dtype
        self.start()

    def start(self) -> None:
        """Starts it, and waits for the names of the entries."""
        env = {**os.environ, "PYTHONPATH": str(ROOT / "py"), "TABTORCH_DEVICE": self.device, "PYTORCH_JIT": "1"}
        command = [sys.executable, __file__, "--work", str(self.samples), self.dtype]
        self.child = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.child.stdout
        self.names: list[str] = json.loads(self.child.stdout.readline())

    def ask(self, number: int) -> Answer:
        """What becomes of an entry."""
        assert self.child.stdin and self.child.stdout
        late = threading.Timer(PATIENCE, self.child.kill)
        late.start()
        try:
            self.child.stdin.write(f"{number}\n")
            self.child.stdin.flush()
            line = self.child.stdout.readline()
        except OSError:
            line = ""
        finally:
            late.cancel()
        if line:
            return Answer(*json.loads(line))
        status = self._ended()
        why = "too slow" if status == -9 else f"crash: the process ended with {status}"
        self.start()
        return Answer(self.names[number], why, why, why)

    def _ended(self) -> int:
        assert self.child.stdin and self.child.stdout
        with contextlib.suppress(OSError):
            self.child.stdin.close()
        status = self.child.wait()
        self.child.stdout.close()
        return status

    def close(self) -> None:
        """Ends it."""
        self._ended()


def ask_all(
    device: str,
    samples: int,
    patterns: list[str] = (),
    part: tuple[int, int] = (0, 1),
    processes: int = 1,
    seconds: float = 0,
    dtype: str = "float32",
) -> list[Answer]:  # type: ignore[assignment]
    """The answers of the entries that fit, of every N-th one from the K-th on (part: (K, N)); seconds: asks no more then."""
    first = Worker(device, samples, dtype)
    numbers = [
        i for i, name in enumerate(first.names) if not patterns or any(fnmatch.fnmatchcase(name, p) for p in patterns)
    ][part[0] :: part[1]]
    found: list[Answer] = []
    waiting = iter(numbers)
    lock = threading.Lock()
    end = time.monotonic() + seconds if seconds else float("inf")

    def run(worker: Worker) -> None:
        while time.monotonic() < end:
            with lock:
                number = next(waiting, None)
            if number is None:
                break
            answer = worker.ask(number)
            with lock:
                found.append(answer)
        worker.close()

    threads = [
        threading.Thread(target=run, args=(w,))
        for w in (first, *(Worker(device, samples, dtype) for _ in range(processes - 1)))
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return found


def totals(answers: list[Answer]) -> dict[str, int]:
    """How many entries there are, how many are right forward, and with their gradient, and how many crashed."""
    return {
        "entries": len(answers),
        "forward": sum(not a.forward or a.forward == "none" for a in answers),
        "gradient": sum((not a.forward or a.forward == "none") and a.gradient in ("", "none") for a in answers),
        "of these with none to compare": sum(a.gradient == "none" for a in answers),
        "forms": sum(a.forms == "" for a in answers),
        "forms that fail": sum(a.forms not in ("", "none") for a in answers),
        "crashes": sum(a.forward.startswith("crash") for a in answers),
    }


def main() -> int:
    """The command."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("patterns", nargs="*")
    p.add_argument("--device", default="cpu", choices=("cpu", "webgpu"))
    p.add_argument("--samples", type=int, default=3)
    p.add_argument("--dtype", default="float32")
    p.add_argument("-j", type=int, default=1, help="processes")
    p.add_argument("--part", default="0/1", help="K/N: every N-th entry from the K-th on")
    p.add_argument("-v", action="store_true", help="show every failure")
    a = p.parse_args()
    k, _, n = a.part.partition("/")
    answers = ask_all(a.device, a.samples, a.patterns, (int(k), int(n)), a.j, dtype=a.dtype)
    causes: dict[str, list[str]] = defaultdict(list)
    for x in sorted(answers):
        for kind, why in (("forward", x.forward), ("gradient", x.gradient), ("forms", x.forms)):
            if why and why not in ("none", "forward"):
                causes[f"{kind}: {why if a.v else why.splitlines()[0][:150]}"].append(x.name)
    for why, names in sorted(causes.items(), key=lambda kv: -len(kv[1])):
        print(f"{len(names):4} {why}\n       {' '.join(names)}")
    print(totals(answers))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work()
    else:
        sys.exit(main())
