"""Dropout and its relatives, with the checks of their arguments. What they do is in ``ops.dropout``."""

import warnings

from tabtorch import ops as _ops

#: what `torch.nn.functional` shows
__all__ = [
    "alpha_dropout",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "feature_alpha_dropout",
]


def _check_p(p):
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input, p=0.5, training=True, inplace=False):
    """Zeroes each element with probability p, and scales the rest by 1 / (1 - p) (Srivastava et al., 2014)."""
    _check_p(p)
    return (_ops.dropout_ if inplace else _ops.dropout)(input, p, training)


def _feature_dropout(input, p, training, inplace):
    return (_ops.feature_dropout_ if inplace else _ops.feature_dropout)(input, p, training)


def _purpose(n):
    return (
        f"Note that dropout{n}d exists to provide channel-wise dropout on inputs with {n} spatial dimension{'s' * (n > 1)}, "
        f"a channel dimension, and an optional batch dimension (i.e. {n + 1}D or {n + 2}D inputs)."
    )


def _spatial(n, input):
    """How many dimensions the input has, with a warning where these are not a channel, ``n`` in space, and maybe a batch."""
    ndim = input.dim()
    if ndim not in (n + 1, n + 2):
        warnings.warn(
            f"dropout{n}d: Received a {ndim}-D input to dropout{n}d, which is deprecated and will result in an error in a "
            "future release. To retain the behavior and silence this warning, please use dropout instead. "
            + _purpose(n),
            stacklevel=3,
        )
    return ndim


def dropout1d(input, p=0.5, training=True, inplace=False):
    """Zeroes whole channels. ``input`` (N, C, L) or (C, L)."""
    _check_p(p)
    ndim = input.dim()
    if ndim not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {ndim}D input. {_purpose(1)}")
    if ndim == 2:
        return _feature_dropout(input.unsqueeze(0), p, training, inplace).squeeze(0)
    return _feature_dropout(input, p, training, inplace)


def dropout2d(input, p=0.5, training=True, inplace=False):
    """Zeroes whole channels. ``input`` (N, C, H, W)."""
    _check_p(p)
    if _spatial(2, input) == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise "
            "1D dropout behavior is desired - input is interpreted as shape (N, C, L), where C "
            "is the channel dim. This behavior will change in a future release to interpret the "
            "input as one without a batch dimension, i.e. shape (C, H, W). To maintain the 1D "
            "channel-wise dropout behavior, please switch to using dropout1d instead.",
            stacklevel=2,
        )
    return _feature_dropout(input, p, training, inplace)


def dropout3d(input, p=0.5, training=True, inplace=False):
    """Zeroes whole channels. ``input`` (N, C, D, H, W) or (C, D, H, W)."""
    _check_p(p)
    if _spatial(3, input) == 4:
        result = _feature_dropout(input.unsqueeze(0), p, training, inplace).squeeze(0)
        return input if inplace else result
    return _feature_dropout(input, p, training, inplace)


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout that keeps mean and variance after SELU (Klambauer et al., 2017)."""
    _check_p(p)
    return (_ops.alpha_dropout_ if inplace else _ops.alpha_dropout)(input, p, training)


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """``alpha_dropout`` of whole channels."""
    _check_p(p)
    return (_ops.feature_alpha_dropout_ if inplace else _ops.feature_alpha_dropout)(input, p, training)
