"""Public functions whose arguments are others than those of ATen's operator, as calls of that.

A rule gets the tracer and the call's arguments. `OTHERWISE`: it is not for these arguments, and what the function calls is met.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch.base import dtypes
from tabtorch.core.tensor import Tensor
from tabtorch.engine.symbols import Real, Symbol
from tabtorch.interception.torch_function import STATE
from tabtorch.nn import functional
from tabtorch.ops.machinery.registry import own_code

OTHERWISE: Any = object()
RULES: dict[str, Callable[..., Any]] = {}

#: functions of torch.nn.functional whose arguments are ATen's
SAME = frozenset(
    "linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d layer_norm group_norm rms_norm "
    "avg_pool1d avg_pool2d avg_pool3d pad pixel_shuffle "
    "pixel_unshuffle scaled_dot_product_attention prelu softplus hardshrink gelu tanh sigmoid one_hot glu cosine_similarity "
    "pairwise_distance channel_shuffle softshrink relu relu6 selu silu mish hardswish hardsigmoid elu celu leaky_relu hardtanh "
    "threshold".split()
)
#: what asks for the values of tensors
REFUSED = frozenset(
    "item tolist numpy __bool__ __int__ __float__ __index__ __complex__ __contains__ __array__ __repr__ __format__ equal allclose "
    "nonzero argwhere masked_select unique unique_consecutive bincount repeat_interleave is_nonzero".split()
)
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def rule(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def put(f: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            RULES[name] = f
        return f

    return put


def _named(name: str, to: str) -> None:
    RULES[name] = lambda t, *args, **kw: t.call(to, *args, **kw)


for _from, _to in {
    "__invert__": "bitwise_not", "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor", "__eq__": "eq",
    "__floordiv__": "floor_divide", "__rsub__": "rsub", "true_divide": "div", "logsigmoid": "log_sigmoid", "_where": "where",
    "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift",
    "get T": "t", "get real": "real", "get imag": "imag", "get data": "detach",
}.items():  # fmt: skip
    _named(_from, _to)


@rule("get mT")
def _mt(t: Any, x: Any) -> Any:
    return t.call("transpose", x, -2, -1)


@rule("__rdiv__")
def _rdiv(t: Any, x: Any, other: Any) -> Any:
    return t.call("mul", t.call("reciprocal", x), other)


@rule("__rpow__")
def _rpow(t: Any, x: Any, other: Any) -> Any:
    return t.call("pow", other, x)


def _activation(name: str, most: int) -> None:
    """One that has `inplace` after its `most` arguments."""

    def call(t: Any, *args: Any, inplace: bool = False, **kw: Any) -> Any:
        if len(args) > most:
            inplace, args = args[most], args[:most]
        return t.call(name + "_" * bool(inplace), *args, **kw)

    RULES[name] = call


for _name, _most in {
    "relu": 1, "relu6": 1, "selu": 1, "silu": 1, "mish": 1, "hardswish": 1, "hardsigmoid": 1, "elu": 2, "celu": 2,
    "leaky_relu": 2, "hardtanh": 3, "threshold": 3,
}.items():  # fmt: skip
    _activation(_name, _most)


@rule("leaky_relu")
def _leaky_relu(t: Any, input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    return t.call("leaky_relu_" if inplace else "leaky_relu", input, negative_slope)


@rule("dropout")
def _dropout(t: Any, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return t.call("dropout_" if inplace else "dropout", input, p, training)


@rule("batch_norm")
def _batch_norm(
    t: Any,
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *rest: Any,
) -> Any:
    if rest:
        return OTHERWISE
    return t.call("batch_norm", input, weight, bias, running_mean, running_var, training, momentum, eps, False)


@rule("instance_norm")
def _instance_norm(
    t: Any,
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    return t.call(
        "instance_norm", input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, False
    )


@rule("embedding")
def _embedding(
    t: Any,
    input: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    if max_norm is not None:
        return OTHERWISE
    if padding_idx is None:
        padding_idx = -1
    elif padding_idx < 0:
        padding_idx += int(weight.shape[0])
    return t.call("embedding", weight, input, padding_idx, scale_grad_by_freq, sparse)


def _pooling(name: str) -> None:
    both = name + "_with_indices"

    def pool(
        t: Any,
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        stride = kernel_size if stride is None or stride == () else stride
        found = t.call(both if return_indices else name, input, kernel_size, stride, padding, dilation, ceil_mode)
        return tuple(found) if return_indices else found

    def pool_with_indices(t: Any, *args: Any, **kwargs: Any) -> Any:
        return pool(t, *args[:6], **{**kwargs, "return_indices": True})

    RULES[name], RULES[both] = pool, pool_with_indices


for _name in ("max_pool1d", "max_pool2d", "max_pool3d"):
    _pooling(_name)


def _adaptive(kind: str, n: int) -> None:
    def pool(t: Any, input: Any, output_size: Any, return_indices: bool = False) -> Any:
        sizes = list(output_size) if isinstance(output_size, (list, tuple)) else [output_size] * n
        sizes = [input.shape[i - n] if x is None else x for i, x in enumerate(sizes)]
        if kind == "avg":
            return t.call(f"adaptive_avg_pool{n}d", input, sizes)
        found = t.call(f"adaptive_max_pool{n}d", input, sizes)
        return tuple(found) if return_indices else found[0]

    RULES[f"adaptive_{kind}_pool{n}d"] = pool


for _n in (1, 2, 3):
    _adaptive("avg", _n)
    _adaptive("max", _n)


@rule("local_response_norm")
def _local_response_norm(t: Any, input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """As PyTorch has it: squares, averaged over neighbouring channels by a pool."""
    dim = input.dim()
    if dim < 3 or not input.is_floating_point():
        return OTHERWISE
    squares = t.call("unsqueeze", t.call("mul", input, input), 1)
    around = [size // 2, (size - 1) // 2]
    if dim == 3:
        mean = t.call("avg_pool2d", t.call("pad", squares, [0, 0, *around]), [size, 1], 1)
    else:
        shape = list(input.shape)
        flat = t.call("view", squares, [shape[0], 1, shape[1], shape[2], -1])
        mean = t.call("avg_pool3d", t.call("pad", flat, [0, 0, 0, 0, *around]), [size, 1, 1], 1)
        mean = t.call("view", mean, [shape[0], 1, *shape[1:]])
    scale = t.call("pow", t.call("add", t.call("mul", t.call("squeeze", mean, 1), alpha), k), beta)
    return t.call("div", input, scale)


def _softmax(name: str) -> None:
    def soft(t: Any, input: Any, dim: Any = None, *rest: Any, dtype: Any = None, _stacklevel: int = 3) -> Any:
        if dim is None:
            return OTHERWISE
        for x in rest:
            dtype = x if isinstance(x, dtypes.dtype) else dtype
        return t.call(name, input, dim, dtype) if dtype is not None else t.call(name, input, dim)

    RULES[name] = soft


for _name in ("softmax", "log_softmax"):
    _softmax(_name)


def _loss(name: str, aten: str, *order: str, **defaults: Any) -> None:
    """A loss of torch.nn.functional. order: ATen's arguments, after the input and the target, as the function names them."""

    def loss(t: Any, input: Any, target: Any, *rest: Any, **kw: Any) -> Any:
        code = own_code(getattr(functional, name))
        given = code.co_varnames[2 : code.co_argcount][: len(rest)]
        if len(given) < len(rest) or not kw.keys().isdisjoint(given):
            return OTHERWISE  # the function's own error
        kw.update(zip(given, rest))
        if kw.pop("size_average", None) is not None or kw.pop("reduce", None) is not None:
            return OTHERWISE
        values = {"reduction": "mean", **defaults, **kw}
        if set(values) - set(order):
            return OTHERWISE
        values["reduction"] = _REDUCTIONS[values["reduction"]]
        return t.call(aten, input, target, *[values[k] for k in order])

    RULES[name] = loss


_loss("mse_loss", "mse_loss", "reduction")
_loss("l1_loss", "l1_loss", "reduction")
_loss("smooth_l1_loss", "smooth_l1_loss", "reduction", "beta", beta=1.0)
_loss("huber_loss", "huber_loss", "reduction", "delta", delta=1.0)
_loss("nll_loss", "nll_loss_nd", "weight", "reduction", "ignore_index", weight=None, ignore_index=-100)
_loss(
    "cross_entropy", "cross_entropy_loss", "weight", "reduction", "ignore_index", "label_smoothing",
    weight=None, ignore_index=-100, label_smoothing=0.0,
)  # fmt: skip
_loss("binary_cross_entropy", "binary_cross_entropy", "weight", "reduction", weight=None)
_loss(
    "binary_cross_entropy_with_logits", "binary_cross_entropy_with_logits", "weight", "pos_weight", "reduction",
    weight=None, pos_weight=None,
)  # fmt: skip
_loss("soft_margin_loss", "soft_margin_loss", "reduction")


@rule("interpolate")
def _interpolate(
    t: Any,
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    n = input.dim() - 2
    names = {
        "nearest": f"nearest{n}d",
        "linear": "linear1d",
        "bilinear": "bilinear2d",
        "trilinear": "trilinear3d",
        "bicubic": "bicubic2d",
    }
    if mode not in names or recompute_scale_factor or antialias or not 1 <= n <= 3:
        return OTHERWISE
    size = [size] * n if type(size) in (int, Symbol) else size
    factors = [float(scale_factor)] * n if isinstance(scale_factor, (int, float)) else scale_factor
    factors = None if factors is None else [float(x) for x in factors]
    corners = () if mode == "nearest" else (bool(align_corners),)
    return t.call("upsample_" + names[mode], input, size, *corners, factors)


@rule("one_hot")
def _one_hot(t: Any, input: Any, num_classes: int = -1) -> Any:
    if num_classes == -1:
        t.refuse("one_hot without num_classes, which depends on the values of a tensor")
    return t.call("one_hot", input, num_classes)


@rule("scan")
def _scan(t: Any, *args: Any, **kw: Any) -> Any:
    """The steps of a recurrent layer, one after another."""
    if kw or len(args) != 9 or not callable(args[-1]):
        return OTHERWISE
    *given, steps = args
    STATE.modes.append(t)
    try:
        return steps(*given, None)
    finally:
        STATE.modes.pop()


@rule("einsum")
def _einsum(t: Any, equation: Any, *operands: Any) -> Any:
    if not isinstance(equation, str):
        return OTHERWISE
    given = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else list(operands)
    return t.call("einsum", equation, given)


@rule("tensordot")
def _tensordot(t: Any, a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
    if out is not None or isinstance(dims, Tensor):
        return OTHERWISE
    first, second = (range(-dims, 0), range(dims)) if isinstance(dims, int) else dims
    return t.call("tensordot", a, b, list(first), list(second))


@rule("norm")
def _norm(t: Any, input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if p == "nuc" or (p == "fro" and dim is not None and not isinstance(dim, int) and len(dim) > 2):
        return OTHERWISE
    p = 2 if p in ("fro", None) else p
    dim = [dim] if isinstance(dim, int) else dim
    return t.call("linalg_vector_norm", input, p, dim, keepdim, **({} if dtype is None else {"dtype": dtype}))


# ---- types


def _cast(name: str) -> None:
    fixed = {
        "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16, "long": dtypes.int64,
        "int": dtypes.int32, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8, "bool": dtypes.bool_,
    }  # fmt: skip

    def cast(t: Any, x: Any, *args: Any, **kw: Any) -> Any:
        if name in fixed:
            dtype: Any = fixed[name]
        else:
            found = [a for a in (*args, *kw.values()) if isinstance(a, dtypes.dtype)]
            others = [a.dtype for a in (*args, *kw.values()) if isinstance(a, Tensor)]
            dtype = (found or others or [x.dtype])[0]
        if any(a is not None and type(a) is bool and a for a in args) or kw.get("copy"):
            x = t.call("clone", x)
        return x if dtype is x.dtype else t.call("to", x, dtype)

    RULES[name] = cast


for _name in "to float double half bfloat16 long int short char byte bool type_as cpu".split():
    _cast(_name)


# ---- indexing


def _plain_index(x: Any) -> bool:
    return type(x) in (int, Symbol)


def _views(t: Any, x: Any, index: Any) -> tuple[Any, list[Any] | None]:
    """A tensor by its basic indices, and the tensors among them by dimension, if any."""
    items = list(index) if isinstance(index, tuple) else [index]
    for k, i in enumerate(items):
        if isinstance(i, list) and i and all(type(n) is int for n in i):
            items[k] = i = t.constant(i, x.device)
        if (
            isinstance(i, (list, Real))
            or type(i) is bool
            or (isinstance(i, Tensor) and i.dtype in (dtypes.bool_, dtypes.uint8))
        ):
            t.refuse("an index that is a list or a mask")
        if not (i is None or i is ... or isinstance(i, (slice, Tensor)) or _plain_index(i)):
            t.refuse(f"an index of {type(i).__name__}")
    if not any(i is ... for i in items):
        items.append(...)
    d = 0
    found: list[Any] = []
    for i in items:
        if i is ...:
            rest = _rest(items, x, len(found))
            d += rest
            found += [None] * rest
        elif i is None:
            x = t.call("unsqueeze", x, d)
            d += 1
            found.append(None)
        elif isinstance(i, Tensor):
            found.append(i)
            d += 1
        elif isinstance(i, slice):
            if i != slice(None):
                x = t.call("slice", x, d, i.start, i.stop, 1 if i.step is None else i.step)
            d += 1
            found.append(None)
        else:
            x = t.call("select", x, d, i)
    return x, found if any(i is not None for i in found) else None


def _rest(items: list[Any], x: Any, done: int) -> int:
    """How many dimensions `...` stands for, when those before it are done."""
    at = next(k for k, i in enumerate(items) if i is ...)
    after = sum(i is not None for i in items[at + 1 :])
    return int(x.dim()) - done - after


@rule("__getitem__")
def _getitem(t: Any, x: Any, index: Any) -> Any:
    if not t.knows(x) and not any(t.knows(i) for i in (index if isinstance(index, tuple) else (index,))):
        return OTHERWISE
    made, tensors = _views(t, x, index)
    if tensors is not None:
        while tensors and tensors[-1] is None:
            tensors.pop()
        return t.call("index", made, tensors)
    return t.call("alias", made) if made is x else made


@rule("__setitem__")
def _setitem(t: Any, x: Any, index: Any, value: Any) -> None:
    made, tensors = _views(t, x, index)
    if tensors is not None:
        if not isinstance(value, Tensor):
            t.refuse("writing a number at indices that are tensors")
        while tensors and tensors[-1] is None:
            tensors.pop()
        t.call("index_put_", made, tensors, value)
    elif isinstance(value, Tensor):
        t.call("copy_", made, value)
    else:
        t.call("fill_", made, value)
