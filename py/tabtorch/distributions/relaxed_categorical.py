"""Categories made continuous: Maddison et al. (2017), Jang et al. (2017)."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.categorical import OverCategorical
from tabtorch.distributions.distribution import one_read
from tabtorch.distributions.transformed_distribution import TransformedDistribution, of_base
from tabtorch.distributions.transforms import ExpTransform
from tabtorch.distributions.utils import broadcast_all, clamp_probs


class ExpRelaxedCategorical(OverCategorical):
    """The logarithm of a RelaxedOneHotCategorical."""

    support = constraints.real_vector
    has_rsample = True
    _fields = "temperature= _categorical"

    @one_read()
    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.temperature = temperature
        self._over(probs, logits, validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        u = clamp_probs(torch.rand(shape, dtype=self.logits.dtype, device=self.logits.device))
        scores = (self.logits - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(dim=-1, keepdim=True)

    def log_prob(self, value: Any) -> Tensor:
        K = self._categorical._num_events
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        log_scale = torch.full_like(self.temperature, float(K)).lgamma() + self.temperature.log() * (K - 1)
        score = logits - value.mul(self.temperature)
        return (score - score.logsumexp(dim=-1, keepdim=True)).sum(-1) + log_scale


class RelaxedOneHotCategorical(TransformedDistribution):
    """Points of the simplex that go to one-hot vectors as `temperature` goes to 0."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    has_rsample = True
    _fields = ""

    @one_read()
    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    temperature = of_base("temperature")
    logits = of_base("logits")
    probs = of_base("probs")
