"""`torch.multiprocessing`: the standard library's `multiprocessing`, whose names it has.

A tensor that is pickled travels as its bytes: there is no memory that processes share. `spawn` is not there (RuntimeError).
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing import *  # noqa: F403

from tabtorch.multiprocessing.spawn import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

if sys.modules.get("torch") is sys.modules["tabtorch"]:
    # so that importing the submodule by that name does not put it over the function
    sys.modules["torch.multiprocessing.spawn"] = sys.modules[spawn.__module__]

_names: list[str] = multiprocessing.__all__
__all__ = [
    "ProcessContext",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
    *_names,
]


def get_all_sharing_strategies() -> set[str]:
    """The strategies that `set_sharing_strategy` takes."""
    return {"file_system"}


def get_sharing_strategy() -> str:
    """How tensors reach another process."""
    return "file_system"


def set_sharing_strategy(new_strategy: str) -> None:
    """AssertionError for one that is not in `get_all_sharing_strategies()`."""
    assert new_strategy in get_all_sharing_strategies()
