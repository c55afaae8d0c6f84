"""Anomaly detection: `detect_anomaly`, `set_detect_anomaly`. Backward looks for NaN in every gradient, and names who made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import engine
from .tape import GradFn

_check_nan = True


def _check(fn: GradFn, gradients: Sequence[Any]) -> None:
    """RuntimeError for a NaN among the gradients that `fn` gave. Each is read back: this is for debugging."""
    if not _check_nan:
        return
    for k, g in enumerate(gradients):
        if g is not None and bool(g.detach().isnan().any()):
            raise RuntimeError(f"Function '{fn.name()}' returned nan values in its {k}th output.")


def is_anomaly_enabled() -> bool:
    return engine.check is not None


def is_anomaly_check_nan_enabled() -> bool:
    return _check_nan


class set_detect_anomaly:
    """Turns the search on or off at once; as a context manager, until its end.

    Every step of backward waits for the device then. Where the operation was called in the forward pass is not recorded.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        global _check_nan
        self.before = engine.check, _check_nan
        engine.check, _check_nan = (_check if mode else None), check_nan

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: Any) -> None:
        global _check_nan
        engine.check, _check_nan = self.before


class detect_anomaly:
    """`set_detect_anomaly(True)` as a context manager."""

    def __init__(self, check_nan: bool = True) -> None:
        import warnings

        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
            "debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self.mode = set_detect_anomaly(True, self.check_nan)

    def __exit__(self, *exc: Any) -> None:
        self.mode.__exit__()
