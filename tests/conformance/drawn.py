"""Results that depend on numbers which webgpu draws with a generator of its own, as CUDA does: held against PyTorch's formula.

What was drawn is read off tabtorch's result (which elements a dropout kept, the slopes of an rrelu) and put into PyTorch's
formula in place of numbers of its own. Everything else is compared as ever: values, gradients, dtypes, strides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch.testing._internal.opinfo.core import OpInfo

import tabtorch
from tabtorch.nn import functional
from tabtorch.ops.functional import attention

from . import translate
from .compare import Mismatch

Call = Callable[..., Any]
#: how many numbers a share is judged by, at least, and how many standard deviations it may be off
_MANY, _DEVIATIONS = 1500, 5.0


class Drawing(NamedTuple):
    """How the numbers of an operator are read off, and used.

    formula: takes tabtorch's function, which starts from the same seed at each call, its arguments, and whether the numbers
    should be judged as random ones; gives PyTorch's function of the same arguments with what tabtorch drew. many: the first
    argument, made large enough for that judgement, where the formula is not always judged.
    """

    formula: Callable[[Call, Any, tuple[Any, ...], dict[str, Any], bool], Call]
    many: Callable[[Any], Any] | None


def draws(op: OpInfo, call: Callable[[], Any]) -> bool:
    """Whether this call of PyTorch's function takes random numbers, for an operator that draws its own on webgpu."""
    if op.name not in DRAWINGS:
        return False
    before = torch.get_rng_state()
    try:
        call()
    except Exception:
        return False
    return not torch.equal(before, torch.get_rng_state())


def theirs(op: OpInfo, f: Call, mine: tuple[Any, tuple[Any, ...], dict[str, Any]], device: str) -> Call:
    """PyTorch's function with the numbers that tabtorch's draws from the seed 0. mine: the arguments in tabtorch.

    Raises Mismatch where what was drawn is implausible.
    """

    def again(x: Any, *args: Any, **kwargs: Any) -> Any:
        tabtorch.manual_seed(0)
        with tabtorch.device(device), tabtorch.no_grad():
            return f(x, *args, **kwargs)

    formula, many = DRAWINGS[op.name]
    x, args, kwargs = mine
    x = x.detach().clone()
    if many is not None:
        large = many(x)
        formula(again, large, args, kwargs, True)(translate.back(large), *args, **kwargs)
    return formula(again, x, args, kwargs, many is None)


def _plausible(kept: torch.Tensor, p: float) -> None:
    """Raises Mismatch unless a share of 1 - p was kept, of the first half and of the second."""
    for half in kept.reshape(-1).double().chunk(2):
        if abs(float(half.mean()) - (1 - p)) > _DEVIATIONS * math.sqrt(p * (1 - p) / half.numel()):
            raise Mismatch(f"{float(half.mean()):.3f} of {half.numel()} kept, where p is {p}", "values")


def _repeated(x: Any, leading: Callable[[Any], int], sign: float = 1.0) -> Any:
    """The tensor many times along its first dimension, without zeros, which say nothing of what became of them.

    leading: how many dimensions have numbers of their own.
    """
    times = math.ceil(_MANY / max(math.prod(x.shape[: leading(x)]), 1))
    return x.nan_to_num(1.0, 1.0, 1.0).abs().clamp(max=100.0).add(0.5).mul(sign).repeat(times, *(1,) * (x.dim() - 1))


# -- dropouts


def _kept(x: torch.Tensor, result: torch.Tensor, p: float) -> torch.Tensor:
    return (result != 0) | (x == 0)


_FLOOR = 1.7580993408473766  # how far below 0 SELU goes


def _alpha(p: float) -> tuple[float, float]:
    """(factor, what is added to a kept element) of an alpha dropout (Klambauer et al., 2017)."""
    a = 1 / math.sqrt((_FLOOR * _FLOOR * p + 1) * (1 - p))
    return a, _FLOOR * a * p


def _kept_alpha(x: torch.Tensor, result: torch.Tensor, p: float) -> torch.Tensor:
    a, b = _alpha(p)
    return (result - (x * a + b)).abs() <= (result - (b - _FLOOR * a)).abs()


def _dropout(
    leading: Callable[[Any], int], keep: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor] = _kept
) -> Drawing:
    """A dropout that draws for each place in the leading dimensions. keep(x, result, p): what was kept."""

    def formula(again: Call, x: Any, args: tuple[Any, ...], kwargs: dict[str, Any], judged: bool) -> Call:
        result = translate.back(again(x, *args, **kwargs))

        def f(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
            first = (slice(None),) * leading(x) + (slice(0, 1),) * (x.dim() - leading(x))  # the rest must be as this
            kept = keep(x.detach().to(result.dtype)[first], result[first], p)
            if judged:
                _plausible(kept, p)
            noise = kept.to(x.dtype).expand(x.shape)
            if keep is _kept_alpha:
                a, b = _alpha(p)
                out = x * (noise * a) + ((noise - 1) * (_FLOOR * a) + b)
            else:
                out = x * (noise / (1 - p))
            return x.copy_(out) if inplace else out

        return f

    return Drawing(formula, functools.partial(_repeated, leading=leading))


def _all(x: Any) -> int:
    return x.dim()  # type: ignore[no-any-return]


def _channels(x: Any) -> int:
    return min(2, x.dim())


def _channels_3d(x: Any) -> int:
    return 1 if x.dim() == 4 else 2  # (C, D, H, W) has no batch


# -- others


def _rrelu(again: Call, x: Any, args: tuple[Any, ...], kwargs: dict[str, Any], judged: bool) -> Call:
    result = translate.back(again(x, *args, **kwargs))

    def f(
        x: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        flat = x.detach().to(result.dtype)
        told = (flat < 0) & flat.isfinite()
        slopes = torch.where(told, result / flat, lower)
        slack = 4 * torch.finfo(result.dtype).eps
        if not bool(((slopes >= lower * (1 - slack)) & (slopes <= upper * (1 + slack))).all()):
            raise Mismatch(f"slopes from {slopes.min()} to {slopes.max()}, not within [{lower}, {upper}]", "values")
        for quarter in (0.25, 0.5, 0.75) if judged else ():
            _plausible(slopes[told] > lower + (upper - lower) * quarter, quarter)
        if not inplace:
            x = x.contiguous()  # as PyTorch's result is
        out = x * torch.where(told, slopes, 1.0).to(x.dtype).contiguous()
        return x.copy_(out) if inplace else out

    return f


def _attention(again: Call, query: Any, args: tuple[Any, ...], kwargs: dict[str, Any], judged: bool) -> Call:
    """The weights themselves are the result for values that make an identity matrix."""
    key, value = args[0], args[1]
    n = key.shape[-2]
    identity = tabtorch.eye(n, dtype=value.dtype, device=value.device).expand(*value.shape[:-2], n, n)
    weights = translate.back(again(query, key, identity, *args[2:], **kwargs))
    whole = translate.back(again(query, key, identity, *args[2:], **{**kwargs, "dropout_p": 0.0}))
    _plausible((weights != 0)[whole != 0], kwargs["dropout_p"])

    def f(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **named: Any) -> torch.Tensor:
        # PyTorch's CPU kernel has the scores of halves in single precision; its formula for a given mask has not
        low = query.dtype in (torch.float16, torch.bfloat16)
        wide = [t.float() if low else t for t in (query, key, value)]
        formula = torch._scaled_dot_product_attention_math
        return formula(*wide, **named, dropout_mask=weights != 0)[0].to(query.dtype)  # type: ignore[no-any-return]

    return f


def _multi_head_attention(again: Call, query: Any, args: tuple[Any, ...], kwargs: dict[str, Any], judged: bool) -> Call:
    """The weights after dropout are its second result, each head's if that is asked for."""
    weights = translate.back(again(query, *args, **{**kwargs, "average_attn_weights": False})[1])
    kept = (weights != 0).reshape(-1, *weights.shape[-2:])
    _plausible(kept, args[9])

    def dropout(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        return x * (kept.to(x.dtype) / (1 - p))

    def f(*args: Any, **kwargs: Any) -> Any:
        with mock.patch.object(torch.nn.functional, "dropout", dropout):
            return torch.nn.functional.multi_head_attention_forward(*args, **kwargs)

    return f


#: the operators that take the device's own generator on webgpu; all others draw PyTorch's numbers there, too
DRAWINGS: dict[str, Drawing] = {
    "nn.functional.dropout": _dropout(_all),
    "nn.functional.dropout2d": _dropout(_channels),
    "nn.functional.dropout3d": _dropout(_channels_3d),
    "nn.functional.alpha_dropout": _dropout(_all, _kept_alpha),
    "nn.functional.feature_alpha_dropout": _dropout(_channels, _kept_alpha),
    "nn.functional.rrelu": Drawing(_rrelu, functools.partial(_repeated, leading=_all, sign=-1.0)),
    "nn.functional.scaled_dot_product_attention": Drawing(_attention, None),
    "nn.functional.multi_head_attention_forward": Drawing(_multi_head_attention, None),
}


# -- modules: they draw in functions

#: the functions through which modules draw; attention draws in `dropout`
_FUNCTIONS: dict[str, Drawing] = {
    **{name.rpartition(".")[2]: d for name, d in DRAWINGS.items() if d.many is not None},
    "dropout1d": _dropout(lambda x: x.dim() - 1),
}


class Numbers:
    """What a call of tabtorch's functions drew, in order; `in_pytorch`, the same calls of PyTorch's take these numbers."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.drawn: list[tuple[str, Call]] = []
        with ExitStack() as stack:
            for space in (functional, attention):
                for name in _FUNCTIONS.keys() & vars(space).keys():
                    noting = self._noting(name, getattr(space, name))
                    stack.enter_context(mock.patch.object(space, name, noting))
            call()

    def _noting(self, name: str, function: Call) -> Call:
        def f(x: Any, *args: Any, **kwargs: Any) -> Any:
            result = function(x, *args, **kwargs)
            noted = result.detach().clone()
            formula = _FUNCTIONS[name].formula(lambda *_, **__: noted, x, args, kwargs, noted.numel() >= _MANY)
            self.drawn.append((name, formula))
            return result

        return f

    @contextmanager
    def in_pytorch(self) -> Iterator[None]:
        """Raises Mismatch where PyTorch draws somewhere else, or more or less often."""
        left = iter(self.drawn)
        theirs = torch.nn.functional
        with ExitStack() as stack:
            for name in _FUNCTIONS:
                stack.enter_context(mock.patch.object(theirs, name, _told(name, getattr(theirs, name), left)))
            told = _told_attention(theirs.scaled_dot_product_attention, left)
            stack.enter_context(mock.patch.object(theirs, "scaled_dot_product_attention", told))
            yield
        if more := [name for name, _ in left]:
            raise Mismatch(f"more numbers are drawn than by PyTorch, in {more}")


def _next(name: str, left: Iterator[tuple[str, Call]]) -> Call:
    found, formula = next(left, ("nothing", None))
    if formula is None or found != name:
        raise Mismatch(f"{found} draws, where {name} does in PyTorch")
    return formula


def _told(name: str, function: Call, left: Iterator[tuple[str, Call]]) -> Call:
    """PyTorch's function with the next numbers, if it takes any."""

    def f(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        formula = _next(name, left)
        before = torch.get_rng_state()
        function(x.detach().clone(), *args, **kwargs)
        return (function if torch.equal(before, torch.get_rng_state()) else formula)(x, *args, **kwargs)

    return f


def _told_attention(function: Call, left: Iterator[tuple[str, Call]]) -> Call:
    def f(
        query: Any, key: Any, value: Any, mask: Any = None, p: float = 0.0, causal: bool = False, **named: Any
    ) -> Any:
        if not p:
            return function(query, key, value, mask, p, causal, **named)
        formula = _next("dropout", left)
        # the scores of PyTorch's own formula, which has no dropout of its own where the probability is 0
        weights = torch._scaled_dot_product_attention_math(query, key, value, mask, 0.0, causal, **named)[1]
        return formula(weights, p) @ value

    return f
