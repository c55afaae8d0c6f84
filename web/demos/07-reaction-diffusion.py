"""Reaction and diffusion: two substances that make patterns, as a convolution and a few products"""

import torch
import torch.nn.functional as F

import tabtorch  # for show(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

SIZE = 96
STEPS, EVERY = 1600, 40
FEED, KILL = 0.037, 0.06  # try 0.03 and 0.062, or 0.025 and 0.06

# the Laplacian: how much more there is around a point than at it
laplacian = torch.tensor([[0.05, 0.2, 0.05], [0.2, -1.0, 0.2], [0.05, 0.2, 0.05]], device=device)
laplacian = laplacian.expand(2, 1, 3, 3)
rates = torch.tensor([1.0, 0.5], device=device).view(1, 2, 1, 1)  # of the diffusion of u and of v

torch.manual_seed(0)
u = torch.ones(SIZE, SIZE)
v = (torch.rand(SIZE // 8, SIZE // 8) < 0.12).float().repeat_interleave(8, 0).repeat_interleave(8, 1)
uv = torch.stack([u - 0.5 * v, 0.5 * v])[None].to(device)  # (1, 2, SIZE, SIZE)


def step(uv):
    """Gray and Scott's model: u + 2 v -> 3 v; u is fed, v is taken away."""
    spread = F.conv2d(F.pad(uv, (1, 1, 1, 1), mode="circular"), laplacian, groups=2) * rates
    u, v = uv[:, :1], uv[:, 1:]
    reaction = u * v * v
    change = torch.cat([FEED * (1 - u) - reaction, reaction - (FEED + KILL) * v], 1)
    return uv + spread + change


for i in range(STEPS + 1):
    if i % EVERY == 0:
        tabtorch.show(uv[0, 1], cmap="magma", vmin=0, vmax=0.4, scale=4, name="v", title=f"v after {i} steps")
    if i % 400 == 0:
        print(f"step {i:4d}  mean of u {uv[0, 0].mean().item():.4f}, of v {uv[0, 1].mean().item():.4f}")
    uv = step(uv)
