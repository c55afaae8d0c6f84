"""``torch.utils.checkpoint``: what a function saves for backward is not kept, but computed again when backward needs it."""

from __future__ import annotations

import contextlib
import enum
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tabtorch as torch
from tabtorch.autograd.graph import saved_tensors_hooks
from tabtorch.autograd.tape import Packed, Saved
from tabtorch.base.thread_state import STATE
from tabtorch.core.tensor import Tensor
from tabtorch.random import default_generator, device_generator
from tabtorch.utils import _pytree

__all__ = [
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "DefaultDeviceType",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]

_early_stop: bool | None = None
_debug: bool | None = None


class CheckpointError(RuntimeError):
    """The recomputation did not do what the forward pass did."""


class _Stop(Exception):
    """Everything that is needed has been recomputed."""


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Inside, whether recomputation ends with the last tensor that is needed, whatever `early_stop` says."""
    global _early_stop
    before, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = before


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Inside, whether errors are told in full, whatever `debug` says. There is no log of operators here."""
    global _debug
    before, _debug = _debug, enabled
    try:
        yield
    finally:
        _debug = before


class CheckpointPolicy(enum.Enum):
    """What a policy says of an operation inside a checkpoint: whether its result is kept or computed again."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """The contexts for `checkpoint(context_fn=…)` by which PyTorch keeps some operations' results. Here all are computed again.

    So a policy changes neither a number nor an error; what it would save in time it does not. `policy_fn_or_list`: a function
    (context, operation, …) -> CheckpointPolicy, or a list of operations to keep. TypeError for anything else.
    """
    if not isinstance(policy_fn_or_list, list) and not callable(policy_fn_or_list):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    return contextlib.nullcontext(), contextlib.nullcontext()


def noop_context_fn() -> tuple[Any, Any]:
    """Two contexts that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors as leaves that require grad if they did."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warns where no tensor requires grad."""
    if not any(x.requires_grad for x in inputs if isinstance(x, Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


class DefaultDeviceType:
    """The type of device whose random state is meant where no argument is on one but cpu."""

    _default_device_type: str | None = None

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Sets it."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        """It: what was set, else the accelerator, else "cpu"."""
        if DefaultDeviceType._default_device_type is None:
            found = torch.accelerator.current_accelerator(True)
            DefaultDeviceType._default_device_type = "cpu" if found is None else found.type
        return DefaultDeviceType._default_device_type


def _other_devices(args: Any) -> list[Any]:
    leaves = _pytree.tree_leaves(args)
    return [x.device for x in leaves if isinstance(x, Tensor) and x.device.type not in ("cpu", "meta")]


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """For each tensor in `args` that is not on cpu: the index of its device, and the state of that device's generator."""
    devices = _other_devices(args)
    return [d.index or 0 for d in devices], [getattr(torch, d.type).get_rng_state() for d in devices]


def set_device_states(devices: Iterable[int], states: Iterable[Tensor], *, device_type: str | None = None) -> None:
    """Gives the generators of these devices the states that `get_device_states` told. device_type: the accelerator's."""
    kind = device_type or DefaultDeviceType.get_device_type()
    if kind == "meta":
        return
    for device, state in zip(devices, states, strict=False):
        getattr(torch, kind).set_rng_state(state, device)


class _Surroundings:
    """What else the function depends on: random numbers, autocast, the default device. A context in which they are back."""

    def __init__(self, preserve_rng_state: bool) -> None:
        self.generators = (default_generator, device_generator) if preserve_rng_state else ()
        self.states = [g._snapshot() for g in self.generators]
        self.device = torch.get_default_device()
        self.autocast: list[tuple[str, bool, Any]] = []
        amp: Any = sys.modules.get("tabtorch.amp.autocast_mode")
        if amp is not None:
            self.cache = amp.is_autocast_cache_enabled()
            self.autocast = [(d, amp.is_autocast_enabled(d), amp.get_autocast_dtype(d)) for d in ("cpu", "webgpu")]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        outside = [g._snapshot() for g in self.generators]
        with contextlib.ExitStack() as stack:
            for g, s in zip(self.generators, outside, strict=True):
                stack.callback(g._restore, s)
            for g, s in zip(self.generators, self.states, strict=True):
                g._restore(s)
            self.states = [g._snapshot() for g in self.generators]  # for the next time: one can be restored once
            if torch.get_default_device() != self.device:
                stack.enter_context(self.device)
            for d, on, dtype in self.autocast:
                stack.enter_context(torch.amp.autocast(d, dtype, on, self.cache))
            yield


class CheckpointFunction(torch.autograd.Function):
    """`use_reentrant=True`: backward runs the function again, and a backward pass of its own over that."""

    @staticmethod
    def forward(ctx: Any, run_function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.surroundings = _Surroundings(preserve_rng_state)
        ctx.inputs = [None if isinstance(a, Tensor) else a for a in args]
        ctx.tensor_indices = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*[args[i] for i in ctx.tensor_indices])
        with torch.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if STATE.task is not None and STATE.task[2] is not None:
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward(). To resolve this error, you can either set use_reentrant=False, or call "
                ".backward() without passing the `inputs` argument."
            )
        inputs = list(ctx.inputs)
        for i, t in zip(ctx.tensor_indices, ctx.saved_tensors, strict=True):
            inputs[i] = t
        detached = detach_variable(tuple(inputs))
        with ctx.surroundings.restored(), torch.enable_grad():
            outputs = ctx.run_function(*detached)
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        return None, None, *[x.grad if isinstance(x, Tensor) else None for x in detached]


class _Holder:
    """In place of a saved tensor; `value` while backward pass `key` needs it."""

    __slots__ = ("__weakref__", "key", "value")

    def __init__(self) -> None:
        self.key: Any = None
        self.value: Tensor | None = None


def _metadata(x: Tensor) -> dict[str, Any]:
    return {"shape": x.shape, "dtype": x.dtype, "device": x.device}


_CHECKS: dict[str, Callable[[Tensor], Any]] = {"default": _metadata, "none": lambda _: None}

_TIP = (
    "\n\nTip: To see a more detailed error message, either pass `debug=True` to\n"
    "`torch.utils.checkpoint.checkpoint(...)` or wrap the code block\n"
    "with `with torch.utils.checkpoint.set_checkpoint_debug_enabled(True):` to\n"
    "enable checkpoint\N{NON-BREAKING HYPHEN}debug mode globally.\n"
)


class _Frame:
    """One checkpointed call: how to make its saved tensors again, and where they go."""

    def __init__(self, run: Callable[..., Any], args: tuple[Any, ...], metadata: Any, early_stop: bool) -> None:
        self.run = run
        kind: Any = Packed if STATE.hooks else Saved  # within another checkpoint the inputs are made again too
        self.inputs = [kind(a, False, 0) if isinstance(a, Tensor) else a for a in args]
        self.metadata = metadata
        self.early_stop = early_stop
        self.holders: list[weakref.ref[_Holder]] = []
        self.told: list[Any] = []  # of each saved tensor the metadata
        self.seen: list[Any] = []  # the same of the recomputation
        self.done: Any = None  # the pass for which all is there
        self.complete = False

    def pack(self, x: Tensor) -> _Holder:
        holder = _Holder()
        self.holders.append(weakref.ref(holder))
        self.told.append(self.metadata(x))
        return holder

    def unpack(self, holder: _Holder) -> Tensor:
        key = object() if STATE.task is None else STATE.task[0]
        if self.done != key:
            self.recompute(key)
        if holder.key != key or holder.value is None:
            raise CheckpointError(
                "torch.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked once. If you are "
                "calling ctx.saved_tensors in backward, make sure to do so only once. Otherwise please open an issue with "
                "details on your use case."
            )
        value, holder.value = holder.value, None
        return value

    def recompute(self, key: Any) -> None:
        seen = self.seen = []

        def pack(x: Tensor) -> Tensor:
            x = x.detach()
            k = len(seen)
            if k >= len(self.holders):
                if not self.complete:  # backward from within the forward pass
                    return x
                raise CheckpointError(
                    "torch.utils.checkpoint: trying to save more tensors during recomputation than during the original "
                    "forward pass.\n" + _TIP
                )
            seen.append(self.metadata(x))
            holder = self.holders[k]()
            if holder is not None:
                holder.key, holder.value = key, x
            if self.early_stop and k + 1 == len(self.holders):
                raise _Stop
            return x

        args = [a.unpack(None) if isinstance(a, (Packed, Saved)) else a for a in self.inputs]  # type: ignore[arg-type]
        with saved_tensors_hooks(pack, lambda x: x), torch.enable_grad(), contextlib.suppress(_Stop):
            self.run(*args)
        self.done = key
        if self.complete:
            self.check()

    def check(self) -> None:
        if len(self.holders) != len(self.seen):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(self.holders)}\nNumber of tensors saved "
                f"during recomputation: {len(self.seen)}.\n{_TIP}"
            )
        different = "".join(
            f"tensor at position {k}:\nsaved metadata: {a}\nrecomputed metadata: {b}\n"
            for k, (a, b) in enumerate(zip(self.told, self.seen, strict=True))
            if a != b and self.holders[k]() is not None
        )
        if different:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during "
                f"the forward pass.\n{different}.\n{_TIP}"
            )


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which only the inputs are kept for backward; backward calls it again.

    preserve_rng_state (True): the random numbers, as of dropout, are the same again. context_fn: gives the contexts of the
    call and of the recomputation. determinism_check: "default" compares shapes, types and devices of what is saved.
    CheckpointError where the two calls differ. use_reentrant should be False; None is True, with a warning.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting in PyTorch 2.9, "
            "calling checkpoint without use_reentrant will raise an exception. use_reentrant=False is recommended, but if "
            "you need to preserve the current default behavior, you can pass use_reentrant=True. Refer to docs for more "
            "details on the differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if (debug if _debug is None else _debug) and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    if determinism_check not in _CHECKS:
        raise ValueError(f"determinism_check should be one of {list(_CHECKS)}, but got {determinism_check}")
    forward_context, recompute_context = context_fn()
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    surroundings = _Surroundings(preserve)

    def run(*args: Any) -> None:
        with surroundings.restored(), recompute_context:
            function(*args, **kwargs)

    frame = _Frame(run, args, _CHECKS[determinism_check], early_stop if _early_stop is None else _early_stop)
    with saved_tensors_hooks(frame.pack, frame.unpack), forward_context:
        result = function(*args, **kwargs)
    frame.complete = True
    return result


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Calls the modules or functions one after the other, in `segments` parts, of which all but the last are checkpointed."""
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed explicitly. In "
            "version 2.9 we will raise an exception if use_reentrant is not passed. use_reentrant=False is recommended, but "
            "if you need to preserve the current default behavior, you can pass use_reentrant=True. Refer to docs for more "
            "details on the differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    steps = list(functions.children()) if isinstance(functions, torch.nn.Sequential) else list(functions)

    def part(start: int, end: int) -> Callable[[Any], Any]:
        def forward(x: Any) -> Any:
            for f in steps[start:end]:
                x = f(x)
            return x

        return forward

    size = len(steps) // segments
    for start in range(0, size * (segments - 1), size):
        input = checkpoint(part(start, start + size), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return part(size * (segments - 1), len(steps))(input)
