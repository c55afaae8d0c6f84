"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.categorical import Categorical
from tabtorch.distributions.distribution import Distribution, one_read


class MixtureSameFamily(Distribution):
    """A Categorical chooses along the last batch dimension of `component_distribution`."""

    arg_constraints: Any = {}
    has_rsample = False
    _fields = "_mixture_distribution _component_distribution:1 _num_component= _event_ndims="

    def __init__(
        self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None
    ) -> None:
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of torch.distributions.Distribution")
        mdbs, cdbs = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        for a, b in zip(reversed(mdbs), reversed(cdbs)):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({mdbs}) is not compatible with "
                    f"`component_distribution.batch_shape`({cdbs})"
                )
        km, kc = mixture_distribution.logits.shape[-1], component_distribution.batch_shape[-1]
        if km != kc:
            raise ValueError(
                f"`mixture_distribution component` ({km}) does not equal `component_distribution.batch_shape[-1]` ({kc})"
            )
        self._num_component = km
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(cdbs, component_distribution.event_shape, validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Any:
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        return self._component_distribution

    def _mix(self, x: Any) -> Any:
        """The sum over components, by their probabilities."""
        probs = self._mixture_distribution.probs
        batch = len(self._mixture_distribution.batch_shape)
        pad = 0 if batch == 1 else len(self._batch_shape) - batch
        ones = (1,)
        probs = probs.reshape(probs.shape[:-1] + ones * pad + probs.shape[-1:] + ones * self._event_ndims)
        return torch.sum(probs * x, dim=-1 - self._event_ndims)

    @property
    def mean(self) -> Any:
        return self._mix(self._component_distribution.mean)

    @property
    def variance(self) -> Any:
        parts = self._component_distribution
        return self._mix(parts.variance) + self._mix((parts.mean - self._pad(self.mean)).pow(2.0))

    def cdf(self, x: Any) -> Tensor:
        return torch.sum(self._component_distribution.cdf(self._pad(x)) * self._mixture_distribution.probs, dim=-1)

    @one_read()
    def log_prob(self, x: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(x)
        log_mix = torch.log_softmax(self._mixture_distribution.logits, dim=-1)
        return torch.logsumexp(self._component_distribution.log_prob(self._pad(x)) + log_mix, dim=-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            at = len(sample_shape) + len(self._batch_shape)
            chosen = self._mixture_distribution.sample(sample_shape)
            samples = self._component_distribution.sample(sample_shape)
            chosen = chosen.reshape(chosen.shape + (1,) * (self._event_ndims + 1))
            chosen = chosen.expand((*chosen.shape[: at + 1], *self._event_shape))
            return torch.gather(samples, at, chosen).squeeze(at)

    def _pad(self, x: Any) -> Tensor:
        return x.unsqueeze(-1 - self._event_ndims)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"
