"""ATen's operators of layers as ONNX's: products, convolutions, pools, norms, resizing, attention, recurrent layers."""

from __future__ import annotations

import math
from typing import Any

from tabtorch.base import dtypes
from tabtorch.onnx.exporting.builder import Builder, Value
from tabtorch.onnx.exporting.table import Out, aten


@aten("matmul", "mm", "bmm", "dot", "mv")
def matmul(b: Builder, out: Out, x: Value, other: Value) -> Value:
    return b.op("MatMul", x, other, sizes=out.sizes)


@aten("linear")
def linear(b: Builder, out: Out, x: Value, weight: Value, bias: Value | None = None) -> Value:
    if x.rank == 2 and bias is not None and bias.rank == 1:
        return b.op("Gemm", x, weight, bias, sizes=out.sizes, transB=1)
    made = b.op("MatMul", x, b.transpose(weight, [1, 0]) if weight.rank == 2 else weight, sizes=out.sizes)
    return made if bias is None else b.op("Add", made, bias)


def _plus(b: Builder, out: Out, x: Value, product: Value, beta: Any, alpha: Any) -> Value:
    if alpha != 1:
        product = b.op("Mul", product, b.like(alpha, out.dtype))
    if beta == 0:
        return product
    return b.op("Add", product, x if beta == 1 else b.op("Mul", x, b.like(beta, out.dtype)), sizes=out.sizes)


@aten("addmm", "addmv", "addbmm_", "baddbmm")
def addmm(b: Builder, out: Out, x: Value, first: Value, second: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    return _plus(b, out, x, b.op("MatMul", first, second, sizes=out.sizes), beta, alpha)


@aten("outer", "ger")
def outer(b: Builder, out: Out, x: Value, vec2: Value) -> Value:
    x, vec2 = b.cast(x, out.dtype), b.cast(vec2, out.dtype)
    return b.op("Mul", b.op("Unsqueeze", x, b.constant([1]), sizes=[*x.sizes, 1]), vec2, sizes=out.sizes)


@aten("bilinear")
def bilinear(b: Builder, out: Out, x1: Value, x2: Value, weight: Value, bias: Value | None = None) -> Value:
    made = b.op("Einsum", x1, weight, x2, sizes=out.sizes, equation="...i,oij,...j->...o")
    return made if bias is None else b.op("Add", made, bias)


# ---- convolutions and pools


def _many(x: Any, n: int) -> list[int]:
    x = [x] if isinstance(x, int) else list(x)
    return x * n if len(x) == 1 else x


def _batched(b: Builder, x: Value, n: int) -> tuple[Value, bool]:
    """With a dimension for the batch, whether there was one."""
    if x.rank == n + 2:
        return x, True
    return b.op("Unsqueeze", x, b.constant([0]), sizes=[1, *x.sizes]), False


def _unbatched(b: Builder, x: Value, had: bool) -> Value:
    return x if had else b.op("Squeeze", x, b.constant([0]), sizes=x.sizes[1:])


def _convolution(b: Builder, out: Out, n: int, x: Value, weight: Value, bias: Value | None, **of: Any) -> Value:
    x, had = _batched(b, x, n)
    pads, transposed = of["padding"], of.get("transposed", False)
    common: dict[str, Any] = {
        "strides": _many(of["stride"], n),
        "dilations": _many(of["dilation"], n),
        "group": of["groups"],
    }
    if isinstance(pads, str):
        if pads == "same":
            spans = [d * (int(k or 1) - 1) for d, k in zip(common["dilations"], weight.sizes[2:], strict=True)]
            common["pads"] = [s // 2 for s in spans] + [s - s // 2 for s in spans]
    else:
        common["pads"] = _many(pads, n) * 2
    if transposed:
        common["output_padding"] = _many(of["output_padding"], n)
    kind = "ConvTranspose" if transposed else "Conv"
    made = b.op(
        kind,
        x,
        weight,
        bias,
        sizes=out.sizes if had else (1, *out.sizes),
        kernel_shape=list(weight.sizes[2:]),
        **common,
    )
    return _unbatched(b, made, had)


for _n in (1, 2, 3):

    @aten(f"conv{_n}d")
    def _conv(
        b: Builder, out: Out, x: Value, weight: Value, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, n: int = _n,
    ) -> Value:  # fmt: skip
        return _convolution(
            b, out, n, x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups
        )

    @aten(f"conv_transpose{_n}d")
    def _conv_transpose(
        b: Builder, out: Out, x: Value, weight: Value, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, dilation: Any = 1, n: int = _n,
    ) -> Value:  # fmt: skip
        given = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        return _convolution(b, out, n, x, weight, bias, transposed=True, output_padding=output_padding, **given)

    @aten(f"max_pool{_n}d")
    def _max_pool(
        b: Builder, out: Out, x: Value, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
        n: int = _n,
    ) -> Any:  # fmt: skip
        x, had = _batched(b, x, n)
        kernel = _many(kernel_size, n)
        (name,) = b.node(
            "MaxPool", [x], kernel_shape=kernel, strides=_many(stride, n) if stride else kernel, pads=_many(padding, n) * 2,
            dilations=_many(dilation, n), ceil_mode=int(ceil_mode),
        )  # fmt: skip
        return _unbatched(b, Value(name, x.dtype, out.sizes if had else (1, *out.sizes)), had)

    @aten(f"avg_pool{_n}d")
    def _avg_pool(
        b: Builder, out: Out, x: Value, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: Any = None, n: int = _n,
    ) -> Value:  # fmt: skip
        kernel, pads = _many(kernel_size, n), _many(padding, n)
        if divisor_override is not None or (ceil_mode and count_include_pad and any(pads)):
            raise NotImplementedError("avg_pool with divisor_override, or with ceil_mode and padding that counts")
        x, had = _batched(b, x, n)
        made = b.op(
            "AveragePool", x, sizes=out.sizes if had else (1, *out.sizes), kernel_shape=kernel, pads=pads * 2,
            strides=_many(stride, n) if stride else kernel, ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad),
        )  # fmt: skip
        return _unbatched(b, made, had)

    @aten(f"adaptive_avg_pool{_n}d", f"_adaptive_avg_pool{_n}d")
    def _adaptive_avg(b: Builder, out: Out, x: Value, output_size: Any, n: int = _n) -> Value:
        return _adaptive(b, out, x, _many(output_size, n), n, "AveragePool", "GlobalAveragePool")

    @aten(f"adaptive_max_pool{_n}d")
    def _adaptive_max(b: Builder, out: Out, x: Value, output_size: Any, n: int = _n) -> Value:
        return _adaptive(b, out, x, _many(output_size, n), n, "MaxPool", "GlobalMaxPool")


def _adaptive(b: Builder, out: Out, x: Value, wanted: list[int], n: int, kind: str, whole: str) -> Value:
    x, had = _batched(b, x, n)
    sizes = out.sizes if had else (1, *out.sizes)
    if all(k == 1 for k in wanted):
        return _unbatched(b, b.op(whole, x, sizes=sizes), had)
    given = x.sizes[2:]
    if any(g is None or g % k for g, k in zip(given, wanted, strict=True)):
        raise NotImplementedError(f"an adaptive pool from {given} to {wanted}: sizes that are no multiples, or vary")
    kernel = [int(g or 1) // k for g, k in zip(given, wanted, strict=True)]
    return _unbatched(b, b.op(kind, x, sizes=sizes, kernel_shape=kernel, strides=kernel), had)


# ---- norms


@aten("batch_norm", "_native_batch_norm_legit_no_training", "_batch_norm_no_update")
def batch_norm(
    b: Builder,
    out: Out,
    x: Value,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    *rest: Any,
    **named: Any,
) -> Value:
    training, eps = (rest[0], rest[2]) if len(rest) > 2 else (False, rest[1])
    if training or running_mean is None:
        raise NotImplementedError("batch_norm of a model in training, or without running statistics: call eval() first")
    channels = running_mean.sizes[0]
    scale = b.constant([1.0] * channels, x.dtype) if weight is None else weight
    shift = b.constant([0.0] * channels, x.dtype) if bias is None else bias
    return b.op("BatchNormalization", x, scale, shift, running_mean, running_var, epsilon=float(eps))


@aten("layer_norm", "native_layer_norm")
def layer_norm(
    b: Builder,
    out: Out,
    x: Value,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Value:
    n = len(normalized_shape)
    scale = (
        b.op("Expand", b.constant(1.0, x.dtype), b.sizes(normalized_shape), sizes=x.sizes[-n:])
        if weight is None
        else weight
    )
    return b.op("LayerNormalization", x, scale, bias, sizes=x.sizes, axis=-n, epsilon=float(eps))


@aten("rms_norm")
def rms_norm(b: Builder, out: Out, x: Value, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Value:
    dims = list(range(-len(normalized_shape), 0))
    least = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52}.get(
        str(x.dtype).removeprefix("torch."), 2.0**-23
    )
    mean = b.reduce("ReduceMean", b.op("Mul", x, x), [d % x.rank for d in dims], True)
    made = b.op("Div", x, b.op("Sqrt", b.op("Add", mean, b.constant(least if eps is None else float(eps), x.dtype))))
    return made if weight is None else b.op("Mul", made, weight)


def _channelwise(b: Builder, x: Value, made: Value, weight: Any, bias: Any) -> Value:
    for kind, by in (("Mul", weight), ("Add", bias)):
        if by is not None:
            made = b.op(kind, made, b.reshape(by, [b.size(by, 0), *[1] * (x.rank - 2)]))
    return made


@aten("group_norm")
def group_norm(
    b: Builder,
    out: Out,
    x: Value,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Value:
    rows = b.op("Reshape", x, b.sizes([b.size(x, 0), num_groups, -1]), sizes=[x.sizes[0], num_groups, None])
    ones, noughts = b.constant([1.0] * num_groups, x.dtype), b.constant([0.0] * num_groups, x.dtype)
    made = b.op("InstanceNormalization", rows, ones, noughts, epsilon=float(eps))
    return _channelwise(b, x, b.op("Reshape", made, b.shape(x), sizes=x.sizes, allowzero=1), weight, bias)


@aten("instance_norm")
def instance_norm(
    b: Builder, out: Out, x: Value, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, momentum: float,
    eps: float, cudnn_enabled: bool = True,
) -> Value:  # fmt: skip
    if not use_input_stats:
        return batch_norm(b, out, x, weight, bias, running_mean, running_var, False, momentum, eps)
    channels = x.sizes[1]
    if channels is None:
        raise NotImplementedError("instance_norm of a number of channels that varies")
    scale = b.constant([1.0] * channels, x.dtype) if weight is None else weight
    shift = b.constant([0.0] * channels, x.dtype) if bias is None else bias
    return b.op("InstanceNormalization", x, scale, shift, epsilon=float(eps))


@aten("normalize")
def normalize(b: Builder, out: Out, x: Value, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Value:
    if p != 2:
        raise NotImplementedError("normalize by another norm than 2")
    length = b.reduce("ReduceL2", x, [dim], True)
    return b.op("Div", x, b.op("Max", length, b.constant(eps, x.dtype)))


# ---- resizing


@aten("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def upsample_nearest(b: Builder, out: Out, x: Value, output_size: Any, *scales: Any, **named: Any) -> Value:
    return _resized(b, out, x, output_size, [*scales, *named.values()], "nearest", "asymmetric", nearest_mode="floor")


@aten("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def upsample_exact(b: Builder, out: Out, x: Value, output_size: Any, *scales: Any, **named: Any) -> Value:
    return _resized(
        b, out, x, output_size, [*scales, *named.values()], "nearest", "half_pixel", nearest_mode="round_prefer_ceil"
    )


for _name, _mode in {
    "linear1d": "linear",
    "bilinear2d": "linear",
    "trilinear3d": "linear",
    "bicubic2d": "cubic",
}.items():

    @aten(f"upsample_{_name}")
    def _upsample(
        b: Builder,
        out: Out,
        x: Value,
        output_size: Any,
        align_corners: bool,
        *scales: Any,
        mode: str = _mode,
        **named: Any,
    ) -> Value:
        where = "align_corners" if align_corners else "half_pixel" if mode == "cubic" else "pytorch_half_pixel"
        given = [] if align_corners else [*scales, *named.values()]
        return _resized(b, out, x, output_size, given, mode, where, cubic_coeff_a=-0.75 if mode == "cubic" else None)


def _resized(
    b: Builder, out: Out, x: Value, output_size: Any, scales: list[Any], mode: str, where: str, **attributes: Any
) -> Value:
    n = x.rank - 2
    if len(scales) == 1 and isinstance(scales[0], (list, tuple)):
        scales = list(scales[0])
    if len(scales) == n and all(isinstance(s, float) for s in scales):
        factors = b.constant([1.0, 1.0, *scales], dtypes.float32)
        return b.op(
            "Resize", x, None, factors, sizes=out.sizes, mode=mode, coordinate_transformation_mode=where, **attributes
        )
    wanted = b.sizes([b.size(x, 0), b.size(x, 1), *(out.sizes[2:] if output_size is None else output_size)])
    return b.op(
        "Resize", x, None, None, wanted, sizes=out.sizes, mode=mode, coordinate_transformation_mode=where, **attributes
    )


@aten("pixel_shuffle")
def pixel_shuffle(b: Builder, out: Out, x: Value, upscale_factor: int) -> Value:
    return b.op("DepthToSpace", x, sizes=out.sizes, blocksize=upscale_factor, mode="CRD")


@aten("grid_sampler", "grid_sampler_2d")
def grid_sampler(
    b: Builder, out: Out, x: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    mode, pads = ("bilinear", "nearest", "bicubic")[interpolation_mode], ("zeros", "border", "reflection")[padding_mode]
    return b.op("GridSample", x, grid, sizes=out.sizes, mode=mode, padding_mode=pads, align_corners=int(align_corners))


# ---- attention and recurrent layers


@aten("scaled_dot_product_attention")
def attention(
    b: Builder, out: Out, query: Value, key: Value, value: Value, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: Any = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    if dropout_p:
        raise NotImplementedError("attention with dropout: call eval() first")
    width = query.sizes[-1]
    if width is None:
        raise NotImplementedError("attention of heads whose width varies")
    if enable_gqa and key.sizes[-3] != query.sizes[-3]:
        key, value = _repeated(b, key, query), _repeated(b, value, query)
    perm = [*range(key.rank - 2), key.rank - 1, key.rank - 2]
    by = b.constant(1 / math.sqrt(width) if scale is None else float(scale), query.dtype)
    weights = b.op("MatMul", b.op("Mul", query, by), b.transpose(key, perm), sizes=[*query.sizes[:-1], key.sizes[-2]])
    low = b.constant(-math.inf, query.dtype)
    if is_causal:
        shape = b.sizes([b.size(query, -2), b.size(key, -2)])
        kept = b.op("Trilu", b.op("Expand", b.constant(1), shape, sizes=[None, None]), b.constant(0), upper=0)
        weights = b.op("Where", b.cast(kept, dtypes.bool_), weights, low, type=query.dtype, sizes=weights.sizes)
    if attn_mask is not None and attn_mask.dtype == dtypes.bool_:
        weights = b.op("Where", attn_mask, weights, low, type=query.dtype, sizes=weights.sizes)
    elif attn_mask is not None:
        weights = b.op("Add", weights, b.cast(attn_mask, query.dtype))
    chosen = b.op("Softmax", weights, axis=-1)
    if is_causal or attn_mask is not None:  # a row of which nothing is kept is noughts
        chosen = b.op(
            "Where",
            b.op("IsNaN", chosen, type=dtypes.bool_),
            b.constant(0.0, query.dtype),
            chosen,
            type=query.dtype,
            sizes=chosen.sizes,
        )
    return b.op("MatMul", chosen, value, sizes=out.sizes)


def _repeated(b: Builder, x: Value, query: Value) -> Value:
    heads, wanted = x.sizes[-3], query.sizes[-3]
    if heads is None or wanted is None:
        raise NotImplementedError("grouped attention of a number of heads that varies")
    at = [k // (wanted // heads) for k in range(wanted)]
    return b.op("Gather", x, b.constant(at), sizes=[*x.sizes[:-3], wanted, *x.sizes[-2:]], axis=x.rank - 3)


def _gates(b: Builder, w: Value, order: list[int]) -> Value:
    """The blocks of a matrix of gates, in ONNX's order."""
    n = len(order)
    if n == 1:
        return w
    hidden = int(w.sizes[0] or 0) // n
    at = [k * hidden + j for k in order for j in range(hidden)]
    return b.op("Gather", w, b.constant(at), sizes=w.sizes, axis=0)


def _recurrent(
    b: Builder, kind: str, order: list[int], x: Value, states: list[Value], params: list[Value], has_biases: bool, num_layers: int,
    bidirectional: bool, batch_first: bool, **attributes: Any,
) -> list[Value]:  # fmt: skip
    directions = 2 if bidirectional else 1
    each = len(params) // (num_layers * directions)
    had = x.rank == 3
    if not had:
        raise NotImplementedError("a recurrent layer of an input without a batch")
    if each != (4 if has_biases else 2):
        raise NotImplementedError("a recurrent layer with projections")
    if batch_first:
        x = b.transpose(x, [1, 0, 2])
    last: list[list[Value]] = [[] for _ in states]
    for layer in range(num_layers):
        weights: list[list[Value]] = [[], [], []]
        for d in range(directions):
            of = params[(layer * directions + d) * each :][:each]
            for k in (0, 1):
                made = _gates(b, of[k], order)
                weights[k].append(b.op("Unsqueeze", made, b.constant([0]), sizes=[1, *made.sizes]))
            if has_biases:
                both = [_gates(b, p, order) for p in of[2:4]]
                bias = b.op("Concat", *both, sizes=[2 * int(both[0].sizes[0] or 0)], axis=0)
                weights[2].append(b.op("Unsqueeze", bias, b.constant([0]), sizes=[1, *bias.sizes]))
        w, r, bias_ = [
            None if not ws else ws[0] if len(ws) == 1 else b.op("Concat", *ws, sizes=[2, *ws[0].sizes[1:]], axis=0)
            for ws in weights
        ]
        at = [b.constant([layer * directions]), b.constant([(layer + 1) * directions]), b.constant([0])]
        first = [b.op("Slice", s, *at, sizes=[directions, *s.sizes[1:]]) for s in states]
        hidden = int(params[layer * directions * each + 1].sizes[1] or 0)
        way = "bidirectional" if bidirectional else "forward"
        names = b.node(
            kind, [x, w, r, bias_, None, *first], 1 + len(states), hidden_size=hidden, direction=way,
            activations=attributes.get("activations") and attributes["activations"] * directions,
            linear_before_reset=attributes.get("linear_before_reset"),
        )  # fmt: skip
        for k, name in enumerate(names[1:]):
            last[k].append(Value(name, x.dtype, [directions, x.sizes[1], hidden]))
        y = Value(names[0], x.dtype, [x.sizes[0], directions, x.sizes[1], hidden])
        joined = b.transpose(y, [0, 2, 1, 3])
        x = b.op("Reshape", joined, b.constant([0, 0, -1]), sizes=[x.sizes[0], x.sizes[1], hidden * directions])
    ends = [
        s[0] if len(s) == 1 else b.op("Concat", *s, sizes=[num_layers * directions, *s[0].sizes[1:]], axis=0)
        for s in last
    ]
    return [b.transpose(x, [1, 0, 2]) if batch_first else x, *ends]


def _checked(train: bool, dropout: float) -> None:
    if train and dropout:
        raise NotImplementedError("a recurrent layer with dropout in training: call eval() first")


@aten("lstm")
def lstm(
    b: Builder, out: Out, x: Value, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool = False,
) -> list[Value]:  # fmt: skip
    _checked(train, dropout)
    return _recurrent(b, "LSTM", [0, 3, 1, 2], x, list(hx), params, has_biases, num_layers, bidirectional, batch_first)


@aten("gru")
def gru(
    b: Builder, out: Out, x: Value, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool = False,
) -> list[Value]:  # fmt: skip
    _checked(train, dropout)
    return _recurrent(
        b, "GRU", [1, 0, 2], x, [hx], params, has_biases, num_layers, bidirectional, batch_first, linear_before_reset=1
    )


for _name, _kind in {"rnn_tanh": "Tanh", "rnn_relu": "Relu"}.items():

    @aten(_name)
    def _rnn(
        b: Builder, out: Out, x: Value, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool = False, kind: str = _kind,
    ) -> list[Value]:  # fmt: skip
        _checked(train, dropout)
        return _recurrent(
            b, "RNN", [0], x, [hx], params, has_biases, num_layers, bidirectional, batch_first, activations=[kind]
        )
