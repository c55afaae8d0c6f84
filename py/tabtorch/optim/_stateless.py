"""An optimizer on other parameters and another state, for a while."""

import contextlib
from collections import defaultdict

import tabtorch as torch

_NAME = "swap_in_optimizer_params_and_state requires "


def _check(ok, message):
    if not ok:
        raise RuntimeError(message)


def _checked(optimizer, parameters, saved):
    """(state by index, [(live group, its replacement, its parameters)]) of a ``state_dict`` that fits the optimizer."""
    _check(optimizer.state, _NAME + "initialized optimizer state.")
    _check(isinstance(saved, dict), _NAME + "a DCP-style optimizer state_dict.")
    state, groups = saved.get("state"), saved.get("param_groups")
    _check(
        isinstance(state, dict),
        _NAME + "swapin_optim_state['state'] to be a dict mapping packed parameter ids to per-param state dicts, "
        f"got {type(state).__name__}.",
    )
    _check(
        not any(isinstance(k, torch.Tensor) for k in state),
        _NAME + "optimizer.state_dict()-style state keyed by packed parameter ids.",
    )
    _check(
        all(isinstance(v, dict) for k, v in state.items() if isinstance(k, int)),
        _NAME + "per-parameter optimizer state entries to be dictionaries.",
    )
    _check(
        isinstance(groups, list),
        _NAME + f"swapin_optim_state['param_groups'] to be a list of param-group dicts, got {type(groups).__name__}.",
    )
    _check(
        len(groups) == len(optimizer.param_groups),
        "swapin_optim_state has a different number of parameter groups than the live optimizer.",
    )
    flat = list(parameters.values())
    known: set = set()
    swaps = []
    at = 0
    for i, (live, group) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        _check(isinstance(group, dict), _NAME + "each optimizer param group to be a dictionary.")
        ids = group.get("params")
        _check(
            isinstance(ids, list) and all(isinstance(k, int) for k in ids),
            _NAME + "optimizer.state_dict()-style param_groups[*]['params'] entries keyed by packed parameter ids.",
        )
        _check(
            len(ids) == len(live["params"]),
            f"swapin_optim_state param group {i} has a different number of params than the live optimizer param group.",
        )
        extra, lacking = [k for k in group if k not in live], [k for k in live if k not in group]
        _check(
            not extra and not lacking,
            _NAME + "optimizer.state_dict()-style param group keys to exactly match the live optimizer group keys for "
            f"group {i}. Keys only in swap-in: {extra}. Keys only in live: {lacking}.",
        )
        known.update(ids)
        _check(
            at + len(ids) <= len(flat),
            _NAME + "the explicit parameter state to match optimizer.param_groups ordering.",
        )
        swaps.append((live, group, flat[at : at + len(ids)]))
        at += len(ids)
    unknown = [k for k in state if k not in known]
    _check(
        not unknown,
        _NAME + "swapin_optim_state['state'] to be keyed only by packed parameter ids from param_groups[*]['params']; "
        f"got extra keys {unknown!r}.",
    )
    return state, swaps


@contextlib.contextmanager
def swap_in_optimizer_params_and_state(optimizer, swapin_parameters, swapin_optim_state):
    """Within, the optimizer has these parameters (a dict, in its order) and this state (a ``state_dict``).

    Tensors that change in place change for their owner; anything else is forgotten. RuntimeError where they do not fit.
    """
    state, swaps = _checked(optimizer, swapin_parameters, swapin_optim_state)
    live_state = optimizer.state
    snapshots = [dict(g) for g in optimizer.param_groups]
    try:
        swapped: defaultdict = defaultdict(dict)
        for live, group, params in swaps:
            live.update(group, params=params)
            for p, i in zip(params, group["params"], strict=True):
                swapped[p] = dict(state.get(i, {}))
        optimizer.__setstate__({"state": swapped})
        yield
    finally:
        for live, snapshot in zip(optimizer.param_groups, snapshots, strict=True):
            live.clear()
            live.update(snapshot)
        optimizer.state = live_state
