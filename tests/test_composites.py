"""Functions that are formulas over others, beside PyTorch: values, errors, gradients."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import tabtorch
from gradients import check

PLAIN = """
m.renorm(m.tensor([[0., 1, 2], [3, 4, 5]]), 1, 0, 4)
m.renorm(m.ones(2, 2), -1, 0, 1)
m.ones(1).renorm_(1, 0, 1)
m.tensor([[0., 1, 2], [3, 4, 5]]).renorm_(2, 1, 3)
m.frexp(m.tensor([1., 0, -3, inf, -inf, nan, 1e-37, 3e38, -0.0, .1, 1023, 1024]))
m.frexp(m.tensor([1., 0, -3, inf, nan, 1e-4, 6e4]).half())
m.frexp(m.tensor([1, 2]))
m.nextafter(m.tensor([1., 1, -1, -1, nan, 1, inf, 3, 2, 3.4028234663852886e38]), m.tensor([2., 0, 0, -2, 1, nan, 0, 3, 1, inf]))
m.nextafter(m.ones(1), 2.0)
m.nextafter(m.tensor([1]), m.tensor([2]))
m.mvlgamma(m.tensor([1.5, 2, 3, 7]), 2)
m.mvlgamma(m.ones(2), 0)
m.tensor([3, 4]).mvlgamma_(2)
m.isin(m.tensor([[1, 2], [3, 4]]), m.tensor([2, 3]))
m.isin(m.tensor([[1, 2], [3, 4]]), m.tensor([2, 3]), invert=True)
m.isin(m.arange(200) * 3 % 101, m.arange(90))
m.isin(m.arange(200.) * 3 % 101, m.arange(90))
m.isin(2, m.tensor([1, 2]))
m.isin(m.tensor([1, 2]), 2.0)
m.isin(m.tensor([1., nan]), m.tensor([nan, 1]))
m.isin(m.tensor([1.]), m.tensor([]))
m.isin(m.ones(2), m.ones(2, dtype=m.bool))
m.isin(1, 2)
m.cov(m.tensor([[0., 2], [1, 1], [2, 0]]).T)
m.cov(m.tensor([[0, 2, 1], [1, 1, 5]]), correction=0)
m.cov(m.tensor([[0., 2, 1], [1, 1, 5]]), fweights=m.tensor([1, 2, 3]), aweights=m.tensor([.4, .5, .9]))
m.cov(m.tensor([[0. + 1j, 2, 1], [1, 1 - 2j, 5]]))
m.cov(m.ones(2, 2, 2))
m.cov(m.ones(2, 2), fweights=m.ones(2))
m.cov(m.ones(2, 2), fweights=m.ones(3, dtype=m.int64))
m.corrcoef(m.tensor([[0., 2, 1], [1, 1, 5]]))
m.corrcoef(m.tensor([0., 2, 1]))
m.corrcoef(m.tensor([[0. + 1j, 2, 1], [1, 1 - 2j, 5]]))
m.vander(m.tensor([1, 2, 3, 5]))
m.vander(m.tensor([1., 2, 3, 5]), N=3, increasing=True)
m.vander(m.tensor([1, 2, 3]), N=0)
m.vander(m.ones(2, 2))
m.vander(m.ones(2), N=-1)
m.unravel_index(m.tensor([1234, 5678]), (10, 10, 10, 10))
m.unravel_index(m.tensor([3, -4]), (3, 4))
m.unravel_index(m.tensor([1.]), (2,))
m.unravel_index(m.tensor([1]), -2)
m.histogram(m.tensor([1., 2, 1]), bins=4, range=(0., 3.), weight=m.tensor([1., 2, 4]), density=True)
m.histogram(m.arange(20.) ** 1.3, 7)
m.histogram(m.arange(20.), m.tensor([0., 3, 4.5, 10]))
m.histogram(m.tensor([nan, 1., 5]), 4, range=(0, 4))
m.histogram(m.ones(2), 3)
m.histogram(m.ones(0), 3)
m.histogram(m.ones(2), bins=-1)
m.histogram(m.ones(2), 3, range=(2, 1))
m.histogram(m.tensor([1, 2]))
m.histogramdd(m.tensor([[0., 1], [1, 0], [2, 0], [2, 2]]), bins=[3, 3], weight=m.tensor([1., 2, 4, 8]))
m.histogramdd(m.tensor([[0., 0], [1, 1], [2, 2]]), bins=[2, 2], range=[0., 1, 0, 1], density=True)
m.gradient(m.tensor([4., 1, 1, 16]), spacing=(m.tensor([-2., -1, 1, 4]),), edge_order=2)
m.gradient(m.tensor([[1, 2, 4, 8], [10, 20, 40, 80]]))
m.gradient(m.tensor([[1, 2, 4, 8], [10, 20, 40, 80]]), dim=1, edge_order=2, spacing=2.0)
m.gradient(m.tensor([[1, 2, 4, 8], [10, 20, 40, 80]]), spacing=(m.tensor([0, 2]), m.tensor([0, 3, 6, 9])))
m.gradient(m.ones(1))
m.gradient(m.ones(3, 3), spacing=[1.])
m.gradient(m.ones(3, 3), edge_order=3)
m.norm_except_dim(m.arange(24.).reshape(2, 3, 4), 2, 1)
m.norm_except_dim(m.arange(24.).reshape(2, 3, 4), 1, 0)
m.nonzero_static(m.arange(24).reshape(2, 3, 4) % 3, size=5)
m.nonzero_static(m.arange(6).reshape(2, 3) % 2, size=5, fill_value=7)
m.nonzero_static(m.tensor([[1, 0], [0, 2]]), size=-1)
m.hann_window(8), m.hann_window(8, False), m.hann_window(1), m.hann_window(0)
m.hamming_window(8), m.hamming_window(8, True, .5), m.hamming_window(8, periodic=False, alpha=.5, beta=.3)
m.blackman_window(8), m.blackman_window(9, False)
m.bartlett_window(8), m.bartlett_window(8, False), m.bartlett_window(9, False)
m.kaiser_window(8), m.kaiser_window(9, False, beta=4.)
m.hann_window(-1)
m.hamming_window(3.5)
m.hann_window(4, out=m.zeros(4))
m.hamming_window(4, out=m.zeros(4))
m.blackman_window(4, out=m.zeros(4))
m.bartlett_window(4, out=m.zeros(4))
m.kaiser_window(4, out=m.zeros(4))
m.batch_norm(m.arange(6.).reshape(2, 3), m.ones(3) * 2, m.ones(3), m.zeros(3), m.ones(3), False, .1, 1e-5, True)
m.batch_norm(m.ones(1, 2), None, None, None, None, True, .1, 1e-5, False)
m.batch_norm(m.ones(1, 2), None, None, None, None, False, .1, 1e-5, False)
m.instance_norm(m.ones(1, 2, 1), None, None, None, None, True, .1, 1e-5, False)
m.group_norm(m.ones(1, 2), 2)
m.layer_norm(m.ones(2, 3), 3)
m.pixel_unshuffle(m.pixel_shuffle(m.arange(16.).reshape(1, 4, 2, 2), 2), 2)
m.channel_shuffle(m.arange(16.).reshape(1, 4, 2, 2), 2)
m.kl_div(m.ones(2), m.ones(2) / 2)
m.hinge_embedding_loss(m.tensor([.3, .4]), m.tensor([1., -1]))
m.margin_ranking_loss(m.tensor([.3, .4]), m.tensor([1., -1]), m.tensor([1., -1]), .5, 1)
m.poisson_nll_loss(m.tensor([.3, .4]), m.tensor([1., 3]), False, True, 1e-8, 2)
m.softmax(m.ones(2), None)
m.softmax(m.ones(2), 5)
m.softmax(m.ones(2).long(), 0)
m.arange(6.).reshape(2, 3).t().resize_(2, 2)
m.arange(6.).resize_(3).resize_(6)
m.arange(6.)[2:].resize_(2, 2)
m.ones(1, 2, 3, 4).resize_(1, 4, 2, 3, memory_format=m.channels_last).stride()
m.ones(2, requires_grad=True).resize_(3)
m.ones(2).resize_(2, memory_format=m.preserve_format)
m.arange(6.).reshape(2, 3).resize_as_(m.ones(3))
m.ones(2).set_(m.ones(4), 1, (2,), (1,))
m.ones(2).set_(m.arange(4.).untyped_storage(), 1, (2,))
m.ones(2).set_()
m.ones(2).set_(m.ones(2).long())
m.ones(2).long().new([1.5, 2])
m.ones(2).new(2, 3).shape
m.ones(2).kron(m.arange(2.))
m.ones(2, 3).t().dim_order()
m.view_copy(m.arange(6.), (2, 3))
m.slice_copy(m.arange(6.), 0, 1, 5, 2)
m.split_copy(m.arange(6.), 4)
m.expand_copy(m.ones(1), (3,)).stride()
m.narrow_copy(m.ones(3), 0, 0, 5)
m.arange(6.).unsafe_split(4), m.arange(6.).unsafe_chunk(4), m.arange(6.).unsafe_split_with_sizes([2, 4], 0)
m.allclose(m.ones(2), m.ones(2) + 1e-9), m.ones(2).allclose(m.ones(2) + 1e-3)
m.allclose(m.tensor([nan]), m.tensor([nan]), equal_nan=True)
m.allclose(m.ones(2), 1.0)
m.allclose(m.ones(2), m.ones(2).half())
m.ones(2).equal(m.ones(2)), m.equal(m.ones(2), m.ones(3)), m.tensor([nan]).equal(m.tensor([nan])), m.equal(m.ones(2), m.ones(2).half())
m.is_nonzero(m.tensor([0.])), m.tensor(3).is_nonzero(), m.is_signed(m.ones(1, dtype=m.uint8)), m.is_conj(m.ones(1))
m.is_nonzero(m.tensor([]))
m.ones(2).cumsum_(0, dtype=m.int64)
m.arange(6.).reshape(2, 3).t_(), m.arange(6.).unsqueeze_(0).squeeze_(0), m.ones(2, 3, 1).transpose_(0, 1).swapaxes_(0, 2)
m.arange(6.).as_strided_((2, 2), (1, 1)), m.as_strided_(m.arange(6.), (2,), (2,))
m.ones(2, 2, 2).t_()
m.ones(2, 3, requires_grad=True).t_()
""".strip().split("\n")

#: expressions over x (3, 4), y (3, 4), w (4,) that require grad
DIFFERENTIABLE = [
    "m.softmax(x, 1)",
    "x.log_softmax(0)",
    "m.prelu(x, w)",
    "m.layer_norm(x, (4,), w, w)",
    "m.rms_norm(x, (4,), w)",
    "m.batch_norm(x, w, w, None, None, True, .1, 1e-5, True)",
    "m.instance_norm(x.unsqueeze(0), None, None, None, None, True, .1, 1e-5, True)",
    "m.group_norm(x, 2, w, w)",
    "m.cosine_similarity(x, y)",
    "m.pairwise_distance(x, y)",
    "m.pdist(x)",
    "m.binary_cross_entropy_with_logits(x, y.sigmoid(), w.detach(), w.abs().detach(), 1)",
    "m.triplet_margin_loss(x, y, y + w, .5, swap=True, reduction=1)",
    "m.cosine_embedding_loss(x, y, m.ones(3), .5, 1)",
    "m.lstm_cell(x, (y, y), x.new_ones(16, 4) * w, x.new_ones(16, 4) * .1)",
    "m.gru_cell(x, y, x.new_ones(12, 4) * w, x.new_ones(12, 4) * .1)",
    "m.cov(x)",
    "m.corrcoef(x)",
    "m.gradient(x, spacing=.5)",
    "m.frexp(x)[0]",
    "m.mvlgamma(x.abs() + 2, 2)",
    "m.norm_except_dim(x, 2, 1)",
    "(x * 1).renorm_(2, 0, 1)",
    "(x * 1).cumprod_(1)",
    "(x * y).t_() * 2",
    "(x * y)[0].unsqueeze_(0).mul_(w)",
    "m.view_copy(x, (4, 3)) * 2",
    "m.unsafe_split(x * 2, 2)[0].mul_(3)",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", PLAIN)
def test_as_pytorch(expression: str, device: str) -> None:
    check(expression, {}, device, tol=2e-5, twice=False, named=False)


@pytest.mark.parametrize("expression", DIFFERENTIABLE)
def test_gradients(expression: str, device: str) -> None:
    g = torch.Generator().manual_seed(4)
    names = {k: torch.randn(s, generator=g).requires_grad_() for k, s in (("x", (3, 4)), ("y", (3, 4)), ("w", (4,)))}
    check(expression, names, device, tol=2e-4, twice=False, named=False)


def test_64_bits() -> None:
    numbers = [1.0, 0, -3, float("inf"), float("nan"), 1e-300, 5e-324, 3e-310, 1e308, 0.1]
    check(
        f"m.frexp(m.tensor({numbers}, dtype=m.float64))".replace("inf", "1e999"),
        {},
        "cpu",
        tol=0,
        twice=False,
        named=False,
    )
    a = "[1., 1, 0, 0, -1, -1, nan, inf, 3, 2, 1e-310, 2.2250738585072014e-308, 2.2250738585072014e-308, 1e308]"
    b = "[2., 0, 1, -1, 0, -2, 1, 0, 3, 1, 0, 0, 1, 0]"
    check(
        f"m.nextafter(m.tensor({a}, dtype=m.float64), m.tensor({b}, dtype=m.float64)).view(m.int64)",
        {},
        "cpu",
        tol=0,
        twice=False,
        named=False,
    )


def test_functions_of_the_host() -> None:
    """Only the cpu device can call a Python function for each element."""
    for expression in (
        "m.arange(6.).reshape(2, 3).t().apply_(lambda v: v * 2)",
        "m.ones(2).long().apply_(lambda v: v + .6)",
        "m.ones(2).map_(m.zeros(1), lambda a, b: a + b)",
        "m.ones(2).map_(m.zeros(3), lambda a, b: a + b)",
        "m.ones(2).map_(m.zeros(1).long(), lambda a, b: a + b)",
        "m.ones(2).map2_(m.ones(2), m.ones(2), lambda a, b, c: a + b + c)",
        "m.ones(2, requires_grad=True).apply_(lambda v: v)",
    ):
        check(expression, {}, "cpu", tol=0, twice=False, named=False)


def test_apply_on_the_gpu(webgpu: None) -> None:
    with pytest.raises(TypeError, match="apply_ is only implemented on CPU tensors"):
        tabtorch.ones(2).apply_(lambda v: v)


def test_cov_checks_values() -> None:
    for expression in (
        "m.cov(m.ones(2, 2), fweights=m.tensor([-1, 2]))",
        "m.cov(m.ones(2, 2), aweights=m.tensor([0., 0]))",
        "m.histogram(m.tensor([1., nan]), 3)",
    ):
        check(expression, {}, "cpu", tol=0, twice=False, named=False)


def test_cov_warns() -> None:
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        assert tabtorch.cov(tabtorch.ones(2, 2), correction=3).isnan().all()


def history(m: Any) -> list[Any]:
    """What in-place views do to versions, views and saved tensors."""
    out: list[Any] = []
    y = m.arange(6.0, requires_grad=True)
    b = y * 1
    v = b[:4]
    v.unsqueeze_(0)
    b.mul_(2)
    v.mul_(3)
    (b * m.arange(6.0)).sum().backward()
    out += [tuple(v.shape), b._version, y.grad.tolist()]
    z = y * 1
    w = z * z
    z.unsqueeze_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        w.sum().backward()
    with m.no_grad():
        y.unsqueeze_(0)
    return [*out, tuple(y.shape), y.is_leaf]


def test_inplace_views(device: str) -> None:
    assert history(torch) == history(tabtorch)


def test_resize_keeps_views(device: str) -> None:
    a = tabtorch.arange(4.0)
    b = a.view(2, 2)
    a.resize_(6)[:4].mul_(2)
    assert b.tolist() == [[0, 2], [4, 6]]
    assert a.tolist() == [0, 2, 4, 6, 0, 0]


def test_isin_needs_no_read(webgpu: None) -> None:
    from tabtorch.bridge import get_bridge

    x = tabtorch.arange(1000)
    before = get_bridge().stats()["reads"]
    tabtorch.isin(x, x[::3])
    tabtorch.histogram(x.float(), 10)
    tabtorch.nonzero_static(x, size=4)
    assert get_bridge().stats()["reads"] == before


def test_asarray_keeps_history() -> None:
    a = tabtorch.tensor([1.0, 2.0], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        b = a + 2
        assert tabtorch.asarray(b) is b
        assert not tabtorch.asarray(b, requires_grad=False).requires_grad
        assert tabtorch.asarray(b, copy=True).grad_fn is not None
