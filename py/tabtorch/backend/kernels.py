"""PyTorch's operations on the device: one kernel an overload, made of its schema when it is first called.

A kernel unwraps the tensors among its arguments, calls our function of that ATen name (`ops.aten`), and wraps what it gives.
What has none is computed by PyTorch's own formula over others: the C++ composite, else that of `torch._decomp`. What has
neither raises NotImplementedError with the ATen name. Nothing is computed on the CPU unless it says so in special_kernels.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tabtorch import _lazy
from tabtorch.backend import lists
from tabtorch.backend.out_forms import check_overlap, check_shape, fits_not, settle, write_out
from tabtorch.backend.tensors import (
    NAME,
    OURS,
    check_index,
    place,
    unwrap,
    unwrap_marked,
    unwrap_operand,
    wrap,
    wrap_parts,
)
from tabtorch.base import dtypes
from tabtorch.core import layout
from tabtorch.core.tensor import Tensor
from tabtorch.ops import aten
from tabtorch.ops.machinery.inplace import is_dense

KEY = "PrivateUse1"
Kernel = Callable[..., Any]
#: "name" or "name.overload" -> a kernel that takes PyTorch's tensors
SPECIAL: dict[str, Kernel] = {}

_default_dtype = torch.get_default_dtype
_seen_dtype = torch.float32


def _follow_default_dtype(now: torch.dtype) -> None:
    """Our default type is PyTorch's, wherever it has been set since."""
    global _seen_dtype
    dtypes.set_default_dtype(OURS[now])
    _lazy.dispatch.clear_tables()
    _seen_dtype = now


def special(*names: str) -> Callable[[Kernel], Kernel]:
    """The function is the kernel of these operations, with PyTorch's tensors as arguments."""

    def keep(f: Kernel) -> Kernel:
        for name in names:
            SPECIAL[name] = f
        return f

    return keep


# ---- arguments


def _tensors(one: Kernel) -> Kernel:
    def convert(values: Any) -> Any:
        return [None if v is None else one(v) for v in values]

    return convert


def _optional(one: Kernel) -> Kernel:
    return lambda v: None if v is None else one(v)


def _dtype(v: Any) -> Any:
    if v is None:
        return None
    found = OURS.get(v)
    if found is None:
        raise TypeError(f"{v} is not supported on device '{NAME}'")
    return found


def _number(v: Any) -> Any:
    """A `Scalar`: PyTorch gives a number, or what a script had in the place of one."""
    return v.item() if isinstance(v, torch.Tensor) else v


def _memory_format(v: Any) -> Any:
    return None if v is None else getattr(layout, str(v).removeprefix("torch."))


def _place(v: Any) -> Any:
    if v is not None:
        check_index(v.index)
    return place()


#: arguments that are not handed on: what they say is settled before
_DROPPED = {"layout", "pin_memory", "non_blocking"}


def _converter(argument: Any, tensor: Kernel) -> Kernel | None:
    kind = str(argument.real_type)
    if "Tensor" in kind:
        if "List[" in kind:
            return _optional(_tensors(tensor))
        return tensor if kind == "Tensor" else _optional(tensor)
    if "ScalarType" in kind:
        return _dtype
    if "Device" in kind:
        return _place
    if "MemoryFormat" in kind:
        return _memory_format
    if kind in ("number", "Scalar", "Optional[number]"):
        return _number
    return None


def back(r: Any) -> Any:
    """Our result -> PyTorch's."""
    if type(r) is Tensor:
        return wrap(r)
    if isinstance(r, Tensor):
        return wrap(r.detach())
    if isinstance(r, tuple) and len(r) > 1 and all(type(v) is Tensor for v in r):
        return tuple(wrap_parts(r, True))
    if isinstance(r, (list, tuple)):
        return tuple([back(v) for v in r]) if isinstance(r, tuple) else [back(v) for v in r]
    return r


def _with_empty(r: Any) -> Any:
    """A result that is not there is an empty tensor where it is no gradient: statistics of a batch norm that made none."""
    if isinstance(r, tuple) and None in [v if v is None else 0 for v in r]:
        dtype = next((v.dtype for v in r if v is not None), torch.float32)
        return tuple([torch.empty(0, dtype=dtype, device=NAME) if v is None else v for v in r])
    return r


# ---- one kernel


class Signature:
    """What a schema says of a kernel.

    written: arguments that are written to, by position among all. outs: names of those that are `out=`.
    """

    def __init__(self, op: str) -> None:
        name, _, overload = op.partition(".")
        self.name, self.overload = name, overload
        self.schema = torch._C._get_schema("aten::" + name, overload)
        arguments = self.schema.arguments
        self.arguments = arguments
        self.written = [i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
        self.outs = [arguments[i].name for i in self.written if arguments[i].kwarg_only and arguments[i].is_out]
        tags = set(getattr(getattr(torch.ops.aten, name), overload or "default").tags)
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        full = "aten::" + op
        if has(full, "Conjugate") or has(full, "Negative"):
            self.tensor: Kernel = unwrap_marked
        elif torch.Tag.pointwise in tags or op in _NUMBERS_BESIDE or any(a.name == "other" for a in arguments):
            self.tensor = unwrap_operand
        else:
            self.tensor = unwrap
        self.converters = [_converter(a, self.tensor) for a in arguments]
        self.by_name = {a.name: c for a, c in zip(arguments, self.converters)}

    @property
    def overload_object(self) -> Any:
        """`torch.ops.aten.NAME.OVERLOAD`."""
        return getattr(getattr(torch.ops.aten, self.name), self.overload or "default")


#: operations that are no maps, and let a number on the CPU stand beside tensors of the device
_NUMBERS_BESIDE = {
    "fill_.Tensor",
    "masked_fill.Tensor",
    "masked_fill_.Tensor",
    "index_fill.int_Tensor",
    "index_fill_.int_Tensor",
    "where.self",
    "where.ScalarOther",
    "where.ScalarSelf",
}


def missing(op: str) -> Exception:
    """The error for an operation that is not there."""
    return NotImplementedError(
        f"The operator 'aten::{op}' is not currently implemented for the {NAME.upper()} device: tabtorch has no kernel for it. "
        "Computing it on the CPU is left to the script: move its arguments there and its result back"
    )


def make(op: str) -> Kernel:
    """The kernel of `name.overload` ("name" for the default overload)."""
    found = SPECIAL.get(op)
    if found is not None:
        return found
    name, _, overload = op.partition(".")
    f = aten.lookup("aten::" + name, overload or "default")
    s = Signature(op)
    if f is None:
        return _composite(s, op)
    if s.outs:
        return _out_kernel(s, f)
    returned = all(r.alias_info is not None for r in s.schema.returns)  # what is written to, and nothing else
    kernel = _in_place(s, f) if s.written and returned else _functional(s, f)
    if name.startswith("_foreach_") and name[9:].removesuffix("_") in lists.MAPS:
        return lists.kernel(name[9:], f, kernel)
    return kernel


def _composite(s: Signature, op: str) -> Kernel:
    """PyTorch's own formula for what we have no function of."""
    full = "aten::" + op
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    overload = s.overload_object
    if has(full, "CompositeExplicitAutograd"):
        key = torch._C.DispatchKey.CompositeExplicitAutograd
        return lambda *args, **kw: overload._op_dk(key, *args, **kw)
    formula = torch._decomp.decomposition_table.get(overload)
    if formula is not None:
        return formula
    if has(full, "CompositeExplicitAutogradNonFunctional"):
        key = torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional
        return lambda *args, **kw: overload._op_dk(key, *args, **kw)

    def refuse(*args: Any, **kw: Any) -> Any:
        raise missing(op)

    return refuse


def _general(s: Signature, f: Kernel) -> Kernel:
    """(PyTorch's arguments) -> what `f` gives for ours. What is written to is the same of ours wherever it is an argument, too."""
    by_name = s.by_name
    positional: dict[int, Kernel] = {}

    def call(args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
        count = len(args)
        one = positional.get(count)
        if one is None:
            one = positional[count] = _positional(s, f, count)
        if not kw:
            return one(*args)
        named = {}
        for n, v in kw.items():
            if n in _DROPPED:
                continue
            c = by_name[n]
            if c is not None:
                v = c(v)
            if v is not None:
                named[n] = v
        return one(*args, **named)

    return call


def _positional(s: Signature, f: Kernel, count: int) -> Kernel:
    """`f` for so many of PyTorch's arguments, and ours by name: written out, as each call would else go through lists."""
    space: dict[str, Any] = {"f": f}
    given = []
    in_place = s.written[:1] == [0]
    for k, (a, c) in enumerate(zip(s.arguments[:count], s.converters)):
        if a.name in _DROPPED:
            continue
        space[f"c{k}"] = c
        text = f"a{k}" if c is None else f"c{k}(a{k})"
        if in_place and c is not None:
            text = f"(written := {text})" if k == 0 else f"(written if a{k} is a0 else {text})"
        given.append(text)
    taken = "".join(f"a{k}, " for k in range(count))
    exec(f"def call({taken}**named): return f({', '.join([*given, '**named'])})", space)
    made: Kernel = space["call"]
    return made


def _functional(s: Signature, f: Kernel) -> Kernel:
    call = _general(s, f)
    tensor = s.tensor
    required = [str(a.type) for a in s.arguments if not a.kwarg_only and not a.has_default_value()]
    single = len(s.schema.returns) == 1 and str(s.schema.returns[0].type) == "Tensor"
    forward = "backward" not in s.name

    def kernel(*args: Any, **kw: Any) -> Any:
        if _default_dtype() is not _seen_dtype:
            _follow_default_dtype(_default_dtype())
        r = call(args, kw)
        if single and type(r) is Tensor:
            return wrap(r)
        return _with_empty(back(r)) if forward else back(r)

    if required == ["Tensor"]:

        def unary(x: Any, /, *args: Any, **kw: Any) -> Any:
            if args or kw or _default_dtype() is not _seen_dtype:
                return kernel(x, *args, **kw)
            r = f(tensor(x))
            return wrap(r) if type(r) is Tensor else back(r)

        return unary
    if required == ["Tensor", "Tensor"]:

        def binary(x: Any, y: Any, /, *args: Any, **kw: Any) -> Any:
            if args or kw or _default_dtype() is not _seen_dtype:
                return kernel(x, y, *args, **kw)
            r = f(tensor(x), tensor(y))
            return wrap(r) if type(r) is Tensor else back(r)

        return binary
    return kernel


def _in_place(s: Signature, f: Kernel) -> Kernel:
    call = _general(s, f)
    written = s.written
    names = [a.name for a in s.arguments]
    returns = len(s.schema.returns)
    listed = [i for i in written if "List[" in str(s.arguments[i].real_type)]

    def kernel(*args: Any, **kw: Any) -> Any:
        if _default_dtype() is not _seen_dtype:
            _follow_default_dtype(_default_dtype())
        call(args, kw)
        for i in listed:
            lists.written(args[i] if i < len(args) else kw[names[i]])
        if not returns:
            return None
        outs = tuple(args[i] if i < len(args) else kw[names[i]] for i in written)
        return outs[0] if returns == 1 else outs[:returns]

    if written == [0] and returns == 1:
        required = [str(a.type) for a in s.arguments if not a.kwarg_only and not a.has_default_value()]
        tensor = s.tensor
        if required == ["Tensor", "Tensor"]:

            def binary(x: Any, y: Any, /, *args: Any, **kw: Any) -> Any:
                if args or kw:
                    return kernel(x, y, *args, **kw)
                ours = unwrap_marked(x) if tensor is unwrap_marked else unwrap(x)
                f(ours, ours if y is x else tensor(y))
                return x

            return binary
    return kernel


#: compute in the type of `out=`, unless another is asked for
_OF_OUT = set("eye linspace logspace arange range sum nansum prod mean cumsum cumprod".split())


def _out_kernel(s: Signature, f: Kernel) -> Kernel:
    """An `out=` form: our function, then a copy."""
    call = _general(s, f)
    outs = s.outs
    pointwise = torch.Tag.pointwise in s.overload_object.tags
    of_out = s.name in _OF_OUT
    if of_out:
        s.by_name.setdefault("dtype", _dtype)

    def kernel(*args: Any, **kw: Any) -> Any:
        if _default_dtype() is not _seen_dtype:
            _follow_default_dtype(_default_dtype())
        given = dict(kw)
        targets = [kw.pop(n) for n in outs]
        check_overlap(s.overload_object, targets, args, kw)
        if of_out and kw.get("dtype") is None:
            kw["dtype"] = targets[0].dtype
        r = call(args, kw)
        if pointwise and len(targets) == 1:
            check_shape(targets[0], args, r)
        results = r if isinstance(r, (list, tuple)) else (r,)
        pairs: list[tuple[torch.Tensor, Tensor]] = []
        for target, result in zip(targets, results):
            if isinstance(target, torch.Tensor):
                pairs.append((target, result))
            else:
                pairs += zip(target, result if isinstance(result, (list, tuple)) else results)
        if any(fits_not(t, x) for t, x in pairs):
            sizes = [t.shape for t, _ in pairs]
            settle(s.overload_object, outs, args, given)
            for (t, x), size in zip(pairs, sizes):
                m = x._tab_meta
                if pointwise and size != m.shape and t.shape == m.shape and is_dense(m):  # it lies as its inputs do
                    t.as_strided_(m.shape, m.strides)
        for target, result in pairs:
            write_out(target, result, s.name)
        return targets[0] if len(targets) == 1 else tuple(targets)

    return kernel


# ---- registration


def _late(op: str) -> Kernel:
    """A kernel that is made when it is first called."""
    kernel: Kernel | None = None

    def call(*args: Any, **kw: Any) -> Any:
        nonlocal kernel
        if kernel is None:
            kernel = make(op)
        return kernel(*args, **kw)

    return call


_boxed: dict[Any, Kernel] = {}


def fallback(op: Any, *args: Any, **kw: Any) -> Any:
    """The kernel of whatever has none of its own: most `out=` forms, which are called seldom."""
    kernel = _boxed.get(op)
    if kernel is None:
        name = op._schema.name
        if not name.startswith("aten::"):
            raise NotImplementedError(
                f"The operator '{op}' is not currently implemented for the {NAME.upper()} device: it has no kernel for it"
            )
        overload = op._schema.overload_name
        kernel = _boxed[op] = make(name[6:] + (f".{overload}" if overload else ""))
    return kernel(*args, **kw)


#: composites of PyTorch's whose C++ serves as it is, by their parts
_LEFT = set(
    "_to_copy copy_ copy empty_like new_empty new_empty_strided new_full new_zeros new_ones detach_ rand randn randint randperm "
    "normal rand_like randn_like randint_like bernoulli multinomial lift_fresh lift is_pinned _pin_memory pin_memory rename_ "
    "_cudnn_init_dropout_state sparse_coo_tensor _sparse_coo_tensor_with_dims _fw_primal _make_dual _unpack_dual "
    "_new_zeros_with_same_feature_meta _has_same_storage_numel uniform normal_functional exponential geometric cauchy log_normal "
    "random _unsafe_view unsafe_split unsafe_split_with_sizes "
    "squeeze_ unsqueeze_ transpose_ t_ as_strided_ swapdims_ swapaxes_ _resize_output_ resize_as_ resize "
    "requires_grad_ retain_grad select_scatter slice_scatter diagonal_scatter as_strided_scatter".split()
)


def _own(full: str) -> bool:
    """Whether an operation gets a kernel of its own: it makes new values, or writes to one."""
    if not full.startswith("aten::"):
        return False
    op = full[6:]
    name, _, overload = op.partition(".")
    if op in SPECIAL:
        return True
    if name in _LEFT or name.startswith(
        ("sparse", "_sparse", "_nested", "quantize", "fbgemm", "mkldnn", "_cudnn", "cudnn", "miopen")
    ):
        return False
    if torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd"):
        return False
    schema = torch._C._get_schema("aten::" + name, overload)
    takes = False
    for a in schema.arguments:
        if a.is_out:
            return False
        kind = str(a.type)
        takes = takes or "Tensor" in kind or a.name == "device"
    if not takes or any("Dimname" in str(a.type) for a in schema.arguments):
        return False
    return not any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)  # or it is a view


def register() -> list[Any]:
    """Registers the fallback, by which the first tensor is made: the libraries, which have to be kept."""
    every = torch.library.Library("_", "IMPL")
    every.fallback(fallback, KEY)
    return [every]


def register_own() -> list[Any]:
    """Registers a kernel for each operation that gets one of its own, as `register`. It takes a sixth of a second."""
    own = torch._C._dispatch_library("IMPL", "aten", KEY, "", 0)
    for full in torch._C._dispatch_get_all_op_names():
        if _own(full):
            own.impl(full[6:], KEY, _late(full[6:]))
    return [own]
