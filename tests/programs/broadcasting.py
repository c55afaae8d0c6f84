"""Broadcasting semantics."""

import torch

x = torch.empty(5, 3, 4, 1).fill_(2)
y = torch.empty(3, 1, 1).fill_(3)
print((x + y).size())
x = torch.arange(3.0)
print(x[:, None] * x, x[:, None] - x[None, :], sep="\n")
try:
    torch.empty(5, 2, 4, 1) + torch.empty(3, 1, 1)
except RuntimeError as e:
    print(e)
a, b = torch.broadcast_tensors(torch.arange(3).view(1, 3), torch.arange(2).view(2, 1))
print(a, b, sep="\n")
print(torch.tensor([1, 2, 3]).expand(2, 3), torch.tensor([[1], [2]]).expand(-1, 4), sep="\n")
w = torch.ones(4, 1, requires_grad=True)
v = torch.arange(3.0, requires_grad=True)
(w * v).pow(2).sum().backward()
print(w.grad, v.grad)
d = ((torch.arange(6.0).view(3, 1, 2) - torch.arange(4.0).view(1, 2, 2)) ** 2).sum(-1).sqrt()
print(d, torch.cdist(torch.arange(6.0).view(3, 2), torch.arange(4.0).view(2, 2)), sep="\n")
print(torch.broadcast_shapes((3, 1), (1, 4)), torch.where(d > 2, d, -1.0))
