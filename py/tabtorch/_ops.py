"""`torch._ops`: the classes of operators."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from tabtorch import _lazy, library, ops
from tabtorch._C import DispatchKey
from tabtorch._library.schemas import tensors
from tabtorch.interception.operator_modes import STACK
from tabtorch.ops.aten import Operation as OpOverloadPacket
from tabtorch.ops.aten import Overload as OpOverload
from tabtorch.ops.aten import Packet as OperatorBase

__all__ = ["HigherOrderOperator", "OpOverload", "OpOverloadPacket", "OperatorBase", "ops"]

Fn = Callable[..., Any]


class HigherOrderOperator(abc.ABC):
    """An operator that takes functions: a class of the library's own, of which one object is made, `torch.ops.higher_order.NAME`.

    `py_impl(key)` gives it what runs: for a dispatch key, or while a mode of a class is the innermost.
    """

    def __init__(self, name: str, *, cacheable: bool = False, supports_training_input_mutation: bool = False) -> None:
        self._name = self.__name__ = name
        self._ns = "higher_order"
        self.__module__ = "torch.ops.higher_order"
        self._cacheable = cacheable
        self.py_kernels: dict[Any, Fn] = {}
        self._passed: set[str] = set()
        library.HIGHER_ORDER[name] = self

    @property
    def namespace(self) -> str:
        """ "higher_order"."""
        return self._ns

    def name(self) -> str:
        """Its name."""
        return self._name

    def __str__(self) -> str:
        return self._name

    def py_impl(self, k: Any) -> Callable[[Fn], Fn]:
        """A decorator of what runs for a dispatch key, or while a TorchDispatchMode of that class is the innermost."""

        def keep(fn: Fn) -> Fn:
            self._passed.discard(getattr(k, "name", ""))
            self.py_kernels[k] = fn
            return fn

        return keep

    def py_autograd_impl(self, fn: Fn) -> Fn:
        """`py_impl` for autograd, which runs only where a gradient is wanted."""

        def maybe(*args: Any, **kwargs: Any) -> Any:
            if not library.GRAD.grad or not any(t.requires_grad for t in tensors((args, kwargs))):
                return self._run(args, kwargs, above=False)
            return fn(*args, **kwargs)

        self.py_impl(DispatchKey.Autograd)(maybe)
        return fn

    def fallthrough(self, dispatch_key: Any) -> None:
        """Has nothing run for that key."""
        self._passed.add(dispatch_key.name)

    def cacheable(self) -> bool:
        """Whether compilers may keep what they made with it."""
        return self._cacheable

    @abc.abstractmethod
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._run(args, kwargs, above=True)

    def _run(self, args: Any, kwargs: Any, above: bool) -> Any:
        mode = STACK.modes[-1] if STACK.modes else None
        found = tensors((args, kwargs))
        own = library._TYPES[found[0].device.type] if found else "Undefined"
        keys = [f"Autograd{own}", "Autograd", "CompositeImplicitAutograd"] if found and above else []
        excluded = library.EXCLUDED.names
        if keys and not {f"Autograd{own}", "Autograd"} & (excluded | self._passed):
            self_made = self._kernel(keys)
            if self_made is None:
                key = f"DispatchKey.Autograd{own}"
                raise NotImplementedError(
                    f"could not find kernel for HigherOrderOperator {self._name} at dispatch key {key} (resolved from {key})"
                )
            return self_made(*args, **kwargs)
        if type(mode) in self.py_kernels:
            _lazy.dispatching.pop()
            try:
                return self.py_kernels[type(mode)](mode, *args, **kwargs)
            finally:
                _lazy.dispatching.push(mode)
        kernel = self._kernel([own, "CompositeExplicitAutograd", "CompositeImplicitAutograd"])
        if kernel is None:
            key = f"DispatchKey.{own}"
            raise NotImplementedError(
                f"could not find kernel for HigherOrderOperator {self._name} at dispatch key {key} (resolved from {key})"
            )
        return kernel(*args, **kwargs)

    def _kernel(self, names: list[str]) -> Fn | None:
        by_name = {getattr(k, "name", ""): fn for k, fn in self.py_kernels.items() if isinstance(k, DispatchKey)}
        return next((by_name[n] for n in names if n in by_name), None)
