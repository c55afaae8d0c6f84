"""Writes: a storage gets a new node. In-place forms of rows, `out=`, and what other operations write with.

Several threads may write to one tensor, to rows of their own say. So a new value is made of the present one, and put in its
place if it still is the present one, else made again: between that question and the change no function is called, so no other
thread comes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import record, short_class, unsupported
from tabtorch.autograd.views import before_write, check_inplace, rebase, refresh
from tabtorch.base.errors import Refused
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import Inst, Node, Write, emit, inst
from tabtorch.engine.view import Meta, contiguous_meta
from tabtorch.ops.machinery.arguments import as_operand, bind, must_be_tensor
from tabtorch.ops.machinery.batching import batches
from tabtorch.ops.machinery.dispatch import (
    Family,
    apply,
    check_shape,
    convert_of,
    expanded,
    family,
    infer,
    key_of,
    look,
    looks,
    nodes_of,
    scalars_of,
    table,
)
from tabtorch.ops.machinery.operand_devices import on_device_of, together
from tabtorch.ops.machinery.operation import no_grad_with_out, warn_resized
from tabtorch.ops.machinery.out_types import CASTABLE, Rule, of_row
from tabtorch.ops.machinery.promotion import promoted
from tabtorch.ops.machinery.registry import Row
from tabtorch.ops.machinery.row_tape import make_node, pack, uses_of

_WRITE = Write("write")


def covering_order(m: Meta, numel: int) -> Any:
    """The order of dimensions (slowest first) in which `m` walks a whole storage of `numel` elements one by one.

    None: row-major. (): it does not, so only part of the storage is written, or what is written is not what is to be stored.
    """
    if m.offset or m.numel != numel or m.mark:
        return ()
    if m.contiguous:
        return None
    dims = sorted(range(m.ndim), key=lambda d: (-m.strides[d], d))
    expected = 1
    for d in reversed(dims):
        if m.shape[d] != 1:
            if m.strides[d] != expected:
                return ()
            expected *= m.shape[d]
    return tuple(dims)


def whole_storage(t: Tensor) -> bool:
    """Whether `t`, row by row, is all of its storage."""
    m = t._tab_meta
    out = t._tab_storage.node.inst.out
    return m.whole and m.numel == out.numel and m.dtype is out.dtype


def check_batched(s: Any, node: Node, arithmetic: bool = False) -> None:
    """RuntimeError for a write inside `vmap` of what differs between examples to what does not. Only where there are batches."""
    _lazy.batch.check_write(s, node, arithmetic)


def set_node(t: Tensor, node: Node) -> None:
    """Gives all elements of `t` the values of `node`, contiguous in the shape and dtype of `t`. No check, no record."""
    s = t._tab_storage
    m = t._tab_meta
    if batches[0]:
        check_batched(s, node)
    if whole_storage(t):
        s.node = node
    elif m.numel:
        while True:
            before = s.node
            after = _region(before, m, node)
            if s.node is before:
                s.node = after
                break
            s.refuse()
    s.written()


def _region(base: Node, m: Meta, value: Node) -> Node:
    have = base.inst.out
    if have.dtype is m.dtype:
        flat = contiguous_meta((have.numel,), have.dtype, have.device)
    else:  # a view that shows another dtype: the whole storage is seen so
        flat = contiguous_meta((have.numel * have.dtype.itemsize // m.dtype.itemsize,), m.dtype, m.device)
    written = contiguous_meta(m.shape, m.dtype, m.device).marked(m.mark)  # a mark undoes itself
    return emit(inst(_WRITE, (flat, written), flat, (), m.marked(0)), (base, value))


def set_tensor(t: Tensor, value: Tensor) -> None:
    """Gives `t` the elements of `value`, broadcast and converted. Devices must be the same. No check, no record."""
    m = t._tab_meta
    v = value._tab_meta
    if batches[0]:
        check_batched(t._tab_storage, value._tab_storage.node)
    if v.shape == m.shape and v.dtype is m.dtype and whole_storage(t) and whole_storage(value) and not STATE.levels:
        t._tab_storage.node = value._tab_storage.node  # values never change: sharing one is copying it
        t._tab_storage.written()
        return
    set_node(t, _lazy.convert.converted(value, m.shape, m.dtype)._tab_storage.node)


def is_dense(m: Meta) -> bool:
    """Whether the elements fill a piece of memory without gaps, each once."""
    if m.contiguous:
        return True
    if m.ndim == 1:
        return m.shape[0] < 2 or m.strides[0] == 1
    expected = 1
    for st, n in sorted((st, n) for n, st in zip(m.shape, m.strides) if n > 1):
        if st != expected:
            return False
        expected *= n
    return True


def repeated(m: Meta) -> list[int]:
    """The dimensions along which a view shows the same elements again and again."""
    return [d for d, (n, st) in enumerate(zip(m.shape, m.strides)) if st == 0 and n > 1]


def check_overlap(t: Tensor, inputs: Any, whole: bool = False, repeats: bool = False, marked: bool = False) -> None:
    """RuntimeError, as PyTorch's, for a write to `t` that would meet elements twice, or change an input while it is read.

    whole: an input that is `t`, or shows all of it, will not do either, for the places that are read are not those written.
    repeats: `t` may show an element twice, where each then gets the same value.
    marked: a mark changes nothing. In PyTorch most operations are given a copy of a tensor that has one.
    """
    m = t._tab_meta
    dense = m.contiguous or is_dense(m)
    if not dense and not (repeats and not m.mark) and repeated(m):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )
    if not dense or not m.numel or (m.mark and not marked):
        if whole and not m.mark and any(x is t for x in inputs):
            raise _partial()
        return
    for x in inputs:
        if not isinstance(x, Tensor):
            continue
        if x is t:
            if whole:
                raise _partial()
            continue
        if x._tab_storage.root is not t._tab_storage.root:
            continue
        v = x._tab_meta
        if not v.numel or not (v.contiguous or is_dense(v)) or (v.mark and not marked):
            continue
        a, b = m.offset * m.dtype.itemsize, v.offset * v.dtype.itemsize
        end, last = a + m.numel * m.dtype.itemsize, b + v.numel * v.dtype.itemsize
        if (whole or m.strides != v.strides) if a == b and end == last else a < last and b < end:
            raise _partial()


def _partial() -> RuntimeError:
    return RuntimeError(
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
        "memory location. Please clone() the tensor before performing the operation."
    )


def write(t: Tensor, value: Tensor, name: str, inputs: Any = (), backward: Any = None, saved: Any = ()) -> Tensor:
    """An in-place operation: `t` gets the elements of `value` (its shape and dtype), on the tape as `name`.

    inputs: `t` first, then the others; backward, saved: as for `tape.record` (`t` among `saved` is `t` as it was before).
    """
    check_inplace(t, inputs)
    fn = None
    if STATE.grad and backward is not None and any(x is not None and x._tab_requires_grad for x in inputs):
        old = before_write(t)
        inputs = [old if x is t else x for x in inputs]
        saved = [old if x is t else x for x in saved]
        fn = record(name, inputs, Tensor._view_of(t, t._tab_meta), backward, saved)
    set_tensor(t, value)
    if fn is not None:
        rebase(t, fn)
    return t


# ---- rows


def _inst_for(f: Family, operands: list[Any], options: dict[str, Any], t: Tensor) -> tuple[Inst, str, Any, bool]:
    """The Inst whose value goes to `t`, (compute, dtype) of its scalars, and whether that is all of the storage.

    RuntimeError for operands of types, memory or shapes with which it cannot be: in that order, as PyTorch.
    """
    m = t._tab_meta
    out = t._tab_storage.node.inst.out
    order = covering_order(m, out.numel) if out.dtype is m.dtype else ()
    covers = order != ()
    key = ("to", m, covers, *key_of(operands, options))
    entry = f.any.get(key)
    if entry is None:
        with suppress(NotImplementedError):  # which `infer` raises, in its turn
            promoted(f.row, operands)
    check_overlap(t, operands[1:])
    if entry is None:
        i, _, (compute, d), _ = infer(f, operands, options, into=m, order=order if covers else None)
        entry = f.any[key] = (i, compute, d, covers)
    return entry


#: what they write has gradients that are zero, so PyTorch records them; as new tensors they are of bools
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _compared(name: str, t: Tensor, x: Tensor, y: Any) -> Any:
    """The GradFn of a comparison that was written to `t`."""
    tensor = y if isinstance(y, Tensor) else None
    zero = lambda g: g.new_zeros(g.shape)  # noqa: E731
    return record(
        f"{name.capitalize()}Backward{int(tensor is not None)}",
        (x, tensor),
        Tensor._view_of(t, t._tab_meta),
        (zero, zero),
    )


def _keeps_old(f: Family, operands: list[Any]) -> bool:
    """Whether a row that writes to its first operand, which requires grad, keeps what that was."""
    cls = f.backward_inplace
    if cls is None or not operands[0]._tab_requires_grad:
        return False
    mask = sum(
        1 << k
        for k, x in enumerate(operands)
        if isinstance(x, Tensor) and x._tab_requires_grad and cls.differentiable[k]
    )
    return bool(mask and uses_of(cls)[mask][0])


def row_inplace(row: Row, name: str) -> Callable[..., Any]:
    """The in-place function of a row."""
    f = family(row)

    differentiable = not row.name.startswith("logical_")
    recorded = f.backward_inplace is not None or row.name in _COMPARISONS
    # (Meta, the other operand's Meta or type: None if there is no other) -> (Inst, convert)
    fast = table() if row.operands < 3 else None
    others = row.operands - 1  # besides the one that is written

    def inplace(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if fast is not None and not kwargs and len(args) == others:
            b: Any = args[0] if others else None
            k = type(b)
            number = k is float or k is int
            try:
                entry = fast.get((self._tab_meta, k if number else getattr(b, "_tab_meta", None)))
            except Refused as e:  # a tensor that has no dense state
                return e.dispatch(name, (self, *args), {})
            if (
                entry is not None
                and not (STATE.grad and (self._tab_requires_grad or (others and not number and b._tab_requires_grad)))
                and not self._tab_inference
            ):
                i, convert = entry
                s = self._tab_storage
                node = s.node
                if node.inst.out is i.out and (number or not others or b._tab_storage is not s) and not batches[0]:
                    while True:
                        if not others:
                            new = emit(i, (node,))
                        elif number:
                            new = emit(i, (node,), (b if convert is None else convert(b),))
                        else:
                            new = emit(i, (node, b._tab_storage.node))
                        if s.node is node:
                            s.node = new
                            break
                        s.refuse()
                        node = s.node
                    s.version += 1
                    if s.views is not None:
                        s.tell()
                    return self
        if len(args) == 1 and not kwargs and row.operands == 2:
            other = as_operand(args[0])
            if other is None or not (isinstance(other, Tensor) or row.numbers == "*" or "1" in row.numbers):
                raise must_be_tensor(name, row.names[1], 0, args[0])
            operands: list[Any] = [self, other]
            options: dict[str, Any] = {}
        else:
            operands, options, _ = bind(row, name, (self, *args), kwargs)
        if differentiable or self._tab_inference:
            check_inplace(self, operands[1:])
        operands = [on_device_of(self, x, scalars=True) for x in operands]
        recording = STATE.grad and recorded and any(isinstance(x, Tensor) and x._tab_requires_grad for x in operands)
        if recording and self._tab_meta.dtype.category < 2 and _keeps_old(f, operands):
            raise unsupported(self)  # PyTorch keeps a clone, which it cannot record
        if recording:
            for x in operands:
                if isinstance(x, Tensor) and x._tab_stale:
                    refresh(x)
        try:
            i, compute, d, covers = _inst_for(f, operands, options, self)
        except Refused as e:
            return e.dispatch(name, (self, *args), kwargs)
        look(f, operands, compute)
        s = self._tab_storage
        fn = None
        base = s.node
        node = emit(i, nodes_of(operands), scalars_of(operands, options, compute, d))
        if recording:  # what it saves of the others has the version from before the write
            inputs = [before_write(self), *operands[1:]]
            fn = (
                make_node(f.backward_inplace, self, inputs, options)
                if f.backward_inplace
                else _compared(row.name, self, *inputs)
            )
        if batches[0]:
            check_batched(s, node, True)
        if recording and covers:
            s.node = node
            s.written()
        elif recording or (not covers and whole_storage(self)):
            set_node(self, node)
        else:
            while True:
                new = node if covers else _region(base, self._tab_meta, node) if self._tab_meta.numel else base
                if s.node is base:
                    s.node = new
                    break
                s.refuse()
                base = s.node
                node = emit(i, nodes_of(operands), scalars_of(operands, options, compute, d))
            s.written()
        if fast is not None and covers and len(args) == others and not kwargs and not looks(f, compute):
            other = args[0] if others else None
            if other is None:
                if not i.scalars:
                    fast[self._tab_meta, None] = (i, None)
            elif isinstance(other, Tensor):
                if other._tab_meta.device.number == self._tab_meta.device.number:
                    fast[self._tab_meta, other._tab_meta] = (i, None)
            elif type(other) in (int, float) and i.scalars:
                fast[self._tab_meta, type(other)] = (i, convert_of(compute, d))
        if fn is not None:
            if f.backward_inplace and fn.out is not None:
                fn.out = (s, self._tab_meta, s.version)
            rebase(self, fn)
            if STATE.hooks and f.backward_inplace:
                pack(self, fn)
        return self

    return inplace


def row_out(f: Family, name: str, operands: list[Any], options: dict[str, Any], out: Any) -> Tensor:
    """`out=`: the result is written to `out`, which is returned; an empty one is resized."""
    if f.backward is not None:
        if name.startswith("_") or name == "square":  # a form of another operation
            name = short_class(f.backward).lower()
        check_out(name, out, [x for x in operands if isinstance(x, Tensor)])
    else:
        check_out(name, out, [], False)
    check_overlap(out, operands)
    operands = together(operands)
    before = STATE.grad
    STATE.grad = False
    try:
        value = apply(f, operands, options)
    finally:
        STATE.grad = before
    if value._tab_meta.shape != out._tab_meta.shape and any(
        x is out for x in operands
    ):  # it is read too: no other size will do
        check_shape(out._tab_meta, value._tab_meta.shape)
    return write_out(out, value, of_row(f.row, operands))


def check_out(name: str, out: Any, inputs: list[Tensor], differentiable: bool = True) -> None:
    """Raises PyTorch's error for an `out` argument that is no tensor, or where gradients would be lost."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if differentiable:
        no_grad_with_out(name, *inputs, out)
    if out._tab_inference and not STATE.inference:
        check_inplace(out)


def write_out(out: Tensor, value: Tensor, rule: Rule = CASTABLE) -> Tensor:
    """Writes a result to the `out` argument: of a type that `rule` takes, same device, resized if need be. Errors as PyTorch's."""
    check_overlap(out, ())
    value = on_device_of(out, value)
    v, m = value._tab_meta, out._tab_meta
    rule(v.dtype, m.dtype)
    if v.shape != m.shape:
        warn_resized(m, v)
        _lazy.resizing.resize(out, v.shape)
        out._tab_meta = m.view(v.shape, v.strides, m.offset)
    set_tensor(out, value)
    return out


__all__ = [
    "as_operand",
    "check_out",
    "expanded",
    "set_node",
    "set_tensor",
    "whole_storage",
    "write",
    "write_out",
]
