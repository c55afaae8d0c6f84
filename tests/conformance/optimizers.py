"""PyTorch's own table of optimizers, `optim_db`, against tabtorch: steps, states, and errors.

    python -m conformance.optimizers [PATTERN ...] [--device cpu|webgpu] [--samples N] [-v]

Every `OptimizerInfo`, every input of its, plain and with each implementation it names (foreach, fused, differentiable):
20 steps on a small model from the same beginning in both libraries, parameters and states compared; a state dict loaded
ours into theirs and theirs into ours after 10, and both continued; the error inputs, by type and by letter.
"""

from __future__ import annotations

import argparse
import copy
import fnmatch
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, OptimizerInfo, OptimizerInput, optim_db

import tabtorch

from . import compare, left_out, translate

STEPS = 20
#: a step of these makes iterations: so many in all
_ITERATIONS = {"LBFGS": {"max_iter": 2}}
_SHAPES = ((5, 4), (5,), (5, 5), (5,), (5, 5), (5,), (3, 5), (3,))


class Failed(AssertionError):
    """What is different, in a line."""


def beginning(info: OptimizerInfo) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """Parameters, inputs and targets. Muon takes matrices only."""
    g = torch.Generator().manual_seed(7)
    shapes = [s for s in _SHAPES if len(s) == 2 or info.name != "Muon"]
    params = [torch.rand(s, generator=g) - 0.5 for s in shapes]
    return params, torch.randn(6, 4, generator=g), torch.randn(6, 3, generator=g)


def loss(lib: Any, params: list[Any], x: Any, y: Any) -> Any:
    """The mean square error of a small network, smooth so that rounding stays rounding."""
    step = 2 if any(p.dim() == 1 for p in params) else 1
    weights = params[::step]
    for i, w in enumerate(weights):
        x = x @ w.t() + (params[2 * i + 1] if step == 2 else 0)
        x = lib.tanh(x) if i < len(weights) - 1 else x
    return ((x - y) ** 2).mean()


def steps_of(info: OptimizerInfo) -> int:
    """20 steps, or 20 iterations."""
    return STEPS // _ITERATIONS.get(info.name, {}).get("max_iter", 1)


class Run:
    """A training run in one library."""

    def __init__(self, lib: Any, info: OptimizerInfo, kwargs: dict[str, Any], device: str, dtype: Any = None) -> None:
        params, x, y = beginning(info)
        if dtype is not None:
            params, x, y = [p.to(dtype) for p in params], x.to(dtype), y.to(dtype)
        make = (lambda t: translate.tensor(t, device)) if lib is tabtorch else (lambda t: t.clone())
        self.lib, self.device = lib, device
        self.x, self.y = make(x), make(y)
        self.leaf = not kwargs.get("differentiable")
        self.params = [make(p).requires_grad_(self.leaf) for p in params]
        self.kwargs = {k: _moved(v, device) if lib is tabtorch else copy.deepcopy(v) for k, v in kwargs.items()}
        self.kind = getattr(lib.optim, info.name)
        self.optimizer = self.kind(self.params, **self.kwargs)

    def gradients(self) -> Any:
        # A differentiable step changes its parameters on the tape: those are no leaves, and get the gradients of copies.
        leaves = self.params if self.leaf else [p.detach().clone().requires_grad_() for p in self.params]
        self.optimizer.zero_grad()
        value = loss(self.lib, leaves, self.x, self.y)
        value.backward()
        if not self.leaf:
            for p, leaf in zip(self.params, leaves, strict=True):
                p.grad = leaf.grad
        return value

    def steps(self, n: int) -> Run:
        for _ in range(n):
            self.optimizer.step(self.gradients)
        return self

    def continued(self, other: Run) -> None:
        """Takes the parameters and the state dict of a run in the other library, in a new optimizer."""
        with self.lib.no_grad():
            for mine, its in zip(self.params, other.params, strict=True):
                mine.copy_(_moved(its, self.device))
        self.optimizer = self.kind(self.params, **copy.deepcopy(self.kwargs))
        self.optimizer.load_state_dict(_moved(other.optimizer.state_dict(), self.device))


def _moved(x: Any, device: str) -> Any:
    """A value of one library in the other."""
    if isinstance(x, torch.Tensor):
        return translate.tensor(x.detach(), "cpu" if x.dtype is torch.float64 else device)
    if isinstance(x, tabtorch.Tensor):
        return translate.back(x)
    if isinstance(x, (list, tuple)):
        return type(x)(_moved(v, device) for v in x)
    return {k: _moved(v, device) for k, v in x.items()} if isinstance(x, dict) else x


def _numbers(x: Any) -> Iterator[tuple[str, Any]]:
    """The tensors and numbers of a state, with where they are."""
    if isinstance(x, dict):
        for k, v in x.items():
            yield from ((f"[{k!r}]{at}", leaf) for at, leaf in _numbers(v))
    elif isinstance(x, (list, tuple)):
        for i, v in enumerate(x):
            yield from ((f"[{i}]{at}", leaf) for at, leaf in _numbers(v))
    elif isinstance(x, tabtorch.Tensor):
        yield "", translate.back(x)
    elif x is not None:
        yield "", x if isinstance(x, torch.Tensor) else torch.tensor(x)


def same_state(info: OptimizerInfo, ours: Run, theirs: Run, truth: Run) -> None:
    """Failed unless parameters and state dicts agree: keys, their order, dtypes, and values within PyTorch's tolerance."""
    mine, its = ours.optimizer.state_dict(), theirs.optimizer.state_dict()
    groups = [list(_plain(g).items()) for g in its["param_groups"]]
    if [list(_plain(g).items()) for g in mine["param_groups"]] != groups:
        raise Failed(f"param_groups {mine['param_groups']}, not {its['param_groups']}")
    if [(k, list(v)) for k, v in mine["state"].items()] != [(k, list(v)) for k, v in its["state"].items()]:
        raise Failed(f"state has {[(k, list(v)) for k, v in mine['state'].items()]}")
    for state in mine["state"].values():
        step = state.get("step")
        if isinstance(step, tabtorch.Tensor) and (str(step.dtype), step.dim()) != ("torch.float32", 0):
            raise Failed(f"step is {step!r}")
    parts = ((r.params, r.optimizer.state_dict()["state"]) for r in (ours, theirs, truth))
    got, want, exact = ({f"{i}{at}": v for i, part in enumerate(p) for at, v in _numbers(part)} for p in parts)
    if list(got) != list(want):
        raise Failed(f"state has {sorted(set(got) ^ set(want))} too few or too many")
    for at, w in want.items():
        g, t = got[at].to(w.dtype), exact[at]
        if tuple(g.shape) != tuple(w.shape):
            raise Failed(f"{at}: shape {tuple(g.shape)}, not {tuple(w.shape)}")
        tol = left_out.optimizer_tolerance(info.name, theirs.kwargs, at, STEPS)
        tol = tol or torch.testing._comparison.default_tolerances(w.dtype)
        if not compare.close(w, g, tol) and not compare.as_near(w, g, t, normwise=True):
            raise Failed(f"{at}: {compare._difference(w, g, tol)}")


def _plain(group: dict[str, Any]) -> dict[str, Any]:
    as_number = lambda v: v.item() if isinstance(v, (torch.Tensor, tabtorch.Tensor)) else v  # noqa: E731
    return {k: tuple(map(as_number, v)) if isinstance(v, tuple) else as_number(v) for k, v in group.items()}


def inputs(info: OptimizerInfo) -> Iterator[tuple[str, dict[str, Any]]]:
    """(description, arguments): each input, plain, and with each implementation the optimizer names."""
    for given in info.optim_inputs_func(device="cpu"):
        given.kwargs.update(_ITERATIONS.get(info.name, {}))
        yield given.desc, given.kwargs
        for flag in info.supported_impls:
            if not (flag == "foreach" and isinstance(given.kwargs.get("lr"), torch.Tensor) and "Adam" in info.name):
                yield f"{given.desc} & {flag}", {**given.kwargs, flag: True}


def check_steps(info: OptimizerInfo, kwargs: dict[str, Any], device: str) -> None:
    """20 steps."""
    if info.only_supports_sparse_grads:
        return _same_failure(lambda lib: Run(lib, info, kwargs, device).steps(1))
    runs = [Run(lib, info, kwargs, device, dtype).steps(steps_of(info)) for lib, dtype in _LIBRARIES]
    return same_state(info, *runs)


def check_exchange(info: OptimizerInfo, kwargs: dict[str, Any], device: str, ours_into_theirs: bool) -> None:
    """10 steps in one library, 10 more in the other: as 20 of PyTorch alone."""
    if info.only_supports_sparse_grads:
        return _same_failure(
            lambda lib: Run(lib, info, kwargs, device).continued(Run(_other(lib), info, kwargs, device))
        )
    half = steps_of(info) // 2
    ours, theirs, truth = (Run(lib, info, kwargs, device, dtype).steps(half) for lib, dtype in _LIBRARIES)
    whole = Run(torch, info, kwargs, device).steps(half)
    to, source = (theirs, ours) if ours_into_theirs else (ours, theirs)
    to.continued(source)
    if list(to.optimizer.state_dict()["state"]) != list(source.optimizer.state_dict()["state"]):
        raise Failed("a state got lost")
    for run in (to, whole, truth):
        run.steps(half)
    if ours_into_theirs:
        source.continued(to)  # and back again, so that the comparison is of ours with theirs
        to = source
    same_state(info, to, whole, truth)


_LIBRARIES = ((tabtorch, None), (torch, None), (torch, torch.float64))


def _other(lib: Any) -> Any:
    return torch if lib is tabtorch else tabtorch


def _failure(f: Callable[[Any], Any], lib: Any) -> tuple[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            f(lib)
        except Exception as e:
            return type(e).__name__, str(e).replace("torch.webgpu.", "torch.")  # where a tensor type is named
    return "nothing", ""


def _same_failure(f: Callable[[Any], Any]) -> None:
    want, got = _failure(f, torch), _failure(f, tabtorch)
    if want != got:
        raise Failed(f"{got}, not {want}")


def check_error(info: OptimizerInfo, given: Any, device: str) -> None:
    """The same exception or warning, with the same words."""
    sample: OptimizerInput = given.optimizer_error_input

    def fails(lib: Any) -> None:
        params = [torch.ones(1, 1)] if sample.params is None else sample.params
        if lib is tabtorch:
            params, kwargs = _parameters(params, device), _moved(sample.kwargs, device)
        else:
            params, kwargs = params, sample.kwargs
        optimizer = getattr(lib.optim, info.name)(params, **kwargs)
        if given.error_on is OptimizerErrorEnum.STEP_ERROR:
            optimizer.step()

    if _failure(fails, torch)[0] == "nothing":
        raise Failed("PyTorch raises nothing")
    _same_failure(fails)


def _parameters(x: Any, device: str) -> Any:
    made: dict[int, Any] = {}

    def ours(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            if id(x) not in made:
                made[id(x)] = _moved(x, device).requires_grad_(x.requires_grad)
                made[id(x)].grad = None if x.grad is None else _moved(x.grad, device)
            return made[id(x)]
        if isinstance(x, (list, tuple)):
            return type(x)(ours(v) for v in x)
        return {k: ours(v) for k, v in x.items()} if isinstance(x, dict) else x

    return ours(x)


def _sparse(x: Any) -> bool:
    if isinstance(x, dict):
        return any(map(_sparse, x.values()))
    return any(map(_sparse, x)) if isinstance(x, (list, tuple)) else isinstance(x, torch.Tensor) and x.is_sparse


def questions(info: OptimizerInfo, samples: int = 0) -> Iterator[tuple[str, str, Callable[[str], None]]]:
    """(kind, description, what to ask of a device). Sparse parameters, which tabtorch has not, are not asked for."""
    for i, (desc, kwargs) in enumerate(inputs(info)):
        if samples and i >= samples:
            break
        yield "steps", desc, lambda d, k=kwargs: check_steps(info, k, d)
        for way, text in ((True, "ours into theirs"), (False, "theirs into ours")):
            yield "exchange", f"{desc}, {text}", lambda d, k=kwargs, w=way: check_exchange(info, k, d, w)
    for given in info.optim_error_inputs_func("cpu", torch.float32):
        if not _sparse(given.optimizer_error_input.params):
            yield "errors", given.optimizer_error_input.desc, lambda d, g=given: check_error(info, g, d)


def rows(
    devices: tuple[str, ...] = ("cpu", "webgpu"),
    patterns: tuple[str, ...] = ("*",),
    samples: int = 0,
    said: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """For every optimizer and device: {"name", "device", "steps": (ok, asked), "exchange": …, "errors": …}."""
    found = []
    for info in optim_db:
        if not any(fnmatch.fnmatchcase(info.name, p) for p in patterns):
            continue
        for device in devices:
            row: dict[str, Any] = {"name": info.name, "device": device}
            row.update(steps=(0, 0), exchange=(0, 0), errors=(0, 0))
            for kind, desc, ask in questions(info, samples):
                ok, asked = row[kind]
                try:
                    with tabtorch.device(device), warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        ask(device)
                    ok += 1
                except Exception as e:
                    said(f"{info.name} {device} {kind} ({desc}): {type(e).__name__}: {e}")
                row[kind] = ok, asked + 1
            found.append(row)
    return found


def main() -> int:
    p = argparse.ArgumentParser(prog="conformance.optimizers", description=__doc__)
    p.add_argument("patterns", nargs="*", default=["*"], help="names of optimizers, with * and ?")
    p.add_argument("--device", choices=("cpu", "webgpu"), action="append")
    p.add_argument("--samples", type=int, default=0, help="at most so many inputs of each (default: all)")
    p.add_argument("-v", action="store_true", help="show the failures whole")
    a = p.parse_args()
    torch.set_num_threads(1)
    start = time.monotonic()
    say = (lambda line: print(line, flush=True)) if a.v else (lambda line: print(line[:300], flush=True))
    kinds = ("steps", "exchange", "errors")
    found = []
    for info in optim_db:
        if any(fnmatch.fnmatchcase(info.name, p) for p in a.patterns):
            for row in rows(tuple(a.device or ("cpu", "webgpu")), (info.name,), a.samples, say):
                found.append(row)
                print(
                    f"{row['name']:12} {row['device']:7}", *(f"{k} {row[k][0]}/{row[k][1]}" for k in kinds), flush=True
                )
    totals = {k: [sum(row[k][i] for row in found) for i in (0, 1)] for k in kinds}
    print(
        *(f"{k} {ok} of {asked}" for k, (ok, asked) in totals.items()), f"in {time.monotonic() - start:.0f} s", sep=", "
    )
    return int(any(ok != asked for ok, asked in totals.values()))


if __name__ == "__main__":
    sys.exit(main())
