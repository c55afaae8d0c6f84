"""One update of many parameters, in one place."""

from collections import defaultdict

import tabtorch as torch

from ..engine import multi
from ..engine.view import contiguous_meta
from ..tensor import Tensor


def _multi_tensor_step(params, grads, states, update_formula, **settings):
    """Runs ``update_formula(param, grad, *state, **settings)`` over all parameters at once.

    Gives a list of what the formula returned for each. ``states``: one list for each kind of state (tensors, or all None),
    aligned with ``params``. All parameters are of one
    dtype and device, and share ``settings``. The formula updates its tensors in place, element by element; the engine takes
    the numbers of ``settings`` as kernel parameters, so a new learning rate or step compiles nothing.

    Parameters, gradients and states are laid one after another in flat buffers, which the formula then sees as one
    tensor each, so the number of dispatches hardly depends on the number of parameters. Afterwards the storages are
    windows onto the new flat buffers; the next step finds them there.
    """
    lists = [params, grads, *states]
    if len(params) < 2 or torch.is_grad_enabled() or not _may_pack(params, grads, states):
        return [
            update_formula(param, grad, *state, **settings)
            for param, grad, *state in zip(params, grads, *states, strict=True)
        ]
    flat = [None if x[0] is None else _flat(x) for x in lists]
    before = [None if f is None else f._storage.node for f in flat]
    result = update_formula(*flat, **settings)
    for members, f, old in zip(lists, flat, before, strict=True):
        if f is None or f._storage.node is old:
            continue
        for t, node in zip(members, multi.windows(f._storage.node, [t._meta for t in members]), strict=True):
            storage = t._storage
            storage.node = node
            storage.version += 1
    if not isinstance(result, Tensor):
        return [result] * len(params)
    for members, f in zip(lists, flat, strict=True):
        if f is result:
            return list(members)
    metas = [contiguous_meta(p.shape, p.dtype, p._meta.device) for p in params]
    nodes = multi.windows(result._storage.node, metas)
    return [Tensor._wrap(node, m) for node, m in zip(nodes, metas, strict=True)]


def _may_pack(params, grads, states):
    """Whether these are float32 tensors, those to be written each covering a storage of their own."""
    if not all(g.dtype is torch.float32 and g.layout is torch.strided and g._meta.numel for g in grads):
        return False
    written = [params, *(s for s in states if any(t is not None for t in s))]
    if any(t is None for s in written for t in s):
        return False
    tensors = [t for s in written for t in s]
    return len({id(t._storage) for t in tensors}) == len(tensors) and all(
        t.dtype is torch.float32 and t._meta.whole and t._storage.node.inst.out.numel == t._meta.numel for t in tensors
    )


def _flat(tensors):
    metas = [t._meta for t in tensors]
    nodes = [t._storage.node for t in tensors]
    node = multi.flat_of(nodes, metas) or multi.pack(nodes, metas)
    return Tensor._wrap(node, node.inst.out)


def _buckets(params, steps=None):
    """The parameters with gradients, grouped by dtype, device and step count: (steps, params, grads)."""
    groups = defaultdict(list)
    for p in params:
        if p.grad is not None:
            groups[(p.dtype, p.device, steps(p) if steps else 0)].append(p)
    for (_, _, step), members in groups.items():
        yield step, members, [p.grad for p in members]
