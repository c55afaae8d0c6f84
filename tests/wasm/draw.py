"""In CPython, for Pyodide: examples that hypothesis draws."""

from __future__ import annotations

import warnings
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings


def examples(strategies: dict[str, Any], count: int, name: str) -> list[dict[str, Any]]:
    """`count` different ones for the arguments, always the same for a name."""
    found: list[dict[str, Any]] = []

    @seed(sum(name.encode()))
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(**strategies)
    def collect(**values: Any) -> None:
        found.append(values)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collect()
    return found
