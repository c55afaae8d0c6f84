"""A decision boundary: a small network learns to part two spirals, and one can watch it"""

import torch
import torch.nn as nn
import torch.nn.functional as F

import tabtorch  # for show() and plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

STEPS, EVERY = 200, 10
SIZE = 64  # pixels of the picture, a side

torch.manual_seed(0)
angle = torch.rand(2, 200).sqrt() * 9.5 + 1.0
turn = torch.tensor([[0.0], [torch.pi]])
points = torch.stack([angle * torch.cos(angle + turn), angle * torch.sin(angle + turn)], -1) / 11  # (2, 200, 2)
x = (points + 0.015 * torch.randn_like(points)).view(-1, 2).to(device)
y = torch.arange(2).repeat_interleave(200).float().to(device)

model = nn.Sequential(
    nn.Linear(2, 40), nn.SiLU(), nn.Linear(40, 40), nn.SiLU(), nn.Linear(40, 40), nn.SiLU(), nn.Linear(40, 1)
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
print(f"{len(x)} points on two spirals, and a network of {sum(p.numel() for p in model.parameters()):,} numbers")

side = torch.linspace(-1, 1, SIZE, device=device)
plane = torch.cartesian_prod(-side, side).flip(1)  # every pixel, row by row
marks = (((x.flip(1) * torch.tensor([-1.0, 1.0], device=device)) + 1) / 2 * (SIZE - 1)).round().long()


@torch.no_grad()
def picture():
    """What the network thinks of every point of the plane, with the points that it learns from."""
    image = torch.sigmoid(model(plane)).view(SIZE, SIZE) * 0.6 + 0.2
    image[marks[:, 0], marks[:, 1]] = y
    return image


for step in range(STEPS + 1):
    if step % EVERY == 0:
        tabtorch.show(picture(), cmap="coolwarm", vmin=0, vmax=1, scale=5, name="plane", title=f"step {step}")
    loss = F.binary_cross_entropy_with_logits(model(x)[:, 0], y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tabtorch.plot("loss", loss.detach(), log=True)
    if step % 50 == 0:
        right = ((model(x)[:, 0] > 0) == (y > 0)).float().mean().item()
        print(f"step {step:3d}  loss {loss.item():.4f}  right {right:.3f}")
