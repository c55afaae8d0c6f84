"""What can be done with a MaskedTensor: PyTorch's own list. Everything else is a TypeError, as there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.masked import _ops
from tabtorch.masked.maskedtensor.core import MaskedTensor, check, is_masked_tensor, masked
from tabtorch.overrides import DisableTorchFunctionSubclass

#: of the data alone; the mask stays
_UNARY = (
    "abs absolute acos arccos acosh arccosh angle asin arcsin asinh arcsinh atan arctan atanh arctanh bitwise_not ceil clamp clip "
    "conj_physical cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor frac lgamma log log10 log1p log2 logit i0 "
    "isnan nan_to_num neg negative positive pow rad2deg reciprocal round rsqrt sigmoid sign sgn signbit sin sinc sinh sqrt square "
    "tan tanh trunc __invert__ __pow__ __rdiv__ __rtruediv__ clone detach contiguous ones_like to_dense"
).split()
#: of two, whose masks are the same, or only one of which has a mask
_BINARY = (
    "add atan2 arctan2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift div divide floor_divide fmod "
    "logaddexp logaddexp2 mul multiply nextafter remainder sub subtract true_divide eq ne le ge greater greater_equal gt "
    "less_equal lt less maximum minimum fmax fmin not_equal __eq__ __and__ __or__ __xor__ __floordiv__ __lshift__ __rshift__"
).split()
#: of the data and of the mask in the same way
_BOTH = (
    "select transpose split chunk t narrow view reshape flatten expand unsqueeze unfold cat concat concatenate stack mT "
    "__getitem__ view_as reshape_as expand_as swapaxes swapdims"
).split()
_REDUCTIONS = "sum mean amin amax argmin argmax prod all norm var std".split()
#: moves the data, and the mask with it
_MOVES = "cpu cuda".split()
#: another type of the data
_TYPES = "to double float half int long short char bool".split()
#: what says nothing of the elements
_ABOUT = (
    "dim ndimension ndim size shape dtype device layout numel nelement stride storage_offset is_contiguous requires_grad "
    "requires_grad_ is_leaf grad_fn retain_grad retains_grad backward is_floating_point is_complex is_signed element_size itemsize "
    "nbytes is_cuda is_sparse is_cpu __len__ output_nr names _version get_device is_same_size is_inference __reduce_ex__ "
    "untyped_storage _typed_storage"
).split()


def call(func: Any, args: Any, kwargs: Any) -> Any:
    """Answers a call with a MaskedTensor among its arguments; NotImplemented for what PyTorch has none of either."""
    how = _table().get(func)
    if how is None:
        return NotImplemented
    with DisableTorchFunctionSubclass():
        return how(func, args, kwargs)


@functools.cache
def _table() -> dict[Any, Callable[..., Any]]:
    """function -> what answers it: of the namespace, the method, the attribute."""
    inplace = {f"{n}_": _in_place for n in (*_UNARY, *_BINARY)}
    kinds: dict[str, Any] = {
        **dict.fromkeys(_UNARY, _unary),
        **dict.fromkeys(_BINARY, _binary),
        **inplace,
        **dict.fromkeys(_BOTH, _both),
        **{n: functools.partial(_reduced, n) for n in _REDUCTIONS},
        **dict.fromkeys(_MOVES, _moved),
        **dict.fromkeys(_TYPES, _typed),
        **dict.fromkeys(_ABOUT, _about),
        **dict.fromkeys(("__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__", "__ipow__"), _in_place),
        "where": _where,
        "softmax": _softmax,
        **dict.fromkeys(("item", "__bool__", "__float__", "__int__", "__index__"), _item),
    }
    table: dict[Any, Callable[..., Any]] = {}
    for name, how in kinds.items():
        for space in (torch, Tensor, torch.nn.functional):
            f = getattr(space, name, None)
            if isinstance(f, property):
                f = f.__get__
            if callable(f) and not isinstance(f, type):
                table[f] = how
    return table


def _each(x: Any, of: Callable[[MaskedTensor], Tensor]) -> Any:
    """`x`, in which `of` stands for each MaskedTensor, in lists too."""
    if is_masked_tensor(x):
        return of(x)
    return type(x)([_each(v, of) for v in x]) if type(x) in (list, tuple) else x


def _data(x: Any) -> Any:
    return _each(x, MaskedTensor.get_data)


def _mask(x: Any) -> Any:
    return _each(x, MaskedTensor.get_mask)


def _wrapped(data: Any, mask: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return type(data)([_wrapped(d, m) for d, m in zip(data, mask, strict=True)])
    check(data, mask)
    return masked(data, mask)


def _unary(func: Any, args: Any, kwargs: Any) -> Any:
    if any(isinstance(x, Tensor) for x in args[1:]):
        raise TypeError("MaskedTensor unary ops do not support additional Tensor arguments")
    return masked(func(*_data(args), **kwargs), args[0].get_mask())


def _match(args: Any) -> None:
    a, b = args[0], args[1]
    if is_masked_tensor(a) and is_masked_tensor(b) and a.get_mask() is not b.get_mask():
        if a.dim() != b.dim() or not bool((a.get_mask() == b.get_mask()).all()):
            raise ValueError("Input masks must match. If you need support for this, please open an issue on Github.")


def _binary(func: Any, args: Any, kwargs: Any) -> Any:
    if kwargs.keys() - {"other"}:
        raise ValueError("len(kwargs) must equal 0")
    args = (*args, *kwargs.values())
    _match(args)
    r = func(*_data(args))
    mask = args[0 if is_masked_tensor(args[0]) else 1].get_mask()
    return masked(r, mask if mask.shape == r.shape else mask.expand_as(r))


def _in_place(func: Any, args: Any, kwargs: Any) -> Any:
    if not is_masked_tensor(args[0]):
        return NotImplemented
    if len(args) > 1:
        _match(args)
    func(args[0], *_data(args[1:]), **kwargs)  # the data are its own memory
    return args[0]


def _both(func: Any, args: Any, kwargs: Any) -> Any:
    if getattr(func, "__name__", "") == "__getitem__" and is_masked_tensor(args[1]):
        return NotImplemented
    return _wrapped(func(*_data(args), **_data_of(kwargs)), func(*_mask(args), **_mask_of(kwargs)))


def _data_of(kwargs: Any) -> Any:
    return {k: _data(v) for k, v in kwargs.items()}


def _mask_of(kwargs: Any) -> Any:
    return {k: _mask(v) for k, v in kwargs.items()}


def _reduced(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    self, mask = args[0], args[0].get_mask()
    data = self.get_data()
    if name == "norm":  # as PyTorch, whose own call of it does not fit
        kwargs = {k: v for k, v in kwargs.items() if v is not None}
    whole = len(args) == 1 and not kwargs
    if name == "all":
        data = data.masked_fill(~mask, True)
        return masked(data.all(), mask.any()) if whole else _over(torch.all, data, mask, *args[1:], **kwargs)
    f = functools.partial(getattr(_ops, name), mask=mask)
    return masked(f(data), mask.any()) if whole else _over(f, data, mask, *args[1:], **kwargs)


def _over(f: Any, data: Tensor, mask: Tensor, dim: Any, keepdim: bool = False, dtype: Any = None) -> Any:
    r = f(data, dim=dim, keepdim=keepdim) if dtype is None else f(data, dim=dim, keepdim=keepdim, dtype=dtype)
    for d in sorted([dim] if isinstance(dim, int) else dim, reverse=True):
        mask = mask.any(d, keepdim)
    return masked(r, mask)


def _moved(func: Any, args: Any, kwargs: Any) -> Any:
    data = func(*_data(args), **kwargs)
    return masked(data, args[0].get_mask().to(data.device))


def _typed(func: Any, args: Any, kwargs: Any) -> Any:
    data = func(*_data(args), **_data_of(kwargs))
    mask = args[0].get_mask().to(data.device)
    check(data, mask)
    return masked(data, mask)


def _about(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


def _where(func: Any, args: Any, kwargs: Any) -> Any:
    if len(args) != 3 or kwargs:
        raise ValueError(f"__torch_function__, torch.where: len(args) must be 3 but got {len(args)}")
    if func is Tensor.where:  # whose condition comes second
        args = (args[1], args[0], args[2])
    condition, *sides = args
    if is_masked_tensor(condition):
        return NotImplemented
    masks = [x.get_mask() if is_masked_tensor(x) else torch.ones_like(x, dtype=torch.bool) for x in sides]
    return masked(torch.where(condition, *_data(tuple(sides))), torch.where(condition, *masks))


def _softmax(func: Any, args: Any, kwargs: Any) -> Any:
    data, mask = args[0].get_data(), args[0].get_mask()
    kept = data.masked_fill(~mask, -torch.inf)
    r = func(kept, *args[1:], **kwargs)
    return masked(r.masked_fill(r.isnan(), 0), mask)  # a row with nothing in it


def _item(func: Any, args: Any, kwargs: Any) -> Any:
    (self,) = args
    if self.numel() == 1 and not bool(self.get_mask()):
        raise ValueError(f"__torch_dispatch__, {func.__name__}: expected a mask tensor")
    return func(self.get_data(), **kwargs)
