"""topk, sort, argsort, unique, kthvalue, median, max/min with indices, searchsorted, bincount."""

import torch

x = torch.tensor([[3.0, 1.0, 2.0, 5.0], [9.0, -7.0, 8.0, 0.0]])
values, indices = torch.topk(x, 2)
print(values, indices)
print(x.sort(dim=1, descending=True), x.argsort(0), sep="\n")
print(torch.max(x, 1), x.min(dim=0).values, x.argmax(), x.argmin(1), x.amax(), x.aminmax(), sep="\n")
print(x.median(), x.median(dim=1).values, x.kthvalue(2, dim=1), x.quantile(0.5), sep="\n")
u, inverse, counts = torch.unique(torch.tensor([1, 3, 2, 3, 1, 3]), return_inverse=True, return_counts=True)
print(u, inverse, counts, torch.unique_consecutive(torch.tensor([1, 1, 2, 2, 3, 1])))
print(torch.bincount(torch.tensor([4, 3, 6, 3, 4])), torch.histc(torch.tensor([1.0, 2, 1]), 4, 0, 3))
print(torch.searchsorted(torch.tensor([1, 3, 5, 7]), torch.tensor([3, 6])), torch.bucketize(4, torch.tensor([1, 3, 5])))
print(torch.maximum(x[0], x[1]), x.clamp(-1, 4), torch.mode(torch.tensor([1, 2, 2, 3])))
y = torch.tensor([2.0, 7.0, 1.0], requires_grad=True)
y.sort().values.mul(torch.tensor([1.0, 10.0, 100.0])).sum().backward()
print(y.grad, (x > 1).sort(1).values, torch.tensor([3, 1, 2]).sort().indices)
logits = torch.tensor([[2.0, 1.0, 0.1], [0.1, 3.0, 0.2]])
k = 2
top = logits.topk(k).values[:, [-1]]
print(logits.masked_fill(logits < top, -float("inf")).softmax(-1))
