"""What reductions, scans, sorts, contractions and pools share: nodes over views, registration, `out=`, named results."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import Saved, edge
from tabtorch.autograd.views import before_write, check_inplace, rebase
from tabtorch.base.dtypes import CXX_NAMES
from tabtorch.core.shapes import dense_strides, remembered, wrap_dim, wrap_dims
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import Inst, emit
from tabtorch.engine.view import Meta, contiguous_meta, meta
from tabtorch.ops.machinery.operand_devices import WIDE
from tabtorch.ops.machinery.out_types import CASTABLE, EXACT, Rule, anything
from tabtorch.ops.machinery.registry import NOTHING, blame, missing, overridden, own_code, register, required

#: NumPy's names of arguments, which PyTorch's parser takes too
_NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x1": "input", "x2": "other"}


def operation(name: str, *, method: bool = True, aliases: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Registers a function as `torch.NAME` (and `Tensor.NAME`); its keywords may have NumPy's names."""

    def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
        # the same keyword must not be renamed where it is the function's own
        own = getattr(f, "__wrapped__", f)
        known = own.__code__.co_varnames
        switches = _switches(own)
        least = min(switches.values(), default=_BY_NAME)

        def make(of_tensor: bool) -> Callable[..., Any]:
            @wraps(f)
            def public(*args: Any, **kw: Any) -> Any:
                try:
                    if len(args) > least or (kw and not switches.keys().isdisjoint(kw)):
                        _check_switches(name, switches, args, kw, of_tensor)
                    if kw:
                        for old in [k for k in kw if k in _NUMPY_NAMES and k not in known]:
                            kw[_NUMPY_NAMES[old]] = kw.pop(old)
                        out = kw.get("out")
                        if out is not None:
                            outs = out if isinstance(out, (tuple, list)) else ()
                            no_grad_with_out(name, *args, *kw.values(), *outs)
                    return f(*args, **kw)
                except (TypeError, AttributeError):
                    r = overridden(public, args, kw)
                    if r is NOTHING:
                        x = args[0] if args else None
                        d = kw.get("dtype")
                        if (
                            isinstance(x, Tensor)
                            and x._tab_meta.device.implicit
                            and d in WIDE
                            and d is not x._tab_meta.dtype
                        ):
                            return public(x.to(d), *args[1:], **kw)  # where there is such a type
                        blame(name, f, dict(zip(own_code(f).co_varnames, args), **kw))
                        if name in _lazy.signatures.SIGNATURES:
                            _lazy.signatures.complain(name, args[of_tensor:], kw, of_tensor)
                        lacking = [n for n in required(f)[len(args) :] if n not in kw]
                        if lacking:
                            raise missing(name, lacking) from None
                        raise
                    return r

            public.__name__ = public.__qualname__ = name
            public.guarded = True  # type: ignore[attr-defined]
            return public

        public = make(False)
        for n in (name, *aliases):
            register(n, public, method=make(True) if method else False)
        return public

    return decorate


#: the place of a parameter that is given by name alone: behind all that there can be
_BY_NAME = 1 << 30


def _switches(f: Any) -> dict[str, int]:
    """The places of those parameters of a function that take True or False, as their defaults say."""
    count, defaults = f.__code__.co_argcount, f.__defaults__ or ()
    found = {n: k for k, n in enumerate(f.__code__.co_varnames[:count])}
    given = dict(zip(list(found)[count - len(defaults) :], defaults))
    switches = {n: found[n] for n, v in given.items() if type(v) is bool}
    return switches | {n: _BY_NAME for n, v in (f.__kwdefaults__ or {}).items() if type(v) is bool}


def _check_switches(
    name: str, switches: dict[str, int], args: tuple[Any, ...], kw: dict[str, Any], of_tensor: bool
) -> None:
    """TypeError for a number, or a word, where there is a bool: `x.sum(0, 1)` does not sum over both."""
    for n, k in switches.items():
        v = args[k] if k < len(args) else kw.get(n)
        if type(v) in (int, float, str):
            place = f" (position {k + 1 - of_tensor})" if k < len(args) else ""
            raise TypeError(f"{name}(): argument '{n}'{place} must be bool, not {type(v).__name__}")


def in_place(
    f: Callable[..., Any], structured: bool = False, meets: Callable[..., Any] | None = None
) -> Callable[..., Tensor]:
    """Registers `Tensor.NAME_`, which writes what `f` gives into its tensor.

    structured: PyTorch's message is that of such kernels. meets: gives the tensors that must not lie where it is written
    (default: all arguments); None from it: even the tensor's own elements may.
    """

    def g(self: Tensor, *args: Any, **kw: Any) -> Tensor:
        check_inplace(self, args)
        d = kw.get("dtype")
        if d is not None and d is not self._tab_meta.dtype:
            raise RuntimeError(
                f"Bad in-place call: input tensor dtype {CXX_NAMES[self._tab_meta.dtype.name]} and output tensor dtype "
                f"{CXX_NAMES[d.name]} should match"
            )
        # where it is recorded, it is recorded of the tensor as it was: its own value is gone by the time of backward
        recording = STATE.grad and (
            self._tab_requires_grad or any(isinstance(x, Tensor) and x._tab_requires_grad for x in args)
        )
        old = before_write(self) if recording else self
        result = f(old, *args, **kw)
        have, want = self._tab_meta, result._tab_meta
        if have.shape != want.shape:
            if structured:
                raise RuntimeError(
                    f"Bad in-place call: input tensor size {list(have.shape)} and output tensor size {list(want.shape)} "
                    "should match"
                )
            raise RuntimeError(
                f"output with shape {list(have.shape)} doesn't match the broadcast shape {list(want.shape)}"
            )
        CASTABLE(want.dtype, have.dtype)
        read: Any = [x for x in (*args, *kw.values()) if isinstance(x, Tensor)]
        if meets is not None:
            read = meets(self, *read)
        if read is not None:
            _lazy.inplace.check_overlap(self, [x for x in read if x is not self])
        fn = result._tab_grad_fn
        if fn is not None and not fn.is_port and want.dtype is have.dtype:
            first = fn.edges[0]
            if first is (
                old._tab_grad_fn or edge(old) if old._tab_requires_grad else None
            ):  # it is the operation itself, and not a last step
                _lazy.inplace.set_tensor(self, result.detach())
                for s in getattr(fn, "saved", ()):
                    if (
                        isinstance(s, Saved) and s.is_output
                    ):  # what is saved of the result is this tensor, which may be written to
                        s.tensor = Tensor._view_of(self, self._tab_meta)
                        s.version = self._tab_storage.version
                rebase(self, fn)
                return self
        if read is None and not recording:
            _lazy.inplace.set_tensor(self, result)
        else:
            self.copy_(result)
        return self

    g.__name__ = g.__qualname__ = f.__name__ + "_"
    g.__doc__ = f.__doc__
    register(g.__name__, g, method=True, torch=False)
    return g


def no_grad_with_out(name: str, *arguments: Any) -> None:
    """RuntimeError, as PyTorch's, where a call with `out=` would be recorded for one of its arguments."""
    if STATE.grad and any(isinstance(t, Tensor) and t._tab_requires_grad for t in arguments):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
            "requires grad."
        )


def run(i: Inst, shown: Meta, *inputs: Tensor, scalars: tuple = ()) -> Tensor:
    """A node over these tensors as a new tensor that shows `shown` of it."""
    return Tensor._wrap(emit(i, tuple([t._tab_storage.node for t in inputs]), scalars), shown)


def view_meta(m: Meta, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Meta:
    """A view of what `m` views; without elements it is the plain one, so that it stands for no place at all."""
    if 0 in shape:
        return contiguous_meta(shape, m.dtype, m.device)
    return meta(shape, strides, m.offset + offset, m.dtype, m.device, m.mark)


@remembered
def dims_of(ndim: int, dim: Any) -> tuple[int, ...]:
    """A `dim` argument (None or () for all) as sorted positive dimensions."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    if ndim > 64:
        raise RuntimeError("only tensors with up to 64 dims are supported")
    if type(dim) is tuple:
        return tuple(sorted(d for d in wrap_dims(dim, ndim) if ndim))
    return (wrap_dim(dim, ndim),) if ndim else _checked_zero(dim)


def _checked_zero(dim: int) -> tuple[int, ...]:
    wrap_dim(dim, 0)
    return ()


def hashable(dim: Any) -> Any:
    """A `dim` argument that can be a key: int, tuple of ints or None."""
    if dim is None or type(dim) is int:
        return dim
    if isinstance(dim, (list, tuple)):
        return tuple([int(d) for d in dim])
    return int(dim)


def warn_resized(have: Meta, want: Meta) -> None:
    """PyTorch's warning, where an `out` that has elements is given another shape."""
    if have.numel:
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(have.shape)}, which does not match "
            f"the required output shape {list(want.shape)}. This behavior is deprecated, and in a future PyTorch release "
            "outputs will not be resized unless they have zero elements. You can explicitly reuse an out tensor t by "
            "resizing it, inplace, to zero elements with t.resize_(0).",
            stacklevel=5,
        )


def into(out: Tensor | None, result: Tensor, *inputs: Tensor, rule: Rule = CASTABLE) -> Tensor:
    """`result`, or `out` with the result written to it. Errors as PyTorch's `out=`.

    inputs: what the operation reads elsewhere than it writes, so that they must not lie where `out` does.
    rule: which types `out` may have (see `out_types`).
    """
    if out is None:
        return result
    have, want = out._tab_meta, result._tab_meta
    _lazy.inplace.check_overlap(out, inputs, True)
    if have.device.number != want.device.number and not (have.device.implicit or want.device.implicit):
        raise RuntimeError(f"Expected out tensor to have device {want.device}, but got {have.device} instead")
    rule(want.dtype, have.dtype)
    if have.shape != want.shape:
        warn_resized(have, want)
        _lazy.resizing.resize(out, tuple(want.shape))
        if not want.contiguous and dense_strides(want) == want.strides:  # laid out as the result, as LAPACK's are
            out._tab_meta = have.view(want.shape, want.strides, have.offset)
    _lazy.inplace.check_overlap(out, inputs, True)
    out.copy_(result)
    return out


def with_out(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` with a keyword `out`, of the type of the result."""

    @wraps(f)
    def g(*args: Any, out: Any = None, **kw: Any) -> Any:
        r = f(*args, **kw)
        if out is not None:
            no_grad_with_out(f.__name__, r, out)
        return into(out, r, rule=EXACT)

    return g


def into_two(out: Any, result: Any, rule: Rule | tuple[Rule, ...] = EXACT) -> Any:
    """The same for operations with two results or more; `rule` for all of them, or one for each."""
    if out is None:
        return result
    rules = rule if isinstance(rule, tuple) else (rule,) * len(result)
    for check, o, r, field in zip(rules, out, result, result._fields, strict=True):
        check(r._tab_meta.dtype, o._tab_meta.dtype, field)
    return type(result)(*[into(o, r, rule=anything) for o, r in zip(out, result, strict=True)])


class Named(tuple):
    """A result with several named tensors, as `torch.return_types.max`."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()
    _full = ""

    def __new__(cls, *values: Any) -> Named:
        return tuple.__new__(cls, values[0] if len(values) == 1 and isinstance(values[0], (tuple, list)) else values)

    def __repr__(self) -> str:
        inside = ",\n".join(f"{n}={v!r}" for n, v in zip(self._fields, self, strict=True))
        return f"{self._full}(\n{inside})"

    def __reduce__(self) -> Any:
        return (type(self), tuple(self))


#: name -> class; what `torch.return_types` shows
RETURN_TYPES: dict[str, type[Named]] = {}


def named(name: str, *fields: str) -> type[Named]:
    """The class of results `torch.return_types.NAME`."""
    from operator import itemgetter

    body: dict[str, Any] = {f: property(itemgetter(k)) for k, f in enumerate(fields)}
    body |= {
        "__slots__": (),
        "_fields": fields,
        "_full": "torch.return_types." + name,
        "__module__": "torch.return_types",
        "n_fields": len(fields),
        "n_sequence_fields": len(fields),
        "n_unnamed_fields": 0,
    }
    cls = RETURN_TYPES[name] = type(name, (Named,), body)
    return cls
