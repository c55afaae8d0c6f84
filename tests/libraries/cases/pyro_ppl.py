"""pyro: variational inference, automatic guides, Monte Carlo, enumeration."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal


def _data(device):
    x = torch.linspace(-1, 1, 12).to(device)
    return x, 0.5 + 2 * x + 0.1 * torch.randn(12).to(device)


def _regression(x, y=None):
    a = pyro.sample("a", dist.Normal(torch.zeros((), device=x.device), 1.0))
    b = pyro.sample("b", dist.Normal(torch.zeros((), device=x.device), 1.0))
    with pyro.plate("data", len(x)):
        return pyro.sample("y", dist.Normal(a + b * x, 0.1), obs=y)


def variational(device):
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    x, y = _data(device)

    def guide(x, y=None):
        for name in "ab":
            at = pyro.param(f"{name}_at", torch.zeros((), device=x.device))
            width = pyro.param(f"{name}_width", torch.ones((), device=x.device), constraint=dist.constraints.positive)
            pyro.sample(name, dist.Normal(at, width))

    svi = SVI(_regression, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    losses = [svi.step(x, y) for _ in range(5)]
    return {"losses": losses, **dict(pyro.get_param_store().items())}


def automatic_guides(device):
    found = {}
    for kind in (AutoDiagonalNormal, AutoMultivariateNormal):
        pyro.clear_param_store()
        pyro.set_rng_seed(0)
        x, y = _data(device)
        guide = kind(_regression)
        svi = SVI(_regression, guide, pyro.optim.ClippedAdam({"lr": 0.05}), Trace_ELBO(num_particles=2))
        found[kind.__name__] = [svi.step(x, y) for _ in range(4)]
        found[kind.__name__ + " loc"] = guide.loc
    return found


def monte_carlo(device):
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    x, y = _data(device)
    mcmc = MCMC(NUTS(_regression, max_tree_depth=3), num_samples=4, warmup_steps=3, disable_progbar=True)
    mcmc.run(x, y)
    return mcmc.get_samples()


def enumerating(device):
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    data = torch.tensor([0.1, 0.3, 4.0, 4.2]).to(device)

    @config_enumerate
    def model(data):
        weights = pyro.param(
            "weights", torch.tensor([0.6, 0.4], device=data.device), constraint=dist.constraints.simplex
        )
        at = pyro.param("at", torch.tensor([0.5, 3.5], device=data.device))
        with pyro.plate("data", len(data)):
            z = pyro.sample("z", dist.Categorical(weights))
            pyro.sample("x", dist.Normal(at[z], 1.0), obs=data)

    svi = SVI(model, lambda data: None, pyro.optim.Adam({"lr": 0.1}), TraceEnum_ELBO(max_plate_nesting=1))
    losses = [svi.step(data) for _ in range(4)]
    return {"losses": losses, "weights": pyro.param("weights"), "at": pyro.param("at")}


def modules(device):
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    x, y = _data(device)

    class Bayesian(pyro.nn.PyroModule):
        def __init__(self):
            super().__init__()
            self.linear = pyro.nn.PyroModule[torch.nn.Linear](1, 1)
            zero = torch.zeros(1, 1, device=device)
            self.linear.weight = pyro.nn.PyroSample(dist.Normal(zero, 1.0).to_event(2))
            self.linear.bias = pyro.nn.PyroSample(dist.Normal(zero[0], 1.0).to_event(1))

        def forward(self, x, y=None):
            mean = self.linear(x[:, None]).squeeze(-1)
            with pyro.plate("data", len(x)):
                return pyro.sample("y", dist.Normal(mean, 0.1), obs=y)

    model = Bayesian().to(device)
    guide = AutoDiagonalNormal(model)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    losses = [svi.step(x, y) for _ in range(3)]
    drawn = Predictive(model, guide=guide, num_samples=3)(x)
    return {"losses": losses, "y": drawn["y"]}


def own_distributions(device):
    pyro.set_rng_seed(0)
    d = dist.LogNormal(torch.zeros(3, device=device), 1.0).to_event(1)
    mixture = dist.MixtureSameFamily(
        dist.Categorical(torch.ones(2, device=device)), dist.Normal(torch.tensor([0.0, 3.0], device=device), 1.0)
    )
    flow = dist.transforms.affine_autoregressive(3, hidden_dims=[8]).to(device)
    base = dist.Normal(torch.zeros(3, device=device), 1.0).to_event(1)
    flowing = dist.TransformedDistribution(base, [flow])
    x = flowing.rsample((4,))
    return {
        "log": d.log_prob(torch.tensor([0.5, 1.0, 2.0], device=device)),
        "mixture": mixture.log_prob(torch.tensor([0.5, 2.5], device=device)),
        "flow": flowing.log_prob(x),
        "x": x,
        "zero": dist.ZeroInflatedPoisson(
            gate=torch.tensor(0.3, device=device), rate=torch.tensor(2.0, device=device)
        ).log_prob(torch.tensor([0.0, 2.0], device=device)),
    }
