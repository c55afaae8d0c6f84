"""Modules of `torch.distributed` that need several processes. They can be imported, and their names stand in annotations and for
`isinstance`; making or calling one is a RuntimeError.

install.py says which modules of PyTorch these are.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from tabtorch.distributed import _unavailable

__all__: list[str] = []
default_pg_timeout = timedelta(minutes=30)


class _Absent(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _unavailable(cls.__name__)()


def record(fn: Any, error_handler: Any = None) -> Any:
    """`fn`: there is no launcher to which an exception would be reported, it is raised as it is
    (`torch.distributed.elastic.multiprocessing.errors`)."""
    return fn


def is_available() -> bool:
    """False, as `torch.distributed.is_available()`: libraries ask this of `torch.distributed.autograd` and of `rpc`."""
    return False


def __getattr__(name: str) -> Any:
    if not re.fullmatch(r"_?[A-Za-z]\w*", name):
        raise AttributeError(name)
    found = globals()[name] = _Absent(
        name, (), {"__doc__": "RuntimeError: there is one process.", "__module__": __name__}
    )
    return found
