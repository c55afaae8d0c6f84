"""Expressions of sparse tensors that PyTorch and tabtorch are asked side by side (test_sparse.py).

s: COO (2, 3); u: COO with a duplicate; h: hybrid; c: CSR; d, e: dense (2, 3) and (3, 2); i, v: indices and values of s.
"""

#: what must print alike, or fail with the same first words
SAME = r"""
s | u | h | c | c.to_sparse_csc() | torch.ones(4, 4).to_sparse_bsr((2, 2)) | torch.ones(4, 4).to_sparse_bsc((2, 2))
s.layout, s.is_sparse, s.is_sparse_csr, s._nnz(), s.sparse_dim(), s.dense_dim(), s.is_coalesced(), s.shape, s.stride()
c.layout, c.is_sparse, c.is_sparse_csr, c._nnz(), c.sparse_dim(), c.dense_dim(), c.crow_indices(), c.col_indices(), c.values()
h.sparse_dim(), h.dense_dim(), h._nnz(), h._indices(), h._values(), isinstance(h, torch.Tensor) | u.indices() | u.values()
u.coalesce() | u.coalesce().indices() | s.crow_indices() | c.indices() | c.coalesce() | d.indices() | d.values() | d.coalesce()
d.sparse_dim() | d.dense_dim() | d.to_dense() | d._nnz() | d.crow_indices() | torch.sparse_coo_tensor(i, v)
s.new() | s.new(2, 3) | s.new((2, 3)) | s.new(torch.Size((2, 3))) | s.new(s._indices(), s._values()) | s.new([1.0]) | c.new() | c.new(2)
(s * (1 + 2j)).resolve_conj() | (s * (1 + 2j)).conj() | torch.conj_physical(s * (1 + 2j))
torch.sparse_coo_tensor(s) | torch.sparse_coo_tensor((2, 3)) | torch.sparse_coo_tensor((2.0, 3)) | torch.sparse_coo_tensor(3)
torch.sparse_coo_tensor((2, 3)) | torch.sparse_coo_tensor(i[0], v) | torch.sparse_coo_tensor(i, v[:2], (2, 3))
torch.sparse_coo_tensor(i, v, (2, 3, 4)) | torch.sparse_coo_tensor(i - 1, v)
torch.sparse_coo_tensor(i, v, (1, 3), check_invariants=True) | torch.sparse_csr_tensor(c.crow_indices(), c.col_indices(), v)
torch.sparse_csr_tensor(T([0, 1, 4]), T([2, 0, 2]), v, (2, 3), check_invariants=True)
torch.sparse_csr_tensor(T([0, 1, 3]), T([2, 2, 0]), v, (2, 3), check_invariants=True)
torch.sparse_compressed_tensor(T([0, 1, 3]), T([2, 0, 2]), v) | d.to_sparse() | d.to_sparse(1) | d.to_sparse(3) | d.to_sparse(0)
d.to_sparse_csr() | d.to_sparse_csc() | d.to_sparse(layout=torch.sparse_csr) | torch.ones(2, 2, 2).to_sparse_csr()
torch.ones(2, 2, 2).to_sparse_csr(dense_dim=1) | torch.ones(4, 4).to_sparse_bsr((3, 2)) | s.to_sparse_csr() | c.to_sparse()
c.to_dense() | s.to_dense() | h.to_dense() | d.sparse_mask(s) | s.sparse_mask(s) | d.sparse_mask(c) | s + s | s - s | s * s | s * 2
2 * s | s / 2 | s // 2 | s ** 2 | s ** 0 | -s | abs(s) | d + s | d - s | s * d | d * s | s + d | s + 1 | s / d | s / s
torch.add(s, s, alpha=3) | torch.add(d, s, alpha=2) | c + c | c * c | c * 2 | c + d | c * d
s + torch.ones(2, 2).to_sparse() | torch.sin(s) | u.sin() | u.neg() | s.relu() | s.sqrt() | s.sign() | s.isnan() | s.square()
s.round() | c.sin() | c.neg() | s.exp() | s.cos() | c.exp() | s @ e | e @ s | s @ s.t() | s @ v | torch.mm(s, e) | torch.sparse.mm(s, e)
torch.sparse.mm(c, e) | c @ e | e @ c | torch.mv(s, v) | s @ d | torch.addmm(torch.ones(2, 2), s, e, beta=.5, alpha=2)
torch.sparse.addmm(torch.ones(2, 2), s, e) | torch.bmm(s.unsqueeze(0), e[None]) | torch.matmul(d, s.t())
torch.nn.functional.linear(d, s) | torch.hspmm(s.coalesce(), e) | torch.sparse.sampled_addmm(torch.eye(2).to_sparse_csr(), d, e)
torch.sparse.mm(c, e, reduce="amax") | torch.sparse.mm(c, e, "mean") | s.t() | s.T | s.transpose(0, 1) | s.permute(1, 0) | c.t()
h.transpose(0, 2) | s.unsqueeze(0) | s.unsqueeze(-1) | s.squeeze() | s.view(6) | s.reshape(6) | s[0] | s[0, 2] | s[:, 0] | s[5]
s[None] | s[0:1] | c[0] | s.select(0, 1) | s.index_select(1, T([2, 0, 2])) | s.narrow_copy(1, 0, 2) | s.narrow(0, 0, 1)
torch.cat([s, s]) | torch.cat([s, s], 1) | torch.stack([s, s]) | torch.cat([s, d]) | s.unbind() | list(s) | len(s) | s.expand(2, 2, 3)
s.sum() | s.sum(0) | s.sum(1, keepdim=True) | h.sum(2) | h.sum((0, 1)) | torch.sparse.sum(s, 0) | torch.sparse.sum(h, [0, 1]) | c.sum()
c.sum(0) | c.sum(0, keepdim=True) | s.norm() | s.norm(1) | s.mean() | s.max() | s.any() | torch.sparse.softmax(s, 1)
torch.sparse.log_softmax(s, 0) | torch.sparse.softmax(h, 2) | s.softmax(1) | s.clone() | s.detach() | s.to(torch.int32) | s.half()
s.bool() | s.type() | s.clone().zero_() | s.clone().mul_(2) | s.clone().add_(s) | s.clone().fill_(1) | s.clone().copy_(s + s)
d.clone().add_(s) | d.clone().mul_(s) | s.clone().copy_(d) | torch.zeros_like(s) | torch.empty_like(s) | torch.ones_like(s)
torch.zeros_like(c) | torch.zeros(2, 3, layout=torch.sparse_coo) | torch.zeros(2, 3, layout=torch.sparse_csr)
torch.ones(2, 3, layout=torch.sparse_coo) | s.new_zeros(2) | s.numpy() | s.tolist() | s.item() | bool(s) | s == s | s > 0
torch.where(d > 0, s, s) | s.cumsum(0) | s.sort() | s.flip(0) | torch.equal(s, s) | s.tril() | s.data_ptr()
torch.sparse.spdiags(torch.ones(2, 3), T([0, 1]), (3, 3))
torch.sparse.spdiags(torch.arange(6.).view(2, 3), T([-1, 2]), (3, 3), torch.sparse_csr) | s.clone().sparse_resize_((3, 3), 2, 0)
s.clone().sparse_resize_((1, 3), 2, 0) | s.clone().sparse_resize_and_clear_((4,), 1, 0) | s.requires_grad_()
s.requires_grad_().to_dense() | s.requires_grad_() * 2 | s.requires_grad_() @ e | torch.sparse.mm(s.requires_grad_(), e)
s.requires_grad_().values() | torch.sparse_coo_tensor(i, v.requires_grad_(), (2, 3)) | torch.nn.Parameter(s) | s.requires_grad_().sum()
d.requires_grad_().to_sparse()
torch.masked.sum(s) | torch.masked.sum(s, 0) | torch.masked.sum(u, 1, keepdim=True) | torch.masked.sum(s, []) | torch.masked.sum(h, 2)
torch.masked.sum(h, (0, 1)) | torch.masked.sum(h, (0, 2), keepdim=True)
torch.masked.sum(s.int(), 0) | torch.masked.sum(s, 0).is_coalesced()
torch.masked.sum(s, 0, mask=d > 0) | torch.masked.sum(s, 0, dtype=torch.int32) | torch.masked.sum(s, 1, mask=(d > 2).to_sparse())
torch.masked.prod(s, 0, mask=d > 0)
torch.masked.prod(s, mask=d > 5) | torch.masked.prod(s, 1, mask=(d > 0.5).to_sparse_csr(), keepdim=True)
torch.masked.prod(s.to(torch.complex64), 0, mask=d > 0) | torch.masked.amax(s, 0, mask=d > 0) | torch.masked.amax(-s, 1, mask=d > 0)
torch.masked.amax(s, mask=d > 5) | torch.masked.amin(s, (0, 1), mask=d > 1, keepdim=True) | torch.masked.amin(s.int(), 0, mask=s)
torch.masked.amin(u, 0, mask=d < 9) | torch.masked.sum(s, 0, mask=d[0] > 0) | torch.masked.sum(s, 0, mask=(d[:1] > 0).to_sparse())
torch.masked.sum(c, keepdim=True) | torch.masked.sum(c.int(), 0, keepdim=True) | torch.masked.sum(c, 1, keepdim=True, mask=d > 5)
torch.masked.prod(c, 0, keepdim=True, mask=c)
torch.masked.prod(c, 1, keepdim=True, mask=d > 1) | torch.masked.prod(c, keepdim=True, mask=d > 1)
torch.masked.amax(c, 0, keepdim=True, mask=d > 1)
torch.masked.amax(c, 1, keepdim=True, mask=d > 1) | torch.masked.amax(c, keepdim=True, mask=d > 5)
torch.masked.amin(c, 1, keepdim=True, mask=d > 0)
torch.masked.amin(c, [], keepdim=True, mask=d[0] > 0) | torch.masked.mean(c, 0, keepdim=True, mask=d > 0)
torch.masked.mean(c, 1, keepdim=True, mask=(d > 0).to_sparse()) | torch.masked.mean(c, keepdim=True, mask=(d[:1] > 0).to_sparse_csr())
torch.masked.sum(d, 0, mask=s) | torch.masked.amax(d, 0, mask=c) | torch.masked.mean(d, 1, mask=(d[:1] > 0).to_sparse())
torch.masked.prod(s) | torch.masked.amax(s) | torch.masked.amin(s) | torch.masked.mean(s) | torch.masked.prod(c) | torch.masked.amin(c)
torch.masked.mean(c) | torch.masked.sum(c) | torch.masked.amax(c, 0, mask=d > 0) | torch.masked.amax(c.int(), 1, keepdim=True, mask=d > 0)
torch.masked.mean(s.int()) | torch.masked.sum(s, 5) | torch.masked.sum(s, (0, 0)) | torch.masked.amax(s.bool(), 0, mask=d > 0)
torch.masked.amax(s.to(torch.complex64), 0, mask=d > 0) | torch.masked.sum(s, mask=d[None]) | torch.masked.sum(s, mask=d[:, :2])
torch.masked.sum(s, mask=d[:, :2].to_sparse()) | torch.masked.sum(s, mask=d.to_sparse(1)) | torch.masked.sum(s, mask=d[:1].to_sparse_csc())
torch.masked.sum(s.to_sparse_csc()) | torch.masked.sum(s.to_sparse_csc(), mask=d) | torch.masked.mean(s.to_sparse_csc())
torch.masked.argmax(s) | torch.masked.norm(s) | torch.masked.var(c)
torch.masked.median(s) | torch.masked.softmax(s, 0) | torch.masked.cumsum(s, 0)
torch.masked.normalize(s, 2, 0) | torch.masked.logsumexp(s) | torch.masked.logaddexp(s, d) | torch.masked.sum(s.requires_grad_(), 0)
torch.masked.amax(c.requires_grad_(), 0, keepdim=True, mask=d > 0)
torch._sparse_csr_sum(c, 0, True) | torch._sparse_csr_sum(c, dim=(0, 1), keepdim=True) | torch._sparse_csr_sum(c, 1)
torch._sparse_csr_prod(c, 1, True) | torch._sparse_csr_prod(c.int(), (0, 1), True, dtype=torch.float32)
torch._sparse_csr_sum(c.int(), 1, True)
torch._sparse_broadcast_to(s, (2, 3)) | torch._sparse_broadcast_to(s, (4, 2, 3)).coalesce()
torch.masked._input_mask(d, mask=T([1, 0, 2])) | torch.masked._input_mask(s, mask=d > 1)
torch.masked._input_mask(c, mask=(d > 1).to_sparse())
torch.masked._input_mask(d) | torch.masked._input_mask(s.to_sparse_csc(), mask=d) | torch.masked._input_mask(d, mask=d[None])
torch.masked._output_mask(torch.masked.sum, d, 1, mask=T([1, 0, 2]) > 1) | torch.masked._output_mask(torch.masked.softmax, d, 0, mask=d > 1)
torch.masked._output_mask(torch.masked.norm, d, 2, (0, 1), mask=d > 9, keepdim=True) | torch.masked._output_mask(3, d)
torch.masked._output_mask(torch.masked.amax, d, mask=d > 9) | torch.masked._output_mask(abs, d)
[torch.sparse_coo_tensor(T([[1] * n]), torch.ones(n), (3,)).is_coalesced() for n in (0, 1, 2)]
torch.sparse_coo_tensor(i[:, :1], v[:1], (2, 3), is_coalesced=False).is_coalesced() | s.narrow_copy(0, 0, 1).is_coalesced()
torch.sparse_coo_tensor(i[:, :1], v[:1], (2, 3)).t().is_coalesced() | (s * 0).is_coalesced()
torch.autograd.grad((x := d.clone().requires_grad_()).gather(1, T([[0, 2], [1, 1]]), sparse_grad=True).sum(), x)[0]
torch.autograd.grad((x := d.clone().requires_grad_()).gather(0, T([[1, 0, 1]]), sparse_grad=True).sin().sum(), x)[0]
torch.autograd.grad((x := d[0, 0].clone().requires_grad_()).gather(0, T(0), sparse_grad=True) * 3, x)[0]
torch.autograd.grad((x := d[0].clone().requires_grad_()).gather(0, T([2, 2]), sparse_grad=True).sum(), x)[0].coalesce()
"""

#: functions of (t, a, d): a sparse leaf, a dense one
GRADIENTS = r"""
t.sparse.mm(a, d.t()) | a @ d.t() | t.sparse.addmm(t.ones(2, 2), a, d.t()) | d.t() @ a | a * 2 | a * a | a * d | d + a | a.to_dense()
a.sum() | t.sparse.sum(a, 0) | t.sparse.softmax(a, 1) | t.sparse.log_softmax(a, 1) | a.t() | a + a | a.coalesce() | a.values()
d.sparse_mask(a.detach()) | d.to_sparse() | d.to_sparse_csr() | a ** 2 | a.neg() | a / 2 | a.clone() | a.relu() | a.to_sparse_csr()
t.sparse.mm(a.to_sparse_csr(), d.t()) | a @ d[0] | d - a | t.masked.amax(a.to_sparse_csr(), 0, keepdim=True, mask=d > 0)
t.masked.amin(a.to_sparse_csr(), 1, keepdim=True, mask=d > 0) | t.masked.mean(a.to_sparse_csr(), 0, keepdim=True, mask=d > 0)
t.masked.mean(a.to_sparse_csr(), (0, 1), keepdim=True, mask=d > 0) | t.masked.sum(d, 0, mask=a.detach())
(d * 2).gather(1, t.tensor([[0, 2], [1, 1]]), sparse_grad=True) + a.to_dense()[:, :2]
d.gather(0, t.tensor([[1, 0, 1]]), sparse_grad=True) * d[0]
"""


def split(text: str) -> list[str]:
    """The expressions of such a text."""
    return [e.strip() for line in text.strip().splitlines() for e in line.split(" | ")]
