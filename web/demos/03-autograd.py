"""Autograd by hand: gradients checked against a formula, then used to fit a curve"""

import math

import torch

import tabtorch  # for plot(); the rest is PyTorch

# backward() fills in .grad; the chain rule on paper gives the same number.
x = torch.tensor(2.0, requires_grad=True)
y = (x**2 * torch.sin(x)).exp()
y.backward()
by_hand = y.item() * (2 * 2.0 * math.sin(2.0) + 2.0**2 * math.cos(2.0))
print(f"dy/dx  autograd {x.grad.item():.4f}  by hand {by_hand:.4f}")

# Gradients have gradients: the third derivative of x^4 is 24x.
x = torch.tensor(3.0, requires_grad=True)
d = x**4
for _ in range(3):
    (d,) = torch.autograd.grad(d, x, create_graph=True)
print(f"d3/dx3 of x^4 at 3: {d.item():.1f}")

# A least-squares cubic for sin(x): 64 points, 4 coefficients.
t = torch.linspace(-3, 3, 64)
target = torch.sin(t)
powers = torch.stack([t**k for k in range(4)], dim=1)  # (64, 4)

# The gradient of mean((P w - y)^2) is 2 P'(P w - y) / N: ask autograd, and compare.
w = torch.zeros(4, requires_grad=True)
loss = ((powers @ w - target) ** 2).mean()
loss.backward()
formula = 2 * powers.T @ (powers @ w.detach() - target) / len(t)
print("autograd agrees with the formula:", torch.allclose(w.grad, formula, atol=1e-5))

# Gradient descent with momentum, written out. The columns are scaled so that one step size suits all.
scale = powers.std(dim=0)
scale[0] = 1
w = torch.zeros(4, requires_grad=True)
velocity = torch.zeros(4)
for step in range(1, 301):
    loss = ((powers / scale @ w - target) ** 2).mean()
    loss.backward()
    with torch.no_grad():  # the update itself is not part of the graph
        velocity = 0.9 * velocity + w.grad
        w -= 0.05 * velocity
        w.grad = None
    if step % 50 == 0:
        print(f"step {step:3d}  loss {loss.item():.6f}")
        tabtorch.plot("the fit", t, target=target, cubic=powers / scale @ w)

fitted = (w / scale).tolist()
print("fitted:", "  ".join(f"{c:+.4f} x^{k}" for k, c in enumerate(fitted)))
