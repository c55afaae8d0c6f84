"""`hypothesis` for Pyodide, where its compiled half is not: it draws the examples in CPython, and they are tried here."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from wasm.remote import Peer

#: of the examples asked for; the whole lot is tried in CPython
SHARE = 8


def use(peer: Peer) -> None:
    """Makes `import hypothesis` give this."""
    real: Any = importlib.import_module("hypothesis.strategies")
    draw: Any = peer.request("module", "wasm.draw", "examples")

    def given(**strategies: Any) -> Callable[[Any], Any]:
        def decorate(test: Any) -> Any:
            @functools.wraps(test)
            def tried(*args: Any, **kw: Any) -> None:
                for example in [*tried.first, *draw(strategies, max(1, tried.count // SHARE), test.__name__)]:
                    test(*args, **kw, **example)

            tried.count, tried.first = 100, getattr(test, "first", [])
            names = [p for n, p in inspect.signature(test).parameters.items() if n not in strategies]
            tried.__signature__ = inspect.Signature(names)  # what is left is a fixture
            return tried

        return decorate

    def settings(max_examples: int = 100, **_: Any) -> Callable[[Any], Any]:
        def decorate(test: Any) -> Any:
            test.count = max_examples
            return test

        return decorate

    def example(**values: Any) -> Callable[[Any], Any]:
        def decorate(test: Any) -> Any:
            test.first = [*getattr(test, "first", []), values]
            return test

        return decorate

    checks = types.SimpleNamespace(too_slow=1, data_too_large=2, filter_too_much=3, function_scoped_fixture=4)
    module: Any = types.ModuleType("hypothesis")
    module.__dict__.update(given=given, settings=settings, example=example, HealthCheck=checks, strategies=real)
    sys.modules["hypothesis"] = module
