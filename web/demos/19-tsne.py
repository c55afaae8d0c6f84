"""t-SNE: digits of 64 pixels laid out on a plane, so that those that look alike lie together"""

from pathlib import Path

import torch

import tabtorch  # for show() and plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

COUNT, NEIGHBOURS = 300, 20  # digits; how many neighbours each has, more or less
STEPS, EVERY = 200, 20
SIZE = 96  # pixels of the picture, a side

torch.manual_seed(0)
lines = (Path(__file__).parent / "data" / "digits.txt").read_text().splitlines()[:COUNT]
labels = torch.tensor([int(line.split()[0]) for line in lines]).to(device)
digits = torch.tensor([[int(c, 17) / 16 for c in line.split()[1]] for line in lines]).to(device)


def neighbours(x):
    """How near each pair is, (N, N), summing to 1: a bell around each, as wide as it takes to have NEIGHBOURS in it."""
    away = torch.cdist(x, x).square() + 1e9 * torch.eye(len(x), device=device)
    low, high = torch.full((len(x), 1), 1e-3, device=device), torch.full((len(x), 1), 1e3, device=device)
    for _ in range(24):  # by bisection, of all at once
        narrow = (low * high).sqrt()
        p = torch.softmax(-away * narrow, 1)
        entropy = -(p * (p + 1e-12).log()).sum(1, keepdim=True)
        wide = entropy.exp() > NEIGHBOURS
        low, high = torch.where(wide, narrow, low), torch.where(wide, high, narrow)
    return (p + p.T) / (2 * len(x))


palette = torch.tensor([
    [0.90, 0.10, 0.10], [1.00, 0.55, 0.00], [0.95, 0.85, 0.10], [0.45, 0.80, 0.10], [0.00, 0.60, 0.30],
    [0.00, 0.75, 0.80], [0.15, 0.45, 0.95], [0.50, 0.25, 0.85], [0.95, 0.35, 0.80], [0.75, 0.75, 0.75],
])  # fmt: skip


def picture(y):
    """Each digit as a dot of its colour, (SIZE, SIZE, 3)."""
    y = y - y.mean(0)
    at = ((y / (2.1 * y.abs().max()) + 0.5) * (SIZE - 2)).long()
    image = torch.zeros(SIZE, SIZE, 3, device=device)
    for down, right in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        image[at[:, 1] + down, at[:, 0] + right] = palette.to(device)[labels]
    return image


tabtorch.show(digits[:36].view(-1, 1, 8, 8), columns=12, scale=3, title=f"some of {COUNT} digits")
near = neighbours(digits)
y = (1e-2 * torch.randn(COUNT, 2)).to(device)
speed = torch.zeros_like(y)
for step in range(STEPS + 1):
    if step % EVERY == 0:
        tabtorch.show(picture(y), scale=4, name="plane", title=f"ten digits in ten colours, step {step}")
    pull = 4.0 if step < 60 else 1.0  # at first clusters are drawn together, so that they can pass each other
    kernel = 1 / (1 + torch.cdist(y, y).square())
    kernel = kernel - torch.eye(COUNT, device=device)
    q = kernel / kernel.sum()
    force = (pull * near - q) * kernel  # the gradient, as the paper has it
    gradient = 4 * (force.sum(1, keepdim=True) * y - force @ y)
    speed = (0.5 if step < 60 else 0.8) * speed - 60 * gradient
    y = y + speed
    tabtorch.plot("how far from the truth", (near * ((near + 1e-12) / (q + 1e-12)).log()).sum())

nearest = (torch.cdist(y, y) + 1e9 * torch.eye(COUNT, device=device)).argmin(1)
print(f"{(labels[nearest] == labels).float().mean().item():.0%} have a neighbour on the plane that is the same digit")
