"""Denoising diffusion (https://arxiv.org/abs/2006.11239) of points in the plane: an EMA of the weights, ancestral sampling."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
T = 20


class SinusoidalPositionEmbeddings(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, time):
        half = self.dim // 2
        frequencies = torch.exp(torch.arange(half, device=time.device) * -(math.log(10000) / (half - 1)))
        angles = time[:, None] * frequencies[None, :]
        return torch.cat((angles.sin(), angles.cos()), dim=-1)


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.ff = nn.Linear(size, size)
        self.time = nn.Linear(16, size)
        self.norm = nn.RMSNorm(size)

    def forward(self, x, t):
        return x + F.silu(self.ff(self.norm(x)) + self.time(t))


class Denoiser(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.time_mlp = nn.Sequential(SinusoidalPositionEmbeddings(16), nn.Linear(16, 16), nn.GELU())
        self.first, self.last = nn.Linear(2, size), nn.Linear(size, 2)
        self.blocks = nn.ModuleList(Block(size) for _ in range(2))

    def forward(self, x, t):
        t, x = self.time_mlp(t), self.first(x)
        for block in self.blocks:
            x = block(x, t)
        return self.last(x)


betas = torch.linspace(1e-3, 0.3, T, device=device)
alphas = 1.0 - betas
alphas_cumprod = torch.cumprod(alphas, dim=0)
alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
posterior_variance = betas * (1.0 - alphas_cumprod_prev) / (1.0 - alphas_cumprod)


def extract(a, t, x_shape):
    return a.gather(-1, t).reshape(t.shape[0], *((1,) * (len(x_shape) - 1)))


def q_sample(x_start, t, noise):
    return (
        extract(alphas_cumprod.sqrt(), t, x_start.shape) * x_start
        + extract((1 - alphas_cumprod).sqrt(), t, x_start.shape) * noise
    )


@torch.no_grad()
def sample(model, n):
    x = torch.randn(n, 2, device=device)
    for i in reversed(range(T)):
        t = torch.full((n,), i, device=device, dtype=torch.long)
        mean = (x - extract(betas / (1 - alphas_cumprod).sqrt(), t, x.shape) * model(x, t)) / extract(
            alphas.sqrt(), t, x.shape
        )
        x = mean if i == 0 else mean + extract(posterior_variance, t, x.shape).sqrt() * torch.randn_like(x)
    return x


def moons(n):
    angle = torch.rand(n) * math.pi
    side = torch.randint(2, (n,))
    sign = 1 - 2 * side
    points = torch.stack([angle.cos() * sign + side, angle.sin() * sign + 0.5 * side], dim=1)
    return (points + 0.05 * torch.randn(n, 2)).to(device)


model = Denoiser().to(device)
ema = copy.deepcopy(model).requires_grad_(False).eval()
optimizer = torch.optim.Adamax(model.parameters(), lr=1e-2)
for step in range(50):
    x = moons(64)
    t = torch.randint(0, T, (len(x),), device=device).long()
    noise = torch.randn_like(x)
    loss = F.huber_loss(model(q_sample(x, t, noise), t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), model.parameters()):
            a.lerp_(b, 0.1)
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.3f}")

points = sample(ema, 64)
print(points.shape, bool(points.isfinite().all()), f"{parameters_to_vector(ema.parameters()).norm().item():.2f}")
