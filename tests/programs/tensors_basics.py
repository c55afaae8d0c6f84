"""Making tensors, their attributes, indexing, joining: as in the "Tensors" tutorial."""

import torch

data = [[1, 2], [3, 4]]
x_data = torch.tensor(data)
x_ones = torch.ones_like(x_data)
torch.manual_seed(7)
x_rand = torch.rand_like(x_data, dtype=torch.float)
print(f"Ones Tensor: \n {x_ones} \n")
print(f"Random Tensor: \n {x_rand} \n")

shape = (2, 3)
print(torch.rand(shape), torch.ones(shape), torch.zeros(shape), sep="\n")

tensor = torch.rand(3, 4)
print(f"Shape of tensor: {tensor.shape}")
print(f"Datatype of tensor: {tensor.dtype}")

tensor = torch.arange(16.0).reshape(4, 4)
print(f"First row: {tensor[0]}")
print(f"First column: {tensor[:, 0]}")
print(f"Last column: {tensor[..., -1]}")
tensor[:, 1] = 0
print(tensor)
t1 = torch.cat([tensor, tensor, tensor], dim=1)
print(t1)

y1 = tensor @ tensor.T
y2 = tensor.matmul(tensor.T)
y3 = torch.empty_like(y1)
torch.matmul(tensor, tensor.T, out=y3)
print(torch.equal(y1, y2), torch.equal(y1, y3))
z1 = tensor * tensor
z3 = torch.rand_like(tensor)
torch.mul(tensor, tensor, out=z3)
print(z1.eq(z3).all())

agg = tensor.sum()
print(agg.item(), type(agg.item()))
tensor.add_(5)
print(tensor)
