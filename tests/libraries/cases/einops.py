"""einops: rearranging, reducing, its layers."""

from __future__ import annotations

import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce
from torch import nn


def rearranging(device):
    x = torch.arange(2 * 3 * 4 * 4, device=device).view(2, 3, 4, 4).float()
    return {
        "patches": rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2),
        "pooled": reduce(x, "b c (h 2) (w 2) -> b c h w", "max"),
        "mean": reduce(x, "b c h w -> b c", "mean"),
        "tiled": repeat(x[0, 0], "h w -> h (w k)", k=2),
    }


def packing(device):
    images = torch.rand(2, 3, 4, device=device), torch.rand(2, 4, device=device)
    packed, shapes = pack(images, "b * d")
    a, b = unpack(packed, shapes, "b * d")
    return {"packed": packed, "a": a, "b": b, "shapes": [list(s) for s in shapes]}


def products(device):
    a = torch.randn(2, 3, 5, device=device, requires_grad=True)
    b = torch.randn(5, 4, device=device, requires_grad=True)
    y = einsum(a, b, "batch n d, d m -> batch m n")
    y.square().sum().backward()
    return {"y": y, "a": a.grad, "b": b.grad}


def layers(device):
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        Reduce("b c (h 2) (w 2) -> b c h w", "mean"),
        nn.ReLU(),
        Rearrange("b c h w -> b (h w) c"),
        EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=4, d=6),
        Reduce("b t d -> b d", "max"),
    ).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = torch.randn(4, 3, 8, 8).to(device), torch.tensor([0, 1, 2, 3]).to(device)
    losses = []
    for _ in range(3):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "weight": net[0].weight}
