"""Where autocast takes hold: the functions on its lists do something else while it is on.

Entering the outermost region exchanges the code of the listed functions (see `interception/code_swapping.py`), leaving it puts it back.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import Any

from tabtorch import _lazy
from tabtorch.amp._policies import BANNED, NAMES, POLICIES, holds
from tabtorch.base import dtypes
from tabtorch.base.thread_state import kind
from tabtorch.core.tensor import Tensor
from tabtorch.interception.code_swapping import LOCK, Layer
from tabtorch.ops.machinery.registry import GUARD


class _Copies(dict[int, tuple[Tensor, Tensor]]):
    __eq__ = object.__eq__


class _Now(threading.local):
    """What holds for a thread."""

    def __init__(self) -> None:
        # for each device number (0 webgpu, 1 cpu)
        self.enabled = [False, False]
        self.low_dtype: list[Any] = [dtypes.float16, dtypes.bfloat16]
        self.cache_enabled = True
        self.nesting = 0
        #: inside of a listed operation: what it is made of runs as it is
        self.inside = False
        #: float32 leaf -> (itself, its copy in the lower type): a weight is converted once in a region
        self.copies = _Copies()
        self.counted = False


NOW = _Now()


def _kept() -> Any:
    now = NOW
    return now.enabled[:], now.low_dtype[:], now.cache_enabled, now.nesting, now.inside, now.copies


def _restore(values: Any) -> None:
    now = NOW
    now.enabled[:], now.low_dtype[:], now.cache_enabled, now.nesting, now.inside, now.copies = values
    update()


kind(_kept, _restore)
#: how many threads have it on for some device
_threads = 0

_DTYPE = type(dtypes.float32)
#: modules of this package whose code counts as the user's, since it is written in terms of PyTorch's operations
_OPEN = (
    "tabtorch.nn.",
    "tabtorch.distributions",
    "tabtorch.func",
    "tabtorch.masked",
    "tabtorch.optim",
    "tabtorch.ops.functional",
    "tabtorch.ops.linalg.products",
    "tabtorch.ops.linalg.spectral_uses",
    "tabtorch.utils",
)
_ours: dict[str, bool] = {}


def _is_ours(module: str) -> bool:
    r = _ours[module] = module.startswith("tabtorch.") and not module.startswith(_OPEN)
    return r


def _between(frame: Any) -> bool:
    """Whether it belongs to another party that looks on, such as overrides by subclasses."""
    return frame.f_globals.get("__name__") in (
        "tabtorch.interception.code_swapping",
        "tabtorch.interception.torch_function",
    )


def clear_copies() -> None:
    NOW.copies.clear()


def _call(name: str, f: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
    """What a listed function does while autocast is on. `f` is the function as it was."""
    now = NOW
    if now.inside:
        return f(*args, **kw)
    frame: Any = sys._getframe(1)
    while (code := frame.f_code).co_name == "exchanged" or code.co_filename == GUARD or _between(frame):
        frame = frame.f_back
    module = frame.f_globals.get("__name__", "")
    if _ours.get(module, None) or (module not in _ours and _is_ours(module)):
        return f(*args, **kw)
    first = _first_tensor((*args, *kw.values()))
    number = 1 if first is None else _number(first)
    if first is None or not now.enabled[number] or kw.get("out") is not None:
        return f(*args, **kw)
    policy = POLICIES[number].get(name)
    if policy == "banned":
        raise RuntimeError(BANNED)
    if policy == "sums" and any(isinstance(a, _DTYPE) for a in (*args, *kw.values())):
        policy = None
    elif policy is not None and not holds(name, number, args, kw):
        policy = None
    if policy is not None:
        to = now.low_dtype[number]
        if policy in ("wide", "sums"):
            to = dtypes.float32
        elif policy == "promote" and _has_wide(args, number):
            to = dtypes.float32
        args = tuple([_cast(a, number, to) for a in args])
        kw = {k: _cast(a, number, to) for k, a in kw.items()} if kw else kw
    now.inside = True
    try:
        return f(*args, **kw)
    finally:
        now.inside = False


def _number(t: Tensor) -> int:
    """Whose autocast counts for a tensor: its device's, and for one that named none, which PyTorch has on the cpu, the cpu's, too."""
    d = t._meta.device
    return 1 if d.implicit and not NOW.enabled[d.number] else d.number


def _recurrent(f: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
    """A recurrent layer is one operation on the GPU, in the lower type throughout; on cpu only the LSTM is."""
    first = _first_tensor(args[1:])
    if first is not None and not NOW.inside:
        n = _number(first)
        if NOW.enabled[n] and (n == 0 or getattr(args[0], "mode", "") == "LSTM"):
            args = tuple([_cast(a, n, NOW.low_dtype[n]) for a in args])
    return f(*args, **kw)


def _first_tensor(values: tuple[Any, ...]) -> Tensor | None:
    for a in values:
        if isinstance(a, Tensor):
            return a
        if type(a) in (tuple, list) and (t := _first_tensor(tuple(a))) is not None:
            return t
    return None


def _has_wide(values: Any, number: int) -> bool:
    return any(
        a._meta.dtype is dtypes.float32 and _number(a) == number
        if isinstance(a, Tensor)
        else type(a) in (tuple, list) and _has_wide(a, number)
        for a in values
    )


def _cast(a: Any, number: int, to: Any) -> Any:
    if isinstance(a, Tensor):
        m = a._meta
        d = m.dtype
        if d is to or d.category != 2 or d is dtypes.float64 or _number(a) != number:
            return a
        if d is not dtypes.float32 or to is not NOW.low_dtype[number] or not (NOW.cache_enabled and a._rg):
            return a.to(to)
        if a._fn is not None or a._base is not None:
            return a.to(to)
        copies = NOW.copies
        kept = copies.get(id(a))
        if kept is None:
            kept = copies[id(a)] = (a, a.to(to))
        return kept[1]
    if type(a) in (tuple, list):
        return type(a)([_cast(x, number, to) for x in a])
    return a


# ---- switching it on and off

_layer: Layer | None = None


def _make_layer() -> Layer:
    layer = Layer(0, lambda name: partial(_call, name) if name in NAMES else None)
    for name, make, row in (
        ("__pow__", lambda: _lazy.operators._binary("pow", "__pow__"), "pow"),
        ("__rpow__", lambda: _lazy.operators._reflected("pow"), "pow"),
        ("__matmul__", _lazy.operators._matmul, "matmul"),
        ("__rmatmul__", _lazy.operators._rmatmul, "matmul"),
        ("__rtruediv__", _lazy.operators._rdiv, "reciprocal"),
    ):
        f = make()
        setattr(Tensor, name, f)
        layer.meet(f, partial(_call, row))
    for name in NAMES:
        layer.meet(_lazy.functional.__dict__.get(name), partial(_call, name))
    layer.meet(_lazy.linear.linear, partial(_call, "linear"))  # what `torch.nn.functional.linear` calls, and composites
    layer.meet(_lazy.rnn.RNNBase.__dict__["_layers"], _recurrent)
    layer.meet(_lazy.rnn.RNNCellBase.__dict__["_step"], _recurrent)
    return layer


def update() -> None:
    """To be called when `enabled` has changed."""
    global _layer, _threads
    now = NOW
    on = any(now.enabled)
    if on is now.counted:
        return
    with LOCK:
        now.counted = on
        _threads += 1 if on else -1
        if _layer is None:
            _layer = _make_layer()
        _layer.switch(_threads > 0)
