"""`torch.distributions` beside real PyTorch's: every distribution, with its samples, densities, moments and errors."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import tabtorch

#: what is made of them: `D` is the module, `t` a float tensor that requires grad, `c` one that does not
CASES = [
    "Bernoulli(t([0.7, 0.2, 0.5, 1.0]))",
    "Bernoulli(logits=t([[1.5, -0.3], [0.0, 4.0]]))",
    "Bernoulli(0.3)",
    "Beta(t([0.5, 2.0, 7.5]), t([1.5, 0.7, 20.0]))",
    "Beta(2.0, 3)",
    "Binomial(10, t([0.1, 0.5, 0.9]))",
    "Binomial(c([40.0, 3.0]), logits=t([[0.3, -1.0], [2.0, 0.1]]))",
    "Binomial(100, 0.6)",
    "Categorical(t([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]))",
    "Categorical(logits=t([1.0, -2.0, 0.5, 0.0]))",
    "Cauchy(t([0.0, 1.0]), t([1.0, 2.5]))",
    "Chi2(t([1.0, 3.0, 8.0]))",
    "ContinuousBernoulli(t([0.1, 0.4995, 0.5, 0.9]))",
    "ContinuousBernoulli(logits=t([-1.0, 0.001, 3.0]))",
    "Dirichlet(t([[0.5, 2.0, 1.0], [9.0, 30.0, 12.0]]))",
    "Dirichlet(t([0.3, 0.4]))",
    "Exponential(t([0.7, 2.0]))",
    "Exponential(1.0)",
    "FisherSnedecor(t([1.5, 3.0, 6.0]), t([1.0, 4.5, 9.0]))",
    "Gamma(t([0.3, 1.0, 20.0]), t([2.0, 0.5, 3.0]))",
    "GeneralizedPareto(t([0.0, 1.0, -2.0]), t([1.0, 2.0, 0.5]), t([0.0, 0.4, -0.5]))",
    "Geometric(t([0.2, 0.9, 1.0]))",
    "Geometric(logits=t([0.5, -1.0]))",
    "Gumbel(t([0.0, 2.0]), t([1.0, 3.0]))",
    "Gumbel(1.0, 2.0)",
    "HalfCauchy(t([1.0, 2.5]))",
    "HalfNormal(t([[1.0], [2.5]]))",
    "Independent(D.Normal(t([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]), 2.0), 1)",
    "Independent(D.Bernoulli(t([0.2, 0.8])), 0)",
    "InverseGamma(t([0.5, 1.5, 4.0]), t([1.0, 2.0, 3.0]))",
    "Kumaraswamy(t([0.5, 2.0, 3.0]), t([1.5, 4.0, 0.5]))",
    "LKJCholesky(3, t([0.5, 2.0]))",
    "LKJCholesky(2)",
    "Laplace(t([0.0, -1.0]), t([1.0, 0.3]))",
    "LogNormal(t([0.0, 1.0]), t([0.5, 1.5]))",
    "LogisticNormal(t([[0.3, -1.0], [0.0, 0.0]]), t([1.0, 0.5]))",
    "LowRankMultivariateNormal(t([1.0, -1.0, 0.0]), t([[1.0], [2.0], [0.5]]), t([1.0, 0.5, 2.0]))",
    "LowRankMultivariateNormal(t([[1.0, 2.0], [3.0, 4.0]]), t([[1.0, 0.5], [0.0, 2.0]]), t([0.7, 1.3]))",
    "MixtureSameFamily(D.Categorical(t([0.3, 0.7])), D.Normal(t([-1.0, 2.0]), t([0.5, 1.5])))",
    "MixtureSameFamily(D.Categorical(logits=t([[0.3, 0.7], [1.0, 0.0]])), D.Independent(D.Normal(t([[[-1.0, 2.0], "
    "[0.5, 1.5]], [[1.0, 2.0], [3.0, 4.0]]]), 1.0), 1))",
    "Multinomial(5, t([[0.1, 0.2, 0.7], [0.5, 0.0, 0.5]]))",
    "Multinomial(4, logits=t([0.3, 1.0]))",
    "MultivariateNormal(t([1.0, -1.0]), scale_tril=t([[2.0, 0.0], [0.5, 1.5]]))",
    "MultivariateNormal(t([[1.0, -1.0], [0.0, 3.0], [1.0, 1.0]]), covariance_matrix=t([[2.0, 0.3], [0.3, 1.0]]))",
    "MultivariateNormal(t([1.0, -1.0]), precision_matrix=t([[[2.0, 0.3], [0.3, 1.0]], [[1.0, 0.0], [0.0, 4.0]]]))",
    "NegativeBinomial(c([3.0, 10.0]), t([0.3, 0.8]))",
    "NegativeBinomial(5, logits=t([0.4, -1.0]))",
    "Normal(t([0.0, 1.0, -3.0]), t([1.0, 0.1, 20.0]))",
    "Normal(0.0, 1.0)",
    "Normal(t([[0.0], [1.0]]), 2)",
    "OneHotCategorical(t([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]))",
    "OneHotCategorical(logits=t([0.3, 1.0]))",
    "OneHotCategoricalStraightThrough(t([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]))",
    "Pareto(t([1.0, 2.0, 0.5]), t([0.5, 1.5, 4.0]))",
    "Poisson(t([0.3, 4.0, 30.0]))",
    "Poisson(2.5)",
    "RelaxedBernoulli(c([0.7]), t([0.2, 0.9]))",
    "RelaxedBernoulli(c(2.0), logits=t([0.2, 0.9]))",
    "RelaxedOneHotCategorical(c(0.7), t([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]))",
    "StudentT(t([0.5, 1.5, 2.0, 8.0]), t([0.0, 1.0, 2.0, 3.0]), 2.0)",
    "StudentT(3.0)",
    "TransformedDistribution(D.Normal(t([0.0, 1.0]), 1.0), [D.TanhTransform(), D.AffineTransform(1.0, t([2.0, -3.0]))])",
    "TransformedDistribution(D.Normal(t([0.0, 1.0]), t([[1.0], [2.0]])), D.StickBreakingTransform())",
    "Uniform(t([0.0, -1.0]), t([1.0, 3.0]))",
    "Uniform(-1, 1.0)",
    "VonMises(t([0.0, 1.0, -2.0]), t([0.1, 2.0, 50.0]))",
    "Weibull(t([1.0, 2.0]), t([0.5, 3.0]))",
    "Wishart(t([3.5, 5.0]), covariance_matrix=t([[2.0, 0.3], [0.3, 1.0]]))",
    "Wishart(4, scale_tril=t([[2.0, 0.0], [0.5, 1.5]]))",
    "Wishart(4.5, precision_matrix=t([[2.0, 0.3], [0.3, 1.0]]))",
]

#: the rest of a case: what is asked of it. `d` is the distribution, `v` a sample of PyTorch's, `q` numbers in (0, 1)
QUESTIONS = [
    *["d.mean", "d.mode", "d.variance", "d.stddev", "d.entropy()"],
    *["d.log_prob(v)", "d.cdf(v)", "d.icdf(q)", "d.support.check(v)"],
    *["d.enumerate_support()", "d.enumerate_support(expand=False)"],
    "d.expand((2, *d.batch_shape)).log_prob(v)",
    *["d.sample()", "d.rsample((2,))", "d.expand((2, *d.batch_shape)).sample((2,))"],
]
SHOWN = [
    *["repr(d)", "repr(d.expand((2, *d.batch_shape)))", "d.batch_shape", "d.event_shape", "d.has_rsample"],
    *["d.has_enumerate_support", "repr(d.support)", "d.support.event_dim", "d.support.is_discrete"],
    *["d.expand((2, *d.batch_shape)).event_shape", "d.expand((2, *d.batch_shape)).batch_shape"],
]


class Side:
    """One of the two libraries, and the tensors that a case was made with."""

    def __init__(self, lib: Any, device: str | None, dtype: str = "float32") -> None:
        self.lib = lib
        self.dtype = getattr(lib, dtype)
        self.device = device
        self.leaves: list[Any] = []

    def make(self, case: str, turned: bool = False) -> Any:
        def t(values: Any) -> Any:
            values = values[::-1] if turned else values
            leaf = c(values).requires_grad_()
            self.leaves.append(leaf)
            return leaf

        def c(values: Any) -> Any:
            return self.lib.tensor(values, dtype=self.dtype, device=self.device)

        D = self.lib.distributions
        names = {"D": D, "t": t, "c": c, "torch": self.lib, **{n: getattr(D, n) for n in D.__all__}}
        return eval(case, names)

    def ask(self, question: str, **names: Any) -> tuple[str, Any]:
        self.lib.manual_seed(3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return "value", eval(question, {"torch": self.lib, **names})
            except Exception as e:
                return "error", plain(f"{type(e).__name__}: {e}")

    def gradients(self, x: Any) -> list[Any]:
        w = torch.linspace(0.5, 1.5, x.numel()).reshape(tuple(x.shape)).numpy()
        loss = (x * self.lib.tensor(w, dtype=x.dtype, device=x.device)).sum()
        try:
            return list(self.lib.autograd.grad(loss, self.leaves, allow_unused=True, retain_graph=True))
        except Exception as e:
            return [type(e).__name__] * len(self.leaves)


def plain(text: str) -> str:
    """A message without what the two must differ in."""
    text = re.sub(r", device='webgpu:0'|, grad_fn=<[^>]*>|, requires_grad=True", "", text)
    return re.sub(r"\btabtorch\b", "torch", text)


def numpy(x: Any) -> Any:
    x = x.detach()
    return x.cpu().numpy()


def close(want: Any, got: Any, where: str, rtol: float) -> None:
    assert tuple(want.shape) == tuple(got.shape), f"{where}: shape {tuple(got.shape)}, not {tuple(want.shape)}"
    assert str(want.dtype) == str(got.dtype), f"{where}: dtype {got.dtype}, not {want.dtype}"
    np.testing.assert_allclose(numpy(got), numpy(want), rtol=rtol, atol=rtol, err_msg=where)


def compare(case: str, device: str, questions: list[str], dtype: str = "float32") -> None:
    rtol = 1e-10 if dtype == "float64" else 3e-4 if device == "webgpu" else 3e-5
    a, b = Side(torch, "cpu", dtype), Side(tabtorch, device, dtype)
    with torch.no_grad():
        p, q = a.make(case), b.make(case)
        v = a.ask("d.sample()", d=p)[1]
    a.leaves.clear()
    b.leaves.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p, q = a.make(case), b.make(case)
    chances = torch.linspace(0.15, 0.85, max(1, p.batch_shape.numel()), dtype=a.dtype).reshape(p.batch_shape)
    mine = {"v": v, "q": chances}
    for k, x in mine.items():
        mine[k] = tabtorch.tensor(x.numpy(), device=device)
    for question in SHOWN:
        want, got = a.ask(question, d=p), b.ask(question, d=q)
        want, got = plain(str(want)), plain(str(got))
        if device == "webgpu" or dtype == "float64":  # numbers may print otherwise
            want, got = (re.sub(r"[\d.]+|\s", "", x) for x in (want, got))
        assert got == want, f"{case}: {question}"
    for question in questions:
        where = f"{case}: {question}"
        (kind, want), (other, got) = a.ask(question, d=p, v=v, q=chances), b.ask(question, d=q, **mine)
        if kind == "error" or other == "error":
            assert (other, got) == (kind, want), where
            continue
        close(want, got, where, rtol)
        assert got.requires_grad == want.requires_grad, where
        if want.requires_grad and "(" in question:
            for x, y in zip(a.gradients(want), b.gradients(got), strict=True):
                if x == "RuntimeError":
                    continue  # Wishart.rsample writes into a mask that PyTorch's backward needs
                if x is None or isinstance(x, str):
                    assert x == y, where
                else:
                    close(x, y, f"gradient of {where}", rtol * 10)


@pytest.mark.parametrize("case", CASES)
def test_like_pytorch(case: str) -> None:
    with tabtorch.device("cpu"):
        compare(case, "cpu", QUESTIONS)


#: those in which PyTorch itself computes in float32, or fails
_SINGLE = "GeneralizedPareto|Multinomial|LKJCholesky\\(2|VonMises"


@pytest.mark.parametrize("case", [c for c in CASES[::6] if "t([" in c and not re.match(_SINGLE, c)])
def test_float64(case: str) -> None:
    with tabtorch.device("cpu"):
        compare(case, "cpu", QUESTIONS, "float64")


@pytest.mark.parametrize("case", [c for c in CASES[1::4] if "Wishart" not in c])
def test_on_webgpu(case: str, webgpu: None) -> None:
    compare(case, "webgpu", ["d.log_prob(v)", "d.cdf(v)", "d.sample((3,))", "d.rsample((2,))"])
