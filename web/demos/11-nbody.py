"""Gravity: a few hundred bodies that all pull on each other, by broadcasting"""

import torch

import tabtorch  # for show() and plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

BODIES, STEPS, EVERY = 300, 300, 6
DT, SOFT = 0.004, 0.05  # the time of a step; within this distance the pull no longer grows
SIZE = 80  # pixels of the picture, a side

torch.manual_seed(0)
radius, angle = 0.1 + 0.8 * torch.rand(BODIES).sqrt(), 2 * torch.pi * torch.rand(BODIES)
place = torch.stack([radius * angle.cos(), radius * angle.sin()], 1).to(device)  # (N, 2)
speed = torch.stack([-angle.sin(), angle.cos()], 1).to(device) * radius.sqrt().to(device)[:, None] * 0.9
mass = torch.full((BODIES,), 1 / BODIES, device=device)


def pull(place):
    """The acceleration of each body: (N, 2)."""
    apart = place[None] - place[:, None]  # (N, N, 2), from each to each
    distance = (apart.square().sum(-1) + SOFT**2).sqrt()
    return (apart * (mass / distance**3)[..., None]).sum(1)


def energy(place, speed):
    distance = ((place[None] - place[:, None]).square().sum(-1) + SOFT**2).sqrt()
    potential = -(mass * mass[:, None] / distance).triu(1).sum()
    return (0.5 * mass * speed.square().sum(1)).sum() + potential


def picture(place):
    """How many bodies are at each pixel."""
    at = ((place.clamp(-1.19, 1.19) / 2.4 + 0.5) * SIZE).long()
    seen = torch.bincount(at[:, 1] * SIZE + at[:, 0], minlength=SIZE * SIZE)
    return seen.view(SIZE, SIZE).flip(0).float().sqrt()


force = pull(place)
for step in range(STEPS + 1):
    if step % EVERY == 0:
        tabtorch.show(picture(place), cmap="magma", vmin=0, vmax=2, scale=5, name="sky", title=f"time {step * DT:.2f}")
        tabtorch.plot("energy", step * DT, energy(place, speed))
    if step % 100 == 0:
        print(f"time {step * DT:.2f}  energy {energy(place, speed).item():.3f}")
    speed = speed + 0.5 * DT * force  # leapfrog: the energy stays
    place = place + DT * speed
    force = pull(place)
    speed = speed + 0.5 * DT * force
