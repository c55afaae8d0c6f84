"""Tensors and broadcasting: shapes, views, and arithmetic without loops"""

import torch

import tabtorch  # for show(); the rest is PyTorch

# A tensor is numbers with a shape and a type.
a = torch.arange(6).reshape(2, 3)
print(a, a.shape, a.dtype)

# Shapes that differ are stretched to match, from the right: (2, 1) + (3,) -> (2, 3).
column = torch.tensor([[10], [20]])
row = torch.tensor([1, 2, 3])
print(column + row)

# A multiplication table is one broadcast product.
n = torch.arange(1, 10)
print(n[:, None] * n)

# So is a picture: each pixel asks for its row and its column. (64, 1) and (96,) -> (64, 96)
y, x = torch.linspace(-1, 1, 64)[:, None], torch.linspace(-1.5, 1.5, 96)
tabtorch.show(torch.sin(12 * (x**2 + y**2)) * torch.cos(4 * x), cmap="viridis", scale=4, title="(64, 1) and (96,)")

# Slices and transposes are views: they share memory with what they were taken from.
corner = a[:, :2]
corner += 100
print(a)  # changed through the view
print(a.T.is_contiguous(), a.T.stride())

# Boolean masks select, and write.
a[a > 100] = -1
print(a)

# Standardise each column of some measurements: (100, 3) - (3,), then / (3,).
torch.manual_seed(0)
x = torch.randn(100, 3) * torch.tensor([1.0, 5.0, 0.1]) + torch.tensor([0.0, 20.0, -3.0])
z = (x - x.mean(dim=0)) / x.std(dim=0)
print("before:", x.mean(dim=0), x.std(dim=0))
print("after: ", z.mean(dim=0).abs() < 1e-5, z.std(dim=0))

# All distances between two sets of points at once: (4, 1, 2) - (1, 5, 2) -> (4, 5, 2) -> (4, 5).
p, q = torch.rand(4, 2), torch.rand(5, 2)
distance = ((p[:, None] - q[None, :]) ** 2).sum(dim=-1).sqrt()
print(distance)
print("nearest:", distance.argmin(dim=1))

# Matrix products follow the same rule in the leading dimensions: (8, 2, 3) @ (3, 4) -> (8, 2, 4).
print((torch.ones(8, 2, 3) @ torch.ones(3, 4)).shape)

# And shapes that cannot match say so.
try:
    torch.ones(2, 3) + torch.ones(4)
except RuntimeError as error:
    print("RuntimeError:", error)
