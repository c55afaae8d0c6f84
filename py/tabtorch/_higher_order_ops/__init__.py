"""Operations that take functions: `associative_scan`."""

from __future__ import annotations

from .associative_scan import associative_scan

__all__ = ["associative_scan"]
