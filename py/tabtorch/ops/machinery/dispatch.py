"""From a call of an elementwise operation to its node: the functions that are made of a `Row`.

What a combination of input views, types and options leads to (the Inst and the Meta of the result) is worked out once and
kept in a table of the row; after that, a call is one lookup, one node, one tensor and, if need be, one GradFn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE
from tabtorch.base import dtypes
from tabtorch.base.device import check_has
from tabtorch.base.errors import Refused
from tabtorch.core.storage import Storage
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import const, fit
from tabtorch.engine.graph import Inst, Map, emit, inst
from tabtorch.engine.symbols import Symbol, is_number
from tabtorch.engine.view import (
    Meta,
    broadcast_shapes,
    broadcast_strides,
    contiguous_meta,
    contiguous_strides,
    meta,
    ordered_strides,
)
from tabtorch.ops.machinery.arguments import as_operand, bind, class_name
from tabtorch.ops.machinery.operand_devices import device_of, together
from tabtorch.ops.machinery.out_types import CASTABLE
from tabtorch.ops.machinery.promotion import promoted, types_of
from tabtorch.ops.machinery.registry import NOTHING, ROWS, Row, overridden
from tabtorch.ops.machinery.row_tape import record_binary, record_binary_named, record_nary, record_unary, row_class

_new = object.__new__
#: a table that has grown to this is begun anew: programs that meet every size once must not grow without end
_LIMIT = 50_000

_tables: list[dict[Any, Any]] = []


def table() -> dict[Any, Any]:
    """A table that `clear_tables` knows."""
    t: dict[Any, Any] = {}
    _tables.append(t)
    return t


def clear_tables() -> None:
    """For when what was worked out no longer holds: the default dtype has changed."""
    for t in _tables:
        t.clear()


# ---- numbers


_HALVES = (dtypes.float16, dtypes.bfloat16)
#: integers that are computed with as int32
_NARROW = (dtypes.uint8, dtypes.int8, dtypes.int16)


def scalar_value(x: Any, compute: str, d: Any) -> Any:
    """A Python number as the kernel's parameter of type `compute`."""
    if compute in ("f32", "f64"):
        return x if d not in _HALVES else dtypes.rounded(x, d)
    if compute in ("c64", "c128"):
        return complex(x)
    if type(x) is Symbol:  # no number yet
        bits = 63 if compute == "i64" else 8 * d.itemsize - (d is not dtypes.uint8)
        if -(2**bits) <= x < 2**bits:
            return x
    if compute == "i64":
        x = int(x)
        if not -(2**63) <= x < 2**63:
            raise RuntimeError("value cannot be converted to type int64_t without overflow")
        return x
    bits = 8 * d.itemsize if d in _NARROW else 32
    low = 0 if d is dtypes.uint8 else -(2 ** (bits - 1))
    return (int(x) - low) % 2**bits + low


# ---- the operation of a pattern of arguments


def _map_op(row: Row, pattern: tuple[Any, ...], ops: dict[tuple[Any, ...], Map]) -> Map:
    """The Map of a row for one pattern: for each operand "t", "s" or a constant; then (name, "s" or a constant) of options.

    ("t", type): a tensor of other integers, which are brought to that type first.
    """
    op = ops.get(pattern)
    if op is None:
        expr = row.expr if all(p == "t" for p in pattern) else _arranged(row.expr, pattern)
        op = ops[pattern] = Map(row.name, expr, cost=row.cost)
    return op


def _arranged(expr: Callable[..., Any], pattern: tuple[Any, ...]) -> Callable[..., Any]:
    """`expr` as the engine calls it: tensors first, then scalars."""
    operands = [p for p in pattern if type(p) is not tuple or p[0] != "opt"]
    options = [p for p in pattern if type(p) is tuple and p[0] == "opt"]
    tensors = sum(p[0] == "t" for p in operands)

    def call(*values: Any) -> Any:
        t, s = iter(values[:tensors]), iter(values[tensors:])
        args: list[Any] = []
        for p in operands:
            if p == "t":
                args.append(next(t))
            elif p == "s":
                args.append(next(s))
            elif p[0] == "t":
                args.append(fit(next(t), p[1]))
            else:
                args.append(p[1] if p[1] is None else const(p[1], "bool"))
        given = {name: next(s) if kind == "s" else kind[1] for _, name, kind in options}
        return expr(*args, **given)

    return call


# ---- shapes and layout


def layout_of(metas: list[Meta], shape: tuple[int, ...], numbers: bool = False) -> tuple[int, ...] | None:
    """The order of dimensions, slowest first, in which PyTorch lays out the result; None for row-major.

    numbers: there are operands that are no tensors, which count as tensors of another shape.
    """
    nd = len(shape)
    if nd < 2 or (not numbers and all(m.contiguous and m.shape == shape for m in metas)):
        return None
    if 0 not in shape and all(m.contiguous and m.strides == contiguous_strides(m.shape) for m in metas):
        return None  # strides of no operand grow inwards
    strides = [broadcast_strides(m, shape) for m in metas]
    perm = list(range(nd - 1, -1, -1))

    def compare(a: int, b: int) -> int:
        for st in strides:
            x, y = st[a], st[b]
            if not x or not y:
                continue
            if x != y:
                return -1 if x < y else 1
            if shape[a] > shape[b]:
                return 1
        return 0

    for i in range(1, nd):
        at = i
        for j in range(i - 1, -1, -1):
            c = compare(perm[j], perm[at])
            if c > 0:
                perm[j], perm[at] = perm[at], perm[j]
                at = j
            elif c < 0:
                break
    perm.reverse()
    return None if perm == list(range(nd)) else tuple(perm)


def expanded(m: Meta, shape: tuple[int, ...], order: tuple[int, ...] | None = None) -> Meta:
    """`m` as an input of an operation over `shape`, its dimensions in `order`."""
    if order is None:
        if m.shape == shape:
            return m
        return m.view(shape, broadcast_strides(m, shape), m.offset)
    st = broadcast_strides(m, shape)
    return m.view(tuple([shape[d] for d in order]), tuple([st[d] for d in order]), m.offset)


def dense_alike(metas: list[Meta], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides that operands of one shape have in common, where they are dense; None: they have none, or are row-major.

    Those of dimensions of size 1 may differ where all are channels last.
    """
    first = metas[0]
    if any(m.shape != shape for m in metas) or all(m.contiguous for m in metas):
        return None
    if first.ndim == 4 and all(_lazy.layout.is_contiguous(m, _lazy.layout.channels_last) for m in metas):
        return _lazy.layout.format_strides(shape, _lazy.layout.channels_last)
    return first.strides if _lazy.inplace.is_dense(first) and all(m.strides == first.strides for m in metas) else None


def _own_strides(m: Meta) -> tuple[int, ...] | None:
    """The strides that `empty_like` takes over, those of dimensions of size 1 too; None: it does not."""
    return m.strides if _lazy.inplace.is_dense(m) else None


def _brought_to(d: Any, m: Meta) -> Meta:
    """The geometry of an operand of type `d`: one of another type counts as PyTorch lays out the copy that it makes of it."""
    if m.dtype is d or m.ndim < 2:
        return m
    return laid_out(m.shape, layout_of([m], m.shape), d, m.device, _own_strides(m))[1]


def laid_out(
    shape: tuple[int, ...], order: tuple[int, ...] | None, d: Any, device: Any, strides: Any = None
) -> tuple[Meta, Meta]:
    """What a node over `shape` in `order` gives, and that as the user sees it: with these strides, if some are asked for."""
    if order is not None and 0 in shape:
        if strides is None:
            n, some = 1, [0] * len(shape)
            for k in reversed(order):
                some[k] = n
                n *= shape[k]
            strides = tuple(some)
        return contiguous_meta(shape, d, device), meta(shape, strides, 0, d, device)
    if strides is not None:
        inner = shape if order is None else tuple([shape[k] for k in order])
        return contiguous_meta(inner, d, device), meta(shape, strides, 0, d, device)
    if order is None:
        m = contiguous_meta(shape, d, device)
        return m, m
    inner = tuple([shape[k] for k in order])
    return contiguous_meta(inner, d, device), meta(shape, ordered_strides(shape, order), 0, d, device)


def check_shape(m: Meta, shape: tuple[int, ...]) -> None:
    """RuntimeError, as PyTorch's, where a result of that shape does not fill what it is written to."""
    if m.shape != shape:
        raise RuntimeError(f"output with shape {list(m.shape)} doesn't match the broadcast shape {list(shape)}")


# ---- one call, worked out


class Family:
    """What has been worked out for one row: the tables, and its Maps."""

    __slots__ = ("any", "backward", "backward_inplace", "ops", "row", "scalar_first", "scalar_last", "tensors", "typed")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.ops: dict[tuple[Any, ...], Map] = {}
        self.typed = table()  # device and dtypes -> what `infer` tells by them
        self.tensors = table()  # one Meta, or a pair -> (Inst, Meta)
        self.scalar_last = table()  # (Meta, type) -> (Inst, Meta, convert)
        self.scalar_first = table()
        self.any = table()  # everything else
        self.backward = None if row.grads is None else row_class(row, row.grads)
        self.backward_inplace = self.backward if row.grads_inplace is None else row_class(row, row.grads_inplace)


_families: dict[str, Family] = {}


def family(row: Row) -> Family:
    f = _families.get(row.name)
    if f is None or f.row is not row:
        f = _families[row.name] = Family(row)
    return f


def infer(
    f: Family, operands: list[Any], options: dict[str, Any], into: Meta | None = None, order: Any = ()
) -> tuple[Inst, Meta, tuple[str, Any], list[Any]]:
    """Inst, Meta of the result, (compute, dtype) of its scalars, and the numbers among the arguments, in their order.

    With `into` the result takes that Meta's dtype, and its shape has to be the broadcast one; `order` () is automatic.
    """
    row = f.row
    metas = [x._tab_meta for x in operands if isinstance(x, Tensor)]
    device = device_of(metas)
    kinds = None
    if not options and into is None and row.check is None and len(metas) == len(operands):
        kinds = (device.number, *[(m.dtype, m.ndim > 0) for m in metas])  # all that types are told by
        known = f.typed.get(kinds)
        if known is not None:
            shape = metas[0].shape if len(metas) == 1 else broadcast_shapes(*[m.shape for m in metas])
            return _placed(row, metas, shape, device, order, *known)
    common = promoted(row, operands)
    if options and row.check_options is not None:
        row.check_options(common, options)
    shape = metas[0].shape if len(metas) == 1 else broadcast_shapes(*[m.shape for m in metas])
    if into is not None:
        check_shape(into, shape)
    try:
        computed, result = types_of(row, common)
    except NotImplementedError:  # that there is no kernel PyTorch finds when all else fits
        if into is not None:
            CASTABLE(common, into.dtype)
        raise
    compares = result is dtypes.bool_
    if into is not None:
        if computed.is_complex and result.category == 2:
            raise RuntimeError(f"In-place {row.name} is not supported for complex tensors.")
        (row.out_rule or CASTABLE)(result, into.dtype)
        result = into.dtype
    check_has(device, result)
    check_has(device, computed)
    pattern: list[Any] = []
    numbers: list[Any] = []
    as_constant = computed.compute == "bool"
    for x in operands:
        if isinstance(x, Tensor):
            other = computed in _NARROW and x._tab_meta.dtype.category == 1 and x._tab_meta.dtype is not computed
            pattern.append(("t", computed.name) if other else "t")
        elif x is None or as_constant:
            pattern.append(("const", x))
        else:
            pattern.append("s")
            numbers.append(x)
    for name, v in options.items():
        if isinstance(v, (int, float, complex)) and not isinstance(v, bool) and not as_constant:
            if name == "alpha":
                check_alpha(computed, v)
            pattern.append(("opt", name, "s"))
            numbers.append(v)
        else:
            pattern.append(("opt", name, ("const", v)))
    several = any(
        not isinstance(x, Tensor) and x is not None and str(k) not in row.apart for k, x in enumerate(operands)
    )
    op = _map_op(row, tuple(pattern), f.ops)
    # arithmetic of 16-bit floats takes a number as float32, a comparison brings it to their type first
    near = computed if compares or computed not in _HALVES else dtypes.float32
    if row.apart and near in _NARROW:  # its numbers are not brought to the type of the tensors
        near = dtypes.int32
    types = common, computed, result, (computed.compute, near), op
    if kinds is not None:
        f.typed[kinds] = types
    return _placed(row, metas, shape, device, order, *types, numbers, several)


def _placed(
    row: Row,
    metas: list[Meta],
    shape: tuple[int, ...],
    device: Any,
    order: Any,
    common: Any,
    computed: Any,
    result: Any,
    scalars: tuple[str, Any],
    op: Map,
    numbers: Sequence[Any] = (),
    several: bool = False,
) -> tuple[Inst, Meta, tuple[str, Any], list[Any]]:
    """What `infer` returns, once types are known. several: there are numbers that count as tensors of another shape."""
    strides = None
    plain = not (several or row.seen or row.empty_like)
    if order == () and plain and all(m.contiguous and m.shape == shape for m in metas):
        order = None
    elif order == ():
        first = 1 if row.rule == "where" else 0  # whose condition stays what it is
        kind = common if computed is dtypes.bool_ else computed
        seen = [m if m.dtype is kind or k < first else _brought_to(kind, m) for k, m in enumerate(metas)]
        if row.seen is not None:
            seen = row.seen(seen)
        order = None if row.row_major else layout_of(seen, shape, several)
        strides = None if several or row.row_major else dense_alike(seen, shape)
        if row.empty_like == "always" or (row.empty_like and common.is_complex):
            strides = _own_strides(metas[0])
    node_meta, out = laid_out(shape, order, result, device, strides)
    ins = tuple([expanded(m, shape, None if 0 in shape else order) for m in metas])
    i = inst(op, ins, node_meta, (computed.compute,) * len(numbers), None, computed.compute)
    return i, out, scalars, [*numbers]


def check_alpha(d: Any, alpha: Any) -> None:
    if d.category == 0:
        return
    if d.category == 1 and not isinstance(alpha, int):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if d.category == 2 and isinstance(alpha, complex):
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")


def convert_of(compute: str, d: Any) -> Any:
    """What turns a number of this combination into a kernel parameter; None: nothing has to."""
    return None if compute in ("f32", "f64") and d not in _HALVES else lambda x: scalar_value(x, compute, d)


def key_of(operands: list[Any], options: dict[str, Any]) -> tuple[Any, ...]:
    """What a combination is looked up by: numbers count by their type only."""
    key: list[Any] = []
    for x in operands:
        key.append(x._tab_meta if isinstance(x, Tensor) else (x, "const") if x is None or type(x) is bool else type(x))
    for name, v in options.items():
        key.append(name)
        key.append(type(v) if isinstance(v, (int, float, complex)) and not isinstance(v, bool) else ("const", v))
    return tuple(key)


def apply(f: Family, operands: list[Any], options: dict[str, Any]) -> Tensor:
    """The operation on operands that `as_operand` has seen; at least one is a tensor."""
    operands = together(operands)
    key = key_of(operands, options)
    entry = f.any.get(key)
    if entry is None:
        i, out, kind, _ = infer(f, operands, options)
        if len(f.any) > _LIMIT:
            f.any.clear()
        entry = f.any[key] = (i, out, kind)
    i, out, (compute, d) = entry
    look(f, operands, compute)
    t = Tensor._wrap(emit(i, nodes_of(operands), scalars_of(operands, options, compute, d)), out)
    if STATE.inference:
        t._tab_inference = True
    elif STATE.grad and f.backward is not None:
        record_nary(f.backward, t, operands, options)
    return t


def nodes_of(operands: list[Any]) -> tuple[Any, ...]:
    return tuple([x._tab_storage.node for x in operands if isinstance(x, Tensor)])


def scalars_of(operands: list[Any], options: dict[str, Any], compute: str, d: Any) -> tuple[Any, ...]:
    if compute == "bool":
        return ()
    values = [x for x in operands if x is not None and not isinstance(x, Tensor)]
    values += [v for v in options.values() if isinstance(v, (int, float, complex)) and not isinstance(v, bool)]
    return tuple([scalar_value(v, compute, d) for v in values])


def looks(f: Family, compute: str) -> bool:
    """Whether each call that computes in this type is looked at."""
    return f.row.each is not None and compute in ("i32", "i64")


def look(f: Family, operands: list[Any], compute: str) -> None:
    """Looks at the operands of a call: see `Row.each`."""
    if looks(f, compute):
        f.row.each(operands)  # type: ignore[misc]


# ---- calls


def call(row: Row, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The general way: any arguments."""
    operands, options, out = bind(row, name, args, kwargs)
    f = family(row)
    if out is None:
        return apply(f, operands, options)
    return _lazy.inplace.row_out(f, name, operands, options, out)


def _call_or_override(fn: Any, row: Row, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`call`; should it fail, what an argument that overrides `fn`, the public function, makes of it."""
    try:
        return call(row, name, args, dict(kwargs))
    except TypeError:
        r = overridden(fn, args, kwargs)
        if r is NOTHING:
            raise
        return r


# ---- the functions


def make_function(row: Row, name: str) -> Callable[..., Any]:
    """`torch.NAME`, which is `Tensor.NAME` too."""
    f = family(row)
    if row.operands == 1 and len(row.names) == 1:
        fn = _unary(f, name)
    elif row.operands == 2 and not row.defaults.keys() & set(row.names[:2]):
        fn = _binary(f, name)
    else:

        def fn(*args: Any, **kwargs: Any) -> Any:
            return _call_or_override(fn, row, name, args, kwargs)

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"{name}({row.args})\n\n{row.doc}"
    fn.__module__ = "torch"
    return fn


def afresh(f: Callable[..., Any], name: str, *args: Any) -> Any:
    """`f(*args)` after a lookup that found nothing, of which its errors do not tell; `name` is what the operation is called."""
    try:
        return f(*args)
    except Refused as e:
        return e.dispatch(name, *(args if type(args[0]) is tuple else (args, {})))
    except Exception as e:
        e.__context__ = None
        raise


def _unary(f: Family, name: str) -> Callable[..., Any]:
    """The function of a row with one operand and no option: a lookup, a node, a tensor; `first` works out what is looked up."""
    row, entries, backward = f.row, f.tensors, f.backward

    def unary(*args: Any, **kwargs: Any) -> Any:
        try:
            (x,) = args
            i, m = entries[x._tab_meta]
        except (KeyError, AttributeError, ValueError):
            return afresh(first, name, args, kwargs)
        if kwargs:
            return first(args, kwargs)
        t: Tensor = _new(Tensor)
        t._tab_storage = Storage(emit(i, (x._tab_storage.node,)))
        t._tab_meta = m
        if STATE.grad:
            if x._tab_requires_grad and backward is not None:
                record_unary(backward, t, x)
        elif STATE.inference:
            t._tab_inference = True
        return t

    def first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            operands, options, out = bind(row, name, args, kwargs)
        except TypeError:
            r = overridden(unary, args, kwargs)
            if r is NOTHING:
                raise
            return r
        if out is not None or options:
            return call(row, name, args, kwargs if out is None else {**kwargs, "out": out})
        i, m, _, _ = infer(f, operands, options)
        if len(entries) > _LIMIT:
            entries.clear()
        entries[operands[0]._tab_meta] = (i, m)
        return unary(operands[0])

    return unary


def binary_core(f: Family, method: str = "") -> Callable[[Any, Any], Any]:
    """`(a, b)` with a tensor first, fast; NotImplemented for what may be no operand.

    method: the operator of Python that it is; its first operand must be a tensor.
    """
    pairs, last = f.tensors, f.scalar_last
    backward = f.backward
    record = record_binary_named if callable(f.row.backward_name) else record_binary
    numbered = f.row.numbers == "*" or "1" in f.row.numbers

    def binary(a: Any, b: Any) -> Any:
        k = type(b)
        if k is float or k is int:
            try:
                i, m, convert = last[a._tab_meta, k]
            except (KeyError, AttributeError):
                return afresh(learn, f.row.name, a, b)
            n = emit(i, (a._tab_storage.node,), (b if convert is None else convert(b),))
            rg = a._tab_requires_grad
        else:
            try:
                i, m = pairs[a._tab_meta, b._tab_meta]
            except (KeyError, AttributeError):
                return afresh(learn, f.row.name, a, b)
            n = emit(i, (a._tab_storage.node, b._tab_storage.node))
            rg = a._tab_requires_grad or b._tab_requires_grad
        t: Tensor = _new(Tensor)
        t._tab_storage = Storage(n)
        t._tab_meta = m
        if STATE.grad:
            if rg and backward is not None:
                record(backward, t, a, b)
        elif STATE.inference:
            t._tab_inference = True
        return t

    def learn(a: Any, b: Any) -> Any:
        x, y = as_operand(a), as_operand(b)
        if method and not isinstance(a, Tensor):
            raise TypeError(
                f"descriptor '{method}' for 'torch._C.TensorBase' objects doesn't apply to a '{class_name(a)}' object"
            )
        if x is None or y is None or not (isinstance(y, Tensor) or numbered):
            if method == "__eq__" and type(b).__name__ == "ndarray" and isinstance(a, Tensor):
                return binary(
                    a, _lazy.from_host.tensor(b, device=a.device)
                )  # the one operator that takes arrays, as in PyTorch
            r = overridden(binary, (a, b), {}) if method and y is None else NOTHING
            return NotImplemented if r is NOTHING else r
        operands = [x, y]
        if not isinstance(x, Tensor) or type(y) in (bool, complex) or is_number(y):
            return apply(f, operands, {})
        if isinstance(y, Tensor):
            if x._tab_meta.device.number != y._tab_meta.device.number:
                return apply(f, operands, {})
            i, m, (compute, _), _ = infer(f, operands, {})
            if looks(f, compute):
                return apply(f, operands, {})
            if len(pairs) > _LIMIT:
                pairs.clear()
            pairs[x._tab_meta, y._tab_meta] = (i, m)
        else:
            i, m, (compute, d), numbers = infer(f, operands, {})
            if not numbers or looks(f, compute):  # a constant of the kernel: keyed on its value
                return apply(f, operands, {})
            if len(last) > _LIMIT:
                last.clear()
            last[x._tab_meta, type(y)] = (i, m, convert_of(compute, d))
        return binary(x, y)

    return binary


_cores: dict[str, Callable[[Any, Any], Any]] = {}


def core_of(f: Family) -> Callable[[Any, Any], Any]:
    c = _cores.get(f.row.name)
    if c is None:
        c = _cores[f.row.name] = binary_core(f)
    return c


def _binary(f: Family, name: str) -> Callable[..., Any]:
    row = f.row
    core = core_of(f)

    def binary(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and len(args) == 2 and isinstance(args[0], Tensor):
            r = core(*args)
            if r is not NotImplemented:
                return r
        return _call_or_override(binary, row, name, args, kwargs)

    return binary


def make_inplace(row: Row, name: str) -> Callable[..., Any]:
    """`Tensor.NAME_`."""
    fn = _lazy.inplace.row_inplace(row, name)
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"In-place version of {name[:-1]}({row.args})."
    fn.__module__ = "torch"
    return fn


def operator(row_name: str, method: str = "") -> Callable[[Any, Any], Any]:
    """A binary operator of Python's syntax: NotImplemented for an operand that is none."""
    f = family(ROWS[row_name])
    return binary_core(f, method) if method else core_of(f)


__all__ = [
    "apply",
    "call",
    "clear_tables",
    "family",
    "infer",
    "look",
    "looks",
    "make_function",
    "make_inplace",
    "operator",
    "table",
]
