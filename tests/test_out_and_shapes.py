"""Results written with out=, what may not overlap, and shapes at their limits, beside PyTorch."""

from __future__ import annotations

import pytest

from gradients import check

PLAIN = """
m.gather(m.arange(6.), 0, m.tensor([0, 2]), out=m.zeros(1).expand(2))
(lambda b: m.gather(m.arange(3), 0, b[1:], out=b[:1]))(m.arange(3))
(lambda b: m.gather(b, 0, m.tensor([0, 1, 1]), out=b))(m.arange(3.))
m.gather(m.ones(2, 2), 1, m.zeros(2, 2).long(), out=m.ones(2, 2).half())
m.gather(m.ones(2, 2), 1, m.zeros(0))
(lambda b: m.take(b, m.tensor([0, 1, 1]), out=b))(m.arange(3.))
(lambda b: m.index_select(b, 0, m.tensor([0, 1, 1]), out=b))(m.arange(3.))
m.index_select(m.ones(3, 6), 1, m.tensor([0, 1]), out=m.ones(1, 6).expand(2, 6))
(lambda b: m.masked_select(b, b > 1, out=b))(m.arange(3.))
(lambda b: m.cat([b[:2], b[2:]], out=b))(m.arange(4.))
(lambda b: m.kthvalue(b, 1, out=(b, m.empty(0).long())))(m.arange(4.))
m.amax(m.ones(2, 2), 0, out=m.ones(2).half())
m.argmax(m.ones(2, 2), 0, out=m.ones(2))
m.aminmax(m.ones(2, 2), dim=0, out=(m.ones(2), m.ones(2).half()))
m.scatter(m.zeros(3), 0, m.tensor([1]), m.ones(1), out=m.empty(0))
m.scatter_add(m.zeros(3), 0, m.tensor([1]), m.ones(1), out=m.ones(3))
m.index_copy(m.zeros(3), 0, m.tensor([1]), m.ones(1), out=m.ones(3))
m.index_reduce(m.zeros(3), 0, m.tensor([1]), m.ones(1), 'amax', out=m.ones(3))
m.slice_scatter(m.zeros(3), m.ones(1), 0, 1, 2, out=m.ones(3))
m.diag(m.ones(2), 1, out=m.empty(0))
m.scatter(m.zeros(3, requires_grad=True), 0, m.tensor([1]), m.ones(1), out=m.empty(0))
m.diag(m.ones(2, 2), out=m.empty(0))
m.ones(2, 3, dtype=m.int8).sum_to_size(3), m.ones(2, dtype=m.int8).sum_to_size(2), m.ones(2, dtype=m.bool).sum_to_size(())
m.ones(2, 3).sum_to_size(1, 2)
m.diff(m.arange(3.), 0, 0, m.ones(3), m.ones(3))
m.tensor(1.).expand(1, 1).stride(), m.ones(2).expand(1, 2).stride()
m.prod(m.tensor([[1., 2], [0, 3]]), 1, dtype=m.bool)
m.unravel_index(m.tensor([3], dtype=m.int8), (2, 2))
m.hstack([]), m.ones(1)
m.column_stack(())
m.narrow(m.ones(3), 0, m.tensor([1]), 1)
m.narrow_copy(m.ones(3), 0, -1, -1)
m.hsplit(m.ones(3), 'a')
m.empty_permuted((2, 3), (0,))
m.empty_permuted((2, 3), (0, 0))
m.empty_permuted((2, 3), (0, 2))
m.histogramdd(m.ones(3, 6), [1, 2, 3])
m.gradient(m.arange(4.) ** 2, spacing=None)
m.cov(m.ones(2, 2), fweights=m.tensor([1, -1]))
m.ones(1).view([1] * 65).sum(-1)
m.ones(1).view([1] * 65).sum().shape
m.ones(4, 2).t().to(m.float32, memory_format=m.contiguous_format).stride()
m.ones(1, 2, 2, 2).permute(0, 2, 3, 1).float(memory_format=m.channels_last).stride()
m.ones(1, 2, 2, 2).permute(0, 3, 1, 2).float(memory_format=m.contiguous_format).stride()
m.bincount(m.tensor([1, -2]))
m.bincount(m.tensor([1, 4, 1])), m.histc(m.tensor([1., 2, 2, 5]), 4)
(m.sparse_coo, m.sparse_csr, m.jagged).__repr__()
""".strip().split("\n")

#: expressions over x (2, 4), with two zeros in a row, and v, a single number, that require grad
DIFFERENTIABLE = [
    "x.cumprod(1)",
    "(x * v).cumprod(0)",
    "x.index_fill(0, m.tensor([1, 1, 0]), v)",
    "v.index_fill(0, m.tensor([0, 0]), v * v)",
    "m.diff(x, 0, 0, x)",
    "x.sum_to_size(1, 4) * v",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", PLAIN)
def test_as_pytorch(expression: str, device: str) -> None:
    check(expression, {}, device, tol=1e-5, twice=False, named=False)


@pytest.mark.parametrize("expression", DIFFERENTIABLE)
def test_gradients(expression: str, device: str) -> None:
    import torch

    x = torch.tensor([[1.5, 0.0, -2.0, 0.0], [2.0, 0.5, 1.0, -1.0]]).requires_grad_()
    check(expression, {"x": x, "v": torch.tensor(1.25).requires_grad_()}, device, tol=2e-4, twice=True, named=False)
