"""Functions of functions: gradients, Hessians and Jacobians, and vmap over all of them"""

import torch
from torch.func import grad, hessian, jacrev, jvp, vmap

import tabtorch  # for show() and plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"


def wave(x):
    return torch.sin(x) * torch.exp(-x / 4)


print("A function of one number, and its slope:")
x = torch.linspace(0, 12, 200, device=device)
slope = vmap(grad(wave))  # grad makes a function of one number; vmap, one of many
tabtorch.plot("a function", x, value=wave(x), slope=slope(x))


def valley(p):
    """Rosenbrock's: it bends, and its least value, 0, is at (1, 1)."""
    x, y = p
    return (1 - x) ** 2 + 100 * (y - x**2) ** 2


p = torch.tensor([-1.2, 1.0], device=device)
print("\nA function of two numbers:\nvalue    ", valley(p).item())
print("gradient ", grad(valley)(p).tolist())
print("Hessian  ", hessian(valley)(p).tolist())

print("\nNewton's method asks for both:")
path = [p]
for step in range(7):
    print(f"  step {step}  ({p[0].item():+.6f}, {p[1].item():+.6f})  value {valley(p).item():.6f}")
    (a, b), (_, d) = hessian(valley)(p)
    inverse = torch.stack([torch.stack([d, -b]), torch.stack([-b, a])]) / (a * d - b * b)
    p = p - inverse @ grad(valley)(p)
    path.append(p)

xs, ys = torch.linspace(-2, 2, 96, device=device), torch.linspace(-1.5, 2.5, 96, device=device)
image = torch.log(vmap(vmap(lambda x, y: valley((x, y)), (0, None)), (None, 0))(xs, ys.flip(0)) + 1)
rows, columns = torch.stack([(2.5 - torch.stack(path)[:, 1]) / 4, (torch.stack(path)[:, 0] + 2) / 4]) * 95
image[rows.round().long().clamp(0, 95), columns.round().long().clamp(0, 95)] = float("nan")
tabtorch.show(image, cmap="viridis", scale=3, title="the valley, and the way that Newton's method took")


def polar(p):
    radius, angle = p
    return torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)])


print("\nThe Jacobian of polar coordinates has the radius as its determinant, at each of five points:")
points = torch.stack([torch.arange(1.0, 6.0), torch.linspace(0, 2, 5)], 1).to(device)
j = vmap(jacrev(polar))(points)  # (5, 2, 2)
print("  ", "  ".join(f"{each:.4f}" for each in (j[:, 0, 0] * j[:, 1, 1] - j[:, 0, 1] * j[:, 1, 0]).tolist()))

value, slope = jvp(torch.sin, (torch.tensor(0.5, device=device),), (torch.tensor(1.0, device=device),))
print(f"\nForward mode: sin(0.5) = {value.item():.6f}, its slope {slope.item():.6f}")

print("\nA gradient for each example, not their mean:")
weight = torch.tensor([0.5, -1.0, 2.0], device=device)
inputs = torch.linspace(-1, 1, 12, device=device).view(4, 3)
targets = torch.tensor([0.0, 1.0, 0.0, 1.0], device=device)


def loss(weight, x, target):
    return (torch.sigmoid(x @ weight) - target) ** 2


for row in vmap(grad(loss), in_dims=(None, 0, 0))(weight, inputs, targets).tolist():
    print("  ", "  ".join(f"{each:+.4f}" for each in row))
