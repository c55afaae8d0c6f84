"""How tensors look when they are printed."""

import torch

print(torch.tensor(3), torch.tensor(3.5), torch.tensor(True), torch.tensor([]))
print(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 20, 300]), torch.tensor([True, False]))
print(torch.tensor([1.5, float("nan"), float("inf"), -float("inf")]))
print(torch.tensor([1e-8, 1.0, 1e8]), torch.tensor([0.001, 0.25]), torch.tensor([1e5, 1.5]))
print(torch.arange(24).reshape(2, 3, 4))
print(torch.arange(5000.0))
print(torch.zeros(100, 100))
print(torch.zeros(2, 0, 3), torch.ones(2, 2, dtype=torch.int32), torch.ones(2, dtype=torch.float16))
print(torch.tensor([1 + 2j, 3.25 - 1j]))
x = torch.ones(2, 2, requires_grad=True)
print(x, x * 2, (x * 2).sum(), x.detach(), sep="\n")
print(f"{torch.tensor(2.34567):.2f} {torch.tensor(7):5d}|")
print([torch.tensor(1.0), torch.tensor([2])], {"a": torch.zeros(1)})
torch.set_printoptions(precision=2, sci_mode=False)
print(torch.tensor([3.14159, 100000.0]))
torch.set_printoptions(profile="default")
print(repr(x.shape), x.size(), x.dtype, x.stride(), x.numel(), x.dim(), len(x))
