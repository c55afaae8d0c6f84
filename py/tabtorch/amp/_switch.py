"""Where autocast takes hold: operations do something else while it is on, each by its name in `_policies`.

One that is on a list converts what it gets; what it is made of, and what a gradient formula calls, is then left as it is. Who
calls an operation does not matter: `torch.nn`, and formulas that PyTorch makes of the same operations, go by the lists too.
Entering the outermost region exchanges the code of the listed functions (see `interception/code_swapping.py`), leaving it puts it back.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import Any

from tabtorch import _lazy
from tabtorch.amp._policies import BANNED, NAMES, POLICIES, holds
from tabtorch.autograd.tape import OpFn
from tabtorch.base import dtypes
from tabtorch.base.thread_state import kind
from tabtorch.core.tensor import Tensor
from tabtorch.interception.code_swapping import LOCK, Layer
from tabtorch.ops.machinery import registry
from tabtorch.ops.machinery.row_tape import PackedFn, RowFn


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
        #: inside of an operation: what it is made of runs as it is
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


def clear_copies() -> None:
    NOW.copies.clear()


def _call(name: str, f: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
    """What a listed function does while autocast is on. `f` is the function as it was."""
    now = NOW
    if now.inside:
        return f(*args, **kw)
    first = _first_tensor((*args, *kw.values()))
    number = 1 if first is None else _number(first)
    policy = None
    if first is not None and now.enabled[number] and kw.get("out") is None:
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


def _opaque(f: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
    """What a gradient formula does: what it calls takes what it gets."""
    now = NOW
    if now.inside:
        return f(*args, **kw)
    now.inside = True
    try:
        return f(*args, **kw)
    finally:
        now.inside = False


def _number(t: Tensor) -> int:
    """Whose autocast counts for a tensor: its device's, and for one that named none, which PyTorch has on the cpu, the cpu's, too."""
    d = t._tab_meta.device
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
        if isinstance(a, (tuple, list)) and (t := _first_tensor(tuple(a))) is not None:
            return t
    return None


def _has_wide(values: Any, number: int) -> bool:
    return any(
        a._tab_meta.dtype is dtypes.float32 and _number(a) == number
        if isinstance(a, Tensor)
        else isinstance(a, (tuple, list)) and _has_wide(a, number)
        for a in values
    )


def _cast(a: Any, number: int, to: Any) -> Any:
    if isinstance(a, Tensor):
        m = a._tab_meta
        d = m.dtype
        if d is to or d.category != 2 or d is dtypes.float64 or _number(a) != number:
            return a
        if (
            d is not dtypes.float32
            or to is not NOW.low_dtype[number]
            or not (NOW.cache_enabled and a._tab_requires_grad)
        ):
            return a.to(to)
        if a._tab_grad_fn is not None or a._base is not None:
            return a.to(to)
        copies = NOW.copies
        kept = copies.get(id(a))
        if kept is None:
            kept = copies[id(a)] = (a, a.to(to))
        return kept[1]
    if isinstance(a, (tuple, list)):
        parts = [_cast(x, number, to) for x in a]
        return parts if isinstance(a, list) else tuple(parts)
    return a


# ---- switching it on and off

_layer: Layer | None = None


def _namespaced(f: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
    """What `registry.overridable` does: a function of `torch.fft`, which is not in the registry, is met when it is first used."""
    r = f(*args, **kw)
    _meet_fft(r)
    return r


def _meet_fft(*functions: Any) -> None:
    assert _layer is not None
    for f in functions:
        name = getattr(f, "__name__", "")
        if name.startswith("fft_") and name in NAMES:
            _layer.meet(f, partial(_call, name))


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
        shown = _lazy.functional.__dict__.get(name)
        while shown is not None:  # and what it guards, which composites call
            layer.meet(shown, partial(_call, name))
            shown = getattr(shown, "__wrapped__", None)
    layer.meet(registry.overridable, _namespaced)
    for gradient in (OpFn.apply, RowFn.apply, PackedFn.apply, _lazy.forward_ad._gradients):
        layer.meet(gradient, _opaque)  # gradient formulas: one written by a user goes by the lists
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
        if on and "tabtorch.fft" in sys.modules:
            _meet_fft(*vars(sys.modules["tabtorch.fft"]).values())
        _layer.switch(_threads > 0)
