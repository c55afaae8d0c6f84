"""`kl_divergence(p, q)` and `register_kl`.

The formulas stand in a table by the names of the two classes, so that no distribution is loaded for them: a pair counts
once both of its classes are.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from functools import total_ordering
from typing import Any

import tabtorch as torch
from tabtorch import _lazy
from tabtorch.core.tensor import Tensor
from tabtorch.distributions.distribution import Distribution
from tabtorch.distributions.utils import _sum_rightmost
from tabtorch.distributions.utils import euler_constant as _gamma
from tabtorch.nn.functional import softplus

__all__ = ["kl_divergence", "register_kl"]

_Pair = tuple[type, type]
_KL_REGISTRY: dict[_Pair, Callable[..., Any]] = {}
_KL_MEMOIZE: dict[_Pair, Callable[..., Any]] = {}
#: the table: pairs of names
_FORMULAS: dict[tuple[str, str], Callable[..., Any]] = {}


def register_kl(type_p: Any, type_q: Any) -> Callable[..., Any]:
    """A decorator: the function computes KL(p || q) for instances of these classes, and of their subclasses."""
    for name, t in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(t, type) and issubclass(t, Distribution):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {t}")

    def decorator(fun: Any) -> Any:
        _KL_REGISTRY[type_p, type_q] = fun
        _KL_MEMOIZE.clear()
        return fun

    return decorator


def _loaded(name: str) -> Any:
    """The class of this name, if its module is loaded."""
    module = sys.modules.get(f"{__package__}.{_lazy.distributions._MODULES[name]}")
    return getattr(module, name, None)


def _load_table() -> None:
    for names in list(_FORMULAS):
        pair = _loaded(names[0]), _loaded(names[1])
        if None not in pair:
            _KL_REGISTRY.setdefault(pair, _FORMULAS.pop(names))


@total_ordering
class _Match:
    """Classes in order from special to general, the first first."""

    def __init__(self, *types: Any) -> None:
        self.types = types

    def __eq__(self, other: Any) -> bool:
        return self.types == other.types

    def __le__(self, other: Any) -> bool:
        for x, y in zip(self.types, other.types):
            if not issubclass(x, y):
                return False
            if x is not y:
                break
        return True


def _dispatch_kl(type_p: Any, type_q: Any) -> Any:
    """The function of the most special pair, or NotImplemented."""
    _load_table()
    matches = [(p, q) for p, q in _KL_REGISTRY if issubclass(type_p, p) and issubclass(type_q, q)]
    if not matches:
        return NotImplemented
    left_p, left_q = min(_Match(*m) for m in matches).types
    right_q, right_p = min(_Match(*reversed(m)) for m in matches).types
    left = _KL_REGISTRY[left_p, left_q]
    if left is not _KL_REGISTRY[right_p, right_q]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({left_p.__name__}, {right_q.__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return left


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence KL(p || q), of batch_shape. NotImplementedError for a pair that has no formula."""
    pair = type(p), type(q)
    fun: Any = _KL_MEMOIZE.get(pair)
    if fun is None:
        fun = _KL_MEMOIZE[pair] = _dispatch_kl(*pair)
    if fun is NotImplemented:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {p.__class__.__name__} and q type {q.__class__.__name__}"
        )
    return fun(p, q)


def _of(*pairs: str) -> Callable[..., Any]:
    """Puts a function into the table, for each "P Q"; with one name, of a class against itself."""

    def put(fun: Any) -> Any:
        for pair in pairs:
            names = pair.split()
            _FORMULAS[names[0], names[-1]] = fun
        return fun

    return put


def _inf_where(condition: Any, x: Any) -> Any:
    return x.masked_fill(condition, math.inf)


def _x_log_x(x: Any) -> Any:
    return torch.xlogy(x, x)


def _log_beta(q: Any) -> Any:
    a, b = q.concentration1, q.concentration0
    return a.lgamma() + b.lgamma() - (a + b).lgamma()


# ---- of a class against itself


@_of("Bernoulli")
def _bernoulli(p: Any, q: Any) -> Any:
    t1 = _inf_where(q.probs == 0, p.probs * (softplus(-q.logits) - softplus(-p.logits)))
    t2 = _inf_where(q.probs == 1, (1 - p.probs) * (softplus(q.logits) - softplus(p.logits)))
    return t1.masked_fill(p.probs == 0, 0) + t2.masked_fill(p.probs == 1, 0)


@_of("Beta")
def _beta(p: Any, q: Any) -> Any:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    t = (a - c) * torch.digamma(a) + (b - d) * torch.digamma(b)
    return _log_beta(q) - _log_beta(p) + t + (c + d - a - b) * torch.digamma(a + b)


@_of("Binomial")
def _binomial(p: Any, q: Any) -> Any:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return _inf_where(p.total_count > q.total_count, kl)


@_of("Categorical")
def _categorical(p: Any, q: Any) -> Any:
    t = _inf_where(q.probs == 0, p.probs * (p.logits - q.logits))
    return t.masked_fill(p.probs == 0, 0).sum(-1)


@_of("ContinuousBernoulli")
def _continuous_bernoulli(p: Any, q: Any) -> Any:
    t = p._cont_bern_log_norm() + torch.log1p(-p.probs) - q._cont_bern_log_norm() - torch.log1p(-q.probs)
    return p.mean * (p.logits - q.logits) + t


@_of("Dirichlet")
def _dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    t = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return t + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@_of("Exponential")
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@_of("ExponentialFamily")
def _expfamily(p: Any, q: Any) -> Any:
    """A Bregman divergence of the log normalizer."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot "
            "                            be computed using Bregman divergences"
        )
    params = [n.detach().requires_grad_() for n in p._natural_params]
    normalizer = p._log_normalizer(*params)
    gradients = torch.autograd.grad(normalizer.sum(), params, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - normalizer
    for mine, other, g in zip(params, q._natural_params, gradients):
        result = result - _sum_rightmost((other - mine) * g, len(q.event_shape))
    return result


@_of("Gamma")
def _gamma_gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    t = b * (p.rate / q.rate).log() + torch.lgamma(b) - torch.lgamma(a)
    return t + (a - b) * torch.digamma(a) + (q.rate - p.rate) * (a / p.rate)


@_of("Gumbel")
def _gumbel(p: Any, q: Any) -> Any:
    ratio, shift = p.scale / q.scale, (p.loc - q.loc) / q.scale
    t = ratio * _gamma + torch.exp((1 + ratio).lgamma() - shift)
    return shift - ratio.log() + t - (1 + _gamma)


@_of("Geometric")
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - torch.log1p(-q.probs) / p.probs - q.logits


@_of("HalfNormal")
def _half_normal(p: Any, q: Any) -> Any:
    return _normal(p.base_dist, q.base_dist)


@_of("Laplace")
def _laplace(p: Any, q: Any) -> Any:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * torch.exp(-distance / p.scale) - 1


@_of("Normal")
def _normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@_of("OneHotCategorical")
def _one_hot_categorical(p: Any, q: Any) -> Any:
    return _categorical(p._categorical, q._categorical)


@_of("Pareto")
def _pareto(p: Any, q: Any) -> Any:
    ratio = q.alpha / p.alpha
    return _inf_where(p.scale < q.scale, q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1)


@_of("Poisson")
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@_of("TransformedDistribution")
def _transformed(p: Any, q: Any) -> Any:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


@_of("Uniform")
def _uniform(p: Any, q: Any) -> Any:
    return _inf_where((q.low > p.low) | (q.high < p.high), ((q.high - q.low) / (p.high - p.low)).log())


@_of("Independent")
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@_of("Cauchy")
def _cauchy(p: Any, q: Any) -> Any:
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()


# ---- multivariate normals


def _trace_XXT(x: Any) -> Any:
    return x.pow(2).sum((-2, -1))


def _event(p: Any, q: Any, what: str) -> int:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {what} with                          different event shapes cannot be computed"
        )
    return p.event_shape[0]


def _half_log_dets(p: Any) -> Any:
    """log det of the covariance, for either kind of normal."""
    return (
        p._log_det()
        if hasattr(p, "_log_det")
        else 2 * _lazy.multivariate_normal._half_log_det(p._unbroadcasted_scale_tril)
    )


@_of("LowRankMultivariateNormal", "MultivariateNormal LowRankMultivariateNormal")
def _to_low_rank(p: Any, q: Any) -> Any:
    low = hasattr(p, "cov_factor")
    n = _event(p, q, "Low Rank Multivariate Normals" if low else "(Low Rank) Multivariate Normals")
    W, D = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag
    distance = _lazy.lowrank_multivariate_normal._batch_lowrank_mahalanobis(W, D, q.loc - p.loc, q._capacitance_tril)
    # the trace of inv(q) p, inv(q) = D^-1 - At A
    A = torch.linalg.solve_triangular(q._capacitance_tril, W.mT / D.unsqueeze(-2), upper=False)
    factor = p._unbroadcasted_cov_factor if low else p._unbroadcasted_scale_tril
    trace = _trace_XXT(factor * D.rsqrt().unsqueeze(-1)) - _trace_XXT(A.matmul(factor))
    if low:
        diagonal = p._unbroadcasted_cov_diag
        trace = trace + (diagonal / D).sum(-1) - _trace_XXT(A * diagonal.sqrt().unsqueeze(-2))
    return 0.5 * (_half_log_dets(q) - _half_log_dets(p) + trace + distance - n)


@_of("MultivariateNormal", "LowRankMultivariateNormal MultivariateNormal")
def _to_multivariate(p: Any, q: Any) -> Any:
    low = hasattr(p, "cov_factor")
    n = _event(p, q, "(Low Rank) Multivariate Normals" if low else "Multivariate Normals")
    L = q._unbroadcasted_scale_tril
    if low:
        factors = [p._unbroadcasted_cov_factor, torch.diag_embed(p._unbroadcasted_cov_diag.sqrt())]
    else:
        factors = [p._unbroadcasted_scale_tril]
    trace = sum(_trace_XXT(torch.linalg.solve_triangular(L, f, upper=False)) for f in factors)
    return 0.5 * (
        _half_log_dets(q)
        - _half_log_dets(p)
        + trace
        + _lazy.multivariate_normal._batch_mahalanobis(L, q.loc - p.loc)
        - n
    )


# ---- of two classes


@_of("Bernoulli Poisson")
def _bernoulli_poisson(p: Any, q: Any) -> Any:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@_of("Beta ContinuousBernoulli")
def _beta_continuous_bernoulli(p: Any, q: Any) -> Any:
    return -p.entropy() - p.mean * q.logits - torch.log1p(-q.probs) - q._cont_bern_log_norm()


_SUPPORTS = {  # where q is zero somewhere p is not: what p's parameter is, and the q's
    "Beta concentration1": "Pareto",
    "ContinuousBernoulli probs": "Pareto",
    "Exponential rate": "Beta ContinuousBernoulli Pareto Uniform",
    "Gamma concentration": "Beta ContinuousBernoulli Pareto Uniform",
    "Gumbel loc": "Beta ContinuousBernoulli Exponential Gamma Pareto Uniform",
    "Laplace loc": "Beta ContinuousBernoulli Exponential Gamma Pareto Uniform",
    "Normal loc": "Beta ContinuousBernoulli Exponential Gamma Pareto Uniform",
    "Pareto scale": "Beta ContinuousBernoulli Uniform",
    "Poisson rate": "Bernoulli Binomial",
}


def _infinite(name: str) -> Callable[..., Any]:
    return lambda p, q: torch.full_like(getattr(p, name), math.inf)


for _row, _others in _SUPPORTS.items():
    _p, _parameter = _row.split()
    for _q in _others.split():
        _FORMULAS[_p, _q] = _infinite(_parameter)


@_of("Beta Exponential", "Gamma Exponential", "ContinuousBernoulli Exponential")
def _any_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@_of("Beta Gamma")
def _beta_gamma(p: Any, q: Any) -> Any:
    a, total = p.concentration1, p.concentration1 + p.concentration0
    t2 = q.concentration.lgamma() - q.concentration * q.rate.log()
    t3 = (q.concentration - 1) * (a.digamma() - total.digamma())
    return -p.entropy() + t2 - t3 + q.rate * a / total


@_of("Beta Normal", "ContinuousBernoulli Normal")
def _any_normal(p: Any, q: Any) -> Any:
    """By the first two moments of p."""
    variance = q.scale.pow(2)
    return -p.entropy() + 0.5 * (variance * 2 * math.pi).log() + (p.variance + (p.mean - q.loc).pow(2)) / (2 * variance)


@_of("Beta Uniform")
def _beta_uniform(p: Any, q: Any) -> Any:
    return _inf_where((q.low > 0) | (q.high < 1), -p.entropy() + (q.high - q.low).log())


@_of("ContinuousBernoulli Uniform")
def _continuous_bernoulli_uniform(p: Any, q: Any) -> Any:
    return _inf_where((q.low >= 0) | (q.high <= 1), -p.entropy() + (q.high - q.low).log())


@_of("Exponential Gamma")
def _exponential_gamma(p: Any, q: Any) -> Any:
    ratio, a = q.rate / p.rate, q.concentration
    return -a * torch.log(ratio) + ratio + a.lgamma() + a * _gamma - (1 + _gamma)


@_of("Exponential Gumbel")
def _exponential_gumbel(p: Any, q: Any) -> Any:
    product, ratio = p.rate * q.scale, q.loc / q.scale
    return product.log() - 1 - ratio + torch.exp(ratio) * product / (product + 1) + product.reciprocal()


@_of("Exponential Normal")
def _exponential_normal(p: Any, q: Any) -> Any:
    variance, square = q.scale.pow(2), p.rate.pow(2)
    t = square.reciprocal() - q.loc / p.rate + q.loc.pow(2) * 0.5
    return 0.5 * torch.log(square * variance * 2 * math.pi) - 1 + t / variance


@_of("Gamma Gumbel")
def _gamma_gumbel(p: Any, q: Any) -> Any:
    a, product, ratio = p.concentration, p.rate * q.scale, q.loc / q.scale
    t1 = (a - 1) * a.digamma() - a.lgamma() - a
    return t1 + product.log() + a / product + torch.exp(ratio) * (1 + product.reciprocal()).pow(-a) - ratio


@_of("Gamma Normal")
def _gamma_normal(p: Any, q: Any) -> Any:
    a, variance, square = p.concentration, q.scale.pow(2), p.rate.pow(2)
    t = 0.5 * (a.pow(2) + a) / square - q.loc * a / p.rate + 0.5 * q.loc.pow(2)
    t1 = 0.5 * torch.log(square * variance * 2 * math.pi) - a - a.lgamma()
    return t1 + (a - 1) * a.digamma() + t / variance


@_of("Gumbel Normal")
def _gumbel_normal(p: Any, q: Any) -> Any:
    ratio = p.scale / q.scale
    t = (math.pi * ratio * 0.5).pow(2) / 3 + ((p.loc + p.scale * _gamma - q.loc) / q.scale).pow(2) * 0.5
    return t - (ratio / math.sqrt(2 * math.pi)).log() - (_gamma + 1)


@_of("Laplace Normal")
def _laplace_normal(p: Any, q: Any) -> Any:
    variance = q.scale.pow(2)
    ratio = p.scale.pow(2) / variance
    t = 0.5 * p.loc.pow(2) - p.loc * q.loc + 0.5 * q.loc.pow(2)
    return -0.5 * torch.log(2 * ratio / math.pi) + ratio + t / variance - 1


@_of("Normal Gumbel")
def _normal_gumbel(p: Any, q: Any) -> Any:
    shift, ratio = (p.loc - q.loc) / q.scale, (p.scale / q.scale).pow(2)
    return -ratio.log() * 0.5 + shift + torch.exp(0.5 * ratio - shift) - 0.5 * (1 + math.log(2 * math.pi))


@_of("Normal Laplace")
def _normal_laplace(p: Any, q: Any) -> Any:
    distance = p.loc - q.loc
    ratio = distance / p.scale
    t = math.sqrt(2 / math.pi) * p.scale * torch.exp(-0.5 * ratio.pow(2))
    t = t + distance * torch.erf(math.sqrt(0.5) * ratio)
    return -torch.log(p.scale / q.scale) + t / q.scale - 0.5 * (1 + math.log(0.5 * math.pi))


@_of("Pareto Exponential")
def _pareto_exponential(p: Any, q: Any) -> Any:
    product, a = p.scale * q.rate, p.alpha
    return _inf_where(a <= 1, (a / product).log() - a.reciprocal() + a * product / (a - 1) - 1)


@_of("Pareto Gamma")
def _pareto_gamma(p: Any, q: Any) -> Any:
    a, c = p.alpha, q.concentration
    common = p.scale.log() + a.reciprocal()
    t = a.log() - common + c.lgamma() - c * q.rate.log() + (1 - c) * common
    return _inf_where(a <= 1, t + q.rate * a * p.scale / (a - 1) - 1)


@_of("Pareto Normal")
def _pareto_normal(p: Any, q: Any) -> Any:
    a, common = p.alpha, p.scale / (p.alpha - 1)
    t = a * common.pow(2) / (a - 2) + (a * common - q.loc).pow(2)
    first = (math.sqrt(2 * math.pi) * q.scale * a / p.scale).log() - a.reciprocal()
    return _inf_where(a <= 2, first + t / (2 * q.scale.pow(2)) - 1)


@_of("Uniform Beta")
def _uniform_beta(p: Any, q: Any) -> Any:
    width = p.high - p.low
    t2 = (q.concentration1 - 1) * (_x_log_x(p.high) - _x_log_x(p.low) - width) / width
    t3 = (q.concentration0 - 1) * (_x_log_x(1 - p.high) - _x_log_x(1 - p.low) + width) / width
    return _inf_where((p.high > 1) | (p.low < 0), t3 + _log_beta(q) - torch.log(width) - t2)


@_of("Uniform ContinuousBernoulli")
def _uniform_continuous_bernoulli(p: Any, q: Any) -> Any:
    result = -p.entropy() - p.mean * q.logits - torch.log1p(-q.probs) - q._cont_bern_log_norm()
    return _inf_where((p.high >= 1) | (p.low <= 0), result)


@_of("Uniform Exponential")
def _uniform_exponential(p: Any, q: Any) -> Any:
    return _inf_where(p.low < 0, q.rate * (p.high + p.low) / 2 - ((p.high - p.low) * q.rate).log())


@_of("Uniform Gamma")
def _uniform_gamma(p: Any, q: Any) -> Any:
    width, c = p.high - p.low, q.concentration
    t = c.lgamma() - c * q.rate.log() + (1 - c) * (_x_log_x(p.high) - _x_log_x(p.low) - width) / width
    return _inf_where(p.low < 0, -width.log() + t + q.rate * (p.high + p.low) / 2)


@_of("Uniform Gumbel")
def _uniform_gumbel(p: Any, q: Any) -> Any:
    common, high, low = q.scale / (p.high - p.low), (p.high - q.loc) / q.scale, (p.low - q.loc) / q.scale
    return common.log() + 0.5 * (high + low) - common * (torch.exp(-high) - torch.exp(-low))


@_of("Uniform Normal")
def _uniform_normal(p: Any, q: Any) -> Any:
    width = p.high - p.low
    t = width.pow(2) / 12 + ((p.high + p.low - 2 * q.loc) / 2).pow(2)
    return (math.sqrt(math.pi * 2) * q.scale / width).log() + 0.5 * t / q.scale.pow(2)


@_of("Uniform Pareto")
def _uniform_pareto(p: Any, q: Any) -> Any:
    width = p.high - p.low
    t1 = (q.alpha * q.scale.pow(q.alpha) * width).log()
    t2 = (_x_log_x(p.high) - _x_log_x(p.low) - width) / width
    return _inf_where(p.low < q.scale, t2 * (q.alpha + 1) - t1)
