"""One update of many parameters, in one place."""

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.engine import multi
from tabtorch.engine.view import contiguous_meta, contiguous_strides, meta

#: by the Metas of parameters: the views of a flat buffer that lie where `multi.pack` puts them, and the whole of it
_layouts: dict = {}


def update_all(formula, params, grads, states, settings, batched=False):
    """Runs ``formula(param, grad, **state, **settings)``, which updates its tensors in place, element by element, over all
    parameters at once. ``states``: for each name, the tensors of that name, in the order of ``params``.

    All parameters are of one dtype and device. Numbers in ``settings`` become kernel parameters, so a new learning rate or
    step compiles nothing. Parameters, gradients and states are laid one after another in flat buffers, which the formula
    sees as one tensor each: the number of dispatches does not depend on the number of parameters, but for the packing of
    gradients, one for every few that the device can bind at once. Afterwards the parameters are windows onto their new
    flat buffer, and the states views of theirs; the next step finds them there.

    ``batched``: the parameters have one shape, and the formula sees them stacked, with a first dimension of their number.
    """
    if len(params) < 2 or torch.is_grad_enabled():
        return _one_by_one(formula, params, grads, states, settings, batched)
    layout = _layout(params)
    if layout is None or not _may_pack(params, grads, [t for t in states.values() if not _laid(t)]):
        # Those that can be laid flat, and then the others.
        fits = [_may_pack([p], [g], [[t[i]] for t in states.values()]) for i, (p, g) in enumerate(zip(params, grads))]
        if len({id(p._tab_storage) for p in params}) < len(params) or len(set(fits)) < 2:
            return _one_by_one(formula, params, grads, states, settings, batched)
        for part in (True, False):
            some = [i for i, fit in enumerate(fits) if fit is part]
            chosen = {name: [t[i] for i in some] for name, t in states.items()}
            update_all(formula, [params[i] for i in some], [grads[i] for i in some], chosen, settings, batched)
        return None
    flat = _flat(params)
    before = flat._tab_storage.node
    seen = _stacked if batched else _as_flat
    own = {name: seen(_flat_state(t), t) for name, t in states.items()}
    formula(seen(flat, params), seen(_flat(grads), grads), **own, **settings)
    node = flat._tab_storage.node
    if node is not before:
        for p, window in zip(params, multi.windows(node, [p._tab_meta for p in params]), strict=True):
            storage = p._tab_storage
            storage.node = window
            storage.written()
    return None


def _as_flat(flat, tensors):
    return flat


def _stacked(flat, tensors):
    """A flat buffer of tensors of one shape as one tensor, the first dimension their number."""
    shape = tensors[0].shape
    strides = (multi.padded(tensors[0]._tab_meta.numel), *contiguous_strides(shape))
    m = flat._tab_meta
    return Tensor._view_of(flat, meta((len(tensors), *shape), strides, 0, m.dtype, m.device))


def _one_by_one(formula, params, grads, states, settings, batched):
    """One parameter after another: under autograd, and for dtypes that are not laid flat. Complex ones as pairs of reals."""
    recorded = torch.is_grad_enabled()
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        own = {name: t[i] for name, t in states.items()}
        if param.is_complex():
            param, grad = torch.view_as_real(param), torch.view_as_real(grad.resolve_conj())
            own = {name: torch.view_as_real(t) for name, t in own.items()}
        if batched:
            param, grad = param.unsqueeze(0), grad.unsqueeze(0)
            own = {name: t.unsqueeze(0) for name, t in own.items()}
        if not recorded:
            formula(param, grad, **own, **settings)
            continue
        # What the tape saves must not change under it in the next step: the formula works on copies.
        copies = {name: t.clone() for name, t in own.items()}
        new = param.clone()
        formula(new, grad, **copies, **settings)
        for name, t in own.items():
            t.copy_(copies[name])
        param.copy_(new)


def fill_all(params, value):
    """A tensor like each parameter, full of ``value``: views of one flat buffer, where the parameters may lie in one.
    A tuple: zeros of that size."""
    if isinstance(value, tuple):
        return [p.new_zeros(value) for p in params]
    layout = _layout(params) if len(params) > 1 and not torch.is_grad_enabled() else None
    if layout is None:
        return [torch.full_like(p, value, requires_grad=False) for p in params]
    views, whole = layout
    if isinstance(value, torch.Tensor):
        flat = value.to(whole.dtype).expand(whole.shape).clone()
    else:
        flat = torch.full(whole.shape, value, dtype=whole.dtype, device=whole.device)
    return [Tensor._view_of(flat, m) for m in views]


def _layout(tensors):
    """Where tensors lie in a flat buffer: (the Metas of its views, its own); None where one is not float32, or is empty, or
    does not lie in one piece."""
    key = tuple([t._tab_meta for t in tensors])
    found = _layouts.get(key, key)
    if found is key:
        if len(_layouts) > 1000:
            _layouts.clear()
        found = None
        if all(m.dtype is torch.float32 and m.contiguous and m.numel and not m.mark for m in key):
            views = []
            at = 0
            for m in key:
                views.append(meta(m.shape, contiguous_strides(m.shape), at, m.dtype, m.device))
                at += multi.padded(m.numel)
            found = views, contiguous_meta((at,), key[0].dtype, key[0].device)
        _layouts[key] = found
    return found


def _may_pack(params, grads, states):
    """Whether these are float32 tensors, and the parameters each cover a storage of their own."""
    metas = [t._tab_meta for tensors in (params, grads, *states) for t in tensors]
    return (
        all(m.dtype is torch.float32 and m.numel for m in metas)
        and all(p._tab_meta.whole and p._tab_storage.node.inst.out.numel == p._tab_meta.numel for p in params)
        and len({id(p._tab_storage) for p in params}) == len(params)
    )


def _laid(tensors):
    """Whether these are the views of one flat buffer."""
    layout = _layout(tensors)
    s = tensors[0]._tab_storage
    return (
        layout is not None
        and s.node.inst.out is layout[1]
        and all(t._tab_storage is s and t._tab_meta is m for t, m in zip(tensors, layout[0], strict=True))
    )


def _flat(tensors):
    """One flat tensor of these: the one they are windows of, or a new one."""
    metas = [t._tab_meta for t in tensors]
    nodes = [t._tab_storage.node for t in tensors]
    node = (all(m.whole for m in metas) and multi.flat_of(nodes, metas)) or multi.pack(nodes, metas)
    return Tensor._wrap(node, node.inst.out)


def _flat_state(tensors):
    """The flat tensor whose views these are. Others are packed, and made such views."""
    node = tensors[0]._tab_storage.node
    if _laid(tensors):
        return Tensor._view_of(tensors[0], node.inst.out)
    metas = [t._tab_meta for t in tensors]
    node = multi.pack([t._tab_storage.node for t in tensors], metas)
    flat = Tensor._wrap(node, node.inst.out)
    at = 0
    for t, m in zip(tensors, metas, strict=True):
        t._tab_storage = flat._tab_storage
        t._tab_meta = meta(m.shape, contiguous_strides(m.shape), at, m.dtype, m.device)
        at += multi.padded(m.numel)
    return flat
