"""A third device, for tests: a renderer of its own, whose kernels the runtime's cpu runs."""

from __future__ import annotations

from typing import Any

from tabtorch.engine.expr import Expr
from tabtorch.engine.js import JavaScript


class Toy(JavaScript):
    """JavaScript with marks in it, and without the helper for a square root."""

    def source(self, k: Any, head: Any) -> str:
        return super().source(k, ["// toy", *head])

    def native(self, e: Expr, a: list[str]) -> str:
        return f"({a[0]} ** 0.5)" if e.value == "sqrt" else super().native(e, a)
