"""Diffusion: a small network learns to take noise away, and so to draw points along a spiral"""

import torch
import torch.nn as nn
import torch.nn.functional as F

import tabtorch  # for show() and plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

LEVELS = 50  # of noise
STEPS, BATCH = 800, 256
POINTS, SIZE = 3000, 64  # drawn at the end; pixels of the picture, a side


def spiral(count):
    angle = 1.5 * torch.pi * (1 + 2 * torch.rand(count))
    return torch.stack([angle * angle.cos(), angle * angle.sin()], 1) / 10 + 0.02 * torch.randn(count, 2)


class Denoiser(nn.Module):
    """Says which noise is in a point, given how much: the level."""

    def __init__(self):
        super().__init__()
        self.level = nn.Embedding(LEVELS, 64)
        self.begin = nn.Linear(2, 64)
        self.body = nn.Sequential(
            nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2)
        )

    def forward(self, x, level):
        return self.body(self.begin(x) + self.level(level))


torch.manual_seed(0)
beta = torch.linspace(1e-3, 0.2, LEVELS).to(device)
kept = torch.cumprod(1 - beta, 0)  # how much of the point is left at each level
model = Denoiser().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(STEPS + 1):
    x, noise = spiral(BATCH).to(device), torch.randn(BATCH, 2).to(device)
    level = torch.randint(LEVELS, (BATCH,)).to(device)
    a = kept[level][:, None]
    loss = F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, level), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tabtorch.plot("loss", loss.detach())
    if step % 200 == 0:
        print(f"step {step:3d}  loss {loss.item():.4f}")


def picture(points):
    """How many points are at each pixel."""
    at = ((points.clamp(-1.79, 1.79) / 3.6 + 0.5) * SIZE).long()
    return torch.bincount(at[:, 1] * SIZE + at[:, 0], minlength=SIZE * SIZE).view(SIZE, SIZE).flip(0).float().sqrt()


with torch.no_grad():
    x = torch.randn(POINTS, 2).to(device)
    for level in reversed(range(LEVELS)):
        found = model(x, torch.full((POINTS,), level, device=device))
        x = (x - beta[level] / (1 - kept[level]).sqrt() * found) / (1 - beta[level]).sqrt()
        if level:
            x = x + beta[level].sqrt() * torch.randn(POINTS, 2).to(device)
        if level % 5 == 0:
            tabtorch.show(picture(x), cmap="magma", scale=5, name="points", title=f"noise level {level}")
radius = x.norm(dim=1)
print(f"mean radius {radius.mean().item():.2f}; of the spiral {spiral(POINTS).norm(dim=1).mean().item():.2f}")
