"""Operators that are no kernels of ATen, but calls of others: which those are.

A rule gets the dispatcher and the operator's arguments (see tabtorch.export.lowering, whose rules are met first).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tabtorch
from tabtorch.base import dtypes
from tabtorch.core.tensor import Tensor
from tabtorch.export import lowering
from tabtorch.export.lowering import OTHERWISE, _views
from tabtorch.interception.operator_modes import Quiet

#: operator -> what it calls
RULES: dict[str, Callable[..., Any]] = {}
#: the same of functions that tabtorch.export has other rules for
PUBLIC: dict[str, Callable[..., Any]] = {}

#: what PyTorch has no kernel for: of those without a rule, what our function calls is met
NAMES = frozenset(
    (
        "absolute adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adjoint alpha_dropout arccos arccosh "
        "arcsin arcsinh arctan arctan2 arctanh argsort atleast_1d atleast_2d atleast_3d avg_pool1d batch_norm bilinear "
        "broadcast_tensors broadcast_to cartesian_prod cdist chalf chunk clip_ column_stack combinations concat concatenate conj "
        "conj_physical contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d corrcoef "
        "cosine_embedding_loss cosine_similarity cov cross cross_entropy_loss ctc_loss cumulative_trapezoid det diag diagflat diff "
        "divide dropout dropout_ dsplit dstack einsum embedding_bag expand_as fft_fft fft_fft2 fft_fftshift fft_ifft fft_ifft2 "
        "fft_ifftshift fft_irfft fft_rfft fill_diagonal_ fix flatten fliplr flipud float_power float_power_ frobenius_norm ger gradient "
        "greater greater_equal grid_sampler group_norm gru gru_cell hinge_embedding_loss histogramdd hsplit hstack imag inner "
        "instance_norm inverse isclose isfinite isreal istft kl_div kron l1_loss layer_norm less less_equal linalg_cholesky linalg_det "
        "linalg_diagonal linalg_inv linalg_matmul linalg_matrix_power linalg_matrix_rank linalg_norm linalg_slogdet linalg_solve "
        "linalg_solve_ex linalg_svd linalg_vander linalg_vecdot linear log_sigmoid log_softmax logdet lstm lstm_cell lu_solve mH mT "
        "margin_ranking_loss matmul matrix_exp matrix_power max_pool1d max_pool1d_with_indices max_pool2d max_pool3d meshgrid moveaxis "
        "movedim msort multilabel_margin_loss multiply nanmean nanquantile narrow negative nll_loss nll_loss2d nll_loss_nd "
        "norm_except_dim not_equal nuclear_norm one_hot orgqr outer pad pad_sequence pairwise_distance pdist pin_memory pinverse "
        "poisson_nll_loss positive prelu qr ravel real relu6 reshape reshape_as resolve_conj resolve_neg rms_norm rnn_relu "
        "rnn_relu_cell rnn_tanh rnn_tanh_cell rrelu scaled_dot_product_attention selu slogdet softmax special_digamma special_erf "
        "special_erfc special_erfinv special_exp2 special_expm1 special_gammaln special_i0 special_log1p special_logit "
        "special_logsumexp special_round special_sinc special_xlogy square stft subtract sum_to_size svd swapaxes swapdims "
        "take_along_dim tensor_split tensordot tile to to_dense trapezoid trapz triplet_margin_loss true_divide type_as unflatten "
        "vander view_as vsplit vstack"
    ).split()
)


def rule(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def put(f: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            RULES[name] = f
        return f

    return put


def _same(name: str, to: str) -> None:
    RULES[name] = lambda t, *args, **kw: t.call(to, *args, **kw)


for _from, _to in {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "concat": "cat", "concatenate": "cat", "divide": "div", "true_divide": "div",
    "fix": "trunc", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "multiply": "mul", "negative": "neg",
    "not_equal": "ne", "subtract": "sub", "swapaxes": "transpose", "swapdims": "transpose", "broadcast_to": "expand",
}.items():  # fmt: skip
    _same(_from, _to)


# ---- shapes


def _viewable(x: Any, shape: list[int]) -> bool:
    with Quiet():
        try:
            x.view(shape)
        except RuntimeError:
            return False
    return True


@rule("reshape")
def _reshape(t: Any, x: Any, *shape: Any, **kw: Any) -> Any:
    sizes = list(kw.get("shape", shape[0] if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape))
    if _viewable(x, sizes):
        return t.call("view", x, sizes)
    if -1 in sizes:
        sizes[sizes.index(-1)] = x.numel() // max(1, -math.prod(sizes))
    copied = t.plain("clone", x, memory_format=tabtorch.contiguous_format)
    return t.plain("_unsafe_view", copied, sizes)


@rule("flatten")
def _flatten(t: Any, x: Any, start_dim: Any = 0, end_dim: Any = -1) -> Any:
    if not isinstance(start_dim, int) or not isinstance(end_dim, int):
        return OTHERWISE
    shape = list(x.shape)
    if not shape:
        return _reshape(t, x, [1])
    a, b = start_dim % len(shape), end_dim % len(shape)
    return x if a == b else _reshape(t, x, [*shape[:a], math.prod(shape[a : b + 1]), *shape[b + 1 :]])


@rule("unflatten")
def _unflatten(t: Any, x: Any, dim: Any, sizes: Any) -> Any:
    if not isinstance(dim, int):
        return OTHERWISE
    shape = list(x.shape)
    dim %= len(shape)
    sizes = list(sizes)
    if -1 in sizes:
        sizes[sizes.index(-1)] = shape[dim] // -math.prod(sizes)
    return t.call("view", x, [*shape[:dim], *sizes, *shape[dim + 1 :]])


@rule("contiguous")
def _contiguous(t: Any, x: Any, memory_format: Any = None) -> Any:
    memory_format = memory_format or tabtorch.contiguous_format
    if x.is_contiguous(memory_format=memory_format):
        return x
    return t.plain("clone", x, memory_format=memory_format)


RULES["reshape_as"] = lambda t, x, other: _reshape(t, x, list(other.shape))
RULES["view_as"] = lambda t, x, other: t.call("view", x, list(other.shape))
RULES["expand_as"] = lambda t, x, other: t.call("expand", x, list(other.shape))
RULES["ravel"] = lambda t, x: _reshape(t, _contiguous(t, x), [-1])
RULES["square"] = lambda t, x: t.call("pow", x, 2)
RULES["positive"] = lambda t, x: x
PUBLIC["get T"] = lambda t, x: t.call("permute", x, list(range(x.dim()))[::-1])
PUBLIC["get mT"] = lambda t, x: t.call("transpose", x, -2, -1)


@rule("adjoint")
def _adjoint(t: Any, x: Any) -> Any:
    return OTHERWISE if x.is_complex() else t.call("transpose", x, -2, -1)


@rule("movedim", "moveaxis")
def _movedim(t: Any, x: Any, source: Any, destination: Any) -> Any:
    n = x.dim()
    a, b = [[d % n for d in ([s] if isinstance(s, int) else s)] for s in (source, destination)]
    if a == b:
        return t.call("alias", x)
    rest = iter([d for d in range(n) if d not in a])
    return t.call("permute", x, [a[b.index(d)] if d in b else next(rest) for d in range(n)])


@rule("narrow")
def _narrow(t: Any, x: Any, dim: int, start: Any, length: int) -> Any:
    if isinstance(start, Tensor):
        return OTHERWISE
    start = start + x.shape[dim] if start < 0 else start
    return t.call("slice", x, dim, start, start + length)


@rule("chunk")
def _chunk(t: Any, x: Any, chunks: int, dim: int = 0) -> Any:
    size = -(-x.shape[dim] // chunks)
    return tuple(t.call("split", x, size, dim)) if size else OTHERWISE


@rule("split")
def _split(t: Any, x: Any, split_size_or_sections: Any, dim: int = 0) -> Any:
    if isinstance(split_size_or_sections, int):
        return tuple(t.plain("split.Tensor", x, split_size_or_sections, *([dim] if dim else [])))
    return tuple(t.call("split_with_sizes", x, list(split_size_or_sections), dim))


@rule("hstack", "vstack")
def _stacked(t: Any, tensors: Any) -> Any:
    return OTHERWISE if min(x.dim() for x in tensors) < 2 else t.call("cat", list(tensors), 0)


RULES["hstack"] = lambda t, tensors: (
    t.call("cat", list(tensors), int(tensors[0].dim() > 1)) if tensors[0].dim() else OTHERWISE
)


# ---- types


@rule("to")
def _cast(t: Any, x: Any, dtype: Any = None, *rest: Any, **kw: Any) -> Any:
    if not isinstance(dtype, dtypes.dtype) or rest or kw:
        return OTHERWISE
    return x if dtype is x.dtype else t.plain("_to_copy", x, dtype=dtype)


def _moved(t: Any, x: Any, *args: Any, **kw: Any) -> Any:
    """`to` of another device or form."""
    rest = [a for a in args if not isinstance(a, bool)]
    dtype = next((a for a in (*rest, kw.get("dtype")) if isinstance(a, dtypes.dtype)), None)
    other = next((a for a in (*rest, kw.get("other")) if isinstance(a, Tensor)), None)
    device = next((a for a in (*rest, kw.get("device")) if isinstance(a, (str, tabtorch.device))), None)
    if other is not None:
        dtype, device = other.dtype, other.device
    form = kw.get("memory_format")
    wanted: dict[str, Any] = {}
    if dtype is not None and dtype is not x.dtype:
        wanted["dtype"] = dtype
    if device is not None and tabtorch.device(device) != x.device:
        wanted["device"] = tabtorch.device(device)
    if form is not None and not x.is_contiguous(memory_format=form):
        wanted["memory_format"] = form
    copies = kw.get("copy") or (len(args) > 2 and args[-1] is True)
    return t.plain("_to_copy", x, **wanted) if wanted or copies else x


PUBLIC["to"] = PUBLIC["type_as"] = _moved


# ---- products


@rule("linear")
def _linear(t: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    if weight.dim() != 2:
        return OTHERWISE
    n = input.dim()
    if bias is not None and n == 2:
        return t.call("addmm", bias, input, t.call("t", weight))
    if bias is not None and n == 3 and input.is_contiguous():
        rows = t.call("view", input, [-1 if not input.numel() else input.shape[0] * input.shape[1], input.shape[2]])
        made = t.call("addmm", bias, rows, t.call("t", weight))
        return t.call("view", made, [*input.shape[:2], weight.shape[0]])
    made = _matmul(t, input, t.call("t", weight))
    return made if bias is None else t.call("add", made, bias)


@rule("matmul", "linalg_matmul", "__matmul__")
def _matmul(t: Any, a: Any, b: Any) -> Any:
    n, m = a.dim(), b.dim()
    if (n, m) == (1, 1):
        return t.call("dot", a, b)
    if (n, m) == (2, 1):
        return t.call("mv", a, b)
    if (n, m) == (1, 2):
        return t.call("squeeze_", t.call("mm", t.call("unsqueeze", a, 0), b), 0)
    if (n, m) == (2, 2):
        return t.call("mm", a, b)
    # what would have to be copied is not made flat, unless the gradient would be large else
    if n >= 3 and (m == 1 or (m == 2 and (b.requires_grad or _viewable(a, [math.prod(a.shape[:-1]), a.shape[-1]])))):
        shape = [*a.shape[:-1], *b.shape[1:]]
        rows = _reshape(t, a, [math.prod(a.shape[:-1]), a.shape[-1]])
        return t.plain("_unsafe_view", t.call("mv" if m == 1 else "mm", rows, b), shape)
    if n < 2 or m < 2:
        return OTHERWISE
    batch = list(tabtorch.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    flat = []
    for x in (a, b):
        sizes = list(x.shape[-2:])
        flat.append(_reshape(t, t.call("expand", x, [*batch, *sizes]), [math.prod(batch), *sizes]))
    return t.plain("_unsafe_view", t.call("bmm", *flat), [*batch, a.shape[-2], b.shape[-1]])


@rule("outer", "ger")
def _outer(t: Any, a: Any, b: Any) -> Any:
    return t.call("mul", _reshape(t, a, [a.shape[0], 1]), b)


@rule("scaled_dot_product_attention")
def _attention(
    t: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    if enable_gqa or dropout_p or query.dim() != 4:
        return OTHERWISE
    positional = [0.0, True] if is_causal else []
    named = {k: v for k, v in {"attn_mask": attn_mask, "scale": scale}.items() if v is not None}
    return t.plain("_scaled_dot_product_flash_attention_for_cpu", query, key, value, *positional, **named)[0]


# ---- layers


def _softmax(name: str) -> None:
    def soft(t: Any, x: Any, dim: int, dtype: Any = None) -> Any:
        if dtype is not None and dtype is not x.dtype:
            x = t.plain("_to_copy", x, dtype=dtype)
        return t.plain("_" + name, x, dim, False)

    RULES[name] = soft


_softmax("softmax")
_softmax("log_softmax")


@rule("dropout")
def _dropout(t: Any, input: Any, p: float, train: bool) -> Any:
    if not train or not p:
        return input
    if p == 1:
        return t.call("mul", input, t.call("zeros_like", input))
    kept = t.plain("bernoulli_.float", t.plain("empty_like", input), *([] if p == 0.5 else [1 - p]))
    return t.call("mul", input, t.plain("div_.Scalar", kept, 1 - p))


@rule("layer_norm")
def _layer_norm(
    t: Any, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any
) -> Any:
    return t.plain("native_layer_norm", input, list(normalized_shape), weight, bias, eps)[0]


@rule("group_norm")
def _group_norm(
    t: Any, input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any
) -> Any:
    n, c = input.shape[:2]
    return t.plain("native_group_norm", input, weight, bias, n, c, math.prod(input.shape[2:]), num_groups, eps)[0]


@rule("batch_norm")
def _batch_norm(
    t: Any,
    input: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
    *rest: Any,
) -> Any:
    t.plain(
        "empty.memory_format", [0], dtype=dtypes.uint8, layout=tabtorch.strided, device=input.device
    )  # what cuDNN would need
    return t.plain("native_batch_norm", input, weight, bias, mean, var, training, momentum, eps)[0]


def _convolution(n: int) -> None:
    def many(x: Any) -> list[int]:
        return [x] * n if isinstance(x, int) else list(x) * (n // len(x))

    def conv(
        t: Any,
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        if padding == "valid":
            padding = 0
        if isinstance(padding, str) or input.dim() != n + 2:
            return OTHERWISE
        return t.plain(
            "convolution", input, weight, bias, many(stride), many(padding), many(dilation), False, [0] * n, groups
        )

    def transposed(
        t: Any, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, dilation: Any = 1,
    ) -> Any:  # fmt: skip
        if input.dim() != n + 2:
            return OTHERWISE
        sizes = many(stride), many(padding), many(dilation)
        return t.plain("convolution", input, weight, bias, *sizes, True, many(output_padding), groups)

    RULES[f"conv{n}d"] = conv
    RULES[f"conv_transpose{n}d"] = transposed


for _n in (1, 2, 3):
    _convolution(_n)


def _max_pool(n: int) -> None:
    def many(x: Any) -> list[int]:
        return [x] * n if isinstance(x, int) else list(x) * (n // len(x))

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
        args = [many(stride) if stride else [], many(padding), many(dilation), ceil_mode]
        defaults: list[Any] = [[], [0] * n, [1] * n, False]
        while args and args[-1] == defaults[len(args) - 1]:
            args.pop()
        found = t.plain(f"max_pool{n}d_with_indices", input, many(kernel_size), *args)
        return tuple(found) if return_indices else found[0]

    RULES[f"max_pool{n}d"] = PUBLIC[f"max_pool{n}d"] = pool


_max_pool(2)
_max_pool(3)


@rule("one_hot")
def _one_hot(t: Any, x: Any, num_classes: int = -1) -> Any:
    if num_classes == -1:
        return OTHERWISE
    for bound in t.plain("aminmax", x):
        t.plain("_local_scalar_dense", bound)
    made = t.plain("zeros", [*x.shape, num_classes], dtype=dtypes.int64, layout=tabtorch.strided, device=x.device)
    return t.plain("scatter_.value", made, -1, t.call("unsqueeze", x, -1), 1)


PUBLIC["one_hot"] = _one_hot


def _setitem(t: Any, x: Any, index: Any, value: Any) -> Any:
    if isinstance(value, Tensor):
        return lowering.RULES["__setitem__"](t, x, index, value)
    with Quiet():
        number = tabtorch.tensor(value, dtype=x.dtype, device=x.device)
    number = t.plain("lift_fresh", number)
    made, tensors = _views(t, x, index)
    if tensors is not None:
        t.refuse("writing a number at indices that are tensors")
    t.plain("fill_.Tensor", made, number)


PUBLIC["__setitem__"] = _setitem


@rule("adaptive_avg_pool2d")
def _adaptive(t: Any, input: Any, output_size: Any) -> Any:
    sizes = [output_size] * 2 if isinstance(output_size, int) else list(output_size)
    return t.call("mean", input, [-1, -2], True) if sizes == [1, 1] else t.plain("_adaptive_avg_pool2d", input, sizes)


@rule("adaptive_avg_pool1d")
def _adaptive_line(t: Any, input: Any, output_size: Any) -> Any:
    (size,) = [output_size] if isinstance(output_size, int) else output_size
    return t.call("squeeze", _adaptive(t, t.call("unsqueeze", input, -2), [1, size]), -2)


@rule("cross_entropy_loss")
def _cross_entropy(
    t: Any,
    input: Any,
    target: Any,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
    smooth: float = 0.0,
) -> Any:
    if smooth or target.is_floating_point():
        return OTHERWISE
    scores = t.call("log_softmax", input, int(input.dim() > 1))
    return _nll(t, scores, target, weight, reduction, ignore_index)


@rule("nll_loss_nd", "nll_loss")
def _nll(t: Any, input: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Any:
    if input.dim() not in (1, 2, 4):
        return OTHERWISE
    name = "nll_loss2d_forward" if input.dim() == 4 else "nll_loss_forward"
    return t.plain(name, input, target, weight, reduction, ignore_index)[0]


@rule("l1_loss")
def _l1_loss(t: Any, input: Any, target: Any, reduction: int = 1) -> Any:
    far = t.call("abs", t.call("sub", input, target))
    return far if not reduction else t.call("mean" if reduction == 1 else "sum", far)


@rule("relu6")
def _relu6(t: Any, x: Any) -> Any:
    return t.plain("hardtanh", x, 0, 6)


def _activation(name: str, *defaults: float) -> None:
    """One whose arguments PyTorch hands on, defaults too."""

    def call(t: Any, x: Any, *args: Any, inplace: bool = False, **kw: Any) -> Any:
        if kw or len(args) > len(defaults):
            return OTHERWISE
        return t.plain(name + "_" * inplace, x, *args, *defaults[len(args) :])

    PUBLIC[name] = call


_activation("elu", 1.0)
_activation("hardtanh", -1.0, 1.0)


@rule("selu")
def _selu(t: Any, x: Any) -> Any:
    return t.plain("elu", x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@rule("pad")
def _pad(t: Any, input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    if mode == "constant":
        return t.call("constant_pad_nd", input, list(pad), 0.0 if value is None else value)
    n = len(pad) // 2
    kinds = {"reflect": "reflection", "replicate": "replication"}
    return t.call(f"{kinds[mode]}_pad{n}d", input, list(pad)) if mode in kinds else OTHERWISE


def _spread(name: str) -> None:
    def spread(
        t: Any, x: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None
    ) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if unbiased is None and dim is not None and correction is None:
            unbiased = True
        if unbiased is not None:
            correction = int(unbiased)
        named = {} if correction is None else {"correction": correction}
        dim = [dim] if isinstance(dim, int) else dim
        return t.plain(
            name + ".correction",
            x,
            *([] if dim is None else [list(dim)]),
            **named,
            **({"keepdim": True} if keepdim else {}),
        )

    PUBLIC[name] = spread


_spread("var")
_spread("std")
