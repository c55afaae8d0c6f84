"""`torch.backends.cudnn`: flags that scripts set. There is no cuDNN, so they choose nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True
fp32_precision = "none"


def is_available() -> bool:
    return False


def version() -> None:
    return None


@contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
    fp32_precision: str = "none",
) -> Iterator[None]:
    """Sets the flags for the length of a with block."""
    names = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32", "fp32_precision")
    here = globals()
    before = {n: here[n] for n in names}
    here.update(zip(names, (enabled, benchmark, benchmark_limit, deterministic, allow_tf32, fp32_precision)))
    try:
        yield
    finally:
        here.update(before)
