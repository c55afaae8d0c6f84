"""Boolean masks, where, nonzero, masked_fill, masked_select, index_put."""

import torch

x = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]])
mask = x > 0
print(mask, x[mask], x[~mask], (x > 0) & (x < 4), mask.sum(), mask.any(1), mask.all(), sep="\n")
print(torch.where(mask, x, torch.zeros_like(x)), torch.where(mask), mask.nonzero(), sep="\n")
print(x.masked_fill(mask, 9), torch.masked_select(x, mask), torch.count_nonzero(x > 2))
x[mask] = torch.tensor([10.0, 20.0, 30.0])
print(x)
lengths = torch.tensor([3, 1, 2])
pad = torch.arange(4)[None, :] < lengths[:, None]
print(pad, pad.float().mean(1))
scores = torch.zeros(3, 4).masked_fill(~pad, float("-inf")).softmax(-1)
print(scores)
v = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
v[v > 2].sum().backward()
print(v.grad, torch.isnan(torch.tensor([1.0, float("nan")])), torch.isfinite(torch.tensor([1.0, float("inf")])))
i = torch.tensor([0, 2, 0])
y = torch.zeros(3)
y.index_put_((i,), torch.tensor([1.0, 2.0, 3.0]), accumulate=True)
print(y, torch.tril(torch.ones(3, 3, dtype=torch.bool)), torch.triu(torch.arange(9).view(3, 3), 1), sep="\n")
if (x > 0).all() or not mask[0, 0]:
    print("never")
print(bool(mask[0, 0]), mask.int().tolist(), torch.logical_xor(mask, pad[:2, :3]))
