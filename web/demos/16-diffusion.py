"""Diffusion: a small network learns to take noise away, and so to draw points that nobody gave it"""

import torch
import torch.nn as nn
import torch.nn.functional as F

import tabtorch  # for show() and plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

LEVELS = 24  # of noise
STEPS, BATCH, WIDTH = 300, 192, 48
POINTS, SIZE = 1500, 64  # drawn at the end; pixels of the picture, a side


def heart(count):
    """Points on the outline of a heart, (count, 2)."""
    t = 2 * torch.pi * torch.rand(count)
    x = 16 * t.sin() ** 3
    y = 13 * t.cos() - 5 * (2 * t).cos() - 2 * (3 * t).cos() - (4 * t).cos() + 2.5
    return torch.stack([x, y], 1) / 11 + 0.02 * torch.randn(count, 2)


class Denoiser(nn.Module):
    """Says which noise is in a point, given the level of the noise."""

    def __init__(self):
        super().__init__()
        self.level = nn.Embedding(LEVELS, WIDTH)
        self.waves = nn.Linear(2, WIDTH)  # of several lengths, so that fine shapes are easy to tell
        self.body = nn.Sequential(
            nn.Linear(2 * WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 2)
        )
        nn.init.normal_(self.waves.weight, std=1.5)

    def forward(self, x, level):  # (B, 2), (B,)
        return self.body(torch.cat([torch.sin(self.waves(x)), self.level(level)], 1))


def picture(points):
    """How many points are at each pixel."""
    at = ((points.clamp(-1.99, 1.99) / 4 + 0.5) * SIZE).long()
    return torch.bincount(at[:, 1] * SIZE + at[:, 0], minlength=SIZE * SIZE).view(SIZE, SIZE).flip(0).float().sqrt()


torch.manual_seed(0)
beta = torch.linspace(0.01, 0.35, LEVELS).to(device)  # how much noise each level adds
kept = torch.cumprod(1 - beta, 0)  # how much of the point is left then
model = Denoiser().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)


@torch.no_grad()
def draw(step):
    """From nothing but noise to points, level by level."""
    x = torch.randn(POINTS, 2).to(device)
    for level in reversed(range(LEVELS)):
        found = model(x, torch.full((POINTS,), level, device=device))
        x = (x - beta[level] / (1 - kept[level]).sqrt() * found) / (1 - beta[level]).sqrt()
        if level:
            x = x + beta[level].sqrt() * torch.randn(POINTS, 2).to(device)
        if level % 4 == 0:
            title = f"after {step} steps of learning, at noise level {level}"
            tabtorch.show(picture(x), cmap="magma", vmin=0, vmax=3, scale=5, name="points", title=title)


tabtorch.show(picture(heart(POINTS)), cmap="magma", vmin=0, vmax=3, scale=2.5, title="what it learns from")
for step in range(STEPS + 1):
    if step % 100 == 0:
        draw(step)
    x, noise = heart(BATCH).to(device), torch.randn(BATCH, 2).to(device)
    level = torch.randint(LEVELS, (BATCH,)).to(device)
    left = kept[level][:, None]
    loss = F.mse_loss(model(left.sqrt() * x + (1 - left).sqrt() * noise, level), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    tabtorch.plot("loss", loss.detach())
    if step % 100 == 0:
        print(f"step {step:3d}  loss {loss.item():.4f}")
