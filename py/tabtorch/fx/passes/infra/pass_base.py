"""`torch.fx.passes.infra.pass_base`: a pass, as a class."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """What a pass gives: the module, and whether it is another."""

    graph_module: Any
    modified: bool


class PassBase(abc.ABC):
    """`call(graph_module)` is what the pass does; `requires` and `ensures` look before and after it."""

    def __call__(self, graph_module: Any) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: Any) -> PassResult | None:
        """The pass."""

    def requires(self, graph_module: Any) -> None:  # noqa: B027
        """Looks at what is given. An error if it is not as it has to be."""

    def ensures(self, graph_module: Any) -> None:  # noqa: B027
        """Looks at what was made."""
