"""`torch._dynamo.config`: what of it has a meaning here; other settings may be set, and change nothing."""

import contextlib
from collections.abc import Iterator
from typing import Any

#: kinds of arguments and states for which one function is recorded
recompile_limit = 8
#: compiled functions run as they are
disable = False
suppress_errors = False
verbose = False
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
automatic_dynamic_shapes = True
assume_static_by_default = True


def __getattr__(name: str) -> int:
    if name in ("cache_size_limit", "accumulated_cache_size_limit", "accumulated_recompile_limit"):
        return recompile_limit
    raise AttributeError(f"torch._dynamo.config.{name} does not exist")


def limit() -> int:
    """The limit, by whichever of its names it was set."""
    return globals().get("cache_size_limit", recompile_limit)


@contextlib.contextmanager
def patch(*changes: Any, **more: Any) -> Iterator[None]:
    """Settings within a `with`, or a decorated function: `patch(name=value)`, `patch(name, value)`, `patch({name: value})`."""
    own = globals()
    before = own.copy()
    own.update(*changes if len(changes) < 2 else [[changes]], **more)
    try:
        yield
    finally:
        own.clear()
        own.update(before)
