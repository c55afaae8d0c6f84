"""`torch.distributions`: see https://docs.pytorch.org/docs/stable/distributions.html. Each is loaded when it is first named."""

from __future__ import annotations

import importlib
from typing import Any

from tabtorch.base.lazy_namespace import whole

_TRANSFORMS = (
    "AbsTransform AffineTransform CatTransform ComposeTransform CorrCholeskyTransform CumulativeDistributionTransform "
    "ExpTransform IndependentTransform LowerCholeskyTransform PositiveDefiniteTransform PowerTransform ReshapeTransform "
    "SigmoidTransform SoftplusTransform TanhTransform SoftmaxTransform StackTransform StickBreakingTransform Transform "
    "identity_transform"
)
#: public name -> its module
_MODULES = {
    name: module
    for module, names in {
        **{
            name.lower(): name
            for name in (
                "Bernoulli Beta Binomial Categorical Cauchy Chi2 Dirichlet Distribution Exponential FisherSnedecor Gamma "
                "Geometric Gumbel Independent Kumaraswamy Laplace Multinomial Normal Pareto Poisson Uniform Weibull Wishart"
            ).split()
        },
        "constraint_registry": "biject_to transform_to",
        "continuous_bernoulli": "ContinuousBernoulli",
        "exp_family": "ExponentialFamily",
        "generalized_pareto": "GeneralizedPareto",
        "half_cauchy": "HalfCauchy",
        "half_normal": "HalfNormal",
        "inverse_gamma": "InverseGamma",
        "kl": "kl_divergence register_kl",
        "lkj_cholesky": "LKJCholesky",
        "log_normal": "LogNormal",
        "logistic_normal": "LogisticNormal",
        "lowrank_multivariate_normal": "LowRankMultivariateNormal",
        "mixture_same_family": "MixtureSameFamily",
        "multivariate_normal": "MultivariateNormal",
        "negative_binomial": "NegativeBinomial",
        "one_hot_categorical": "OneHotCategorical OneHotCategoricalStraightThrough",
        "relaxed_bernoulli": "RelaxedBernoulli",
        "relaxed_categorical": "RelaxedOneHotCategorical",
        "studentT": "StudentT",
        "transformed_distribution": "TransformedDistribution",
        "transforms": _TRANSFORMS,
        "von_mises": "VonMises",
    }.items()
    for name in names.split()
}
_SUBMODULES = {*_MODULES.values(), "constraints", "utils"}

__all__ = list(_MODULES)
whole(__name__, [*_MODULES, *_SUBMODULES])


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name, name if name in _SUBMODULES else None)
    if module is None:
        raise AttributeError(f"module 'torch.distributions' has no attribute '{name}'")
    loaded = importlib.import_module(f"{__name__}.{module}")
    value = getattr(loaded, name) if name in _MODULES else loaded
    globals()[name] = value
    return value
