"""`torch.fx.experimental.symbolic_shapes`: sizes are numbers wherever a program sees them, so what asks about symbols says so."""

from __future__ import annotations

from tabtorch.engine.symbols import ConstraintViolationError

__all__ = ["ConstraintViolationError"]
