"""Types: promotion, conversion, integer division, overflow, comparison."""

import torch

a = torch.tensor([1, 2, 3])
b = torch.tensor([0.5, 1.5, 2.5])
print((a + b).dtype, (a * 2).dtype, (a * 2.0).dtype, (a / 2).dtype, (a // 2).dtype, (a > 1).dtype, (a + True).dtype)
print(a / 2, a // 2, -a // 2, a % 2, -7 // a, torch.tensor(-7) % 3, torch.fmod(torch.tensor(-7), 3))
print(b.int(), b.long(), b.round(), b.trunc(), b.to(torch.uint8), b.half(), b.bfloat16(), b.bool(), sep="\n")
print(torch.tensor([250], dtype=torch.uint8) + 10, torch.tensor([127], dtype=torch.int8) + 1)
print(torch.tensor([2**62], dtype=torch.int64) * 2, torch.tensor([2**31 - 1], dtype=torch.int32) + 1)
print(torch.tensor([1, 2]).dtype, torch.tensor([1.0]).dtype, torch.tensor([True]).dtype, torch.tensor([1, 2.5]).dtype)
print(torch.promote_types(torch.int32, torch.float16), torch.result_type(torch.tensor([1]), 1.5))
print(torch.can_cast(torch.float, torch.int), torch.finfo(torch.float32).eps, torch.iinfo(torch.int16).max)
print(a & 2, a | 4, a ^ 1, ~a, a << 2, a >> 1, ~torch.tensor([True]), a == torch.tensor([1, 0, 3]))
print(torch.tensor(2) ** 10, a**2, 2**a, a.float() ** 0.5, torch.pow(2.0, a))
print(a.type(torch.float32), a.to(b), a.float().type(), torch.arange(0, 1, 0.25), torch.arange(5, 0, -2))
print(torch.tensor(1e40), torch.tensor(3).item(), torch.tensor(2.5).item(), torch.tensor([1, 0]).bool().tolist())
print(torch.tensor([1.0, float("nan")]) == torch.tensor([1.0, float("nan")]), torch.tensor([0.1 + 0.2]).item() == 0.3)
print(torch.tensor([3 + 4j]).abs(), torch.tensor([1 + 1j]) * torch.tensor([1 - 1j]), torch.tensor([1j]).real)
try:
    torch.tensor([1, 2]).add_(1.5)
except RuntimeError as e:
    print(e)
