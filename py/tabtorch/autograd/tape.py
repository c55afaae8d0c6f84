"""The tape: one `GradFn` for each recorded operation, `record` which makes it, and saved tensors.

An edge is a GradFn, a `Port` (one output of a GradFn that has several), a leaf Tensor (its gradient is accumulated),
or None (no gradient wanted). So leaves need no object of their own and nothing here is ever in a reference cycle.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE
from tabtorch.base.dtypes import TYPE_NAMES
from tabtorch.base.thread_state import next_seq
from tabtorch.core.tensor import Tensor
from tabtorch.core.tensor_base import inside

_new = object.__new__

#: `edge_kind` of what an edge can be; asking for it is much faster than isinstance
FUNCTION, PORT, LEAF = 0, 1, 2

#: in place of saved tensors once backward has used them
FREED: Any = ("freed",)

#: functions whose `name()` PyTorch gives with their C++ namespace
_CXX = ("CopyBackwards", "CopySlices", "NotImplemented")


def freed_error() -> RuntimeError:
    return RuntimeError(
        "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
        "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
        "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access "
        "saved tensors after calling backward."
    )


class GradFn:
    """A recorded operation. Edges always lead to older ones, so descending `seq` is a topological order.

    Subclasses, one for each operation, are named as PyTorch names them: `AddBackward0`.
    """

    is_port = False
    edge_kind = FUNCTION
    edges: tuple[Any, ...] = ()
    seq: int = 0
    metas: tuple[Any, ...] = ()  # of the inputs, to which gradients are brought
    runs_undefined = False  # whether it wants to run although no gradient came
    outs: Any = None  # Meta of the output, or a tuple of Metas where there are several
    # all None until somebody registers a hook: see hooks.py
    tensor_hooks: Any = None
    retains: Any = None
    pre_hooks: Any = None
    post_hooks: Any = None
    tangents: Any = None  # level -> tangents of the outputs, where forward mode knows them: see forward_ad.py
    real: bool | None = None  # whether backward can reach a leaf from here, once forward_ad.py was asked
    shown: tuple[Any, ...] | None = None  # what `next_functions` tells in place of `edges`: see `named`
    view_fn: Any = None  # where it wrote to a view: a weak reference to the grad_fn that the view has since

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        """Gradients for the edges, of the gradient of the output (a list of those, some None, where there are several)."""
        raise NotImplementedError

    @property
    def saves(self) -> bool:
        """Whether it has saved values: a second backward pass finds them gone, and raises."""
        return False

    def release(self) -> None:
        """Lets saved values go."""

    @property
    def fn(self) -> GradFn:
        return self

    @property
    def as_view(self) -> GradFn:
        """What errors call the function that made its output: of a view, the one that shows it, for as long as that lives."""
        shows = self.view_fn and self.view_fn()
        return shows or self

    def name(self) -> str:
        n = type(self).__name__
        return "torch::autograd::" + n if n in _CXX else n

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_saved_", "_raw_saved_")):
            return _lazy.saved_tensors.find(self, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_lazy.saved_tensors.listed(self)]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        return tuple(_public_edge(e) for e in self.shown or self.edges)

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dict of the user's own."""
        return self.__dict__.setdefault("_metadata", {})

    def _sequence_nr(self) -> int:
        return self.seq

    def register_hook(self, hook: Callable[..., Any]) -> Any:
        """Calls `hook(grad_inputs, grad_outputs)` after this node ran; what it returns replaces grad_inputs."""
        return _lazy.autograd_hooks.add_hook(self, "post_hooks", hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Any:
        """Calls `hook(grad_outputs)` before this node runs; what it returns replaces grad_outputs."""
        return _lazy.autograd_hooks.add_hook(self, "pre_hooks", hook)


class Port:
    """Output `nr` of a GradFn with several outputs; the `_tab_grad_fn` of that output."""

    __slots__ = ("fn", "nr")
    is_port = True
    edge_kind = PORT

    def __init__(self, fn: GradFn, nr: int) -> None:
        self.fn = fn
        self.nr = nr


class Nowhere(GradFn):
    """Where gradients of a view end that requires grad because its base does, and has no history that leads there."""

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        return ()


def _nowhere(t: Tensor) -> GradFn:
    fn = Nowhere()
    fn.real = True  # requires grad for the user, and not for a tangent only: see forward_ad.py
    fn.outs = t._tab_meta
    return fn


class AccumulateGrad:
    """What `grad_fn.next_functions` shows for a leaf."""

    is_port = False

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable

    next_functions = ()

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dict of the user's own."""
        return self.__dict__.setdefault("_metadata", {})

    def register_hook(self, hook: Callable[..., Any]) -> Any:
        """Calls `hook((), (gradient,))` after the gradient was added to `.grad`."""
        return _lazy.autograd_hooks.add_hook(self.variable, "_tab_after_hooks", hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Any:
        """Calls `hook((gradient,))` before that; a tuple that it returns replaces it."""

        def first(g: Tensor) -> Any:
            r = hook((g,))
            return r[0] if isinstance(r, tuple) else r

        return _lazy.autograd_hooks.add_hook(self.variable, "_backward_hooks", first)

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


def accumulator(t: Tensor) -> AccumulateGrad:
    """The one AccumulateGrad of a leaf, for as long as somebody holds it."""
    own = inside(t)
    ref = own.get("_tab_accumulator")
    acc = ref() if ref is not None else None
    if acc is None:
        acc = AccumulateGrad(t)
        own["_tab_accumulator"] = weakref.ref(acc)
    return acc


def _public_edge(e: Any) -> tuple[Any, int]:
    if e is None or type(e) is Nowhere:
        return (None, 0)
    if e.edge_kind == LEAF:
        return (accumulator(e), 0)
    return (e.fn, e.nr) if e.is_port else (e, 0)


def edge(t: Tensor) -> Any:
    """The edge to a tensor that requires grad and has no `_tab_grad_fn` at hand: a leaf, or a view whose base was written to."""
    if t._tab_stale:
        _lazy.autograd_views.refresh(t)
        return t._tab_grad_fn
    return _nowhere(t) if t._tab_borrowed else t


def inference_error() -> RuntimeError:
    return RuntimeError(
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
        "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it "
        "in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
    )


def unsupported(t: Tensor) -> RuntimeError:
    """For a result that would require grad, and is of integers: what it is made of was written to by a comparison."""
    return RuntimeError(f"Autograd not support dtype: {TYPE_NAMES[t._tab_meta.dtype.name]}")


def needs_record(*tensors: Any) -> bool:
    """Whether an operation on these has to be recorded (arguments that are no tensors do not count)."""
    if not STATE.grad:
        return False
    for t in tensors:
        if isinstance(t, Tensor) and t._tab_requires_grad:
            return True
    return False


# ---- operations recorded with `record`


class Saved:
    """A tensor as it was when it was saved. Its output's own history is put back on unpacking, so that there is no cycle."""

    __slots__ = ("computed", "is_output", "nr", "tensor", "version")

    def __init__(self, tensor: Tensor, is_output: bool, nr: int) -> None:
        if tensor._tab_inference:
            raise inference_error()
        self.computed = not is_output and tensor._tab_grad_fn is not None
        self.tensor = Tensor._view_of(tensor, tensor._tab_meta) if is_output else tensor
        self.version = tensor._tab_storage.version
        self.is_output = is_output
        self.nr = nr

    def unpack(self, fn: GradFn) -> Tensor:
        t = self.tensor
        if detached[0] and self.computed:
            check_history(t)
        if t._tab_storage.version != self.version:
            raise modified_error(t, self.version, self._maker(fn), self.nr)
        if self.is_output and t._tab_meta.dtype.category > 1:
            t = Tensor._view_of(t, t._tab_meta)
            t._tab_requires_grad = True
            t._tab_grad_fn = Port(fn, self.nr) if isinstance(fn.outs, tuple) else fn
        return t

    def _maker(self, fn: GradFn) -> Any:
        """The function that made the tensor. Of indices PyTorch does not know which did."""
        if not self.is_output:
            return maker(self.tensor)
        return fn.as_view if self.tensor._tab_meta.dtype.category > 1 else None


class Noticed:
    """A tensor that PyTorch saves, though nothing here needs its value: not held, and a later write to it is an error, as there."""

    __slots__ = ("fn", "is_view", "meta", "storage", "tensor", "version")

    def __init__(self, t: Tensor) -> None:
        if t._tab_inference:
            raise inference_error()
        self.is_view = t._base is not None
        self.tensor = weakref.ref(t)
        self.storage = weakref.ref(t._tab_storage)
        self.meta = t._tab_meta
        self.fn = t._tab_grad_fn
        self.version = t._tab_storage.version

    def check(self) -> None:
        """RuntimeError if it has been written to."""
        t = self.tensor()
        storage = self.storage() if t is None else t._tab_storage
        if storage is None or storage.version == self.version:
            return
        if t is not None:
            raise modified_error(t, self.version, maker(t))
        t = _new(Tensor)
        t._tab_storage = storage
        t._tab_meta = self.meta
        renewed = self.fn is not None and self.is_view  # a view would have got another function by now
        raise modified_error(t, self.version, grad_class("AsStridedBackward0")() if renewed else self.fn)


class Packed:
    """A saved tensor that was given to a pack hook: what that returned, and the tensor's history."""

    __slots__ = ("edge", "is_output", "nr", "unpack_hook", "value")

    def __init__(self, tensor: Tensor, is_output: bool, nr: int) -> None:
        if tensor._tab_inference:
            raise inference_error()
        pack, self.unpack_hook = STATE.hooks[-1]
        self.is_output = is_output
        self.nr = nr
        self.edge = (tensor._tab_grad_fn or edge(tensor)) if tensor._tab_requires_grad and not is_output else None
        version = tensor._tab_storage.version
        before, STATE.hooks = STATE.hooks, ()
        try:
            with _lazy.grad_mode.no_grad():
                self.value = pack(tensor)
        finally:
            STATE.hooks = before
        if tensor._tab_storage.version != version:
            raise RuntimeError(
                "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot be "
                "modified by in-place operations as this can lead to unexpected side-effects. Please open an issue if you "
                "need to perform in-place operations on the input to a pack hook."
            )

    def unpack(self, fn: GradFn) -> Tensor:
        t = self.unpack_hook(self.value)
        if not isinstance(t, Tensor):
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(t).__name__}"
            )
        t = t.detach()
        if self.is_output and t._tab_meta.dtype.category > 1:
            t._tab_requires_grad = True
            t._tab_grad_fn = Port(fn, self.nr) if isinstance(fn.outs, tuple) else fn
        elif self.edge is not None:
            t._tab_requires_grad = True
            t._tab_grad_fn = self.edge if self.edge.edge_kind != LEAF else _leaf_alias(self.edge)
        return t


class _LeafAlias(GradFn):
    """The values of a leaf, in a tensor that is not it."""

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        return (g,)


def _leaf_alias(leaf: Tensor) -> GradFn:
    fn = _LeafAlias()
    fn.edges, fn.metas, fn.outs, fn.seq = (leaf,), (leaf._tab_meta,), leaf._tab_meta, next_seq()
    return fn


#: the types that have had classes of their own, by which errors still call them
OLD_TYPES = ("Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")


def type_string(t: Tensor) -> str:
    """`torch.FloatTensor`, or `torch.cuda.FloatTensor` where scripts take webgpu for cuda."""
    name = TYPE_NAMES[t.dtype.name]
    if name not in OLD_TYPES:
        return f"{'CPU' if t.device.type == 'cpu' else 'CUDA' if t.is_cuda else 'WebGPU'}{name}Type"
    where = "" if t.device.type == "cpu" else "cuda." if t.is_cuda else "webgpu."
    return f"torch.{where}{name}Tensor"


#: whether a tensor has ever lost its history in place
detached = [False]


def check_history(t: Tensor) -> None:
    """RuntimeError for a saved tensor that had a history when it was saved, and has none now."""
    if t._tab_detached and t._tab_grad_fn is None and not t._tab_stale:
        raise RuntimeError(
            "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_().This is not supported, "
            "please use out-of-place `.detach()` instead"
        )


def maker(t: Tensor) -> Any:
    """The present function of a tensor, on the tape, of a view whose base was written to the one that it gets for that."""
    if t._tab_stale:
        _lazy.autograd_views.refresh(t)
    return t._tab_grad_fn


def modified_error(t: Tensor, expected: int, fn: Any, nr: int = 0) -> RuntimeError:
    if fn is not None and fn.is_port:
        fn, nr = fn.fn, fn.nr
    origin = f", which is output {nr} of {short_name(fn)}," if fn is not None else ""
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{type_string(t)} {list(t.shape)}]{origin} is at version {t._tab_storage.version}; expected version {expected} "
        "instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
        "torch.autograd.set_detect_anomaly(True, check_nan=False)."
    )


def short_name(fn: GradFn) -> str:
    """Exp for ExpBackward0, as PyTorch's messages say it."""
    name = fn.name()
    head, _, number = name.partition("Backward")
    if number and not number.isdigit():  # CopyBackwards
        return name
    return head if number == "0" else head + number


def short_class(cls: type) -> str:
    """The same of a class."""
    return cls.__name__.partition("Backward")[0]


class OpFn(GradFn):
    """An operation recorded with `record`."""

    saved: Any = ()
    noticed: tuple[Noticed, ...] = ()
    backward: Any = None
    needs: tuple[bool, ...] = ()

    def apply(self, g: Any) -> Sequence[Tensor | None]:
        saved = self.saved
        if saved is FREED:
            raise freed_error()
        failed = None
        try:
            values = [s.unpack(self) if s is not None else None for s in saved]
        except RuntimeError as e:
            failed = e
        if failed is not None:  # out of the handler, or what is told first would be told as well
            self._unpack_by_name(saved)
            raise failed
        for n in self.noticed:
            n.check()
        b = self.backward
        if type(b) is tuple:
            return [
                f(g, *values) if e is not None and f is not None else None for f, e in zip(b, self.edges, strict=True)
            ]
        r = b(g, *values)
        return r if type(r) is tuple or type(r) is list else (r,)

    def _unpack_by_name(self, saved: Sequence[Saved | Packed | None]) -> None:
        """Unpacks what is saved in PyTorch's order: of several that were written to, the first is told."""
        named = [(name, saved[i]) for name, i in _lazy.saved_tensors.names_of(self).items() if i < len(saved)]
        for _, _, s in sorted([(s.is_output, name, s) for name, s in named if s is not None]):
            s.unpack(self)

    @property
    def saves(self) -> bool:
        return bool(self.saved)

    def release(self) -> None:
        if any(s is not None for s in self.saved):
            self.saved = FREED


_classes: dict[tuple[str, type[GradFn]], type[GradFn]] = {}


def grad_class(name: str, base: type[GradFn] = OpFn) -> type[GradFn]:
    """The subclass of that name, made once. A composite may bear the name of a view, so the base counts too."""
    c = _classes.get((name, base))
    if c is None:
        c = _classes.setdefault((name, base), type(name, (base,), {}))
    return c


#: the next `seq` at which a graph is parted
gap = [64]
_parted: dict[type[GradFn], type[GradFn]] = {}
_dying: list[Any] = []
_letting_go = [False]


def part(fn: GradFn) -> None:
    """Makes `fn` one of the nodes at which the death of a graph halts, to go on from the top of the stack.

    A chain of objects dies by recursion in C. The stack of Pyodide holds some two thousand links, and ends the interpreter
    then. The distances are irregular, so that no loop's chain can lead past all such nodes.
    """
    gap[0] = fn.seq + 40 + fn.seq * 7919 % 61
    cls = type(fn)
    c = _parted.get(cls)
    if c is None:
        c = _parted[cls] = type(cls.__name__, (cls,), {"__del__": _let_go, "__module__": cls.__module__})
    fn.__class__ = c


def _let_go(fn: GradFn) -> None:
    _dying.append(list(fn.__dict__.values()))
    fn.__dict__.clear()  # it is still there until this returns, and must lead nowhere
    while _dying and not _letting_go[0]:
        _letting_go[0] = True
        try:
            while _dying:
                _dying.pop()
        finally:
            _letting_go[0] = False


def named(t: Tensor, name: str, *inputs: Tensor | None) -> Tensor:
    """`t`, its grad_fn under another name: a formula shows the name that PyTorch has for the whole of it. Unless that is the
    name of a view, the result is none, even where the formula's last step made one.

    inputs: those of the whole formula, which `next_functions` then shows in place of the last step's.
    Only for a `t` that the caller has just computed: what came in as an argument keeps the name of what made it.
    """
    if t._base is not None and not name.startswith("View"):
        own(t)
    fn = t._tab_grad_fn
    if fn is not None and not fn.is_port:
        fn.__class__ = grad_class(name, type(fn))
        if inputs:
            fn.shown = tuple(
                [(x._tab_grad_fn or edge(x)) if x is not None and x._tab_requires_grad else None for x in inputs]
            )
    return t


def record(
    name: str,
    inputs: Sequence[Tensor | None],
    outputs: Tensor | Sequence[Tensor],
    backward: Any,
    saved: Sequence[Tensor | None] = (),
    noticed: Sequence[Tensor | None] = (),
) -> GradFn | None:
    """Puts `outputs`, just computed from `inputs`, on the tape. Does nothing (None) where there is nothing to record.

    backward: a function `(g, *saved)` that returns the gradients of all inputs in order (one Tensor if there is one input);
        or a tuple with one function `(g, *saved)` -> Tensor for each input, of which only those needed are called; None in
        it: not differentiable. Where `outputs` is a sequence, `g` is a list, with None for outputs that got no gradient.
        Functions work on tensors, so they can be differentiated again. The gradient is brought to the input's dtype and,
        where the input was broadcast, summed to its shape.
    saved: tensors that the functions need (inputs or outputs); checked for later writes, freed after backward.
    noticed: others that PyTorch saves: checked for later writes, too.
    """
    if not STATE.grad:
        return None
    edges = []
    metas: list[Any] = []
    nowhere = True
    for t in inputs:
        e = None
        if t is None:
            metas.append(None)
        else:
            metas.append(t._tab_meta)
            if t._tab_requires_grad:
                e = t._tab_grad_fn or edge(t)
                if e is not None:
                    nowhere = False
        edges.append(e)
    if nowhere:
        return None
    fn: Any = _new(_classes.get((name, OpFn)) or grad_class(name))
    fn.edges = tuple(edges)
    fn.metas = tuple(metas)
    fn.backward = backward
    fn.seq = next_seq()
    single = isinstance(outputs, Tensor)
    outs: Sequence[Tensor] = (outputs,) if single else outputs  # type: ignore[assignment]
    for o in outs:
        if o._base is not None and not any(t is not None and t._tab_storage is o._tab_storage for t in inputs):
            own(o)
    if saved:
        kind = Packed if STATE.hooks else Saved
        fn.saved = tuple([None if s is None else _save(kind, s, outs) for s in saved])
    if noticed:
        fn.noticed = tuple([Noticed(t) for t in noticed if t is not None])
    if single:
        fn.outs = outputs._tab_meta  # type: ignore[union-attr]
        outputs._tab_requires_grad = True  # type: ignore[union-attr]
        outputs._tab_grad_fn = fn  # type: ignore[union-attr]
    else:
        fn.outs = tuple([o._tab_meta for o in outs])
        for i, o in enumerate(outs):
            if o._tab_meta.dtype.category > 1:
                o._tab_requires_grad = True
                o._tab_grad_fn = Port(fn, i)
    if fn.seq >= gap[0]:
        part(fn)
    return fn


def own(t: Tensor) -> Tensor:
    """`t`, which an operation has just computed, as no view: what it was cut out of is nobody else's."""
    t._base = None
    t._tab_view_state = 0
    t._tab_storage.views = None
    return t


def _save(kind: Any, s: Tensor, outs: Sequence[Tensor]) -> Any:
    for i, o in enumerate(outs):
        if o is s:
            return kind(s, True, i)
    return kind(s, False, 0)
