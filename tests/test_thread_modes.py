"""Modes, settings and transforms in threads: each is its thread's own, or everybody's, as in PyTorch."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tabtorch as tt
from at_once import BOTH, eager_switching, elsewhere  # noqa: F401  a fixture
from tabtorch.base import thread_state


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        SEEN.append(func)
        return func(*args, **(kwargs or {}))


class OurMode(tt.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        SEEN.append(func)
        return func(*args, **(kwargs or {}))


SEEN: list[Any] = []


def counted(f: Callable[[], Any]) -> int:
    SEEN.clear()
    f()
    return len(SEEN)


def said(f: Callable[[], Any]) -> str:
    try:
        return str(f())
    except RuntimeError as e:
        return str(e)


def hooks(ns: Any) -> Any:
    return ns.autograd.graph.saved_tensors_hooks(lambda t: (SEEN.append(t), t)[1], lambda t: t)


def deterministic(ns: Any, on: bool) -> None:
    """PyTorch's own imports its compiler, for some seconds."""
    (torch._C._set_deterministic_algorithms if ns is torch else ns.use_deterministic_algorithms)(on)


def inside(context: Any, f: Callable[[], Any]) -> Any:
    with context:
        return f()


#: name -> (what is entered, what is asked inside of it, and in another thread meanwhile)
MODES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "no_grad": (lambda ns: ns.no_grad(), lambda ns: (ns.is_grad_enabled(), (W[ns] * 2).requires_grad)),
    "set_grad_enabled": (lambda ns: ns.set_grad_enabled(False), lambda ns: ns.is_grad_enabled()),
    "enable_grad": (lambda ns: ns.enable_grad(), lambda ns: ns.is_grad_enabled()),
    "inference_mode": (
        lambda ns: ns.inference_mode(),
        lambda ns: (ns.is_inference_mode_enabled(), ns.is_grad_enabled(), ns.ones(1).is_inference()),
    ),
    "autocast": (
        lambda ns: ns.autocast("cpu"),
        lambda ns: (ns.is_autocast_enabled("cpu"), str((W[ns] @ W[ns]).dtype), ns.is_autocast_cache_enabled()),
    ),
    "autocast with another type": (
        lambda ns: ns.autocast("cpu", dtype=ns.float16, cache_enabled=False),
        lambda ns: (str(ns.get_autocast_dtype("cpu")), str((W[ns] @ W[ns]).dtype), ns.is_autocast_cache_enabled()),
    ),
    "device": (lambda ns: ns.device("meta"), lambda ns: (ns.ones(1).is_meta, ns.get_default_device().type == "meta")),
    "anomaly": (lambda ns: ns.autograd.set_detect_anomaly(True), lambda ns: ns.is_anomaly_enabled()),
    "saved_tensors_hooks": (hooks, lambda ns: counted(lambda: W[ns].exp())),
    "disable_saved_tensors_hooks": (
        lambda ns: ns.autograd.graph.disable_saved_tensors_hooks("not now"),
        lambda ns: said(lambda: inside(hooks(ns), lambda: 1)),
    ),
    "dual_level": (
        lambda ns: ns.autograd.forward_ad.dual_level(),
        lambda ns: said(lambda: inside(ns.autograd.forward_ad.dual_level(), lambda: 1)),
    ),
    "function mode": (
        lambda ns: Mode() if ns is torch else OurMode(),
        lambda ns: counted(lambda: ns.add(W[ns], 1)) > 0,
    ),
    "no overrides by subclasses": (
        lambda ns: ns._C.DisableTorchFunctionSubclass(),
        lambda ns: type(W[ns].detach().as_subclass(SUB[ns]) + 1).__name__,
    ),
    "checkpoint": (
        lambda ns: ns.utils.checkpoint.set_checkpoint_early_stop(False),
        lambda ns: (
            getattr(ns.utils.checkpoint, "_enable_checkpoint_early_stop", None)
            if ns is torch
            else ns.utils.checkpoint._early_stop
        ),
    ),
}
#: name -> (what is set, what is asked, what is set back)
SETTINGS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "default device": (
        lambda ns: ns.set_default_device("meta"),
        lambda ns: (ns.ones(1).is_meta, ns.get_default_device().type == "meta"),
        lambda ns: ns.set_default_device(None),
    ),
    "default dtype": (
        lambda ns: ns.set_default_dtype(ns.float64),
        lambda ns: str(ns.get_default_dtype()),
        lambda ns: ns.set_default_dtype(ns.float32),
    ),
    "deterministic": (
        lambda ns: deterministic(ns, True),
        lambda ns: ns.are_deterministic_algorithms_enabled(),
        lambda ns: deterministic(ns, False),
    ),
    "grad": (
        lambda ns: ns.set_grad_enabled(False),
        lambda ns: ns.is_grad_enabled(),
        lambda ns: ns.set_grad_enabled(True),
    ),
    "precision": (
        lambda ns: ns.set_float32_matmul_precision("high"),
        lambda ns: ns.get_float32_matmul_precision(),
        lambda ns: ns.set_float32_matmul_precision("highest"),
    ),
    "seed": (lambda ns: ns.manual_seed(5), lambda ns: ns.initial_seed(), lambda ns: ns.manual_seed(0)),
    "printing": (
        lambda ns: ns.set_printoptions(precision=2),
        lambda ns: str(ns.tensor(1.23456, device="cpu")),
        lambda ns: ns.set_printoptions(profile="default"),
    ),
    "warnings": (
        lambda ns: ns.set_warn_always(True),
        lambda ns: ns.is_warn_always_enabled(),
        lambda ns: ns.set_warn_always(False),
    ),
}
W = {ns: ns.ones(2, 2, requires_grad=True, device="cpu") for ns in BOTH}
SUB = {ns: type("Sub", (ns.Tensor,), {}) for ns in BOTH}


@pytest.mark.parametrize("name", MODES)
def test_a_mode_is_its_threads_own_or_everybodys(name: str) -> None:
    enter, ask = MODES[name]
    results = []
    for ns in BOTH:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            before = ask(ns)
            with enter(ns):
                here, there = ask(ns), elsewhere(lambda: ask(ns))  # noqa: B023
                theirs = elsewhere(lambda: (inside(enter(ns), lambda: ask(ns)), ask(ns)))  # noqa: B023
                still = ask(ns)
            entered = elsewhere(lambda: inside(enter(ns), lambda: ask(ns)))  # noqa: B023
            assert ask(ns) == before
        results.append(str((before, here, there, theirs, still, entered)))
    assert results[0] == results[1]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_its_threads_own_or_everybodys(name: str) -> None:
    change, ask, back = SETTINGS[name]
    results = []
    for ns in BOTH:
        try:
            before = ask(ns)
            change(ns)
            found: list[Any] = [before, ask(ns), elsewhere(lambda: ask(ns))]  # noqa: B023
            back(ns)
            found.append(ask(ns))
            found.append(elsewhere(lambda: (change(ns), ask(ns))[1]))  # noqa: B023
            found += [ask(ns), elsewhere(lambda: ask(ns))]  # noqa: B023
        finally:
            back(ns)
        results.append(str(found if name != "seed" else found[1:]))
    assert results[0] == results[1]


def transforms(ns: Any) -> list[Any]:
    """What another thread does while a transform of torch.func runs is none of it."""
    out: list[Any] = []

    def function(x: Any) -> Any:
        w = ns.ones(2, requires_grad=True)
        out.append(elsewhere(lambda: ((w * 3).sum() + 0 * ns.rand(1).sum()).item()))
        plain = elsewhere(lambda: ns.ones(2, requires_grad=True) * 3)
        out.append((plain.requires_grad, plain.shape))
        out.append(elsewhere(lambda: ns.autograd.grad(plain.sum(), plain)[0].tolist()))
        return x * 2

    ns.vmap(function)(ns.ones(3))
    out.append(ns.vmap(lambda x: elsewhere(lambda: x * 2))(ns.ones(3)).tolist() if ns is tt else [2.0] * 3)
    return out


def test_transforms_are_their_threads_own() -> None:
    assert str(transforms(tt)) == str(transforms(torch))


def test_modes_of_threads_that_have_ended() -> None:
    """Nobody's modes differ any more: operations ask as little as before."""
    gc.collect()
    assert type(thread_state.STATE) is thread_state._Alike
    elsewhere(lambda: tt.set_grad_enabled(False))
    assert type(thread_state.STATE) is thread_state._Alike and tt.is_grad_enabled()
    with tt.no_grad():
        assert type(thread_state.STATE) is thread_state._Different
    assert type(thread_state.STATE) is thread_state._Alike
