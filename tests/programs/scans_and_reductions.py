"""cumsum, cumprod, logsumexp, var, std, norms, mean over several dimensions."""

import torch

x = torch.arange(1.0, 13.0).view(3, 4)
print(x.cumsum(0), x.cumprod(1), torch.cummax(torch.tensor([1, 3, 2, 5, 4]), 0), sep="\n")
print(x.logsumexp(1), torch.logcumsumexp(x, 1)[0], x.diff(dim=1)[0])
print(x.mean(), x.mean(0), x.mean((0, 1), keepdim=True), x.sum(-1), x.prod(), x.prod(1), sep="\n")
print(x.var(), x.std(0), x.var(1, unbiased=False), torch.var_mean(x, dim=1), sep="\n")
print(x.norm(), x.norm(1, dim=0), x.norm(p=float("inf")), torch.linalg.vector_norm(x, dim=1))
print(x.all(), (x > 3).any(0), torch.tensor([1, 2, 3]).sum(), torch.tensor([1, 2], dtype=torch.uint8).sum().dtype)
r = torch.tensor([1.0, 0.5, 0.25])
returns = torch.flip(torch.cumsum(torch.flip(r, [0]), 0), [0])
print(returns, (returns - returns.mean()) / (returns.std() + 1e-8))
y = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
(y.cumsum(0).prod() + y.std() + y.logsumexp(0)).backward()
print(y.grad)
print(torch.nansum(torch.tensor([1.0, float("nan")])), torch.trapezoid(torch.tensor([1.0, 2.0, 3.0])))
print(torch.tensor([[1.0, 2.0], [3.0, 4.0]]).softmax(0), torch.tensor([0.5, 1.0]).log_softmax(-1))
