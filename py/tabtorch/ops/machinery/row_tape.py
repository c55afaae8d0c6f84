"""The backward side of a `Row`: its GradFn class, and recording one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import (
    FREED,
    LEAF,
    GradFn,
    Packed,
    Saved,
    check_history,
    detached,
    edge,
    freed_error,
    gap,
    grad_class,
    inference_error,
    maker,
    modified_error,
    next_seq,
    part,
    unsupported,
)
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery.registry import Row

_new = object.__new__


class RowFn(GradFn):
    """The node of a row. `args` are the operands that the gradients need (None: not needed), numbers as they are."""

    row: Row
    grads: tuple[Callable[..., Any] | None, ...]
    args: Any = ()
    versions: Any = None  # of the saved operands; None where nothing was saved
    options: dict[str, Any] | None = None
    out: Any = None  # (Storage, Meta, version) of the output where a gradient needs it
    name_of: Any = None  # where the name depends on the operands: a function that tells it
    order: Sequence[int] = ()  # in which hooks are given the operands, if it is not theirs

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        out = self.out  # before `args`: `release` frees those first, and another thread may be there
        args = self.args
        versions = self.versions
        if versions is not None:
            if args is FREED:
                raise freed_error()
            if detached[0]:
                for x, e in zip(args, self.edges):
                    if isinstance(x, Tensor) and e is not None and e.edge_kind != LEAF:
                        check_history(x)
            for x, v in zip(args, versions):
                if v >= 0 and x._tab_storage.version != v:
                    raise self._modified(args, versions)
        return self._gradients(g, args, None if out is None else self.unpack_out(out))

    def _gradients(self, g: Any, args: Sequence[Any], out: Tensor | None) -> Sequence[Tensor | None]:
        grads = self.grads
        edges = self.edges
        options = self.options
        if options is not None:
            return [
                None if e is None else f(g, *args, out, **options)  # type: ignore[misc]
                for f, e in zip(grads, edges)
            ]
        if len(edges) == 1:
            return (grads[0](g, args[0], out),)  # type: ignore[misc]
        if len(edges) == 2:
            a, b = args
            return (
                None if edges[0] is None else grads[0](g, a, b, out),  # type: ignore[misc]
                None if edges[1] is None else grads[1](g, a, b, out),  # type: ignore[misc]
            )
        return [None if e is None else f(g, *args, out) for f, e in zip(grads, edges)]  # type: ignore[misc]

    def _modified(self, args: Sequence[Any], versions: Sequence[int]) -> RuntimeError:
        """The error for an operand that has been written to: as PyTorch looks at them, by name."""
        names = ["self" if n == "input" else n for n in self.row.names]
        k = min(
            (k for k, v in enumerate(versions) if v >= 0 and args[k]._tab_storage.version != v), key=lambda k: names[k]
        )
        return modified_error(args[k], versions[k], maker(args[k]))

    def unpack_out(self, out: Any) -> Tensor:
        """What is kept of the output as a tensor; RuntimeError if it has been written to."""
        storage, m, version = out
        t: Tensor = _new(Tensor)
        t._tab_storage = storage
        t._tab_meta = m
        if STATE.grad:
            t._tab_requires_grad = True
            t._tab_grad_fn = self
        if storage.version != version:
            raise modified_error(t, version, self.as_view)
        return t

    @property
    def saves(self) -> bool:
        return self.versions is not None

    def release(self) -> None:
        if self.versions is not None:
            self.args = FREED
            self.out = None


class PackedFn(RowFn):
    """A row's node recorded under `saved_tensors_hooks`: what it saved is with the hooks."""

    packed: Any = ()  # of the operands, then of the output

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        *args, out = self._unpack()
        return self._gradients(g, args, out)

    def _unpack(self) -> list[Any]:
        packed = self.packed
        if packed is FREED:
            raise freed_error()
        values = list(packed)
        for k in (*self.order, *range(len(self.order), len(values))):
            if isinstance(values[k], (Packed, Saved)):
                values[k] = values[k].unpack(self)
        return values

    @property
    def saves(self) -> bool:
        return True

    def release(self) -> None:
        self.packed = FREED


def pack(t: Tensor, fn: Any) -> None:
    """Gives what `fn`, which made `t`, has saved to the hooks."""
    if fn.versions is None:
        return
    saved: list[Any] = list(fn.args)
    if len(saved) == 2 and fn.edges[0] is not None and not (fn.uses or uses_of(type(fn)))[1][0]:
        fn.order = (1, 0)  # as PyTorch: what the first operand's gradient needs comes first
    for k in fn.order or range(len(saved)):
        if isinstance(saved[k], Tensor):
            saved[k] = Packed(saved[k], False, 0)
    fn.packed = [*saved, Packed(t, True, 0) if fn.out is not None else None]
    _as_packed(fn)


def keep_apart(fn: Any) -> list[Any]:
    """What `fn` has saved as a list of `Packed`, `Saved`, and what is no tensor, each of which may then be replaced."""
    if not isinstance(fn, PackedFn):
        saved = [Saved(x, False, 0) if isinstance(x, Tensor) else x for x in fn.args]
        fn.packed = [*saved, None if fn.out is None else Saved(fn.unpack_out(fn.out), True, 0)]
        _as_packed(fn)
    kept: list[Any] = fn.packed
    return kept


def _as_packed(fn: Any) -> None:
    fn.args, fn.versions, fn.out = (None,) * len(fn.args), None, None
    cls = type(fn)
    made = cls.__dict__.get("packs")
    if made is None:
        cls.packs = made = type(cls.__name__, (PackedFn, cls), {})
    fn.__class__ = made


def used_arguments(f: Callable[..., Any]) -> set[str] | None:
    """Names of the parameters whose values a function uses; None if that cannot be told."""
    code = getattr(f, "__code__", None)
    if code is None or code.co_flags & 0x0C:  # no Python function, or with *args, **kwargs
        return None
    import dis

    params = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    used = params.intersection(code.co_cellvars)
    for i in dis.get_instructions(code):
        if i.opname.startswith("LOAD_FAST") or i.opname.startswith("STORE_FAST_LOAD"):
            names = i.argval if isinstance(i.argval, tuple) else (i.argval,)
            used.update(params.intersection(names))
    return used


class _Uses:
    """What a row keeps, by which operands want a gradient (bits of a mask): a flag for each operand, and for the output.

    As PyTorch, whose later writes are noticed: what one gradient alone needs is kept where that one is wanted; what several
    need, and the output, always is.
    """

    def __init__(self, row: Row, grads: Any) -> None:
        self.n = row.operands
        self.needed: list[list[bool]] = []
        for f in grads or ():
            none = f is None or hasattr(f, "refuses")
            used = set() if none else used_arguments(f)
            if used is None or f is None or none:
                self.needed.append([used is None] * (self.n + 1))
                continue
            names = f.__code__.co_varnames[1 : self.n + 2]
            if len(names) < self.n + 1:
                raise TypeError(f"gradient of {row.name}: expected (g, {self.n} operands, out)")
            self.needed.append([n in used for n in names])
        self.by_mask: dict[int, tuple[bool, ...]] = {}

    def __getitem__(self, mask: int) -> tuple[bool, ...]:
        r = self.by_mask.get(mask)
        if r is None:
            *operands, out = zip(*self.needed)
            r = self.by_mask[mask] = (
                *(sum(c) > 1 or any(c[k] and mask >> k & 1 for k in range(len(c))) for c in operands),
                any(out),
            )
        return r


def row_class(row: Row, grads: Any) -> Any:
    """The GradFn class of a row with these gradients, e.g. ExpBackward0; EluBackward1 of an in-place form with its own."""
    attrs: dict[str, Any] = {
        "row": row,
        "grads": grads,
        "uses": None,
        "differentiable": tuple(f is not None for f in grads),
    }
    name = row.backward_name
    if callable(name):
        attrs["name_of"] = staticmethod(name)
        name = name(())
    elif grads is row.grads_inplace:
        name = f"{name[:-1]}1"
    return type(name, (RowFn,), attrs)


def uses_of(cls: Any) -> Any:
    """What the gradients of a row's class need."""
    u = cls.uses
    if u is None:
        u = cls.uses = _Uses(cls.row, cls.grads)
    return u


def record_unary(cls: Any, t: Tensor, x: Tensor) -> None:
    """Puts `t`, computed from `x`, on the tape."""
    if t._tab_meta.dtype.category < 2:
        raise unsupported(t)
    fn = _new(cls)
    fn.edges = (x._tab_grad_fn or edge(x),)
    fn.metas = (x._tab_meta,)
    fn.outs = t._tab_meta
    fn.seq = n = next_seq()
    keep, keep_out = (cls.uses or uses_of(cls))[1]
    if keep:
        if x._tab_inference:
            raise inference_error()
        fn.args = (x,)
        fn.versions = (x._tab_storage.version,)
    else:
        fn.args = (None,)
    if keep_out:
        s = t._tab_storage
        fn.out = (s, t._tab_meta, s.version)
        if not keep:
            fn.versions = ()
    t._tab_requires_grad = True
    t._tab_grad_fn = fn
    if STATE.hooks:
        pack(t, fn)
    if n >= gap[0]:
        part(fn)


def record_binary(cls: Any, t: Tensor, a: Tensor, b: Any) -> None:
    """Puts `t`, computed from a tensor and a tensor or number, on the tape. One of them requires grad."""
    da, db = cls.differentiable
    fn = _new(cls)
    if a._tab_requires_grad and da:
        ea = a._tab_grad_fn or edge(a)
        mask = 1
    else:
        ea = None
        mask = 0
    k = type(b)
    if k is float or k is int:
        fn.edges = (ea, None)
        fn.metas = (a._tab_meta, None)
        bt = False
    else:
        bt = True
        if b._tab_requires_grad and db:
            mask += 2
            fn.edges = (ea, b._tab_grad_fn or edge(b))
        else:
            fn.edges = (ea, None)
        fn.metas = (a._tab_meta, b._tab_meta)
    if not mask:
        return
    if t._tab_meta.dtype.category < 2:
        raise unsupported(t)
    fn.outs = t._tab_meta
    fn.seq = n = next_seq()
    ka, kb, ko = (cls.uses or uses_of(cls))[mask]
    if (ka and a._tab_inference) or (kb and bt and b._tab_inference):
        raise inference_error()
    if bt:
        if ka or kb:
            if kb:
                fn.args = (a if ka else None, b)
                fn.versions = (a._tab_storage.version if ka else -1, b._tab_storage.version)
            else:
                fn.args = (a, None)
                fn.versions = (a._tab_storage.version, -1)
        else:
            fn.args = (None, None)
    elif ka:
        fn.args = (a, b)
        fn.versions = (a._tab_storage.version, -1)
    else:
        fn.args = (None, b)
        if kb:  # PyTorch makes a tensor of the number and saves that: a second backward is refused here too
            fn.versions = ()
    if ko:
        s = t._tab_storage
        fn.out = (s, t._tab_meta, s.version)
        if fn.versions is None:
            fn.versions = ()
    t._tab_requires_grad = True
    t._tab_grad_fn = fn
    if STATE.hooks:
        pack(t, fn)
    if n >= gap[0]:
        part(fn)


def record_binary_named(cls: Any, t: Tensor, a: Tensor, b: Any) -> None:
    """As `record_binary`, for a row whose grad_fn is named after its operands."""
    record_binary(cls, t, a, b)
    fn = t._tab_grad_fn
    if fn is not None:
        fn.__class__ = grad_class(cls.name_of((a, b)), type(fn))


def _version(x: Tensor) -> int:
    if x._tab_inference:
        raise inference_error()
    version: int = x._tab_storage.version
    return version


def make_node(cls: Any, t: Tensor, operands: Sequence[Any], options: dict[str, Any]) -> Any:
    """The GradFn of `t`, computed from `operands`; None where no operand that has a gradient requires one."""
    edges: list[Any] = []
    mask = 0
    for k, x in enumerate(operands):
        if isinstance(x, Tensor) and x._tab_requires_grad and cls.differentiable[k]:
            edges.append(x._tab_grad_fn or edge(x))
            mask |= 1 << k
        else:
            edges.append(None)
    if not mask:
        return None
    fn = _new(cls)
    fn.edges = tuple(edges)
    fn.metas = tuple([x._tab_meta if isinstance(x, Tensor) else None for x in operands])
    fn.outs = t._tab_meta
    fn.seq = next_seq()
    *keep, keep_out = (cls.uses or uses_of(cls))[mask]
    fn.args = tuple([x if k or not isinstance(x, Tensor) else None for x, k in zip(operands, keep)])
    versions = tuple([_version(x) if isinstance(x, Tensor) else -1 for x in fn.args])
    if keep_out:
        s = t._tab_storage
        fn.out = (s, t._tab_meta, s.version)
        fn.versions = versions
    elif any(v >= 0 for v in versions) or any(keep[:2]):  # of two operands a number too, as in record_binary
        fn.versions = versions
    if options:
        fn.options = options
    if cls.name_of is not None:
        fn.__class__ = grad_class(cls.name_of(operands), cls)
    return fn


def record_nary(cls: Any, t: Tensor, operands: Sequence[Any], options: dict[str, Any]) -> None:
    """Puts `t` on the tape if it has to be there."""
    fn = make_node(cls, t, operands, options)
    if fn is not None:
        if t._tab_meta.dtype.category < 2:
            raise unsupported(t)
        t._tab_requires_grad = True
        t._tab_grad_fn = fn
        if STATE.hooks:
            pack(t, fn)
        if fn.seq >= gap[0]:
            part(fn)
