"""Views and in-place writes on the tape, as PyTorch: a write to a view is a `CopySlices` of its base, and every view of
that base then gets its grad_fn anew, from the base's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import (
    GradFn,
    OpFn,
    edge,
    freed_error,
    grad_class,
    next_seq,
    record,
    short_name,
    unsupported,
)
from tabtorch.core.storage import UNRECORDED, Storage
from tabtorch.core.tensor import DATA, Tensor
from tabtorch.engine.view import CONJ, NEG, Meta, contiguous_strides
from tabtorch.ops.machinery import registry

_new = object.__new__
_ref = weakref.ref

#: Tensor._tab_view_state
PLAIN, NO_GRAD, SEVERAL, INFERENCE = 0, 1, 2, 3


def view(x: Tensor, m: Meta, name: str, backward: Callable[[Tensor], Tensor]) -> Tensor:
    """A view of `x` with geometry `m`, on the tape. `backward(g)` gives the gradient of `x`; `name` is the grad_fn's."""
    t: Tensor = _new(Tensor)
    t._tab_storage = x._tab_storage
    t._tab_meta = m
    attach(t, x)
    if name in _RETYPES:
        t._tab_retype = name
    if x._tab_requires_grad and STATE.grad:
        if m.dtype.category < 2:
            raise unsupported(t)
        fn: Any = _new(grad_class(name, ViewFn))
        fn.edges = (x._tab_grad_fn or edge(x),)
        fn.metas = (x._tab_meta,)
        fn.outs = m
        fn.backward = backward
        fn.seq = next_seq()
        t._tab_requires_grad = True
        t._tab_grad_fn = fn
    return t


class ViewFn(GradFn):
    """A view: nothing is saved."""

    backward: Callable[[Tensor], Tensor]

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        return (self.backward(g),)


def attach(t: Tensor, x: Tensor, state: int = PLAIN) -> None:
    """Makes `t` (over the storage of `x`) known as a differentiable view of it."""
    if x._tab_inference:
        t._tab_inference = True
        return
    base = t._base = x if x._base is None else x._base
    if x._tab_view_state == INFERENCE:  # which lasts
        state = INFERENCE
    if not STATE.grad:
        t._tab_view_state = state or (INFERENCE if STATE.inference else NO_GRAD)
        if base._tab_requires_grad and t._tab_meta.dtype.category > 1:
            t._tab_requires_grad = t._tab_borrowed = (
                True  # as PyTorch: a view requires grad where its base does, though no history says how
            )
    elif state or x._tab_view_state:
        t._tab_view_state = state or x._tab_view_state
    s = x._tab_storage
    views = s.views
    if views is None:
        s.views = [(_ref(t), s.version)]
        return
    views.append((_ref(t), s.version))
    if not len(views) & 63:  # the dead ones go, now and then
        s.views = [r for r in views if r[0]() is not None]


def lend(base: Tensor) -> None:
    """`base`, a leaf, was told whether it requires grad: so do its views."""
    on = base._tab_requires_grad
    for r, version in base._tab_storage.views or ():
        v = r()
        if v is None or v._base is not base or v._tab_grad_fn is not None:
            continue
        if on and version != base._tab_storage.version:
            v._tab_requires_grad = True
            v._tab_stale = v._tab_stale or UNRECORDED
        elif on and not v._tab_requires_grad:
            v._tab_requires_grad = v._tab_borrowed = v._tab_meta.dtype.category > 1
        elif not on and (v._tab_borrowed or v._tab_stale is UNRECORDED):
            v._tab_requires_grad = v._tab_borrowed = v._tab_stale = False


def views_of_several(x: Tensor, metas: Sequence[Meta], name: str, backward: Callable[[Any], Tensor]) -> list[Tensor]:
    """The views of a function that returns many, as `split` and `unbind`. `backward` gets a list of gradients, some None."""
    out = [Tensor._view_of(x, m) for m in metas]
    if x._tab_requires_grad and STATE.grad and out and metas[0].dtype.category < 2:
        raise unsupported(out[0])
    for t in out:
        attach(t, x, SEVERAL if STATE.grad else PLAIN)
    if x._tab_requires_grad:
        record(name, (x,), out, backward)
    return out


# ---- in-place


_LEAF = "a leaf Variable that requires grad is being used in an in-place operation."
_VIEW_OF_LEAF = "a view of a leaf Variable that requires grad is being used in an in-place operation."


def check_inplace(x: Tensor, others: Any = ()) -> None:
    """Raises PyTorch's error for a write to `x` that autograd cannot follow. To be called before anything is changed.

    others: what is written, whose gradient would have to be followed too; what is no tensor does not count.
    """
    if STATE.duals:
        _lazy.forward_ad.remember(x)
    if STATE.grad and not STATE.hidden:
        _check_history(x, others)
    if x._tab_inference and x._tab_inference is not DATA and not STATE.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone to get a normal "
            "tensor before doing inplace update.See https://github.com/pytorch/rfcs/pull/17 for more details."
        )


def _check_history(x: Tensor, others: Any) -> None:
    base = x._base
    if x._tab_requires_grad:
        if base is not None:
            _check_view_state(x)
            if not base._tab_requires_grad or (base._tab_grad_fn is None and not base._tab_stale):
                raise RuntimeError(_VIEW_OF_LEAF)
        if x._tab_grad_fn is None and (
            not x._tab_stale or x._tab_stale is UNRECORDED
        ):  # with no history until its base was written to: as PyTorch
            raise RuntimeError(_LEAF)
    elif base is not None and x._tab_view_state and any(isinstance(t, Tensor) and t._tab_requires_grad for t in others):
        _check_view_state(x)


def _check_view_state(x: Tensor, indirect: bool = False) -> None:
    """RuntimeError for a view whose history cannot change: it is written to, or (indirect) its base was."""
    state = x._tab_view_state
    if state == PLAIN:
        return
    fn = x._tab_grad_fn or (x._tab_stale if x._tab_stale not in (False, True, UNRECORDED) else None)
    what = "its base or another view of its base has been" if indirect else "is being"
    name = "" if fn is None else f"Output {fn.nr if fn.is_port else 0} of {short_name(fn.fn)} is a view"
    if fn is not None and state == SEVERAL:
        head = f"{name} and {what} modified inplace. "
    else:
        who = f"{name} of a view which was" if fn is not None else "A view was"
        mode, where = ("inference", "in normal mode") if state == INFERENCE else ("no_grad", "with grad mode enabled")
        head = f"{who} created in {mode} mode and {what} modified inplace {where}. "
    if state == SEVERAL:
        raise RuntimeError(
            f"{head}This view is the output of a function that returns multiple views. Such functions do not allow the "
            "output views to be modified inplace. You should replace the inplace operation by an out-of-place one."
        )
    block = "no_grad" if state == NO_GRAD else "inference_mode"
    raise RuntimeError(
        f"{head}Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving "
        f"both the view and the inplace either both inside the {block} block (if you don't want the inplace to be tracked) or "
        "both outside (if you want the inplace to be tracked)."
    )


def before_write(x: Tensor) -> Tensor:
    """`x` as it is before a write, for the tape: its history and its value, which the write will not touch."""
    if x._tab_stale:
        refresh(x)
    t: Tensor = _new(Tensor)
    t._tab_storage = Storage(x._tab_storage.node)
    t._tab_meta = x._tab_meta
    if x._tab_requires_grad:
        t._tab_requires_grad = True
        t._tab_grad_fn = x._tab_grad_fn
    return t


def rebase(x: Tensor, fn: GradFn) -> None:
    """`x` was written to, and `fn` is the operation, recorded with `before_write(x)` as its first input."""
    if STATE.hidden:
        if not _lazy.forward_ad.is_dual(fn):
            return
    base = x._base
    if base is None:
        _move_retain(x, fn)
        x._tab_requires_grad = True
        x._tab_grad_fn = fn
        x._tab_stale = False
        base = x
    else:
        copy: Any = _new(CopySlices)
        # the write replaces part of the base: its edge to what was there, then those of the other inputs
        copy.edges = ((base._tab_grad_fn or edge(base)) if base._tab_requires_grad else None, *fn.edges[1:])
        copy.metas = (base._tab_meta, *fn.metas[1:])
        copy.outs = base._tab_meta
        copy.inner = fn
        copy.region = x._tab_meta
        copy.seq = next_seq()
        _move_retain(base, copy)
        base._tab_requires_grad = True
        base._tab_grad_fn = copy
        base._tab_stale = False
    if x._tab_storage.views is not None:
        x._tab_storage.tell()
    if x is not base:
        refresh(x)
        fn.view_fn = _ref(x._tab_grad_fn)


def _move_retain(x: Tensor, fn: GradFn) -> None:
    if x._tab_retained is not None:
        _lazy.autograd_hooks.move_retain(x, fn)


#: the gradient of a view that has that mark and nothing else of its own
_MARKED: dict[int, Callable[[Any], Tensor]] = {CONJ: lambda g: g.conj(), NEG: lambda g: -g}


def _reinterpreted() -> Any:
    return _lazy.reinterpreted


#: what looks whether a tensor may be seen so, by the grad_fn of a view that shows other values than its storage holds
_RETYPES: dict[str, Callable[[Meta], Any]] = {
    "ViewAsRealBackward0": lambda m: _reinterpreted().complex_as_real(m),
    "ViewAsComplexBackward0": lambda m: _reinterpreted().real_as_complex(m),
    "ConjBackward0": lambda m: m,
    "NegViewBackward0": lambda m: m,
}


def refresh(t: Tensor) -> None:
    """Gives a view whose base was written to its new grad_fn."""
    base = t._base
    assert base is not None
    _check_view_state(t, True)
    if t._tab_retype:  # PyTorch takes such a view once more, of a base that may have another shape by now
        _RETYPES[t._tab_retype](base._tab_meta.marked(0))
    t._tab_stale = False
    if t._tab_retype and STATE.inference:  # where taking it makes no history
        t._tab_grad_fn = None
        return
    if t._tab_retype and not base._tab_requires_grad:  # and requires no grad
        t._tab_grad_fn = None
        t._tab_requires_grad = False
        return
    name = t._tab_retype or "AsStridedBackward0"
    fn: Any = _new(grad_class(name, ViewFn))
    fn.edges = ((base._tab_grad_fn or edge(base)) if base._tab_requires_grad else None,)
    if not base._tab_requires_grad:
        fn.real = True  # no tangent comes from there, so it is for the user: see forward_ad.py
    fn.metas = (base._tab_meta,)
    fn.outs = t._tab_meta
    base_meta, m = base._tab_meta, t._tab_meta
    own = _MARKED.get(m.mark ^ base_meta.mark) if m.marked(base_meta.mark) is base_meta else None
    fn.backward = own or (lambda g: _lazy.core_views.unstride(g, base_meta, m))
    fn.seq = next_seq()
    t._tab_grad_fn = fn


class CopySlices(GradFn):
    """A base after one of its views was written to by `inner`."""

    inner: Any
    region: Meta

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        inner = self.inner
        if inner is None:
            raise freed_error()
        result, part = _with_region(g, self.outs, self.region)
        grads = list(inner.apply(part.clone()))
        if STATE.grad and _lazy.zero_curvature.is_flat(inner):
            grads = _lazy.zero_curvature.keep_edges(inner, grads)
        own = grads[0]
        if own is None:
            part.zero_()
        else:
            part.copy_(own)
        grads[0] = result if self.edges[0] is not None else None
        return grads

    @property
    def saves(self) -> bool:
        return True  # PyTorch lets go of `inner` too, whatever that saves

    def release(self) -> None:
        inner, self.inner = self.inner, None
        if inner is not None:
            inner.release()


def _extent(m: Meta) -> int:
    """Elements of the smallest storage that holds `m`."""
    if m.numel == 0:
        return m.offset
    return m.offset + 1 + sum((n - 1) * s for n, s in zip(m.shape, m.strides, strict=True))


def _with_region(g: Tensor, base: Meta, region: Meta) -> tuple[Tensor, Tensor]:
    """A copy of `g`, which is shaped as `base`, and the part of it that `region` is of `base`."""
    if base.whole:
        result = g.contiguous().clone() if not g._tab_meta.contiguous else g.clone()
        return result, _seen(_as_type(result, region.dtype), region)
    n = max(_extent(base), _extent_as(region, base.dtype))
    make: Any = registry.function("zeros")
    flat = make((n,), dtype=g.dtype, device=g.device)
    result = _seen(flat, base)
    result.copy_(g)
    return result, _seen(_as_type(flat, region.dtype), region)


def _seen(flat: Tensor, m: Meta) -> Tensor:
    """What `m` shows of a storage, of `flat`."""
    strided: Any = registry.function("as_strided")
    return _shown(strided(flat, m.shape, m.strides, m.offset), m.mark)


def _shown(t: Tensor, mark: int) -> Tensor:
    """`t` as a view with that mark shows it."""
    if mark & CONJ:
        t = t.conj()
    return t._neg_view() if mark & NEG else t


def _as_type(t: Tensor, dtype: Any) -> Tensor:
    """`t`, contiguous, as one dimension of numbers of that type: complex numbers as pairs of real ones, or the other way."""
    if t._tab_meta.dtype is dtype:
        return t
    r: Tensor = t.reshape(-1).view(dtype)
    return r


def _extent_as(m: Meta, dtype: Any) -> int:
    """`_extent` in elements of `dtype`."""
    return -(-_extent(m) * m.dtype.itemsize // dtype.itemsize)


def as_strided_backward(g: Tensor, base: Meta, m: Meta) -> Tensor:
    """The gradient of a tensor laid out as `base` from that of its `as_strided` view `m` (in storage coordinates)."""
    if not m.numel or not base.numel:
        return g.new_zeros(base.shape, dtype=base.dtype)
    # dimensions with stride 0 show one element many times
    repeated = [d for d, (n, s) in enumerate(zip(m.shape, m.strides, strict=True)) if s == 0 and n > 1]
    if repeated:
        g = g.sum(repeated, keepdim=True)
        m = m.view(tuple(g.shape), m.strides, m.offset)
    n = max(_extent_as(base, m.dtype), _extent(m))
    n += n % 2 if base.dtype is not m.dtype else 0
    make: Any = registry.function("zeros")
    flat = make((n,), dtype=g.dtype, device=g.device)
    if _overlaps(m):
        strides = contiguous_strides(m.shape)
        index: Any = make((), dtype=core_int64(), device=g.device) + m.offset
        arange: Any = registry.function("arange")
        for d, (size, step) in enumerate(zip(m.shape, m.strides, strict=True)):
            shape = [1] * len(strides)
            shape[d] = size
            index = index + (arange(size, device=g.device) * step).reshape(shape)
        flat = flat.index_add(0, index.reshape(-1), _shown(g, m.mark).reshape(-1))
    else:
        _seen(flat, m).copy_(g)
    if base.dtype is not m.dtype:
        pairs: Any = registry.function("view_as_complex" if base.dtype.is_complex else "view_as_real")
        flat = pairs(flat.reshape(-1, 2)) if base.dtype.is_complex else pairs(flat).reshape(-1)
    return _seen(flat, base)


def core_int64() -> Any:
    return _lazy.dtypes.int64


def _overlaps(m: Meta) -> bool:
    """Whether two indices may show one element (sizes and strides that are not nested count as such)."""
    dims = sorted((s, n) for n, s in zip(m.shape, m.strides, strict=True) if n > 1)
    reach = 0
    for s, n in dims:
        if s <= reach:
            return True
        reach += s * (n - 1)
    return False


__all__ = [
    "OpFn",
    "as_strided_backward",
    "attach",
    "before_write",
    "check_inplace",
    "rebase",
    "refresh",
    "view",
    "views_of_several",
]
