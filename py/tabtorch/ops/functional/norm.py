"""Normalizations, as formulas over the whole input: the engine fuses each with what surrounds it."""

import math

import tabtorch as torch
from tabtorch.autograd.grad_mode import STATE
from tabtorch.core.layout import suggested_order
from tabtorch.core.shapes import remembered
from tabtorch.engine.expr import fit
from tabtorch.engine.graph import Map, inst
from tabtorch.engine.view import contiguous_meta
from tabtorch.ops.functional._common import named, size_list, widened
from tabtorch.ops.machinery.batching import batches
from tabtorch.ops.machinery.inplace import set_tensor
from tabtorch.ops.machinery.operation import run
from tabtorch.ops.machinery.promotion import FLOATING, FLOATING_COMPLEX, FLOATING_LONG, check_kernel
from tabtorch.ops.machinery.recorded import Recorded
from tabtorch.ops.neural import standardize
from tabtorch.ops.shaping.convert import recorded_in_order
from tabtorch.ops.shaping.pad import pad

#: what `torch.nn.functional` shows
__all__ = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "local_response_norm",
    "rms_norm",
]


def _standardized(x, dims, eps):
    """((x - mean) / sqrt(var + eps), mean, var) over ``dims``; the variance is the biased one."""
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    var = (centred * centred).mean(dims, keepdim=True)
    return centred * (var + eps).rsqrt(), mean, var


def _scaled(y, weight, bias, dtype):
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y.to(dtype)


def _per_channel(t, ndim):
    return None if t is None else t.reshape((1, -1) + (1,) * (ndim - 2))


def _check_normalized_shape(input, shape, weight, bias, star):
    if len(shape) < 1:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, "
            f"but got normalized_shape = {size_list(shape)}"
        )
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.shape) != shape:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{size_list(t.shape)} and normalized_shape = {size_list(shape)}"
            )
    if input.ndim < len(shape) or tuple(input.shape[-len(shape) :]) != shape:
        expected = star + ", ".join(str(s) for s in shape)
        raise RuntimeError(
            f"Given normalized_shape={size_list(shape)}, expected input with shape [{expected}], "
            f"but got input of size{size_list(input.shape)}"
        )


def _check_norm_kernel(kernel, input, *parameters):
    """PyTorch's errors for an input that is not floating."""
    if not input.dtype.is_floating_point and any(p is not None and p.dtype != input.dtype for p in parameters):
        raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")
    check_kernel(kernel, input.dtype, FLOATING)


@remembered
def _layer_dims(input, shape, weight, bias):
    """The dimensions over which a layer is normalized, of the Metas; PyTorch's errors."""
    _check_normalized_shape(input, shape, weight, bias, "*, ")
    _check_norm_kernel("LayerNormKernelImpl", input, weight, bias)
    return tuple(range(-len(shape), 0))


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """(x - mean) / sqrt(var + eps) · weight + bias over the last dimensions (Ba et al., 2016)."""
    m = input._tab_meta
    w, b = weight if weight is None else weight._tab_meta, bias if bias is None else bias._tab_meta
    dims = _layer_dims(m, tuple(normalized_shape), w, b)
    if m.contiguous and m.dtype.itemsize > 2:
        return standardize.layer_norm(input, dims, weight, bias, eps)
    y = standardize.layer_norm(input.contiguous(), dims, weight, bias, eps).to(m.dtype)
    return named(y, "NativeLayerNormBackward0", input, weight, bias)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    """x / sqrt(mean(x²) + eps) · weight over the last dimensions (Zhang and Sennrich, 2019)."""
    shape = tuple(normalized_shape)
    _check_normalized_shape(input, shape, weight, None, "*")
    check_kernel("rms_norm", input.dtype, FLOATING_COMPLEX)
    # PyTorch has a formula for what is channels last or complex, else a kernel, which gives rows
    x = widened(input if suggested_order(input._tab_meta) or input.is_complex() else input.contiguous())
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    dims = tuple(range(-len(shape), 0))
    y = x * ((x * x).mean(dims, keepdim=True) + eps).rsqrt()
    return _scaled(y, weight, None, input.dtype)


def _check_group_size(size):
    """More than one value per channel, as training statistics need. ``size``: (N, C, …)."""
    count = size[0]
    for s in size[2:]:
        count *= s
    if count == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {size}")


def _check_channels(n, **tensors):
    for name, t in tensors.items():
        if t is not None and t.numel() != n:
            raise RuntimeError(f"{name} should contain {n} elements not {t.numel()}")


def _update_running(running_mean, running_var, mean, var, n, momentum):
    """The moving averages, in place; the variance that goes in is the unbiased one."""
    with torch.no_grad():
        for running, new, weight in (
            (running_mean, mean, momentum),
            (running_var, var, momentum * n / max(n - 1, 1)),
        ):
            if running is None:
                continue
            new = new.reshape(-1)
            i = _average(running._tab_meta, new._tab_meta)
            if i is not None and _plain(running):
                set_tensor(running, run(i, i.out, running, new, scalars=(1 - momentum, weight)))
            else:
                running.mul_(1 - momentum).add_(new, alpha=weight)


def _plain(t):
    """Whether a tensor may be written to, and nobody has to be asked."""
    return type(t) is torch.Tensor and not t._tab_inference and not t._tab_requires_grad and not batches[0]


_AVERAGE = {
    name: Map("average", lambda x, y, rest, weight, name=name: fit(x * rest, name) + fit(y * weight, name), cost=3)
    for name in ("float32", "float64")
}


@remembered
def _average(m, new):
    """x * rest + y * weight as one instruction, rounded as the two are; None where it is not of two dense vectors of a type."""
    if not (m.contiguous and m.dtype is new.dtype and m.dtype.name in _AVERAGE and m.device is new.device):
        return None
    out = contiguous_meta(m.shape, m.dtype, m.device)
    return inst(_AVERAGE[m.dtype.name], (m, new), out, (m.dtype.compute,) * 2)


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """Normalizes each channel (dimension 1) over all others (Ioffe and Szegedy, 2015).

    In training with the batch's own statistics, which also move ``running_mean`` and ``running_var`` in place;
    else with the running ones.
    """
    if training:
        _check_group_size(input.size())
        if eps <= 0.0:
            raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    elif eps < 0.0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
    return normalize_batch(input, running_mean, running_var, weight, bias, training, momentum, eps)


def normalize_batch(input, running_mean, running_var, weight, bias, training, momentum, eps):
    """``batch_norm`` without the checks that PyTorch makes in Python only."""
    if not training:
        for name, t in (("running_mean", running_mean), ("running_var", running_var)):
            if t is None:
                raise RuntimeError(f"{name} must be defined in evaluation mode")
    if input.dim() < 2 and input.numel() == 0:
        return input.clone()
    check_kernel("batch_norm", input.dtype, FLOATING)
    channels = input.size(1)
    _check_channels(channels, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    ndim = input.dim()
    order = suggested_order(input._tab_meta)
    x = recorded_in_order(input, order)
    if training:
        w, b = _per_channel(weight, ndim), _per_channel(bias, ndim)
        y, mean, var = standardize.batch_norm(x, (0, *range(2, ndim)), w, b, eps)
        y = y.to(input.dtype)
        if (running_mean is not None or running_var is not None) and input.numel():
            _update_running(running_mean, running_var, mean, var, input.numel() // channels, momentum)
    else:
        given = x, running_mean, running_var, weight, bias
        if STATE.grad and any(t is not None and t._tab_requires_grad for t in given):
            y = _by_running(*given, eps)
        else:
            return recorded_in_order(_as_evaluated(given, (eps,)), order)
    return named(recorded_in_order(y, order), "NativeBatchNormBackward0", input, weight, bias)


def _by_running(x, mean, var, weight, bias, eps):
    """The batch norm of ``x`` (N, C, …) by these statistics of its channels."""
    ndim = x.dim()
    y = (widened(x) - _per_channel(widened(mean), ndim)) * (_per_channel(widened(var), ndim) + eps).rsqrt()
    return _scaled(y, _per_channel(weight, ndim), _per_channel(bias, ndim), x.dtype)


_as_evaluated = Recorded(_by_running)


def instance_norm(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-5,
):
    """Normalizes each channel of each sample over its positions (Ulyanov et al., 2016). ``input`` (N, C, …)."""
    if use_input_stats:
        if math.prod(input.shape[2:]) == 1:
            raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.size()}")
    return normalize_instances(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def normalize_instances(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps):
    """``instance_norm`` without the checks that PyTorch makes in Python only."""
    input = input.contiguous()
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
        y = normalize_batch(input, running_mean, running_var, weight, bias, False, momentum, eps)
        return named(y, "ViewBackward0")
    check_kernel("batch_norm", input.dtype, FLOATING)
    ndim = input.dim()
    y, mean, var = _standardized(widened(input), tuple(range(2, ndim)), eps)
    if running_mean is not None or running_var is not None:
        positions = math.prod(input.shape[2:])
        _update_running(running_mean, running_var, mean.mean(0), var.mean(0), positions, momentum)
    y = _scaled(y, _per_channel(weight, ndim), _per_channel(bias, ndim), input.dtype)
    return named(y, "ViewBackward0")  # to PyTorch it is a batch norm of a view


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """Normalizes groups of channels of each sample (Wu and He, 2018). ``input`` (N, C, *)."""
    if input.dim() < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
    n, channels = input.shape[:2]
    _check_group_size([n * channels // num_groups, num_groups, *input.shape[2:]])
    return normalize_groups(input, num_groups, weight, bias, eps)


def normalize_groups(input, num_groups, weight, bias, eps):
    """``group_norm`` without the checks that PyTorch makes in Python only."""
    n, channels = input.shape[:2]
    if channels % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{size_list(input.shape)} and num_groups={num_groups}"
        )
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and (t.dim() != 1 or t.numel() != channels):
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, but got {name} "
                f"of shape {size_list(t.shape)} and input of shape {size_list(input.shape)}"
            )
    _check_norm_kernel("GroupNormKernelImpl", input, weight, bias)
    grouped = widened(input).reshape(n, num_groups, channels // num_groups * math.prod(input.shape[2:]))
    y, _, _ = _standardized(grouped, (-1,), eps)
    ndim = input.dim()
    y = _scaled(y.reshape(input.shape), _per_channel(weight, ndim), _per_channel(bias, ndim), input.dtype)
    y = recorded_in_order(y, suggested_order(input._tab_meta))
    return named(y, "NativeGroupNormBackward0", input, weight, bias)


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """x / (k + alpha · mean of x² over ``size`` neighbouring channels)^beta (Krizhevsky et al., 2012)."""
    dim = input.dim()
    if dim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality                          input (got {dim} dimensions)")
    if input.numel() == 0:
        return input
    check_kernel("avg_pool2d" if dim == 3 else "avg_pool3d_out_frame", input.dtype, FLOATING_LONG)
    squares = input * input
    padded = pad(squares, (0, 0) * (dim - 2) + (size // 2, (size - 1) // 2))
    total = padded.unfold(1, size, 1).sum(-1, dtype=squares.dtype)
    mean = total / size if input.is_floating_point() else total.div(size, rounding_mode="trunc")
    return input / (mean * alpha + k).pow(beta)
