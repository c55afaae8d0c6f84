"""`torch._dynamo.utils`: what compiled functions have done so far."""

from __future__ import annotations

import functools
import warnings
from collections import Counter, defaultdict

#: `counters["stats"]["unique_graphs"]`: recordings that were made; `counters["frames"]["total"]`: calls that ran the Python of a
#: function, and "ok", those of them that could be recorded
counters: defaultdict[str, Counter[str]] = defaultdict(Counter)


def is_compile_supported(device_type: str) -> bool:
    """Whether `torch.compile` would write other kernels for this device type: False, operators have their own.

    It is what libraries ask before they take a way that is slower unless a compiler fuses it.
    """
    return False


@functools.cache
def warn_once(msg: str, stacklevel: int = 1) -> None:
    """A warning, the first time that it is said."""
    warnings.warn(msg, stacklevel=stacklevel + 1)
