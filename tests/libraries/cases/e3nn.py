"""e3nn: spherical harmonics, equivariant products, layers and a convolution."""

from __future__ import annotations

import torch
from e3nn import nn, o3
from e3nn.math import soft_one_hot_linspace


def harmonics(device):
    x = torch.randn(5, 3).to(device).requires_grad_()
    y = o3.spherical_harmonics([0, 1, 2, 3], x, normalize=True, normalization="component")
    (y.square() * torch.linspace(0, 1, 16, device=device)).sum().backward()
    return {"y": y, "x": x.grad, "wigner": o3.wigner_3j(1, 2, 1)}


def products(device):
    product = o3.FullyConnectedTensorProduct("4x0e+2x1o", "0e+1o", "4x0e+2x1o").to(device)
    x, s = torch.randn(6, 10).to(device).requires_grad_(), torch.randn(6, 4).to(device)
    y = product(x, s)
    y.square().sum().backward()
    return {"y": y, "x": x.grad, "weight": product.weight.grad}


def layers(device):
    gate = nn.Gate("4x0e", [torch.relu], "2x0e", [torch.sigmoid], "2x1o").to(device)
    net = torch.nn.Sequential(o3.Linear("4x0e+2x1o", gate.irreps_in), gate, nn.BatchNorm(gate.irreps_out)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, losses = torch.randn(5, 10).to(device), []
    for _ in range(3):
        loss = (net(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "weight": net[0].weight}


def convolution(device):
    around = o3.Irreps.spherical_harmonics(2)
    product = o3.FullyConnectedTensorProduct("4x0e+2x1o", around, "4x0e+2x1o", shared_weights=False).to(device)
    weights = nn.FullyConnectedNet([4, 8, product.weight_numel], torch.relu).to(device)
    places, x = torch.randn(7, 3).to(device), torch.randn(7, 10).to(device)
    pairs = torch.tensor([(i, j) for i in range(7) for j in range(7) if i != j]).T.to(device)
    ways = places[pairs[0]] - places[pairs[1]]
    lengths = soft_one_hot_linspace(ways.norm(dim=1), 0.0, 3.0, 4, basis="smooth_finite", cutoff=True)
    edges = product(x[pairs[0]], o3.spherical_harmonics(around, ways, True, "component"), weights(lengths))
    y = torch.zeros(7, 10, device=device).index_add(0, pairs[1], edges)
    y.square().mean().backward()
    return {"y": y, "grads": [p.grad for p in weights.parameters()]}
