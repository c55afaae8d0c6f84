"""`torch._functorch.make_functional`: modules as functions of their parameters. `torch.func.functional_call` is what came after it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.func.modules import functional_call, stack_module_state
from tabtorch.nn.modules.module import Module

__all__ = [
    "FunctionalModule",
    "FunctionalModuleWithBuffers",
    "combine_state_for_ensemble",
    "make_functional",
    "make_functional_with_buffers",
]


class _Stateless(Module):
    """A copy of a module that is called with other tensors in place of its own."""

    def __init__(self, model: Module, disable_autograd_tracking: bool) -> None:
        super().__init__()
        own = copy.deepcopy(model)
        self.stateless_model = own
        self.param_names = tuple(n for n, _ in own.named_parameters())
        self.buffer_names = tuple(n for n, _ in own.named_buffers())
        if disable_autograd_tracking:
            own.requires_grad_(False)

    def _call(self, names: Sequence[str], tensors: Iterable[Tensor], args: Any, kwargs: Any) -> Any:
        return functional_call(self.stateless_model, dict(zip(names, tensors)), args, kwargs)


class FunctionalModule(_Stateless):
    """What `make_functional` gives: called with the parameters, and then with the module's arguments."""

    def forward(self, params: Iterable[Tensor], *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """The module's result with these parameters."""
        return self._call(self.param_names, params, args, kwargs)


class FunctionalModuleWithBuffers(_Stateless):
    """What `make_functional_with_buffers` gives: called with parameters and buffers, and then with the module's arguments."""

    def forward(self, params: Iterable[Tensor], buffers: Iterable[Tensor], *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """The module's result with these parameters and buffers."""
        return self._call((*self.param_names, *self.buffer_names), (*params, *buffers), args, kwargs)


def make_functional(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, tuple[Tensor, ...]]:
    """A function of parameters and inputs, and the parameters: copies. RuntimeError if the module has buffers."""
    if list(model.buffers()):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead."
        )
    made = FunctionalModule(model, disable_autograd_tracking)
    return made, tuple(made.stateless_model.parameters())


def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """A function of parameters, buffers and inputs, the parameters, and the buffers: copies."""
    made = FunctionalModuleWithBuffers(model, disable_autograd_tracking)
    return made, tuple(made.stateless_model.parameters()), tuple(made.stateless_model.buffers())


def combine_state_for_ensemble(
    models: Sequence[Module],
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """A function of parameters and buffers for `vmap`, and those of all the models, stacked."""
    if len(models) == 0:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError("combine_state_for_ensemble: Expected all models to have the same training/eval mode.")
    if not all(type(m) is type(models[0]) for m in models):
        raise RuntimeError("combine_state_for_ensemble: Expected all models to be of the same class.")
    params, buffers = stack_module_state(list(models))
    func = make_functional_with_buffers(models[0])[0]
    return func, tuple(p.detach() for p in params.values()), tuple(buffers.values())
