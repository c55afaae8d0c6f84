"""`torch.utils._contextlib`: contexts that are decorators too."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["context_decorator"]


def context_decorator(ctx: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """`func`, each call of which is in a context of its own. ctx: the context, or what makes one; a generator's steps are each in one."""
    if callable(ctx) and hasattr(ctx, "__enter__") and not inspect.isclass(ctx):
        raise AssertionError(
            f"Passed in {ctx} is both callable and also a valid context manager (has __enter__), making it ambiguous which "
            "interface to use.  If you intended to pass a context manager factory, rewrite your call as context_decorator(lambda: "
            "ctx()); if you intended to pass a context manager directly, rewrite your call as context_decorator(lambda: ctx)"
        )
    make: Callable[[], Any] = ctx if not hasattr(ctx, "__enter__") or inspect.isclass(ctx) else lambda: ctx
    if inspect.isclass(func):
        raise RuntimeError(
            "Cannot decorate classes; it is ambiguous whether or not only the constructor or all methods should have the "
            "context manager applied; additionally, decorating a class at definition-site will prevent use of the identifier as "
            "a conventional type.  To specify which methods to decorate, decorate each of them individually."
        )
    if inspect.isgeneratorfunction(func):

        @functools.wraps(func)
        def steps(*args: Any, **kwargs: Any) -> Any:
            made = func(*args, **kwargs)
            try:
                with make():
                    found = made.send(None)
                while True:
                    try:
                        given = yield found
                    except GeneratorExit:
                        with make():
                            made.close()
                        raise
                    except BaseException as error:
                        with make():
                            found = made.throw(error)
                    else:
                        with make():
                            found = made.send(given)
            except StopIteration as end:
                return end.value

        return steps

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        with make():
            return func(*args, **kwargs)

    return call


class _DecoratorContextManager:
    """A context, and with `()` a decorator. `clone` gives the context of a call; a subclass that has arguments says how."""

    def __call__(self, orig_func: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isclass(orig_func):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or "
                "methods. To preserve the current behavior of class decoration, you can directly decorate the `__init__` method "
                "and nothing else.",
                FutureWarning,
                stacklevel=2,
            )
            return context_decorator(self.clone, lambda *args, **kwargs: orig_func(*args, **kwargs))
        return context_decorator(self.clone, orig_func)

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        raise NotImplementedError

    def clone(self) -> Any:
        """Another of its class."""
        return self.__class__()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One that takes no arguments: `@context` is `@context()`."""

    def __new__(cls, orig_func: Any = None) -> Any:
        made = super().__new__(cls)
        return made if orig_func is None else made(orig_func)
