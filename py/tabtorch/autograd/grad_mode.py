"""Whether autograd records: `no_grad`, `enable_grad`, `inference_mode`, `set_grad_enabled`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from tabtorch.base.thread_state import STATE


class _Mode:
    """A context manager that is a decorator too, of functions, generators and (with a warning, as PyTorch) classes."""

    prev: Any

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, *exc: Any) -> None:
        raise NotImplementedError

    def clone(self) -> _Mode:
        return self.__class__()

    def __call__(self, orig: Any) -> Any:
        return _decorate(self.clone, orig)


def _decorate(make: Callable[[], _Mode], orig: Any) -> Any:
    import inspect

    if isinstance(orig, type):
        import warnings

        warnings.warn(
            "Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions "
            "or methods. To preserve the current behavior of class decoration, you can directly decorate the `__init__` "
            "method and nothing else.",
            FutureWarning,
            stacklevel=3,
        )
        orig.__init__ = _decorate(make, orig.__init__)  # type: ignore[misc]
        return orig
    if inspect.isgeneratorfunction(orig):
        return _decorate_generator(make, orig)
    if inspect.iscoroutinefunction(orig):

        @functools.wraps(orig)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with make():
                return await orig(*args, **kwargs)

        return coroutine

    @functools.wraps(orig)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with make():
            return orig(*args, **kwargs)

    return wrapped


def _decorate_generator(make: Callable[[], Any], orig: Any) -> Any:
    """The mode holds while the generator runs, not while it is suspended."""

    @functools.wraps(orig)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        gen = orig(*args, **kwargs)
        try:
            with make():
                response = gen.send(None)
            while True:
                try:
                    request = yield response
                except GeneratorExit:
                    with make():
                        gen.close()
                    raise
                except BaseException:
                    with make():
                        response = gen.throw(*sys.exc_info())
                else:
                    with make():
                        response = gen.send(request)
        except StopIteration as stop:
            return stop.value

    return wrapped


class _NoParam(_Mode):
    """`@torch.no_grad` works without parentheses too."""

    def __new__(cls, orig: Any = None) -> Any:
        if orig is None:
            return object.__new__(cls)
        return cls()(orig)


class no_grad(_NoParam):
    """Nothing inside is recorded."""

    def __enter__(self) -> None:
        self.prev = STATE.enabled()
        STATE.enable(False)

    def __exit__(self, *exc: Any) -> None:
        STATE.enable(self.prev)


class quiet:
    """Nothing inside is recorded, for forward mode neither."""

    def __enter__(self) -> None:
        self.prev = STATE.grad
        STATE.grad = False

    def __exit__(self, *exc: Any) -> None:
        STATE.grad = self.prev


class enable_grad(_NoParam):
    """What is inside is recorded, within `no_grad` too."""

    def __enter__(self) -> None:
        self.prev = STATE.enabled()
        STATE.enable(not STATE.inference)

    def __exit__(self, *exc: Any) -> None:
        STATE.enable(self.prev)


class set_grad_enabled(_Mode):
    """Sets the mode at once; as a context manager, until its end."""

    def __init__(self, mode: bool) -> None:
        self.prev = STATE.enabled()
        self.mode = mode
        STATE.enable(bool(mode) and not STATE.inference)

    def __call__(self, orig: Any) -> Any:
        STATE.enable(self.prev)
        return super().__call__(orig)

    def __enter__(self) -> None:
        STATE.enable(bool(self.mode) and not STATE.inference)

    def __exit__(self, *exc: Any) -> None:
        STATE.enable(self.prev)

    def __str__(self) -> str:
        return f"torch.autograd.grad_mode.set_grad_enabled(mode={self.mode})"

    def clone(self) -> _Mode:
        return self.__class__(self.mode)


class inference_mode(_Mode):
    """As `no_grad`, and the tensors made inside can never take part in recording."""

    def __new__(cls, mode: Any = True) -> Any:
        if isinstance(mode, bool):
            return object.__new__(cls)
        return cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        self.prev = (STATE.enabled(), STATE.inference)
        STATE.inference = self.mode
        if self.mode:
            STATE.grad = False
        else:
            STATE.enable(True)

    def __exit__(self, *exc: Any) -> None:
        on, STATE.inference = self.prev
        STATE.enable(on)

    def clone(self) -> _Mode:
        return self.__class__(self.mode)


class enforce_grad_layout_policy(_Mode):
    """Whether the first gradient of a leaf is laid out as the leaf (the default), or taken as it comes. Holds at once."""

    def __init__(self, enable: bool = True) -> None:
        self.prev = STATE.lays_out
        STATE.lays_out = self.mode = enable

    def __call__(self, orig: Any) -> Any:
        STATE.lays_out = self.prev
        return super().__call__(orig)

    def __enter__(self) -> None:
        """It holds already."""

    def __exit__(self, *exc: Any) -> None:
        STATE.lays_out = self.prev

    def clone(self) -> _Mode:
        return self.__class__(self.mode)


def is_grad_enabled() -> bool:
    return STATE.enabled()


def is_inference_mode_enabled() -> bool:
    return STATE.inference
