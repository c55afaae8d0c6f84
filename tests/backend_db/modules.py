"""PyTorch's table of modules, `module_db`: made here and there, forward, gradients, both modes, states, bad inputs."""

from __future__ import annotations

import copy
import io
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_modules import ModuleErrorEnum, ModuleInput, module_db
from torch.testing._internal.common_utils import noncontiguous_like
from torch.utils._pytree import tree_map

from .comparing import (
    NAME,
    compare,
    compare_gradients,
    differentiable,
    draws,
    gradients,
    moved,
    outcome,
    said,
    same_error,
    tensors_of,
)


def entries(dtype: Any) -> dict[str, Any]:
    """The entries that have a type, but for the quantised ones, by name."""
    return {m.name: m for m in module_db if dtype in m.dtypes and ".ao." not in m.module_cls.__module__}


def answer(info: Any, samples: int, dtype: Any, found: dict[str, str]) -> None:
    """Enters check -> "" or why it failed. A check that failed is not asked of the samples that follow."""
    for training in (True, False):
        taken = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        for s in itertools.islice((s for s in taken if s.forward_input is not None), samples):
            for check, passes in _checks(info, s, training):
                if found.get(check):
                    continue
                try:
                    passes()
                    found[check] = ""
                except Exception as e:
                    found[check] = f"{said(e)} ({'training' if training else 'eval'})"
        if info.module_error_inputs_func is not None and not found.get("errors"):
            _errors(info, dtype, training, found)


def _checks(info: Any, s: ModuleInput, training: bool) -> Iterator[tuple[str, Callable[[], None]]]:
    made, call = s.constructor_input, s.forward_input
    torch.manual_seed(0)
    here = info.module_cls(*made.args, **made.kwargs).train(training)
    if not info.is_lazy:
        yield "made there", lambda: _made_there(info, made)
    else:
        there_lazy = copy.deepcopy(here).to(NAME)
        with torch.no_grad():  # the first call makes the parameters
            torch.manual_seed(1)
            here(*call.args, **call.kwargs)
        yield "made there", lambda: _lazy(there_lazy, call, here)
    if any(p.dtype.is_floating_point and p.dtype is not _dtype(call) for p in here.parameters() if _dtype(call)):
        here = here.to(_dtype(call))
    there = copy.deepcopy(here).to(NAME)
    leaves: list[Any] = []
    args, kwargs = moved((tuple(call.args), dict(call.kwargs)), leaves)
    results: list[Any] = []

    torch.manual_seed(2)
    try:
        expected = here(*call.args, **call.kwargs)
    except Exception:  # the sample is not for the CPU
        return

    def forward() -> None:
        torch.manual_seed(2)
        before = draws[0]
        found = there(*args, **kwargs)
        if draws[0] > before:  # drawn by the GPU: other numbers
            assert [t.shape for t in tensors_of(expected)] == [t.shape for t in tensors_of(found)]
        else:
            compare(expected, found)
            compare(dict(here.state_dict()), dict(there.state_dict()))
            results.extend([expected, found])

    yield "forward", forward
    if results:

        def gradient() -> None:
            sides = []
            for result, module, i in ((results[0], here, 0), (results[1], there, 1)):
                wanted = [pair[i] for pair in leaves] + [p for p in module.parameters() if p.requires_grad]
                sides.append(gradients(differentiable(result), wanted))
            compare_gradients(*sides)

        if differentiable(results[0]):
            yield "gradient", gradient
        yield "layouts", lambda: _laid_out(here, there, call)
    yield "state_dict", lambda: _state(here, there, args, kwargs)


def _dtype(call: Any) -> Any:
    return next((t.dtype for t in tensors_of((call.args, call.kwargs)) if t.is_floating_point()), None)


def _made_there(info: Any, made: Any) -> None:
    """The constructor on the device gives the initial values that the seed gives on the CPU."""
    torch.manual_seed(0)
    here = info.module_cls(*made.args, **made.kwargs)
    args, kwargs = tree_map(lambda v: copy.deepcopy(v).to(NAME) if hasattr(v, "to") else v, (made.args, made.kwargs))
    torch.manual_seed(0)
    with torch.device(NAME):
        there = info.module_cls(*args, **kwargs)
    compare(dict(here.state_dict()), dict(there.state_dict()))
    assert repr(here) == repr(there)


def _lazy(there: Any, call: Any, here: Any) -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        there(*moved(tuple(call.args)), **moved(dict(call.kwargs)))
    compare(dict(here.state_dict()), dict(there.state_dict()))


def _laid_out(here: Any, there: Any, call: Any) -> None:
    """Inputs with gaps."""

    def change(t: Any) -> Any:
        plain = isinstance(t, torch.Tensor) and t.dim() and t.is_floating_point()
        return noncontiguous_like(t.detach()) if plain else t

    args, kwargs = tree_map(change, (tuple(call.args), dict(call.kwargs)))
    torch.manual_seed(2)
    expected = copy.deepcopy(here)(*args, **kwargs)
    torch.manual_seed(2)
    compare(expected, copy.deepcopy(there)(*moved(args), **moved(kwargs)))


def _state(here: Any, there: Any, args: Any, kwargs: Any) -> None:
    """Copies, files and pickles of modules and their states, to and fro."""
    state = there.state_dict()
    assert list(state) == list(here.state_dict())
    back = copy.deepcopy(here)
    with torch.no_grad():
        for p in back.parameters():
            p.zero_()
    assert str(back.load_state_dict(state)) == "<All keys matched successfully>"
    assert all(p.device.type == "cpu" for p in back.parameters())
    _same_values(state, back.state_dict())
    file = io.BytesIO()
    torch.save(state, file)
    for where, device in ((None, NAME), ("cpu", "cpu")):
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert all(t.device.type == device for t in tensors_of(dict(loaded)))
        _same_values(state, loaded)
    again = copy.deepcopy(there)
    again.load_state_dict(here.state_dict(), assign=False)
    assert all(t.device.type == NAME for t in tensors_of(dict(again.state_dict())))
    home = copy.deepcopy(there).cpu()
    assert all(t.device.type == "cpu" for t in tensors_of(dict(home.state_dict())))
    _same_values(state, home.state_dict())
    there.zero_grad()
    for p in there.half().float().parameters():
        assert p.device.type == NAME


def _same_values(there: Any, other: Any) -> None:
    assert list(there) == list(other)
    for k, t in there.items():
        if isinstance(t, torch.Tensor):
            torch.testing.assert_close(t.cpu(), other[k].cpu(), rtol=0, atol=0, equal_nan=True)


def _errors(info: Any, dtype: Any, training: bool, found: dict[str, str]) -> None:
    """PyTorch's bad inputs: the same type of exception, with its words."""
    taken = info.module_error_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=training)
    for e in taken:
        made, call = e.module_error_input.constructor_input, e.module_error_input.forward_input
        try:
            if e.error_on is ModuleErrorEnum.CONSTRUCTION_ERROR:
                wanted = outcome(lambda made=made: info.module_cls(*made.args, **made.kwargs))
                with torch.device(NAME):
                    got = outcome(lambda made=made: info.module_cls(*moved(made.args), **moved(made.kwargs)))
            else:
                here = info.module_cls(*made.args, **made.kwargs)
                there = copy.deepcopy(here).to(NAME)
                wanted = outcome(lambda here=here, call=call: here(*call.args, **call.kwargs))
                args, kwargs = moved((tuple(call.args), dict(call.kwargs)))
                got = outcome(lambda there=there, args=args, kwargs=kwargs: there(*args, **kwargs))
            if isinstance(wanted, Exception):
                same_error(wanted, got)
                found["errors"] = ""
        except Exception as error:
            found["errors"] = said(error)
            return
