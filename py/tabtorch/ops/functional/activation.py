"""Activations. The elementwise ones are rows of the operation table; here are their public signatures, and formulas."""

import warnings

import tabtorch as torch
from tabtorch import ops as _ops
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import record
from tabtorch.base.dtypes import given_dtype
from tabtorch.ops.functional._common import named, scalar_type, widened, wrapped_dim
from tabtorch.ops.machinery.promotion import FLOATING, check_kernel, not_implemented
from tabtorch.ops.machinery.recorded import Recorded
from tabtorch.ops.shaping.convert import in_order, keep_strides

#: what `torch.nn.functional` shows
__all__ = [
    "celu",
    "celu_",
    "elu",
    "elu_",
    "gelu",
    "glu",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "leaky_relu",
    "leaky_relu_",
    "log_softmax",
    "logsigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rrelu",
    "rrelu_",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
]


def threshold(input, threshold, value, inplace=False):
    """x where x > threshold, else value."""
    return (_ops.threshold_ if inplace else _ops.threshold)(input, threshold, value)


def relu(input, inplace=False):
    """max(x, 0)."""
    return (_ops.relu_ if inplace else _ops.relu)(input)


def relu6(input, inplace=False):
    """min(max(x, 0), 6)."""
    return (_ops.relu6_ if inplace else _ops.relu6)(input)


def leaky_relu(input, negative_slope=0.01, inplace=False):
    """max(x, 0) + negative_slope · min(x, 0)."""
    return (_ops.leaky_relu_ if inplace else _ops.leaky_relu)(input, negative_slope)


def elu(input, alpha=1.0, inplace=False):
    """x where x > 0, else alpha · (exp(x) - 1)."""
    return (_ops.elu_ if inplace else _ops.elu)(input, alpha)


def selu(input, inplace=False):
    """scale · (max(x, 0) + min(0, alpha · (exp(x) - 1))), self-normalizing (Klambauer et al., 2017)."""
    return (_ops.selu_ if inplace else _ops.selu)(input)


def celu(input, alpha=1.0, inplace=False):
    """max(x, 0) + min(0, alpha · (exp(x / alpha) - 1))."""
    return (_ops.celu_ if inplace else _ops.celu)(input, alpha)


def gelu(input, approximate="none", **out):
    """x · Φ(x); ``approximate="tanh"``: its tanh form."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return _ops.gelu(input, approximate=approximate, **out)


def silu(input, inplace=False):
    """x · sigmoid(x)."""
    return (_ops.silu_ if inplace else _ops.silu)(input)


def mish(input, inplace=False):
    """x · tanh(softplus(x))."""
    return (_ops.mish_ if inplace else _ops.mish)(input)


def softplus(input, beta=1, threshold=20, **out):
    """log(1 + exp(beta · x)) / beta; x itself where beta · x > threshold."""
    return _ops.softplus(input, beta, threshold, **out)


def softsign(input):
    """x / (1 + |x|)."""
    return input / (input.abs() + 1)


def tanhshrink(input):
    """x - tanh(x)."""
    return input - input.tanh()


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """x clamped to [min_val, max_val]."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if input.dtype == torch.uint8 and (int(min_val) < 0 or int(max_val) < 0):
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    return (_ops.hardtanh_ if inplace else _ops.hardtanh)(input, min_val, max_val)


def hardsigmoid(input, inplace=False):
    """min(max(x + 3, 0), 6) / 6."""
    return (_ops.hardsigmoid_ if inplace else _ops.hardsigmoid)(input)


def hardswish(input, inplace=False):
    """x · min(max(x + 3, 0), 6) / 6."""
    return (_ops.hardswish_ if inplace else _ops.hardswish)(input)


def hardshrink(input, lambd=0.5):
    """x where |x| > lambd, else 0."""
    return _ops.hardshrink(input, lambd)


def softshrink(input, lambd=0.5, **out):
    """x moved towards 0 by lambd."""
    if not lambd >= 0:
        d = input.dtype
        raise RuntimeError(
            f"lambda must be in range [0, {torch.finfo(d).max:g}] for input dtype {scalar_type(d)}, but found {lambd:g}"
        )
    return _ops.softshrink(input, lambd, **out)


def logsigmoid(input, **out):
    """log(sigmoid(x))."""
    return _ops.logsigmoid(input, **out)


def sigmoid(input):
    """1 / (1 + exp(-x))."""
    return input.sigmoid()


def tanh(input):
    """tanh(x)."""
    return input.tanh()


def relu_(input):
    """In-place ``relu``."""
    return relu(input, True)


def leaky_relu_(input, negative_slope=0.01):
    """In-place ``leaky_relu``."""
    return leaky_relu(input, negative_slope, True)


def elu_(input, alpha=1.0):
    """In-place ``elu``."""
    return elu(input, alpha, True)


def selu_(input):
    """In-place ``selu``."""
    return selu(input, True)


def celu_(input, alpha=1.0):
    """In-place ``celu``."""
    return celu(input, alpha, True)


def hardtanh_(input, min_val=-1.0, max_val=1.0):
    """In-place ``hardtanh``."""
    return hardtanh(input, min_val, max_val, True)


def threshold_(input, threshold_value, value):
    """In-place ``threshold``."""
    return threshold(input, threshold_value, value, True)


def glu(input, dim=-1):
    """a · sigmoid(b), where a and b are the halves of ``input`` along ``dim``."""
    if input.dim() == 0:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    d = wrapped_dim(dim, input.dim())
    if input.size(d) % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {d} is size {input.size(d)}")
    check_kernel("glu_cpu", input.dtype, FLOATING)
    a, b = input.chunk(2, d)
    return named(a * b.sigmoid(), "GluBackward0")


def prelu(input, weight):
    """max(x, 0) + weight · min(x, 0). ``weight``: one number, or one for each channel (dimension 1)."""
    if weight.numel() != 1:
        if input.dim() == 0:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = input.size(1) if input.dim() >= 2 else 1
        if channels != weight.numel():
            raise RuntimeError(
                "Mismatch of parameter numbers and input channel size. "
                f"Found parameter numbers = {weight.numel()} and channel size = {channels}."
            )
    if weight.dim() > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.dim()}")
    if input.dtype != weight.dtype:
        types = f"{scalar_type(input.dtype)} and {scalar_type(weight.dtype)}"
        raise RuntimeError(f"prelu: Type promoting not supported. Got {types}")
    check_kernel("prelu_cpu", input.dtype, FLOATING)
    if input.dim() != 1:
        weight = weight.reshape((1, -1) + (1,) * (input.dim() - 2) if input.dim() else ())
    out = torch.where(input > 0, input, input * weight)
    keep_strides(out, input._tab_meta)
    return named(out, "PreluKernelBackward0")


def rrelu_(input, lower=1.0 / 8, upper=1.0 / 3, training=False):
    """In-place ``rrelu``."""
    return _ops.rrelu_(input, lower, upper, training)


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """Leaky ReLU with a slope drawn from U(lower, upper) in training, else their mean (Xu et al., 2015)."""
    return (_ops.rrelu_ if inplace else _ops.rrelu)(input, lower, upper, training)


def _implicit_dim(name, ndim, stacklevel):
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel + 1,
    )
    return 0 if ndim in (0, 1, 3) else 1


def _to_softmax(name, input, dim, dtype, stacklevel):
    if dim is None:
        dim = _implicit_dim(name, input.dim(), stacklevel)
    if dtype is not None:
        input = input.to(given_dtype(name, dtype))
    d = wrapped_dim(dim, input.dim())
    if not (input.is_floating_point() or input.is_complex()):
        kernel = "log_softmax" if name == "log_softmax" else "softmax"
        last = "_lastdim" if d == max(input.dim(), 1) - 1 else ""
        raise not_implemented(f"{kernel}{last}_kernel_impl", input.dtype)
    return input, d


def _row_by_row(input, dim):
    """``input`` row-major where ``dim`` runs along its rows, so that one kernel reads a row and writes it.

    The results of PyTorch's kernels are row-major, however their input lies; those along other dimensions are laid out
    when they are there.
    """
    return in_order(input) if dim == input.dim() - 1 else input


def _softmax_forward(input, dim):
    x = widened(_row_by_row(input, dim))
    e = (x - x.amax(dim, keepdim=True)).exp()
    return in_order((e / e.sum(dim, keepdim=True)).to(input.dtype))


def _softmax_back(g, y, dim):
    gy = widened(g) * widened(y)
    return (gy - widened(y) * gy.sum(dim, keepdim=True)).to(g.dtype)


def _log_softmax_forward(input, dim):
    x = widened(_row_by_row(input, dim))
    z = x - x.amax(dim, keepdim=True)
    return in_order((z - z.exp().sum(dim, keepdim=True).log()).to(input.dtype))


def _log_softmax_back(g, y, dim):
    wide = widened(g)
    return (wide - widened(y).exp() * wide.sum(dim, keepdim=True)).to(g.dtype)


def _along(name, formula, back):
    """`formula(input, dim)` recorded as `name`, with the gradient ``back(g, result, dim)``."""
    forward, gradient = Recorded(formula), Recorded(back)

    def along(input, dim):
        if input.numel() == 0:
            return named(input.clone(memory_format=torch.contiguous_format), name, input)
        r = forward((input,), (dim,))

        def backward(g, y):
            return back(g, y, dim) if STATE.grad else gradient((g, y), (dim,))

        record(name, (input,), r, backward, (r,))
        return r

    return along


_softmax = _along("SoftmaxBackward0", _softmax_forward, _softmax_back)
_log_softmax = _along("LogSoftmaxBackward0", _log_softmax_forward, _log_softmax_back)


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    """exp(x) / sum(exp(x)) along ``dim``, with the maximum taken out first."""
    return _softmax(*_to_softmax("softmax", input, dim, dtype, _stacklevel))


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    """softmax(-x)."""
    if dim is None:
        dim = _implicit_dim("softmin", input.dim(), _stacklevel)
    return softmax(-input, dim, dtype=dtype)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """log(softmax(x)) along ``dim``: x - max - log(sum(exp(x - max)))."""
    return _log_softmax(*_to_softmax("log_softmax", input, dim, dtype, _stacklevel))


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """A sample from the Gumbel-Softmax distribution; ``hard``: one-hot, with the soft gradient (Jang et al., 2016)."""
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    gumbels = -torch.empty_like(logits).exponential_().log()
    y_soft = softmax((logits + gumbels) / tau, dim)
    if not hard:
        return y_soft
    index = y_soft.max(dim, keepdim=True)[1]
    y_hard = torch.zeros_like(logits).scatter_(dim, index, 1.0)
    return y_hard - y_soft.detach() + y_soft
