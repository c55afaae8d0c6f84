"""Modules as functions of their parameters: `functional_call`, `stack_module_state`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tabtorch import _lazy, ops
from tabtorch.core.tensor import Tensor

_MISSING: Any = object()


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with other tensors in place of its parameters and buffers.

    parameter_and_buffer_dicts: a dict from names to tensors, or a sequence of such dicts with no name in common.
    args: a tuple, or the one argument. tie_weights: a value for one of several tied parameters is that of all of them.
    strict: RuntimeError unless the names are exactly the module's. ValueError for names that come twice.
    https://docs.pytorch.org/docs/stable/generated/torch.func.functional_call.html
    """
    if isinstance(parameter_and_buffer_dicts, dict):
        values = parameter_and_buffer_dicts
    elif isinstance(parameter_and_buffer_dicts, Sequence):
        dicts = parameter_and_buffer_dicts
        if not all(isinstance(d, dict) for d in dicts):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        keys = [k for d in dicts for k in d]
        repeated = [k for k in dict.fromkeys(keys) if keys.count(k) > 1]
        if repeated:
            raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        values = {k: v for d in dicts for k, v in d.items()}
    else:
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(parameter_and_buffer_dicts)}"
        )
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _swapped(module, values, tie_weights, strict):
        return module(*args, **(kwargs or {}))


@contextmanager
def _swapped(module: Any, values: dict[str, Any], tie_weights: bool, strict: bool) -> Iterator[None]:
    given = _tied(module, values) if tie_weights else values
    if strict:
        own = {n for named in (module.named_parameters, module.named_buffers) for n, _ in named(remove_duplicate=False)}
        wrong = []
        if unexpected := [n for n in given if n not in own]:
            wrong.append(f"Unexpected key(s): {', '.join(map(repr, unexpected))}.")
        if missing := sorted(own - given.keys()):
            wrong.append(f"Missing key(s): {', '.join(map(repr, missing))}.")
        if wrong:
            raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t" + "\n\t".join(wrong))
    before: dict[str, Any] = {}
    try:
        for name, t in given.items():
            before[name] = _swap(module, name, t)
        yield
    finally:
        after = {name: _swap(module, name, t) for name, t in before.items()}
        values.update({k: after[k] for k in values if k in after})  # a module may have put others there


def _tied(module: Any, values: dict[str, Any]) -> dict[str, Any]:
    """`values` with one for every name of a tensor that has several."""
    names: dict[int, list[str]] = {}
    for named in (module.named_parameters, module.named_buffers):
        for n, t in named(remove_duplicate=False):
            names.setdefault(id(t), []).append(n)
    out = dict(values)
    for group in names.values():
        had = [n for n in group if n in values]
        if len(group) < 2 or not had:
            continue
        if len({id(values[n]) for n in had}) > 1:
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(group)}, which are tied. Consider using "
                "tie_weights=False"
            )
        out.update(dict.fromkeys(group, values[had[0]]))
    return out


def _swap(module: Any, name: str, t: Any) -> Any:
    """Puts `t` in place of the member `name`, which is returned."""
    if t is not _MISSING and t is not None and not isinstance(t, Tensor):
        raise TypeError(f"{t} is not an instance of torch.Tensor")
    path, _, last = name.rpartition(".")
    owner = module.get_submodule(path) if path else module
    for members in (owner._parameters, owner._buffers):
        if last in members:
            old = members[last]
            if t is _MISSING:
                del members[last]
            else:
                members[last] = t
            return old
    old = getattr(owner, last, _MISSING)
    if old is not _MISSING and not isinstance(old, Tensor):
        raise TypeError(f"{old} is not an instance of torch.Tensor")
    if t is _MISSING:
        delattr(owner, last)
    else:
        setattr(owner, last, t)
    return old


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameters, buffers) of models of one class, stacked along a new first dimension, by name; the parameters are leaves.

    RuntimeError for no models, for several classes, modes, or differing `requires_grad`.
    """
    if len(models) == 0:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({bool(m.training) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(states: list[dict[str, Tensor]]) -> dict[str, Any]:
        return {name: _stacked_leaf([s[name] for s in states], name) for name in states[0]}

    return stacked([dict(m.named_parameters()) for m in models]), stacked([dict(m.named_buffers()) for m in models])


def _stacked_leaf(tensors: list[Tensor], name: str) -> Tensor:
    flags = {t.requires_grad for t in tensors}
    if len(flags) > 1:
        raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    result: Tensor = ops.stack([t.detach() for t in tensors])
    return result.requires_grad_() if True in flags else result


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Makes every BatchNorm of `root`, itself included, keep no running statistics, so that it can be batched."""
    for m in root.modules():
        if isinstance(m, _lazy.batchnorm._BatchNorm):
            m.running_mean = m.running_var = m.num_batches_tracked = None
            m.track_running_stats = False
    return root


__all__ = ["functional_call", "replace_all_batch_norm_modules_", "stack_module_state"]
