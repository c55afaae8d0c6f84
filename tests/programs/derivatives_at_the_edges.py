"""Derivatives that end in zeros, spatial transformers at the identity, NaN hunting, and masked reductions."""

import torch
import torch.masked
import torch.nn.functional as F

x = torch.tensor([1.0, 2.0], requires_grad=True)
for power in (1, 2, 3):
    y = (x**power).sum()
    for order in range(1, power + 2):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        print(power, order, y.tolist(), y.requires_grad)

image = (torch.arange(16.0) ** 2).view(1, 1, 4, 4)
grid = F.affine_grid(torch.eye(2, 3)[None], (1, 1, 4, 4), align_corners=False).requires_grad_()
F.grid_sample(image, grid, align_corners=False).sum().backward()
print(grid.grad[0].permute(2, 0, 1))

try:
    with torch.autograd.set_detect_anomaly(True):
        torch.tensor(-1.0, requires_grad=True).sqrt().backward()
except RuntimeError as error:
    print(error)
for wrong in (
    lambda: x.__delitem__(0),
    lambda: torch.ones(1, dtype=torch.complex64, requires_grad=True).sum().backward(),
):
    try:
        wrong()
    except (RuntimeError, TypeError) as error:
        print(type(error).__name__, error)

z = torch.arange(6.0).view(2, 3)
mask = torch.tensor([[True, False, True], [False, False, True]])
for name in ("sum", "mean", "amax", "var", "prod", "logsumexp", "median", "softmax", "cumsum"):
    print(name, getattr(torch.masked, name)(z, 1, mask=mask))
print(torch.histc(z, 4), torch.histc(torch.ones(3), 3))
