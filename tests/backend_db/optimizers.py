"""PyTorch's table of optimizers, `optim_db`: steps with every combination of options, states to and fro, bad inputs."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db
from torch.utils._pytree import tree_map

from .comparing import NAME, compare, moved, outcome, said, same_error

STEPS = 5
_SHAPES = ((5, 4), (5,), (5, 5), (5,), (3, 5), (3,))
#: states that are one number, and stay on the CPU but with capturable=True
_NUMBERS = ("step", "mu_product")


def entries(dtype: Any) -> dict[str, Any]:
    """All of them."""
    return {info.name: info for info in optim_db}


def answer(info: Any, samples: int, dtype: Any, found: dict[str, str]) -> None:
    """Enters check -> "" or why it failed. samples: at most so many inputs, 0 for all."""
    given = [x for x in info.optim_inputs_func(device="cpu") if not _sparse(x.params)][: samples or None]
    for x in given:
        for check, passes in _checks(info, x.kwargs, dtype):
            if found.get(check):
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    passes()
                found[check] = ""
            except Exception as e:
                found[check] = f"{said(e)} ({x.desc}: {x.kwargs})"
    _errors(info, dtype, found)


def _checks(info: Any, kwargs: dict[str, Any], dtype: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    if info.only_supports_sparse_grads:
        yield "steps", lambda: _refusal(info, kwargs, dtype)
        return
    yield "steps", lambda: _steps(info, kwargs, dtype)
    tensor_lr = isinstance(kwargs.get("lr"), torch.Tensor)
    for flag in info.supported_impls:
        for wanted in (False, True):
            if not (
                wanted and tensor_lr and flag == "foreach" and not kwargs.get("capturable")
            ):  # PyTorch refuses that
                more = {**kwargs, flag: wanted}
                yield flag, lambda more=more: _steps(info, more, dtype)
    if "capturable" in torch.optim.__dict__[info.name].__init__.__code__.co_varnames and "capturable" not in kwargs:
        for foreach in (False, True):
            more = {**kwargs, "capturable": True, "foreach": foreach}
            plain = {**kwargs, "foreach": foreach}
            yield "capturable", lambda more=more, plain=plain: _steps(info, more, dtype, plain)
    yield "state_dict", lambda: _exchange(info, kwargs, dtype)


class _Run:
    """Training a small network."""

    def __init__(self, info: Any, kwargs: dict[str, Any], device: str, dtype: Any) -> None:
        g = torch.Generator().manual_seed(7)
        shapes = [s for s in _SHAPES if len(s) == 2 or info.name != "Muon"]
        self.leaf = not kwargs.get("differentiable")
        params = [torch.rand(s, generator=g, dtype=torch.float32).to(dtype) - 0.5 for s in shapes]
        self.params = [p.to(device).requires_grad_(self.leaf) for p in params]
        if info.name == "LBFGS":  # whose many iterations multiply roundings
            kwargs = {"max_iter": 2, **kwargs}
        self.x, self.y = (torch.randn(s, generator=g).to(dtype).to(device) for s in ((6, 4), (6, 3)))
        kwargs = copy.deepcopy(kwargs) if device == "cpu" else tree_map(moved, kwargs)
        self.optimizer = getattr(torch.optim, info.name)(self.params, **kwargs)

    def loss(self, params: list[torch.Tensor]) -> torch.Tensor:
        step = 2 if any(p.dim() == 1 for p in params) else 1
        x = self.x
        for i, w in enumerate(params[::step]):
            x = torch.tanh(x @ w.t() + (params[2 * i + 1] if step == 2 else 0))
        return ((x - self.y) ** 2).mean()

    def closure(self) -> torch.Tensor:
        # a differentiable step changes its parameters on the tape: those get the gradients of copies
        leaves = self.params if self.leaf else [p.detach().clone().requires_grad_() for p in self.params]
        self.optimizer.zero_grad()
        value = self.loss(leaves)
        value.backward()
        if not self.leaf:
            for p, leaf in zip(self.params, leaves, strict=True):
                p.grad = leaf.grad
        return value

    def steps(self, n: int) -> _Run:
        for _ in range(n):
            self.optimizer.step(self.closure)
        return self


def _same(here: _Run, there: _Run, states: bool = True) -> None:
    compare([p.detach() for p in here.params], [p.detach() for p in there.params])
    mine, its = there.optimizer.state_dict()["state"], here.optimizer.state_dict()["state"]
    assert [(k, list(v)) for k, v in mine.items()] == [(k, list(v)) for k, v in its.items()]
    if states:
        compare(its, mine, home=True)
        for mine_of, its_of in zip(there.optimizer.state.values(), here.optimizer.state.values(), strict=True):
            for k, v in its_of.items():
                if isinstance(v, torch.Tensor) and k not in _NUMBERS:
                    assert mine_of[k].device.type == NAME, f"the state {k} is on {mine_of[k].device}"


def _steps(info: Any, kwargs: dict[str, Any], dtype: Any, plain: dict[str, Any] | None = None) -> None:
    """Parameters and states after some steps. plain: the arguments of the CPU's, if they are others."""
    n = 2 if info.name == "LBFGS" else STEPS
    here = outcome(lambda: _Run(info, kwargs if plain is None else plain, "cpu", dtype).steps(n))
    if isinstance(here, Exception):
        if kwargs.get("capturable") and "capturable" in str(here):  # which the CPU has not
            plain = {**kwargs, "capturable": False}
            if isinstance(plain.get("lr"), torch.Tensor):
                plain["lr"] = plain["lr"].item()
            here = _Run(info, plain, "cpu", dtype).steps(n)
        else:
            same_error(here, outcome(lambda: _Run(info, kwargs, NAME, dtype).steps(n)))
            return
    _same(here, _Run(info, kwargs, NAME, dtype).steps(n))


def _refusal(info: Any, kwargs: dict[str, Any], dtype: Any) -> None:
    """SparseAdam and gradients that are not sparse."""
    wanted, got = (outcome(lambda d=d: _Run(info, kwargs, d, dtype).steps(1)) for d in ("cpu", NAME))
    if not isinstance(wanted, Exception):
        raise AssertionError("PyTorch raises nothing")
    same_error(wanted, got)
    assert str(wanted) == str(got), str(got)


def _exchange(info: Any, kwargs: dict[str, Any], dtype: Any) -> None:
    """A state from here goes on there, one from there here, and through a file: as if nothing had happened."""
    if kwargs.get("capturable"):
        return
    n = 1 if info.name == "LBFGS" else 3
    here, there = (_Run(info, kwargs, d, dtype).steps(n) for d in ("cpu", NAME))
    file = io.BytesIO()
    torch.save(there.optimizer.state_dict(), file)
    file.seek(0)
    states = torch.load(file, map_location="cpu"), here.optimizer.state_dict()
    crossed = _Run(info, kwargs, "cpu", dtype), _Run(info, kwargs, NAME, dtype)
    for run, state, source in zip(crossed, states, (there, here), strict=True):
        with torch.no_grad():
            for p, value in zip(run.params, source.params, strict=True):
                p.copy_(value)
        run.optimizer.load_state_dict(copy.deepcopy(state))
        run.steps(n)
    here.steps(n)
    compare([p.detach() for p in here.params], [p.detach() for p in crossed[0].params], home=True)
    compare([p.detach() for p in here.params], [p.detach() for p in crossed[1].params])
    _same(crossed[0], crossed[1])


def _sparse(x: Any) -> bool:
    if isinstance(x, dict):
        return any(map(_sparse, x.values()))
    return any(map(_sparse, x)) if isinstance(x, (list, tuple)) else isinstance(x, torch.Tensor) and x.is_sparse


def _errors(info: Any, dtype: Any, found: dict[str, str]) -> None:
    """PyTorch's bad arguments: the same type of exception, with the same words."""
    for e in info.optim_error_inputs_func("cpu", dtype):
        x = e.optimizer_error_input
        if _sparse(x.params):
            continue

        def fails(device: str, x: Any = x, e: Any = e) -> Any:
            params = [torch.ones(1, 1)] if x.params is None else x.params
            kwargs = copy.deepcopy(x.kwargs)
            if device == NAME:
                params, kwargs = _parameters(params), tree_map(moved, kwargs)
            optimizer = getattr(torch.optim, info.name)(params, **kwargs)
            if e.error_on is OptimizerErrorEnum.STEP_ERROR:
                optimizer.step()

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            wanted = outcome(lambda: fails("cpu"))
            got = outcome(lambda: fails(NAME))
        try:
            if isinstance(wanted, Exception):
                same_error(wanted, got)
                text = str(got).replace("torch.webgpu.", "torch.")
                assert text == str(wanted), f"{text}, not {wanted}"
                found.setdefault("errors", "")
        except Exception as error:
            found["errors"] = f"{said(error)} ({x.desc})"


def _parameters(x: Any) -> Any:
    made: dict[int, Any] = {}

    def there(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        if id(t) not in made:
            made[id(t)] = moved(t)
            made[id(t)].grad = None if t.grad is None else moved(t.grad)
        return made[id(t)]

    return tree_map(there, x)
