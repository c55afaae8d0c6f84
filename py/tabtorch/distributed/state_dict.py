"""`torch.distributed.checkpoint.state_dict`: states by the names of parameters, which do not hang on how a model is wrapped, nor on
the order of an optimizer's parameters. It needs no second process.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.nn.modules.module import Module

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]

#: what wraps a module has in the names of its parameters
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")


@dataclass
class StateDictOptions:
    """How states are told. `full_state_dict` and `broadcast_from_rank0` say nothing here: there is one process."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def _plain(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _moved(x: Any, options: StateDictOptions) -> Any:
    if isinstance(x, Tensor):
        return x.detach().cpu() if options.cpu_offload else x.detach()
    if isinstance(x, dict):
        return {k: _moved(v, options) for k, v in x.items()}
    return type(x)(_moved(v, options) for v in x) if type(x) in (list, tuple) else x


def get_model_state_dict(
    model: Module, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """`model.state_dict()`, as `options` say. submodules: those parts of it only."""
    options = options or StateDictOptions()
    frozen = (
        {_plain(n) for n, p in model.named_parameters() if not p.requires_grad}
        if options.ignore_frozen_params
        else set()
    )
    state = {_plain(n): v for n, v in model.state_dict().items()}
    if submodules:
        warnings.warn(
            "Getting submodules only model/optim state_dict is deprecated and will be removed in 2.5. This feature can be achieved "
            "by manually filtering out the state_dict returned from get_state_dict.",
            FutureWarning,
            stacklevel=2,
        )
        found = {}
        for name, module in model.named_modules():
            prefix = _plain(name) + "."
            if module in submodules:
                keep = options.keep_submodule_prefixes
                found.update({n if keep else n[len(prefix) :]: v for n, v in state.items() if n.startswith(prefix)})
        state = found
    return {n: _moved(v, options) for n, v in state.items() if n not in frozen}


def set_model_state_dict(
    model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Loads it. Returns (missing keys, unexpected keys); RuntimeError for those if `options.strict`."""
    options = options or StateDictOptions()
    names = {_plain(n): n for n in model.state_dict()}
    given = {names.get(n, n): v for n, v in model_state_dict.items()}
    return model.load_state_dict(given, strict=options.strict and not options.ignore_frozen_params)


def _optimizers(optimizers: Any) -> Iterable[Any]:
    return optimizers if isinstance(optimizers, (list, tuple)) else (optimizers,)


def _begin(optimizer: Any) -> None:
    """Makes the state of an optimizer that has made no step: by a step of no length with gradients of zero, as PyTorch does."""
    if optimizer.state:
        return
    parameters = [p for g in optimizer.param_groups for p in g["params"]]
    if any(p.grad is not None for p in parameters):
        return
    rates = [g.get("lr") for g in optimizer.param_groups]
    for p in parameters:
        if p.requires_grad:
            p.grad = p.new_zeros(p.shape)
    for g in optimizer.param_groups:
        if g.get("lr") is not None:
            g["lr"] = 0.0
    optimizer.step(closure=None)
    for g, lr in zip(optimizer.param_groups, rates, strict=True):
        if lr is not None:
            g["lr"] = lr
    optimizer.zero_grad(set_to_none=True)


def get_optimizer_state_dict(
    model: Module, optimizers: Any, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """{"state": {name of a parameter: its state}, "param_groups": [{"params": names, …}]} of one optimizer or several."""
    options = options or StateDictOptions()
    names = {p: _plain(n) for n, p in model.named_parameters()}
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in _optimizers(optimizers):
        _begin(optimizer)
        for group in optimizer.param_groups:
            groups.append({**group, "params": [names[p] for p in group["params"]]})
            for p in group["params"]:
                if p in optimizer.state:
                    state[names[p]] = _moved(dict(optimizer.state[p]), options)
    if submodules:
        kept = {names[p] for m in submodules for p in m.parameters()}
        state = {n: v for n, v in state.items() if n in kept}
        groups = [{**g, "params": [n for n in g["params"] if n in kept]} for g in groups]
    if not options.flatten_optimizer_state_dict:
        return {"state": state, "param_groups": groups}
    flat = {f"state.{n}.{k}": v for n, s in state.items() for k, v in s.items()}
    flat |= {f"param_groups.{n}.{k}": v for g in groups for n in g["params"] for k, v in g.items() if k != "params"}
    return flat


def _unflattened(flat: dict[str, Any], optimizers: Any, names: dict[Any, str]) -> dict[str, Any]:
    state: dict[str, Any] = {}
    groups = []
    for optimizer in _optimizers(optimizers):
        for group in optimizer.param_groups:
            own = [names[p] for p in group["params"]]
            settings = {
                k: flat[f"param_groups.{own[0]}.{k}"]
                for k in group
                if k != "params" and f"param_groups.{own[0]}.{k}" in flat
            }
            groups.append({**settings, "params": own})
            for n in own:
                prefix = f"state.{n}."
                state[n] = {k[len(prefix) :]: v for k, v in flat.items() if k.startswith(prefix)}
    return {"state": {n: s for n, s in state.items() if s}, "param_groups": groups}


def set_optimizer_state_dict(
    model: Module, optimizers: Any, optim_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> None:
    """Loads what `get_optimizer_state_dict` gave, whatever the order of the parameters. KeyError for one without a state."""
    names = {p: _plain(n) for n, p in model.named_parameters()}
    if "param_groups" not in optim_state_dict:
        optim_state_dict = _unflattened(optim_state_dict, optimizers, names)
    by_first = {g["params"][0]: g for g in optim_state_dict["param_groups"] if g["params"]}
    for optimizer in _optimizers(optimizers):
        order = [p for g in optimizer.param_groups for p in g["params"]]
        groups, at = [], 0
        for group in optimizer.param_groups:
            own = [names[p] for p in group["params"]]
            saved = next((by_first[n] for n in own if n in by_first), None)
            if saved is None:
                raise KeyError(f"The optimizer's parameter group with {own[:1]} is not in the state dict")
            groups.append({**saved, "params": list(range(at, at + len(own)))})
            at += len(own)
        state = {
            k: optim_state_dict["state"][names[p]] for k, p in enumerate(order) if names[p] in optim_state_dict["state"]
        }
        optimizer.load_state_dict({"state": state, "param_groups": groups})


def get_state_dict(
    model: Module, optimizers: Any, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of the model and of its optimizers."""
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options),
    )


def set_state_dict(
    model: Module,
    optimizers: Any,
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """Loads both. Returns (missing keys, unexpected keys) of the model."""
    keys = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return keys
