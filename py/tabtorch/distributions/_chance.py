"""Distributions that take either `probs` or `logits`."""

from __future__ import annotations

from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.distributions.distribution import Distribution
from tabtorch.distributions.utils import lazy_property, logits_to_probs, probs_to_logits


def one_of(probs: Any, logits: Any) -> dict[str, Any]:
    """The one of the two that was given, by its name. ValueError for both or neither."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")
    return {"logits": logits} if probs is None else {"probs": probs}


class Chance(Distribution):
    """`probs` and `logits`, of which one is given, and the other made of it when it is asked for."""

    _binary = True

    @lazy_property
    def logits(self) -> Any:
        return probs_to_logits(self.probs, self._binary)

    @lazy_property
    def probs(self) -> Any:
        return logits_to_probs(self.logits, self._binary)

    @property
    def _param(self) -> Any:
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"]

    @property
    def param_shape(self) -> Any:
        return self._param.size()

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._param.new(*args, **kwargs)
