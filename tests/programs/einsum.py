"""einsum, bmm, outer, tensordot, and friends: the same sums in many words."""

import torch

torch.manual_seed(0)
A, B = torch.randn(3, 4), torch.randn(4, 5)
v, w = torch.randn(4), torch.randn(4)
print(torch.allclose(torch.einsum("ij,jk->ik", A, B), A @ B, atol=1e-6))
print(torch.einsum("ij,j->i", A, v), torch.einsum("i,i->", v, w), torch.einsum("i,j->ij", v, w).shape)
print(torch.einsum("ii->i", torch.arange(9.0).view(3, 3)), torch.einsum("ii", torch.arange(9.0).view(3, 3)))
X, Y = torch.randn(2, 3, 4), torch.randn(2, 4, 2)
print(torch.einsum("bij,bjk->bik", X, Y), torch.bmm(X, Y).allclose(X @ Y))
q, k = torch.randn(2, 5, 2, 3), torch.randn(2, 5, 2, 3)
print(torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1)[0, 0, 0])
print(torch.einsum("...ij->...ji", X).shape, torch.einsum("bn,anm,bm->ba", A[:2, :3], torch.ones(5, 3, 4), A[:2]))
print(torch.outer(v, w)[1], torch.dot(v, w), torch.mv(A, v), torch.tensordot(X, Y, dims=([2], [1])).shape)
print(torch.linalg.norm(A), torch.trace(A), torch.kron(torch.eye(2), torch.ones(1, 2)), sep="\n")
A.requires_grad_()
torch.einsum("ij,jk,kl->", A, B, torch.ones(5, 2)).backward()
print(A.grad)
print(torch.addmm(torch.ones(3, 5), A, B, beta=2, alpha=0.5)[0])
