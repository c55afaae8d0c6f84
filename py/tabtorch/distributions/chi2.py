"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from tabtorch.distributions import constraints
from tabtorch.distributions.gamma import Gamma


class Chi2(Gamma):
    """The sum of `df` squared standard normals."""

    arg_constraints = {"df": constraints.positive}
    _fields = "concentration rate"

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Any:
        return self.concentration * 2
