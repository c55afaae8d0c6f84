"""Anomaly detection: `detect_anomaly`, `set_detect_anomaly`. Backward looks for NaN in every gradient, and names who made it."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from tabtorch.autograd import engine
from tabtorch.autograd.tape import GradFn

_check_nan = True


def _note(fn: GradFn, name: str, value: Any) -> None:
    """In place of `GradFn.__setattr__`: notes where the user's code called the operation."""
    object.__setattr__(fn, name, value)
    if name == "seq":
        f: Any = sys._getframe(1)
        while f.f_back is not None and str(f.f_globals.get("__name__")).startswith("tabtorch."):
            f = f.f_back
        fn.__dict__["made"] = "".join(traceback.format_stack(f))


def _check(fn: GradFn | None, gradients: Sequence[Any] | None) -> None:
    """RuntimeError for a NaN among the gradients that `fn` gave. Each is read back: this is for debugging.

    gradients None: `fn` has failed, and a warning tells where it was called.
    """
    if fn is not None and gradients is None:
        made = fn.__dict__.get("made")
        warnings.warn(
            f"Error detected in {fn.name()}. "
            + (
                f"Traceback of forward call that caused the error:\n{made}"
                if made
                else "No forward pass information available. Enable detect anomaly during forward pass for more information."
            ),
            stacklevel=2,
        )
    if fn is None or gradients is None or not _check_nan:
        return
    for k, g in enumerate(gradients):
        if g is not None and bool(g.detach().isnan().any()):
            raise RuntimeError(f"Function '{fn.name()}' returned nan values in its {k}th output.")


def is_anomaly_enabled() -> bool:
    return engine.check is not None


def is_anomaly_check_nan_enabled() -> bool:
    return _check_nan


def _set(check: Any, check_nan: bool) -> None:
    global _check_nan
    engine.check, _check_nan = check, check_nan
    if check is not None:
        GradFn.__setattr__ = _note  # type: ignore[assignment, method-assign]
    elif "__setattr__" in GradFn.__dict__:
        del GradFn.__setattr__


class set_detect_anomaly:
    """Turns the search on or off at once; as a context manager, until its end.

    Every step of backward waits for the device then, and the error of one comes with a warning that tells its forward call.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.before = engine.check, _check_nan
        _set(_check if mode else None, check_nan)

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: Any) -> None:
        _set(*self.before)


class detect_anomaly:
    """`set_detect_anomaly(True)` as a context manager."""

    def __init__(self, check_nan: bool = True) -> None:
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
