"""What several families share: tuples of sizes, reductions, types to compute in."""

import warnings

import tabtorch as torch
from tabtorch import _lazy
from tabtorch.autograd.tape import named, type_string  # noqa: F401
from tabtorch.base.dtypes import TYPE_NAMES


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


def assert_between(t, low, high, operation, kind, text, below="", exempt=None):
    """Raises ``kind(text)`` for an element that is not in [low, high], nor ``exempt``: see ``ops/asserts.py`` for when."""
    asserts = _lazy.asserts
    complaint = asserts.Complaint(kind, text, below)
    asserts.assert_range(_lazy.index_maps.every_example(t), asserts.Range(low, high, exempt), complaint, operation)


def size_list(shape):
    """A shape as PyTorch's C++ prints it: ``[2, 3]``."""
    return "[" + ", ".join(str(s) for s in shape) + "]"


def wrapped_dim(dim, ndim):
    """``dim`` counted from the front; IndexError out of range."""
    n = max(ndim, 1)
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim % n


def check_argument(function, position, name, t, dtypes):
    """PyTorch's RuntimeError for a tensor of another type than ``dtypes``."""
    if t.dtype not in dtypes:
        raise RuntimeError(
            f"Expected tensor for argument #{position} '{name}' to have one of the following scalar types: "
            f"{', '.join(map(scalar_type, dtypes))}; but got {type_string(t)} instead (while checking arguments for {function})"
        )


def scalar_type(dtype):
    """The name that PyTorch's messages use: ``Long`` for ``torch.int64``."""
    return TYPE_NAMES[dtype.name]
