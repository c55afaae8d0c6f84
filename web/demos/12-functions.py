"""Functions of functions: gradients, Jacobians and Hessians, and vmap over all of them"""

import torch
from torch.func import grad, hessian, jacrev, jvp, vmap

device = "cuda" if torch.cuda.is_available() else "cpu"


def rosenbrock(p):
    """A valley that bends; its least value, 0, is at (1, 1)."""
    x, y = p
    return (1 - x) ** 2 + 100 * (y - x**2) ** 2


start = torch.tensor([-1.2, 1.0], device=device)
print("value    ", rosenbrock(start).item())
print("gradient ", grad(rosenbrock)(start).tolist())
print("Hessian  ", hessian(rosenbrock)(start).tolist())

print("\nNewton's method uses both:")
p = start
for step in range(7):
    print(f"  step {step}  ({p[0].item():+.6f}, {p[1].item():+.6f})  value {rosenbrock(p).item():.6f}")
    p = p - torch.linalg.solve(hessian(rosenbrock)(p), grad(rosenbrock)(p))


def polar(p):
    return torch.stack([p[0] * torch.cos(p[1]), p[0] * torch.sin(p[1])])


print("\nThe Jacobian of polar coordinates has the radius as its determinant, at each of five points:")
points = torch.stack([torch.arange(1.0, 6.0), torch.linspace(0, 2, 5)], 1).to(device)
jacobians = vmap(jacrev(polar))(points)  # (5, 2, 2)
print("  ", torch.linalg.det(jacobians).tolist())

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
