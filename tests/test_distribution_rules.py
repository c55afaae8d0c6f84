"""KL divergences, transforms, constraints and argument errors of `torch.distributions`, beside real PyTorch's."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import tabtorch
from tabtorch.bridge import get_bridge
from test_distributions import Side, close, numpy, plain

# ---- KL divergence

#: one or more of each family; broadcast against each other
FAMILIES = [
    "Bernoulli(t([0.0, 0.3, 1.0]))",
    "Bernoulli(t([0.5, 0.2, 1.0]))",
    "Beta(t([0.5, 2.0, 3.0]), t([1.5, 0.7, 1.0]))",
    "Beta(t([1.5, 4.0, 2.0]), t([2.5, 0.9, 1.0]))",
    "Binomial(5, t([0.1, 0.5, 0.9]))",
    "Binomial(3, t([0.2, 0.5, 0.7]))",
    "Categorical(t([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0], [0.3, 0.3, 0.4]]))",
    "Categorical(logits=t([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0], [0.3, 0.3, 0.4]]))",
    "Cauchy(t([0.0, 1.0, 2.0]), t([1.0, 2.5, 3.0]))",
    "Chi2(t([1.0, 3.0, 4.0]))",
    "ContinuousBernoulli(t([0.1, 0.5, 0.9]))",
    "Dirichlet(t([[0.5, 2.0, 1.0], [9.0, 3.0, 1.0], [1.0, 1.0, 2.0]]))",
    "Exponential(t([0.7, 2.0, 1.0]))",
    "Gamma(t([0.3, 1.0, 2.0]), t([2.0, 0.5, 3.0]))",
    "Geometric(t([0.2, 0.9, 0.5]))",
    "Gumbel(t([0.0, 2.0, 0.5]), t([1.0, 3.0, 2.0]))",
    "HalfNormal(t([1.0, 2.5, 3.0]))",
    "Independent(D.Normal(t([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]), 2.0), 1)",
    "Independent(D.Gamma(t([[1.0, 1.0], [2.0, 3.0], [4.0, 5.0]]), 2.0), 1)",
    "Independent(D.Gamma(t([2.0, 3.0, 4.0]), 2.0), 0)",
    "Laplace(t([0.0, -1.0, 1.0]), t([1.0, 0.3, 2.0]))",
    "LogNormal(t([0.0, 1.0, 2.0]), t([0.5, 1.5, 1.0]))",
    "LowRankMultivariateNormal(t([[1.0, 2.0, 0.0]]), t([[1.0], [2.0], [0.5]]), t([1.0, 0.5, 2.0]))",
    "LowRankMultivariateNormal(t([[1.0, 2.0]]), t([[1.0], [2.0]]), t([1.0, 0.5]))",
    "MultivariateNormal(t([1.0, -1.0, 2.0]), scale_tril=t([[2.0, 0.0, 0.0], [0.5, 1.5, 0.0], [0.1, 0.2, 1.0]]))",
    "MultivariateNormal(t([1.0, 0.0, 2.0]), covariance_matrix=t([[[2.0, 0.3, 0.0], [0.3, 1.0, 0.0], [0.0, 0.0, 1.0]]]))",
    "NegativeBinomial(c([3.0, 10.0, 1.0]), t([0.3, 0.8, 0.5]))",
    "Normal(t([0.0, 1.0, -3.0]), t([1.0, 0.1, 20.0]))",
    "OneHotCategorical(t([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]]))",
    "Pareto(t([1.0, 2.0, 0.5]), t([0.5, 1.5, 4.0]))",
    "Pareto(t([2.0, 1.0, 0.2]), t([0.5, 2.5, 3.0]))",
    "Poisson(t([0.3, 4.0, 30.0]))",
    "StudentT(t([0.5, 1.5, 2.0]))",
    "TransformedDistribution(D.Normal(t([0.0, 1.0, 2.0]), 1.0), [D.ExpTransform()])",
    "TransformedDistribution(D.Normal(t([0.0, 1.0, 2.0]), 1.0), [D.AffineTransform(1.0, 2.0)])",
    "Uniform(t([0.0, -1.0, 0.1]), t([1.0, 3.0, 0.8]))",
    "Uniform(t([-2.0, -1.0, 0.2]), t([1.5, 4.0, 0.9]))",
    "Wishart(4.0, covariance_matrix=t([[2.0, 0.3], [0.3, 1.0]]))",
    "Wishart(5.0, covariance_matrix=t([[1.0, 0.1], [0.1, 1.0]]))",
]


def kl(side: Side, p: Any, q: Any) -> tuple[str, Any]:
    return side.ask("D.kl_divergence(p, q)", D=side.lib.distributions, p=p, q=q)


def same(side: Side, other: Side, want: Any, got: Any, where: str, rtol: float) -> None:
    (kind, x), (mine, y) = want, got
    if kind == "error" or mine == "error":
        assert (mine, y) == (kind, x), where
        return
    close(x, y, where, rtol)
    if x.requires_grad:
        for u, v in zip(side.gradients(x), other.gradients(y), strict=True):
            assert (u is None) == (v is None), where
            if u is not None:
                u = torch.nan_to_num(u, 0.0, 0.0, 0.0)  # of an infinite divergence it is not defined
                finite = np.isfinite(numpy(v))
                np.testing.assert_allclose(
                    np.where(finite, numpy(v), 0), u.numpy(), rtol=10 * rtol, atol=10 * rtol, err_msg=where
                )


def test_every_pair_has_a_formula() -> None:
    from torch.distributions import kl as theirs

    from tabtorch.distributions import kl as mine

    for name in tabtorch.distributions.__all__:
        getattr(tabtorch.distributions, name)
    mine._load_table()
    assert not mine._FORMULAS
    assert {(p.__name__, q.__name__) for p, q in mine._KL_REGISTRY} == {
        (p.__name__, q.__name__) for p, q in theirs._KL_REGISTRY
    }


def test_kl_of_every_pair() -> None:
    a, b = Side(torch, "cpu"), Side(tabtorch, "cpu")
    with tabtorch.device("cpu"):
        made = [(a.make(case), b.make(case), case) for case in FAMILIES]
        # other numbers in the same shapes, but where a matrix would not be one any more
        turned = ["Multiv" not in case and "Wishart" not in case for case in FAMILIES]
        others = [(a.make(case, t), b.make(case, t), case) for case, t in zip(FAMILIES, turned, strict=True)]
        both = {type(x).__name__ for p, _, _ in made for x in (p,)}
        from torch.distributions import kl as theirs

        used = {n.__name__ for pair in theirs._KL_REGISTRY for n in pair} - {"ExponentialFamily"}
        assert used <= both
        for (p, mine, case), (q, other, against) in itertools.product(made, others):
            want, got = kl(a, p, q), kl(b, mine, other)
            if want[0] == "error" and "Tensor" in str(want[1]) and got[0] == "error":
                continue  # shapes that do not broadcast
            same(a, b, want, got, f"KL({case} || {against})", 5e-5)


@pytest.mark.parametrize(
    "case", [c for c in FAMILIES if c.startswith(("Normal", "Cat", "Bern", "Gamma", "Multiv", "Low"))]
)
def test_kl_on_webgpu(case: str, webgpu: None) -> None:
    a, b = Side(torch, "cpu"), Side(tabtorch, "webgpu")
    p, q = a.make(case), b.make(case)
    same(a, b, kl(a, p, a.make(case)), kl(b, q, b.make(case)), case, 3e-4)


def test_register_kl() -> None:
    D = tabtorch.distributions

    class Mine(D.Normal):
        pass

    p, q = Mine(0.0, 1.0), D.Normal(0.0, 1.0)
    assert D.kl_divergence(p, q).item() == 0.0

    @D.register_kl(Mine, D.Normal)
    def _(p: Any, q: Any) -> str:
        return "mine"

    assert D.kl_divergence(p, q) == "mine"
    with pytest.raises(
        NotImplementedError, match=r"No KL\(p \|\| q\) is implemented for p type Mine and q type Cauchy"
    ):
        D.kl_divergence(p, D.Cauchy(0.0, 1.0))

    @D.register_kl(D.Normal, Mine)
    def _(p: Any, q: Any) -> str:
        return "other"

    with pytest.warns(RuntimeWarning, match=r"Ambiguous kl_divergence\(Mine, Mine\)"):
        D.kl_divergence(p, p)


# ---- transforms

TRANSFORMS = [
    ("D.AbsTransform()", "c([-1.0, 2.0])"),
    ("D.AffineTransform(1.0, -2.0)", "c([[-1.0, 2.0]])"),
    ("D.AffineTransform(c([1.0, 2.0]), c([3.0, -0.5]), event_dim=1)", "c([[-1.0, 2.0], [0.0, 1.0]])"),
    ("D.CatTransform([D.ExpTransform(), D.SigmoidTransform()], dim=0, lengths=[1, 2])", "c([-1.0, 2.0, 0.5])"),
    ("D.CatTransform([D.AffineTransform(1.0, 2.0, 1), D.ExpTransform()], 1, [2, 1])", "c([[-1.0, 2.0, 0.5]])"),
    ("D.ComposeTransform([D.AffineTransform(0.0, 2.0), D.TanhTransform()])", "c([-1.0, 0.3])"),
    ("D.ComposeTransform([D.ExpTransform(), D.StickBreakingTransform()])", "c([[-1.0, 0.3]])"),
    ("D.ComposeTransform([])", "c([1.0])"),
    ("D.CorrCholeskyTransform()", "c([[0.3, -1.0, 0.5], [0.0, 2.0, 0.1]])"),
    ("D.CumulativeDistributionTransform(D.Normal(0.0, 1.0))", "c([-1.0, 0.3])"),
    ("D.ExpTransform()", "c([-1.0, 0.3])"),
    ("D.ExpTransform().inv", "c([1.0, 0.3])"),
    ("D.IndependentTransform(D.ExpTransform(), 1)", "c([[-1.0, 0.3]])"),
    ("D.LowerCholeskyTransform()", "c([[0.3, -1.0], [0.5, 0.2]])"),
    ("D.PositiveDefiniteTransform()", "c([[0.3, -1.0], [0.5, 0.2]])"),
    ("D.PowerTransform(c([2.0, -1.5]))", "c([0.4, 0.3])"),
    ("D.ReshapeTransform((2, 3), (3, 2))", "c([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])"),
    ("D.SigmoidTransform()", "c([-1.0, 0.3])"),
    ("D.SoftplusTransform()", "c([-1.0, 0.3, 25.0])"),
    ("D.SoftmaxTransform()", "c([[-1.0, 0.3, 1.0]])"),
    ("D.StackTransform([D.ExpTransform(), D.TanhTransform()], dim=1)", "c([[-1.0, 0.3], [0.1, 0.2]])"),
    ("D.StickBreakingTransform()", "c([[-1.0, 0.3, 1.0]])"),
    ("D.TanhTransform()", "c([-1.0, 0.3])"),
    ("D.identity_transform", "c([-1.0, 0.3])"),
]
ASKED = [
    *["f(x)", "f.inv(f(x))", "f.log_abs_det_jacobian(x, f(x))", "f.inv.log_abs_det_jacobian(f(x), x)", "f.sign"],
    *["f.domain.check(x)", "f.codomain.check(f(x))"],
]
ASKED_TEXT = [
    *["repr(f)", "repr(f.inv)", "f.domain", "f.codomain", "f.bijective", "f.event_dim", "f.domain.event_dim"],
    *["f.codomain.event_dim", "f.forward_shape(x.shape)", "f.inverse_shape(f(x).shape)", "f.inverse_shape((7,))"],
    *[
        "f.forward_shape(())",
        "f.forward_shape((2, 5))",
        "f == f",
        "f == f.inv",
        "f.inv.inv is f",
        "f.with_cache(0) is f",
    ],
    *["f.with_cache(1)._cache_size", "f.with_cache(1).inv._cache_size", "f.with_cache(2)"],
    *["(lambda g, x: g.inv(g(x)) is x)(f.with_cache(1), x)"],
]


@pytest.mark.parametrize(("transform", "value"), TRANSFORMS)
def test_transforms(transform: str, value: str, device: str) -> None:
    a, b = Side(torch, "cpu"), Side(tabtorch, device)
    f, g = a.make(transform), b.make(transform)
    x, y = a.make(value).requires_grad_(), b.make(value).requires_grad_()
    a.leaves, b.leaves = [x], [y]
    for question in ASKED:
        want, got = a.ask(question, f=f, x=x), b.ask(question, f=g, x=y)
        if not isinstance(want[1], torch.Tensor):
            assert got == want, question
            continue
        same(a, b, want, got, question, 3e-4 if device == "webgpu" else 3e-5)
    for question in ASKED_TEXT:
        want, got = a.ask(question, f=f, x=x), b.ask(question, f=g, x=y)
        assert plain(str(got)) == plain(str(want)), question


# ---- constraints

CONSTRAINTS = [
    *["C.boolean", "C.one_hot", "C.nonnegative_integer", "C.positive_integer", "C.integer_interval(0, 2)"],
    *["C.real", "C.real_vector", "C.positive", "C.nonnegative", "C.greater_than(0.5)", "C.greater_than_eq(0.5)"],
    *[
        "C.less_than(0.5)",
        "C.multinomial(3)",
        "C.unit_interval",
        "C.interval(-1, 0.5)",
        "C.half_open_interval(-1, 0.5)",
    ],
    *["C.simplex", "C.lower_triangular", "C.lower_cholesky", "C.corr_cholesky", "C.square", "C.symmetric"],
    *["C.positive_semidefinite", "C.positive_definite", "C.independent(C.positive, 1)", "C.dependent"],
    *["C.cat([C.positive, C.real], 0, [1, 1])", "C.cat([C.real, C.boolean], -1)", "C.stack([C.positive, C.real], -1)"],
    *[
        "C.stack([C.real_vector, C.simplex], 0)",
        "C.MixtureSameFamilyConstraint(C.positive)",
        "C.independent(C.real, -1)",
    ],
    *["C.interval(upper_bound=2.0, lower_bound=1.0)", "C.dependent(is_discrete=True)", "C.cat([1])"],
    *["C.interval(c([0.0, 0.5]), c([1.0, 1.0]))", "C._IntegerLessThan(3)"],
]
VALUES = [
    *["c([[1.0, 0.0], [0.0, 1.0]])", "c([[0.6, 0.4], [0.8, 0.6]])", "c([[1.0, 0.5], [0.5, 0.1]])", "c([1.0, 2.0])"],
    *["c([[-1.0, float('nan')], [0.5, 0.5]])", "c([[1.0, 0.0], [0.6, 0.8]])", "c([[[2.0, 1.0], [1.0, 2.0]]])"],
    *["c([[1.0, 2.0, 3.0], [0.2, 0.3, 0.5]])", "c(1.0)"],
]


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_constraints(constraint: str) -> None:
    a, b = Side(torch, "cpu"), Side(tabtorch, "cpu")
    with tabtorch.device("cpu"):
        sides = [(s, {"C": s.lib.distributions.constraints, "D": s.lib.distributions}) for s in (a, b)]
        (kind, p), (mine, q) = (
            s.ask(constraint, **names, c=lambda v, s=s: s.lib.tensor(v, dtype=s.dtype)) for s, names in sides
        )
        assert mine == kind
        if kind == "error":
            assert p == q
            return
        assert repr(q) == repr(p)
        for attribute in ("is_discrete", "event_dim"):
            assert b.ask("c." + attribute, c=q) == a.ask("c." + attribute, c=p), attribute
        for value in VALUES:
            want, got = a.ask("c.check(v)", c=p, v=a.make(value)), b.ask("c.check(v)", c=q, v=b.make(value))
            assert got[0] == want[0], f"{value}: {got[1]}, not {want[1]}"
            if want[0] == "value":
                close(want[1], got[1], value, 0)
            elif "dim" not in want[1] and "size" not in want[1]:
                assert got[1] == want[1]
        for registry in ("biject_to", "transform_to"):
            want, got = (s.ask(f"D.{registry}(c)", **n, c=c) for (s, n), c in zip(sides, (p, q), strict=True))
            assert plain(str(got)) == plain(str(want))
            if want[0] == "value":
                x = [0.3, -1.0] if "cat" not in constraint else [[0.3, -1.0]]
                x = x if "definite" not in constraint and "lower" not in constraint else [[0.3, 0.0], [1.0, 0.5]]
                if "corr" in constraint:
                    x = [0.3, -1.0, 0.5]
                names = {"x": x}
                want, got = (s.ask("f(t)", f=f, t=s.lib.tensor(x)) for s, f in ((a, want[1]), (b, got[1])))
                assert got[0] == want[0], names
                if want[0] == "value":
                    close(want[1], got[1], registry, 3e-5)


# ---- errors

ERRORS = [
    *["D.Normal(c([0.0, float('nan')]), 1.0)", "D.Normal(0.0, -1.0)", "D.Normal(c([0.0, 1.0]), c([1.0, 0.0]))"],
    *["D.Normal('a', 1.0)", "D.Normal(0, 0)", "D.Bernoulli(1.5)", "D.Bernoulli()", "D.Bernoulli(0.1, logits=0.1)"],
    *["D.Normal(c([0.0, 1.0]), c([1.0, 2.0, 3.0]))", "D.Normal(0.0, 1.0).log_prob(1.0)", "D.Uniform(1.0, 0.0)"],
    *["D.Uniform(c([1.0, 2.0]), c([3.0, 2.0]))", "D.Normal(c([0.0, 1.0]), 1.0).log_prob(c([1.0, 2.0, 3.0]))"],
    *["D.Normal(0.0, 1.0).log_prob(c(float('nan')))", "D.Bernoulli(0.5).log_prob(c([0.0, 0.5]))"],
    *["D.Categorical(c([[-0.1, 1.1]]))", "D.Categorical(c(1.0))", "D.Categorical(logits=c(1.0))"],
    *["D.Categorical(c([0.5, 0.5])).log_prob(c(2.0))", "D.Beta(-1.0, 1.0)", "D.Beta(c([1.0, -1.0]), 1.0)"],
    *["D.Beta(1.0, 1.0).log_prob(c(1.5))", "D.Gamma(c([1.0, -1.0]), 1.0)", "D.Chi2(-1.0)", "D.Dirichlet(c(1.0))"],
    *["D.Dirichlet(c([1.0, 0.0]))", "D.Dirichlet(c([1.0, 1.0])).log_prob(c([0.5, 0.6]))", "D.Geometric(0.0)"],
    *[
        "D.Geometric(c([0.0, 0.5]))",
        "D.Geometric(c([2.0, 0.0]))",
        "D.Binomial(-1, 0.5)",
        "D.Binomial(3, 0.5).log_prob(c(4.0))",
    ],
    *["D.Binomial(c([3.0, 4.0]), 0.5).entropy()", "D.Binomial(c([3.0, 4.0]), 0.5).enumerate_support()"],
    *["D.StudentT(-1.0)", "D.FisherSnedecor(1.0, -1.0)", "D.LKJCholesky(1)", "D.LKJCholesky(2, -1.0)"],
    *[
        "D.LowRankMultivariateNormal(c(1.0), c([[1.0]]), c([1.0]))",
        "D.LowRankMultivariateNormal(c([1.0]), c([1.0]), c([1.0]))",
    ],
    *["D.LowRankMultivariateNormal(c([1.0]), c([[1.0], [1.0]]), c([1.0]))", "D.MultivariateNormal(c(1.0), c([[1.0]]))"],
    *["D.LowRankMultivariateNormal(c([1.0]), c([[1.0]]), c([1.0, 1.0]))", "D.MultivariateNormal(c([1.0]))"],
    *["D.MultivariateNormal(c([1.0]), c([1.0]))", "D.MultivariateNormal(c([1.0, 1.0]), c([[1.0, 2.0], [2.0, 1.0]]))"],
    *[
        "D.MultivariateNormal(c([1.0, 1.0]), c([[1.0, 0.5], [0.1, 1.0]]))",
        "D.MultivariateNormal(c([1.0]), c([[1.0]]), c([[1.0]]))",
    ],
    *[
        "D.MultivariateNormal(c([1.0, 1.0]), scale_tril=c([[1.0, 0.5], [0.1, 1.0]]))",
        "D.Multinomial(c(2.0), c([0.5, 0.5]))",
    ],
    *[
        "D.Multinomial(2, c([0.5, 0.5])).log_prob(c([2.0, 2.0]))",
        "D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(0.0, 1.0))",
    ],
    *[
        "D.MixtureSameFamily(D.Categorical(c([0.5, 0.5])), 1)",
        "D.MixtureSameFamily(D.Categorical(c([0.5, 0.5])), D.Normal(c([1.0, 2.0, 3.0]), 1.0))",
    ],
    *["D.MixtureSameFamily(D.Categorical(c([[0.5, 0.5], [0.5, 0.5]])), D.Normal(torch.zeros(3, 2), 1.0))"],
    *["D.MixtureSameFamily(D.Categorical(c([0.5, 0.5])), D.Gamma(c([1.0, 2.0]), 1.0)).log_prob(c(-1.0))"],
    *["D.Independent(D.Normal(0.0, 1.0), 1)", "D.Independent(D.Bernoulli(c([0.5])), 1).enumerate_support()"],
    *["D.TransformedDistribution(D.Normal(0.0, 1.0), [1])", "D.TransformedDistribution(D.Normal(0.0, 1.0), 1)"],
    *["D.TransformedDistribution(D.Normal(0.0, 1.0), D.StickBreakingTransform())", "D.LogNormal(0.0, -1.0)"],
    *["D.LogNormal(0.0, 1.0).log_prob(c(-1.0))", "D.HalfNormal(c([-1.0]))", "D.HalfNormal(1.0).log_prob(c(-1.0))"],
    *[
        "D.Pareto(1.0, 1.0).log_prob(c(0.5))",
        "D.Weibull(-1.0, 1.0)",
        "D.Kumaraswamy(1.0, -1.0)",
        "D.InverseGamma(-1.0, 1.0)",
    ],
    *["D.Gumbel(0.0, -1.0)", "D.VonMises(0.0, 0.0)", "D.Poisson(-1.0)", "D.Poisson(1.0).log_prob(c(0.5))"],
    *[
        "D.OneHotCategorical(c([0.5, 0.5])).log_prob(c([1.0, 1.0]))",
        "D.NegativeBinomial(-1, 0.5)",
        "D.NegativeBinomial(1, 1.0)",
    ],
    *[
        "D.RelaxedBernoulli(c(1.0), 1.5)",
        "D.Wishart(1.0, c([[1.0, 0.0], [0.0, 1.0]]))",
        "D.Wishart(1.0)",
        "D.Wishart(1.0, c([1.0]))",
    ],
    *[
        "D.Wishart(3.0, c([[1.0, 2.0], [2.0, 1.0]]))",
        "D.ContinuousBernoulli(1.5, validate_args=True)",
    ],
    *[
        "D.GeneralizedPareto(0.0, 1.0, 0.1).log_prob(c(-1.0))",
        "D.LogisticNormal(c([0.0]), c([-1.0]))",
        "D.Cauchy(0.0, 0.0)",
    ],
    *[
        "D.Multinomial(2, c([0.5, 0.5])).mode",
        "D.LKJCholesky(2).mean",
        "D.Poisson(1.0).cdf(c(1.0))",
        "D.Poisson(1.0).rsample()",
    ],
    *[
        "D.Distribution().mean",
        "D.Distribution(validate_args=False).sample()",
        "D.Distribution.set_default_validate_args(3)",
    ],
    *[
        "D.Normal(0.0, 1.0).expand((2,)).expand((3,))",
        "D.Categorical(c([0.5, 0.5])).rsample()",
        "D.Transform(cache_size=2)",
    ],
    *["D.ReshapeTransform((2,), (3,))", "D.ReshapeTransform((2,), (2, 1)).forward_shape((3,))", "D.CatTransform([1])"],
    *["D.StackTransform([D.ExpTransform()], 0)(c([1.0, 2.0]))", "D.CatTransform([D.ExpTransform()], 3)(c([1.0]))"],
    *["D.CatTransform([D.ExpTransform()]).inv(c([1.0, 2.0]))", "D.CorrCholeskyTransform().inverse_shape((2, 3))"],
    *[
        "D.CorrCholeskyTransform().forward_shape((2,))",
        "D.biject_to(D.constraints.square)",
        "D.biject_to.register(1, 2)",
    ],
    *[
        "D.utils.vec_to_tril_matrix(c([1.0, 2.0]))",
        "D.utils.tril_matrix_to_vec(c([[1.0]]), 1)",
        "D.utils.broadcast_all('x')",
    ],
    *["D.StickBreakingTransform().forward_shape(())", "D.IndependentTransform(D.ExpTransform(), 1)(c(1.0))"],
]


@pytest.mark.parametrize("call", ERRORS)
def test_errors(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)  # PyTorch's compiler turns it off
    a, b = Side(torch, "cpu"), Side(tabtorch, "cpu")
    with tabtorch.device("cpu"):
        (kind, want), (mine, got) = (
            s.ask(call, D=s.lib.distributions, c=lambda v, s=s: s.lib.tensor(v, dtype=s.dtype)) for s in (a, b)
        )
    assert kind == mine == "error", got
    assert got == want


def test_validation_can_be_left_out() -> None:
    D = tabtorch.distributions
    with tabtorch.device("cpu"):
        assert math.isnan(D.Normal(0.0, -1.0, validate_args=False).log_prob(tabtorch.tensor(1.0)).item())
        D.Distribution.set_default_validate_args(False)
        try:
            D.Normal(0.0, -1.0)
            assert D.Normal(0.0, 1.0).log_prob(0.0).item() == pytest.approx(-0.9189385)
        finally:
            D.Distribution.set_default_validate_args(True)


@pytest.mark.parametrize(
    ("call", "reads"),
    [
        ("D.Normal(0.0, 1.0)", 0),
        ("D.Normal(loc, loc.exp())", 1),
        ("D.Beta(loc.exp(), 1.0)", 1),
        ("D.LogNormal(loc, 1.0)", 1),
        ("D.StudentT(loc.exp())", 1),
        ("D.OneHotCategorical(logits=loc)", 1),
        ("D.Weibull(loc.exp(), loc.exp())", 1),
        ("D.Gumbel(loc, loc.exp()).log_prob(loc)", 2),
        ("D.LogNormal(0.0, 1.0).log_prob(loc.exp())", 1),
        ("D.MixtureSameFamily(D.Categorical(logits=loc), D.Normal(loc, 1.0)).log_prob(loc)", 3),
        ("D.Independent(D.Normal(0.0, 1.0).expand((2,)), 1).log_prob(loc)", 1),
        ("D.kl_divergence(D.Normal(loc, 1.0, validate_args=False), D.Normal(0.0, 1.0))", 0),
    ],
)
def test_reads(call: str, reads: int, webgpu: None) -> None:
    loc = tabtorch.tensor([0.5, -1.0])
    names = {"D": tabtorch.distributions, "loc": loc}
    eval(call, names)
    before = get_bridge().stats()["reads"]
    eval(call, names)
    assert get_bridge().stats()["reads"] - before == reads


# ---- the rest of the interface


def test_names() -> None:
    theirs, mine = torch.distributions, tabtorch.distributions
    assert set(mine.__all__) == set(theirs.__all__)
    for part in ("constraints", "transforms", "utils", "kl", "constraint_registry"):
        assert set(getattr(mine, part).__all__) == set(getattr(theirs, part).__all__)
    for name in theirs.__all__:
        place = getattr(getattr(theirs, name), "__module__", "")
        if place.startswith("torch.distributions."):
            own = getattr(mine, name).__module__.replace("._transform", ".transforms")
            assert own == "tab" + place, name


def test_subclasses() -> None:
    D = tabtorch.distributions

    class Half(D.Normal):
        def __init__(self, loc: Any) -> None:
            super().__init__(loc, 0.5)

    class Whole(Half):
        def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
            return super().expand(batch_shape, self._get_checked_instance(Whole, _instance))

    class Plain(D.Distribution):
        pass

    with tabtorch.device("cpu"):
        with pytest.raises(NotImplementedError, match="Subclass Half of Normal that defines a custom __init__ method"):
            Half(0.0).expand((2,))
        assert isinstance(Whole(0.0).expand((2,)), Whole)
        with pytest.warns(UserWarning, match="does not define `arg_constraints`"):
            Plain(validate_args=True)
        with pytest.warns(FutureWarning, match=r"`sample_n\(n\)` will be deprecated"):
            assert D.Normal(0.0, 1.0).sample_n(3).shape == (3,)


# ---- programs


def vae(torch: Any, device: str) -> list[float]:
    """A variational autoencoder of two layers."""
    D = torch.distributions
    torch.manual_seed(0)
    x = (torch.rand(16, 12) > 0.5).float().to(device)
    encoder, decoder = torch.nn.Linear(12, 8).to(device), torch.nn.Linear(4, 12).to(device)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.05)
    losses = []
    for _ in range(6):
        mean, log_scale = encoder(x).chunk(2, -1)
        q = D.Independent(D.Normal(mean, log_scale.exp()), 1)
        z = q.rsample()
        p = D.Independent(D.Normal(torch.zeros_like(mean), 1.0), 1)
        rebuilt = D.Independent(D.Bernoulli(logits=decoder(z)), 1).log_prob(x)
        loss = (D.kl_divergence(q, p) - rebuilt).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def policy(torch: Any, device: str) -> list[float]:
    """REINFORCE on a bandit."""
    torch.manual_seed(1)
    logits = torch.zeros(4, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([logits], lr=0.5)
    for _ in range(8):
        d = torch.distributions.Categorical(logits=logits)
        action = d.sample((16,))
        reward = (action == 2).float()
        loss = -(d.log_prob(action) * (reward - reward.mean())).mean() - 0.01 * d.entropy()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return logits.tolist()


def mixture(torch: Any, device: str) -> list[float]:
    """Fitting a mixture of normals, and a flow, to the same numbers."""
    D = torch.distributions
    torch.manual_seed(2)
    data = torch.cat([torch.randn(20) - 2, torch.randn(20) * 0.5 + 1]).to(device)
    logits, loc, log_scale = (
        torch.tensor(v, device=device, requires_grad=True) for v in ([0.0, 0.0], [-1.0, 1.0], [0.0, 0.0])
    )
    shift = torch.tensor(0.1, device=device, requires_grad=True)
    optimizer = torch.optim.Adam([logits, loc, log_scale, shift], lr=0.1)
    for _ in range(6):
        m = D.MixtureSameFamily(D.Categorical(logits=logits), D.Normal(loc, log_scale.exp()))
        base = D.Normal(torch.zeros((), device=device), 1.0)
        flow = D.TransformedDistribution(
            base, [D.AffineTransform(shift, 2.0), D.SigmoidTransform(), D.AffineTransform(-6, 12)]
        )
        loss = -m.log_prob(data).mean() - flow.log_prob(data).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [*loc.tolist(), *log_scale.tolist(), shift.item()]


@pytest.mark.parametrize("program", [vae, policy, mixture])
def test_programs(program: Any, device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(program(tabtorch, device), program(torch, "cpu"), rtol=1e-3, atol=1e-4)
