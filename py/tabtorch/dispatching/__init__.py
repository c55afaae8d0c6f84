"""Public calls as calls of ATen's operators, for who wants to see those: `TorchDispatchMode`, and `make_fx` through one.

Every public function that is called while a mode is entered is met, after whatever overrides it. What ATen has as one operator is a
call of that (tabtorch.export has the schemas, and the rules for functions with other arguments); what is several operators there is
those (composites.py). Of other functions, what they call is met. One that computes something, and calls nothing that is met, is an
error: nothing happens unseen. That is above autograd, not below as in PyTorch: operators get tensors that require gradients, and
backward, whose formulas are no operators, is an error.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import tabtorch
from tabtorch import _lazy
from tabtorch.core.tensor import Tensor
from tabtorch.dispatching import composites
from tabtorch.export import lowering, tracing
from tabtorch.export.schemas import Schema, bind, schemas
from tabtorch.interception import torch_function
from tabtorch.interception.code_swapping import LOCK, Layer
from tabtorch.interception.operator_modes import STACK, Quiet
from tabtorch.interception.torch_function import STATE
from tabtorch.ops import aten
from tabtorch.ops.machinery import registry
from tabtorch.overrides import TorchFunctionMode
from tabtorch.utils._pytree import tree_leaves

#: operators that give a value to Python
_VALUES = set("item __bool__ __int__ __float__ __index__ __complex__".split())
#: what makes a tensor of what is no tensor
_MADE = set("tensor scalar_tensor".split())
#: functions that compute nothing, or are about the library itself
_SILENT = set(
    "as_tensor from_numpy frombuffer asarray numpy tolist load save manual_seed seed initial_seed get_rng_state set_rng_state "
    "requires_grad_ register_hook retain_grad backward equal is_nonzero stride size dim storage untyped_storage __array__ __repr__ "
    "__format__ __reduce_ex__ __deepcopy__ __len__ __contains__ data_ptr numel result_type promote_types".split()
)


class Dispatcher(TorchFunctionMode):
    """Meets the public functions of a thread while it has modes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    # ---- what rules ask (see tabtorch.export.lowering)

    def knows(self, t: Any) -> bool:
        return True

    def constant(self, numbers: list[int], device: Any) -> Tensor:
        """A tensor of these numbers."""
        with Quiet():
            made = tabtorch.tensor(numbers, device=device)
        found: Tensor = self.operator(aten.lift_fresh.default, (made,), {})
        return found

    def refuse(self, what: str) -> NoReturn:
        raise NotImplementedError(
            f"a TorchDispatchMode cannot say which operators {what} is: call those in its place, or leave the mode for it "
            "(torch.utils._python_dispatch._disable_current_modes)"
        )

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A call of ATen's operator of that name: what it is made of, if it is made of others."""
        rule = composites.RULES.get(name)
        if rule is not None:
            found = rule(self, *args, **kwargs)
            if found is not lowering.OTHERWISE:
                return found
        if name in composites.NAMES:
            self.refuse(f"{name!r} with these arguments")
        found = bind(name, args, kwargs)
        if found is None:
            self.refuse(f"{name!r} with these arguments")
        return self.record(*found, kwargs)

    def plain(self, target: str, *args: Any, **kwargs: Any) -> Any:
        """A call of an overload, "add.Tensor", with just these arguments."""
        name, _, overload = target.partition(".")
        return self.operator(getattr(getattr(aten, name), overload or "default"), args, kwargs)

    # ---- calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types:  # classes that override come first; what they call comes here
            return NotImplemented
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if registry.METHODS.get(name + "_") is func:  # one that is called as the form that writes nowhere
            name += "_"
        if name in ("__get__", "__set__") and hasattr(func, "__self__"):
            name = f"{name[2:5]} {func.__self__.fget.__name__}"
        if (
            name in ("grad", "backward")
            and callable(func)
            and getattr(func, "__module__", "").startswith("tabtorch.autograd")
        ):
            _no_backward(func, args, kwargs)
        if name in _VALUES and isinstance(args[0], Tensor):
            value = self.plain("_local_scalar_dense", args[0])
            return value if name == "item" else getattr(value, name)() if hasattr(value, name) else bool(value)
        if name in _MADE and not any(isinstance(x, Tensor) for x in args):
            return self.plain("lift_fresh", self._transparent(func, args, kwargs))
        out = kwargs.pop("out", None) if name not in _SILENT else None
        if out is not None:
            return self._into(name, out, args, kwargs)
        before = composites.PUBLIC.get(name) or lowering.RULES.get(name)
        if before is not None:
            found = before(self, *args, **kwargs)
            if found is not lowering.OTHERWISE:
                return found
        elif name in composites.RULES:
            found = composites.RULES[name](self, *args, **kwargs)
            if found is not lowering.OTHERWISE:
                return found
        elif name and " " not in name and name not in composites.NAMES and name not in _SILENT:
            bound = None
            if name in lowering.SAME or not tracing._functional(name, func):
                bound = bind(name, args, kwargs)
            if bound is not None:
                return self.record(*bound, kwargs)
        return self._met(name, func, args, kwargs)

    def _met(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """A function that is no operator: what it calls is met."""
        seen = self.seen
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        versions = [t._tab_storage.version for t in given]
        result = self._transparent(func, args, kwargs)
        if self.seen == seen and name not in _SILENT and name[:4] not in ("get ", "set "):
            made = [t for t in tree_leaves(result) if isinstance(t, Tensor) and not any(t is g for g in given)]
            if made or [t._tab_storage.version for t in given] != versions:
                self.refuse(repr(name))
        return result

    def _transparent(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs a function, of which only what it calls is met."""
        STATE.modes.append(self)
        STATE.skip = True
        try:
            return func(*args, **kwargs)
        finally:
            STATE.modes.remove(self)
            STATE.skip = False

    def _into(self, name: str, out: Any, args: Any, kwargs: Any) -> Any:
        bound = bind(name, args, kwargs)
        if bound is None or not isinstance(out, Tensor):
            self.refuse(f"{name!r} with these arguments and `out`")
        schema, values = bound
        given, named = tracing._placed(_chosen(schema), values)
        overload = _chosen(schema).overload
        packet = getattr(aten, name)
        target = getattr(packet, "out" if overload in ("", "Tensor") else overload + "_out")
        return self.operator(target, given, {**named, "out": out})

    def record(self, schema: Schema, bound: dict[str, Any], kwargs: dict[str, Any]) -> Any:
        """A call of an overload, its arguments by name."""
        schema = _chosen(schema)
        if schema.name == "slice":
            bound.setdefault("start", 0)
            bound.setdefault("end", sys.maxsize)
        if "device" in bound:
            bound["device"] = tabtorch.device(kwargs["device"])
        if kwargs.get("generator") is not None:
            bound["generator"] = kwargs["generator"]
        names = {p.name for p in schema.parameters}
        factory = "pin_memory" in names
        wants = kwargs.get("requires_grad", False) and "requires_grad" not in names
        if factory:
            if not any(isinstance(x, Tensor) for x in bound.values()):
                bound.setdefault("device", tabtorch.get_default_device())
            bound["pin_memory"] = False
        args, named = tracing._placed(schema, bound)
        packet = getattr(aten, schema.name)
        result = self.operator(getattr(packet, schema.overload or "default"), args, named)
        return result.requires_grad_() if wants else result

    def operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of an operator, which goes to the innermost mode; with none left, it runs."""
        self.seen += 1
        if not STACK.modes:
            return kernel(func, args, kwargs)
        mode = STACK.modes.pop()
        here = [m for m in STATE.modes if m is self]
        for _ in here:
            STATE.modes.remove(self)
        if STACK.modes:  # what a mode calls is met by those that are further out
            STATE.modes.insert(0, self)
        STACK.inside += 1
        try:
            leaves = tree_leaves((args, kwargs))
            types = tuple(
                {type(t): None for t in leaves if isinstance(t, Tensor) and type(t) is not Tensor and _overrides(t)}
            )
            result = mode.__torch_dispatch__(func, types, args, kwargs)
        finally:
            STACK.inside -= 1
            if STACK.modes:
                STATE.modes.remove(self)
            STATE.modes[:0] = here
            STACK.modes.append(mode)
        if result is NotImplemented:
            raise TypeError(
                f"Multiple dispatch failed for '{func}'; all __torch_dispatch__ handlers returned NotImplemented:\n\n"
                f"  - mode object {mode}\n\nFor more information, try re-running with TORCH_LOGS=not_implemented"
            )
        return result


def _overrides(t: Tensor) -> bool:
    return torch_function.overrides(type(t))


def _chosen(schema: Schema) -> Schema:
    """The overload that PyTorch takes: of arithmetic with a number, that of tensors."""
    if schema.overload == "Scalar" and schema.name.rstrip("_") in ("add", "sub", "mul", "div"):
        found = next(s for s in schemas(schema.name) if s.overload == "Tensor")
        return found._replace(name=schema.name)
    if (schema.name.rstrip("_"), schema.overload) in (("floor_divide", "Scalar"), ("copy", "Tensor")):
        return schema._replace(overload="")
    return schema


def kernel(func: Any, args: Any, kwargs: Any) -> Any:
    """Runs an operator, and nobody looks on. NotImplementedError where tabtorch has no such operator."""
    name = func._name
    named = {k: v for k, v in kwargs.items() if not (k == "pin_memory" and not v)}
    with Quiet():
        if name in ("lift_fresh", "lift_fresh_copy"):
            return args[0] if name == "lift_fresh" else args[0].clone()
        if name == "_local_scalar_dense":
            return args[0].item()
        if func.function is None:
            raise NotImplementedError(f"tabtorch has no operator {func}")
        return func.function(*args, **named)


def _packet(func: Any, args: Any, kwargs: Any) -> Any:
    """A call of `torch.ops.aten.…` by a program while some thread has modes."""
    if not STACK.modes or STATE.off == 2:
        return kernel(func, args, kwargs) if STACK.inside else func.function(*args, **kwargs)
    dispatcher = _dispatcher()
    here = [m for m in STATE.modes if m is dispatcher]
    for _ in here:
        STATE.modes.remove(dispatcher)
    try:
        if not isinstance(func, aten.Overload) or func._name in composites.NAMES:
            return dispatcher.call(func._name, *args, **kwargs)
        return dispatcher.operator(func, args, kwargs)
    finally:
        STATE.modes[:0] = here


def _no_backward(plain: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    if STACK.modes:
        raise NotImplementedError(
            "a TorchDispatchMode does not see backward, whose formulas are no operators of ATen in tabtorch; call it after the mode"
        )
    return plain(*args, **kwargs)


class _Backward(Layer):
    def __init__(self) -> None:
        super().__init__(-2, lambda name: None)
        self.meet(_lazy.engine.run, _no_backward)


class _Shared(threading.local):
    dispatcher: Dispatcher | None = None


_shared = _Shared()
_backward: list[_Backward] = []
_count = 0


def _dispatcher() -> Dispatcher:
    if _shared.dispatcher is None:
        _shared.dispatcher = Dispatcher()
    return _shared.dispatcher


def _all_threads(n: int) -> None:
    """What is exchanged for all threads while one has modes."""
    global _count
    with LOCK:
        _count += n
        if not _backward:
            _backward.append(_Backward())
        if not tracing._beneath:
            tracing._beneath.append(tracing._Beneath())
        tracing._beneath[0].count_by(n)
        _backward[0].switch(_count > 0)
        aten.DISPATCH[:] = [_packet] if _count else []


def push(mode: Any) -> None:
    """Enters a mode."""
    d = _dispatcher()
    if not STACK.modes and not STACK.inside:
        STATE.modes.insert(0, d)
    elif not STACK.modes:  # in the handler of a mode, whose dispatcher is set aside
        STATE.modes.insert(0, d)
    STACK.modes.append(mode)
    STATE.entered.append(d)
    torch_function.switch()
    _all_threads(1)


def pop() -> Any:
    """Leaves the innermost mode."""
    d = _dispatcher()
    mode = STACK.modes.pop()
    if not STACK.modes and d in STATE.modes:
        STATE.modes.remove(d)
    STATE.entered.remove(d)
    torch_function.switch()
    _all_threads(-1)
    return mode
