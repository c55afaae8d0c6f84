"""Sequence losses, bags of embeddings, images read at places, masked reductions, and what PyTorch keeps below its public
functions: edges where PyTorch's own operator tests do not look.
"""

from __future__ import annotations

import pytest
import torch

import tabtorch
from gradients import check

CTC = "m.ctc_loss(m.tensor(P).log_softmax(-1), m.tensor({t}), {il}, {tl}, {blank}, {red}, {zero})"
LOGITS = torch.randn(6, 3, 4, generator=torch.Generator().manual_seed(1)).tolist()


def _ctc(t: str = "[[1, 2, 1], [3, 3, 1], [1, 2, 3]]", il: str = "(6, 6, 5)", tl: str = "(3, 2, 0)", blank: int = 0,
         red: int = 0, zero: bool = False) -> str:  # fmt: skip
    return CTC.format(t=t, il=il, tl=tl, blank=blank, red=red, zero=zero)


PLAIN = [
    _ctc(),
    _ctc(red=1),
    _ctc(red=2),
    _ctc("[1, 2, 1, 3, 3]"),
    _ctc("[1, 2, 1, 3, 3]", "m.tensor([6, 6, 5])", "m.tensor([3, 2, 0])"),
    _ctc("[[0, 2, 1], [0, 0, 1], [1, 2, 0]]", blank=3),
    _ctc(il="(2, 6, 0)"),
    _ctc(il="(2, 6, 0)", zero=True),
    _ctc(il="(0, 6, 5)", tl="(0, 2, 1)"),
    _ctc(il="(7, 6, 5)"),
    _ctc(il="(6, 6)"),
    _ctc(tl="(3, 2)"),
    _ctc(tl="(4, 2, 0)"),
    _ctc(blank=4),
    "m.ctc_loss(m.ones(3, 1, 2).half(), m.ones(1, 1).long(), (3,), (1,))",
    "m.ctc_loss(m.ones(3, 2).log_softmax(1), m.ones(1).long(), (3,), (1,))",
    "F.ctc_loss(m.ones(3, 2).log_softmax(1), m.ones(1).long(), m.tensor([3]), m.tensor([1]))",
    "F.ctc_loss(m.ones(3, 1, 2), m.ones(1, 1).long(), (3,), (1,), reduction='some')",
    "F.embedding_bag(m.tensor([1, 2, 4, 5, 4]), m.arange(12.).reshape(6, 2), m.tensor([0, 2, 2, 5]))",
    "F.embedding_bag(m.tensor([1, 2, 4, 5, 4]), m.arange(12.).reshape(6, 2), m.tensor([0, 2, 2, 5]), include_last_offset=True)",
    "F.embedding_bag(m.tensor([1, 2, 4, 5, 4]), m.arange(12.).reshape(6, 2), m.tensor([0, 3]), mode='max', padding_idx=4)",
    "F.embedding_bag(m.tensor([[1, 2], [4, 4]]), m.arange(12.).reshape(6, 2), mode='mean', padding_idx=4)",
    "F.embedding_bag(m.tensor([[1, 2], [4, 4]]), m.arange(12.).reshape(6, 2), mode='max', padding_idx=-2)",
    "F.embedding_bag(m.tensor([[1, 2], [4, 5]]), m.ones(6, 2), mode='sum', per_sample_weights=m.tensor([[1., 2], [3, 4]]))",
    "F.embedding_bag(m.tensor([[1, 6]]), m.ones(6, 2))",
    "F.embedding_bag(m.tensor([1]), m.ones(6, 2))",
    "F.embedding_bag(m.tensor([1, 2]), m.ones(6, 2), m.tensor([1]))",
    "F.embedding_bag(m.tensor([1, 2]), m.ones(6, 2), m.tensor([0, 3]))",
    "F.embedding_bag(m.tensor([[1]]), m.ones(6, 2), mode='least')",
    "F.embedding_bag(m.tensor([[1]]), m.ones(6, 2), per_sample_weights=m.ones(1, 1))",
    "F.grid_sample(m.arange(9.).reshape(1, 1, 3, 3), m.tensor([[[[-1., -1], [1, 1], [0, 0], [2, .3], [-1.2, 1.1], [.5, -3]]]]))",
    "F.grid_sample(m.arange(9.).reshape(1, 1, 3, 3), m.zeros(1, 1, 1, 2), 'nearest', 'border', True)",
    "F.grid_sample(m.arange(9.).reshape(1, 1, 3, 3), m.ones(1, 1, 1, 2) * 1.7, 'bicubic', 'reflection', False)",
    "F.grid_sample(m.ones(1, 1, 1, 1), m.ones(1, 1, 1, 2) * 3.3, 'bilinear', 'reflection', True)",
    "F.grid_sample(m.ones(1, 1, 3, 3), m.ones(1, 1, 1, 2), 'lanczos')",
    "F.grid_sample(m.ones(1, 1, 3, 3), m.ones(2, 1, 1, 2), align_corners=False)",
    "F.grid_sample(m.ones(1, 1, 3, 3), m.ones(1, 1, 1, 3), align_corners=False)",
    "F.grid_sample(m.ones(1, 1, 0, 3), m.ones(1, 1, 1, 2), align_corners=False)",
    "F.grid_sample(m.ones(1, 1, 2, 2, 2), m.ones(1, 1, 1, 1, 3), 'bicubic', align_corners=False)",
    "F.affine_grid(m.tensor([[[1., 0, .5], [0, 2, 0]]]), (1, 1, 2, 3), align_corners=False)",
    "F.affine_grid(m.tensor([[[1., 0, .5], [0, 2, 0]]]), [1, 1, 1, 3], align_corners=True)",
    "F.affine_grid(m.arange(12.).reshape(1, 3, 4), (1, 1, 2, 1, 3), align_corners=False)",
    "F.affine_grid(m.ones(1, 2, 2), (1, 1, 2, 3), align_corners=False)",
    "F.affine_grid(m.ones(1, 2, 3), (1, 2, 3), align_corners=False)",
    "F.affine_grid(m.ones(1, 2, 3).long(), (1, 1, 2, 3), align_corners=False)",
    "F.fractional_max_pool2d(m.arange(25.).reshape(1, 5, 5), 2, 3, None, True, m.tensor([[[.3, .8]]]))",
    "F.fractional_max_pool2d(m.ones(1, 5, 5), 2, output_ratio=(.5, .5), _random_samples=m.tensor([[[.3, .8]]]))",
    "F.fractional_max_pool2d(m.ones(1, 5, 5), 2)",
    "F.interpolate(m.arange(64.).reshape(1, 1, 8, 8), (3, 5), mode='bilinear', antialias=True)",
    "F.interpolate(m.arange(64.).reshape(1, 1, 8, 8), (3, 12), mode='bicubic', antialias=True, align_corners=True)",
    "F.interpolate(m.arange(64.).reshape(1, 1, 8, 8) ** 2, scale_factor=.4, mode='lanczos', antialias=True)",
    "F.interpolate((m.arange(64) * 37 % 256).to(m.uint8).reshape(1, 1, 8, 8), (3, 12), mode='bilinear')",
    "F.interpolate((m.arange(64) * 37 % 256).to(m.uint8).reshape(1, 1, 8, 8), (3, 12), mode='bilinear', antialias=True)",
    "F.interpolate(m.ones(1, 1, 4), 2, mode='linear', antialias=True)",
    "F.interpolate(m.ones(1, 1, 4, 4), 2, mode='lanczos')",
    "F.linear_cross_entropy(m.ones(2, 3), m.arange(12.).reshape(2, 2, 3), m.tensor([[0, 1], [1, 1]]), linear_bias=m.ones(2, 2))",
    "F.linear_cross_entropy(m.ones(3), m.arange(12.).reshape(2, 2, 3), m.tensor(0))",
    "F.linear_cross_entropy(m.ones(2, 3), m.ones(2, 4), m.tensor([0, 1]))",
    "F.embedding(m.tensor([1, 2, 1]), m.arange(1., 9).reshape(4, 2), max_norm=2., norm_type=1.)",
    "m.segment_reduce(m.arange(5.), 'mean', lengths=m.tensor([2, 0, 3]))",
    "m.segment_reduce(m.arange(5.), 'max', lengths=m.tensor([2, 0, 3]), initial=1)",
    "m.segment_reduce(m.arange(12.).reshape(2, 6), 'prod', offsets=m.tensor([[0, 2, 6], [0, 1, 6]]), axis=1)",
    "m.segment_reduce(m.arange(5.), 'most', lengths=m.tensor([5]))",
    "m.native_layer_norm(m.arange(6.).reshape(2, 3), (3,), None, None, 1e-5)",
    "m.native_batch_norm(m.arange(6.).reshape(2, 3), m.ones(3), None, m.zeros(3), m.ones(3), False, .1, 1e-5)",
    "m._unsafe_masked_index(m.arange(4.), m.tensor([True, False, True]), [m.tensor([1, 9, 5])], -1)",
    "m._chunk_cat([m.arange(3.), m.arange(4.)], 0, 2)",
    "m.ops.aten._safe_softmax(m.tensor([[-inf, -inf], [0, 1.]]), 1)",
    "m.ops.aten.add.Tensor(m.ones(2), m.ones(2), alpha=3), m.ops.aten.slice.Tensor(m.arange(9), 0, 1, 7, 2)",
    "m.ops.aten.linalg_vector_norm.default(m.tensor([3., 4.]))",
    "m.ops.aten.nothing_of_that_name",
    "m._foreach_add([m.ones(2), m.arange(3.)], [m.ones(2), m.ones(3)], alpha=2), m._foreach_norm([m.ones(2), m.ones(3)])",
    "m._foreach_addcdiv([m.ones(2)], [m.ones(2)], [m.ones(2)], [3.]), m._foreach_mul([m.ones(2), m.ones(3)], 3)",
    "m._foreach_add([m.ones(2)], [m.ones(2), m.ones(2)])",
    "m._check(1 < 0, lambda: 'one is not less than zero')",
    "m.conv_tbc(m.ones(4, 2, 3), m.ones(3, 3, 5), m.ones(5), 1)",
    "m.ones(2).__rdiv__(3)",
    "m.masked.mean(m.tensor([[1., 2], [3, 4]]), 1, mask=m.tensor([[True, False], [False, False]]))",
    "m.masked.var(m.tensor([[1, 2], [3, 4]]), mask=m.tensor([[True, False], [True, True]]))",
    "m.masked.median(m.tensor([[1, 2], [3, 4]]), 1, mask=m.tensor([[True, False], [False, False]]))",
    "m.masked.amax(m.tensor([True]), mask=m.tensor([True]))",
    "m.masked.sum(m.ones(2, 2), (0, 0))",
    "m.masked.sum(m.ones(2), 1)",
    "m.masked.sum(m.ones(2), mask=m.ones(1, 2).bool())",
    "m.masked.softmax(m.tensor([[1., 2]]), 1, mask=m.tensor([False, False]))",
    "m.masked.argmin(m.tensor([[3, 1, 2]]), 1, mask=m.tensor([True, False, True]))",
]  # fmt: skip

#: layers: how one is made, and what it is called with
LAYERS = [
    ("m.nn.EmbeddingBag(10, 3, mode='max', padding_idx=2)", "m.tensor([[1, 2], [3, 4]])"),
    ("m.nn.Embedding(10, 3, scale_grad_by_freq=True)", "m.tensor([1, 2, 1, 1])"),
    ("m.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 12])", "m.ones(4, 16), m.tensor([1, 7, 19, 12])"),
    ("m.nn.LinearCrossEntropyLoss(3, 4, bias=True)", "m.ones(2, 3), m.tensor([0, 3])"),
    ("m.nn.CTCLoss(zero_infinity=True)", "m.ones(5, 1, 3).log_softmax(2), m.tensor([[1, 2]]), (5,), (2,)"),
    ("m.nn.FractionalMaxPool3d(2, 2, _random_samples=m.ones(1, 1, 3) / 3)", "m.arange(64.).reshape(1, 4, 4, 4)"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", PLAIN)
def test_as_pytorch(expression: str, device: str) -> None:
    expression = expression.replace("F.", "m.nn.functional.").replace("m.tensor(P)", f"m.tensor({LOGITS})")
    check(expression, {}, device, tol=2e-5, twice=False, named=False)


@pytest.mark.parametrize(("layer", "arguments"), LAYERS)
def test_layers(layer: str, arguments: str, device: str) -> None:
    results = []
    for m in (torch, tabtorch):
        m.manual_seed(3)
        module = eval(layer, {"m": m})
        out = module(*eval(f"({arguments},)", {"m": m}))
        out = out.loss if isinstance(out, tuple) and hasattr(out, "loss") else out
        grads = []
        if out.requires_grad:
            (out * out).sum().backward()
            grads = [p.grad.tolist() for p in module.parameters()]
        results.append((str(module), out.tolist(), grads))
    want, got = results
    assert got[0] == want[0]
    for a, b in zip(_flat(want[1:]), _flat(got[1:]), strict=True):
        assert b == pytest.approx(a, rel=2e-4, abs=1e-5)


def _flat(x: object) -> list[float]:
    return [v for y in x for v in _flat(y)] if isinstance(x, (list, tuple)) else [x]  # type: ignore[list-item]


def test_lengths_on_the_device(webgpu: None) -> None:
    """Lengths that only the GPU knows give the same loss, and nothing is read back for them."""
    x = tabtorch.tensor(LOGITS).log_softmax(-1)
    targets, il, tl = tabtorch.tensor([1, 2, 1, 3, 3]), tabtorch.tensor([6, 6, 5]), tabtorch.tensor([3, 2, 0])
    want = tabtorch.ctc_loss(x, targets, il, tl, 0, 0).tolist()
    assert tabtorch.ctc_loss(x, targets, il * 1, tl * 1, 0, 0).tolist() == pytest.approx(want, rel=1e-6)


def test_complex32_says_why() -> None:
    with pytest.raises(TypeError, match="complex32"):
        tabtorch.ones(2).chalf()
