"""Operations that take functions: `associative_scan`."""

from __future__ import annotations

from tabtorch._higher_order_ops.associative_scan import associative_scan

__all__ = ["associative_scan"]
