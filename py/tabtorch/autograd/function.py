"""`torch.autograd.Function`: operations with a backward of the user's own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE, no_grad, quiet
from tabtorch.autograd.tape import FREED, GradFn, Packed, Port, Saved, edge, freed_error, next_seq
from tabtorch.autograd.views import check_inplace, rebase
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery import registry


class FunctionCtx:
    """What `forward` and `backward` share; `ctx` is the node of the tape itself."""

    to_save: tuple[Any, ...] = ()
    to_save_forward: tuple[Any, ...] = ()
    forward_saved: Any = None  # while `jvp` runs
    dirty_tensors: tuple[Tensor, ...] = ()
    non_differentiable: tuple[Tensor, ...] = ()
    materialize_grads = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for backward, where they are `ctx.saved_tensors`; checked for later writes, freed after use."""
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for jvp, where they are `ctx.saved_tensors`."""
        self.to_save_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Says which inputs `forward` wrote to; each has to be returned too."""
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Says which outputs have no gradient."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (default), or None, for outputs that got no gradient."""
        self.materialize_grads = value

    @property
    def needs_input_grad(self) -> tuple[bool, ...]:
        return self._needs  # type: ignore[attr-defined]


class BackwardCFunction(GradFn, FunctionCtx):
    """The node of a Function; each Function has its own subclass."""

    runs_undefined = True
    saved: Any = ()
    forward_cls: Any
    slots: tuple[int, ...]
    count: int

    def __repr__(self) -> str:
        return f"<torch.autograd.function.{type(self).__name__} object at {id(self):#x}>"

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        if self.forward_saved is not None:
            return self.forward_saved
        saved = self.saved
        if saved is FREED:
            raise freed_error()
        if not saved and self.to_save:  # still inside forward
            return self.to_save
        return tuple([s.unpack(self) if s is not None else None for s in saved])

    saved_variables = saved_tensors

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        several = isinstance(self.outs, tuple)
        grads = list(g) if isinstance(g, list) else [None] * len(self.outs) if several else [g]
        if all(x is None for x in grads) and not self.materialize_grads and g is None:
            return [None] * len(self.edges)
        if self.materialize_grads:
            outs = self.outs if several else (self.outs,)
            for i, m in enumerate(outs):
                if grads[i] is None and m is not None and m.dtype.category > 1:  # None: the output is no tensor
                    zeros: Any = registry.function("zeros")
                    grads[i] = zeros(m.shape, dtype=m.dtype, device=m.device)
        cls = self.forward_cls
        back = cls.backward if cls.backward is not Function.backward else cls.vjp
        r = back(self, *grads)
        if not isinstance(r, tuple):
            r = (r,)
        n = self.count
        if len(r) > n and all(x is None for x in r[n:]):
            r = r[:n]
        if len(r) != n:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {n}, got {len(r)})"
            )
        out = []
        for i, x in enumerate(r):
            if i in self.slots:
                if x is not None and not isinstance(x, Tensor):
                    raise RuntimeError(f"expected Variable or None (got {type(x).__name__})")
                out.append(x)
            elif x is not None:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different than None at position {i + 1}, but the "
                    "corresponding forward input was not a Variable"
                )
        return out

    @property
    def saves(self) -> bool:
        return bool(self.saved)

    def release(self) -> None:
        if self.saved:
            self.saved = FREED


class _FunctionMeta(type):
    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        cls._backward_cls = type(name + "Backward", (BackwardCFunction,), {"forward_cls": cls})
        super().__init__(name, bases, attrs)


class Function(metaclass=_FunctionMeta):
    """Base of custom operations: define static `forward(ctx, *args)` and `backward(ctx, *grad_outputs)`, call `apply`.

    With a static `setup_context(ctx, inputs, output)`, `forward` takes no ctx.
    """

    _backward_cls: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            f"{self.__class__} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself. Instantiating an autograd function will raise an error in a future version "
            "of PyTorch."
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The operation. Runs without being recorded."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Saves what backward needs, where `forward` takes no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of all inputs of forward, None for those that have none."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The tangents of all outputs, from those of the inputs. Runs right after forward."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    #: whether `torch.vmap` may run forward and backward for all examples as they are
    generate_vmap_rule = False

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """(the operation on batches, where their dimensions are in its outputs): what `torch.vmap` calls."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Runs `forward` and records it."""
        if STATE.nesting and not cls.__module__.startswith("tabtorch."):
            batched = _lazy.functions.apply(cls, args)
            if batched is not NotImplemented:
                return batched
        ctx: Any = cls._backward_cls()
        slots = tuple([i for i, a in enumerate(args) if isinstance(a, Tensor)])
        inputs = [args[i] for i in slots]
        ctx.slots = slots
        ctx.count = len(args)
        recording = STATE.grad and any(t._tab_requires_grad for t in inputs)
        levels: Any = ()
        own = recording and STATE.duals and cls.__module__.startswith("tabtorch.")
        if recording and STATE.duals:
            # what is part of an operation needs no jvp: its backward says all
            if not own or cls.jvp is not Function.jvp:
                levels = _lazy.forward_ad.tangents_of(inputs)
                if levels and cls.jvp is Function.jvp:
                    cls.jvp(ctx)  # raises
        ctx._needs = tuple([isinstance(a, Tensor) and (a._tab_requires_grad if own else a.requires_grad) for a in args])
        if recording:
            ctx.edges = tuple([(t._tab_grad_fn or edge(t)) if t._tab_requires_grad else None for t in inputs])
            ctx.metas = tuple([t._tab_meta for t in inputs])
        with quiet():
            if cls.setup_context is not Function.setup_context:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args, **kwargs)
        single = not isinstance(result, tuple)
        outputs = [result] if single else list(result)
        if single and not isinstance(result, Tensor) and not isinstance(result, list):
            return result
        if isinstance(result, list):
            raise TypeError("expected tensor or tuple of tensors (got list)")
        _finish(ctx, cls, inputs, outputs, single, recording)
        if levels:
            _lazy.forward_ad.call_jvp(ctx, cls, outputs, levels)
        return outputs[0] if single else tuple(outputs)


def _finish(ctx: Any, cls: Any, inputs: list[Tensor], outputs: list[Any], single: bool, recording: bool) -> None:
    """Puts the outputs on the tape: inputs returned as they are become views, inputs written to get the new history."""
    dirty = {id(t) for t in ctx.dirty_tensors}
    plain = {id(t) for t in ctx.non_differentiable}
    ids = {id(t) for t in inputs}
    for t in ctx.dirty_tensors:
        if not any(o is t for o in outputs):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that are "
                "modified inplace must all be outputs of the Function."
            )
    saved_as: dict[int, Tensor] = {}
    ctx.outs = tuple([o._tab_meta if isinstance(o, Tensor) else None for o in outputs])
    if single:
        ctx.outs = ctx.outs[0]
    ctx.seq = next_seq()
    for nr, o in enumerate(outputs):
        if not isinstance(o, Tensor):
            continue
        if id(o) in ids and id(o) not in dirty:
            o2 = Tensor._view_of(o, o._tab_meta)
            saved_as[id(o)] = o
            outputs[nr] = o = o2
        elif not recording and id(o) not in dirty:
            continue
        differentiable = recording and id(o) not in plain and o._tab_meta.dtype.category > 1
        if not differentiable:
            if id(o) not in dirty:
                o._tab_requires_grad = False
                o._tab_grad_fn = None
            continue
        here = ctx if single else Port(ctx, nr)
        if id(o) in dirty:
            if o._tab_requires_grad and o._tab_grad_fn is None and o._base is None:
                raise RuntimeError("a leaf Variable that requires grad has been used in an in-place operation.")
            check_inplace(o)
            if o._base is not None:
                rebase(o, ctx)
                continue
            rebase(o, ctx)
        o._tab_requires_grad = True
        o._tab_grad_fn = here
        o._base = None
    if recording:
        ctx.saved = tuple(_saved(s, outputs) for s in ctx.to_save)
    ctx.to_save = ()
    ctx.dirty_tensors = ctx.non_differentiable = ()


def _saved(s: Any, outputs: list[Any]) -> Saved | None:
    if s is None:
        return None
    if not isinstance(s, Tensor):
        raise TypeError(f"save_for_backward can only save variables, but argument 0 is of type {type(s).__name__}")
    kind: Any = Packed if STATE.hooks else Saved
    for nr, o in enumerate(outputs):
        if o is s:
            return kind(s, True, nr)
    return kind(s, False, 0)


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """For a backward that cannot be differentiated again: an attempt to do so is an error."""

    @functools.wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        with no_grad():
            outputs = fn(ctx, *args)
        if not STATE.grad or not any(isinstance(a, Tensor) and a._tab_requires_grad for a in args):
            return outputs
        several = isinstance(outputs, tuple)
        result = []
        for o in outputs if several else (outputs,):
            if isinstance(o, Tensor):
                o = o.detach()
                o._tab_requires_grad = True
                o._tab_grad_fn = DelayedError()
            result.append(o)
        return tuple(result) if several else result[0]

    return wrapper


class DelayedError(GradFn):
    """Raises once somebody differentiates through it."""

    def __init__(self) -> None:
        self.seq = next_seq()

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


class NestedIOFunction(Function):
    """Not there yet."""

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("torch.autograd.function.NestedIOFunction is not there yet in tabtorch")
