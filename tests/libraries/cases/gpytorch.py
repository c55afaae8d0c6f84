"""gpytorch: exact and variational Gaussian processes, kernels, predictions."""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel


class _Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel=None):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = kernel or ScaleKernel(RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


def _data(device):
    x = torch.linspace(0, 1, 15).to(device)
    return x, torch.sin(x * 6.28) + 0.1 * torch.randn(15).to(device)


def exact(device):
    x, y = _data(device)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device)
    model = _Exact(x, y, likelihood).to(device)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    likelihood.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        said = likelihood(model(torch.linspace(0, 1, 7).to(device)))
        lower, upper = said.confidence_region()
    return {"losses": losses, "mean": said.mean, "lower": lower, "upper": upper, "noise": likelihood.noise}


def kernels(device):
    x = torch.rand(6, 2).to(device)
    found = {}
    for kernel in (
        MaternKernel(nu=2.5, ard_num_dims=2),
        PeriodicKernel(),
        LinearKernel(),
        ScaleKernel(RBFKernel()) + LinearKernel(),
        RBFKernel() * PeriodicKernel(),
    ):
        kernel = kernel.to(device)
        matrix = kernel(x).to_dense()
        matrix.square().sum().backward()
        grads = [p.grad.flatten() for p in kernel.parameters() if p.grad is not None]
        found[f"{len(found)}"] = matrix
        found[f"{len(found)} grad"] = torch.cat(grads)
    return found


def variational(device):
    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, points):
            q = gpytorch.variational.CholeskyVariationalDistribution(points.size(0))
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, q))
            self.mean, self.kernel = gpytorch.means.ConstantMean(), ScaleKernel(RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x, y = _data(device)
    model, likelihood = Model(x[::3].clone()).to(device), gpytorch.likelihoods.GaussianLikelihood().to(device)
    mll = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.05)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    said = model(x[:4])
    return {"losses": losses, "mean": said.mean, "variance": said.variance}


def several_outputs(device):
    x, y = _data(device)
    both = torch.stack([y, torch.cos(x * 6.28)], -1)
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2).to(device)

    class Model(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(x, both, likelihood)
            self.mean = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), num_tasks=2)
            self.kernel = gpytorch.kernels.MultitaskKernel(RBFKernel(), num_tasks=2, rank=1)

        def forward(self, x):
            return gpytorch.distributions.MultitaskMultivariateNormal(self.mean(x), self.kernel(x))

    model = Model().to(device)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    loss = -mll(model(x), both)
    loss.backward()
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        said = likelihood(model(x[:3]))
    return {"loss": loss, "grad": model.kernel.task_covar_module.covar_factor.grad, "mean": said.mean}


def double_precision(device):
    x = torch.linspace(0, 1, 10, dtype=torch.float64).to(device)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double().to(device)
    model = _Exact(x, torch.sin(x * 6), likelihood, ScaleKernel(MaternKernel())).double().to(device)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    loss = -mll(model(x), torch.sin(x * 6))
    loss.backward()
    return {"loss": loss, "grad": model.kernel.raw_outputscale.grad}


KNOWN = {
    "double_precision webgpu": "WGSL has no float64",
    "variational webgpu": "gpytorch factorizes in float64 by default, which WGSL does not have",
}
