"""What several families share: tuples of sizes, reductions, types to compute in."""

import warnings

import tabtorch as torch

from ...autograd.tape import named  # noqa: F401
from ...dtypes import TYPE_NAMES
from ...modes import STATE
from ...ops.places import every_example, host_values


def ntuple(value, n):
    """``value`` as a tuple of ``n``: a number is repeated."""
    if isinstance(value, (tuple, list, torch.Size)):
        return tuple(value) * n if len(value) == 1 and n > 1 else tuple(value)
    return (value,) * n


def legacy_reduction(size_average, reduce, reduction):
    """The reduction that the two deprecated arguments meant."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        reduction = "none"
    else:
        reduction = "sum" if size_average is False else "mean"
    warnings.warn(
        f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.",
        stacklevel=4,
    )
    return reduction


def check_reduction(reduction):
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")


def reduced(loss, reduction):
    """``loss`` under "none", "mean" or "sum"."""
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    check_reduction(reduction)
    return loss


def widened(x):
    """Half precision is summed and exponentiated in float32, as PyTorch's kernels do."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def outside(t, low, high):
    """Whether an element is not in [low, high], where that can be told without waiting for a GPU: on ``cpu``, and for
    small tensors that came from the host.
    """
    t = every_example(t)

    def good(values):
        return not any(v < low or v > high for v in values)

    values = host_values(t, good)
    if values is not None:
        return not good(values)
    if t.device.type != "cpu" or STATE.held is not None:  # a compiled function waits for nothing
        return False
    return t.numel() > 0 and bool(((t < low) | (t > high)).any())


def size_list(shape):
    """A shape as PyTorch's C++ prints it: ``[2, 3]``."""
    return "[" + ", ".join(str(s) for s in shape) + "]"


def wrapped_dim(dim, ndim):
    """``dim`` counted from the front; IndexError out of range."""
    n = max(ndim, 1)
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim % n


def scalar_type(dtype):
    """The name that PyTorch's messages use: ``Long`` for ``torch.int64``."""
    return TYPE_NAMES[dtype.name]
