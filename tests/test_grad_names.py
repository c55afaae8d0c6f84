"""`grad_fn` shows the name that PyTorch's CPU build has for a layer, a loss or an activation, however it is made here."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

import tabtorch

CASES = """
    F.softmax(x, -1)
    F.softmax(x, 0)
    F.softmin(x, -1)
    F.log_softmax(x, -1)
    F.gumbel_softmax(x)
    F.gumbel_softmax(x, hard=True)
    F.nll_loss(F.log_softmax(x, -1), t)
    F.nll_loss(F.log_softmax(x, -1), t, reduction="none")
    F.nll_loss(F.log_softmax(x, -1), t, reduction="sum")
    F.nll_loss(F.log_softmax(img, 1), timg)
    F.nll_loss(F.log_softmax(x3, 1), tx3)
    F.nll_loss(F.log_softmax(x3, 1), tx3, reduction="none")
    F.cross_entropy(x, t)
    F.cross_entropy(x, t, reduction="none")
    F.cross_entropy(x, t, reduction="sum")
    F.cross_entropy(x, t, label_smoothing=0.1)
    F.cross_entropy(x, t, label_smoothing=0.1, reduction="none")
    F.cross_entropy(x, t, weight=w)
    F.cross_entropy(x, p)
    F.cross_entropy(x, p, reduction="none")
    F.cross_entropy(x, p, reduction="sum")
    F.cross_entropy(x, p, weight=w)
    F.cross_entropy(x, p, label_smoothing=0.1)
    F.cross_entropy(x[0], t[0])
    F.cross_entropy(img, timg)
    F.cross_entropy(img, timg, reduction="none")
    F.mse_loss(x, p)
    F.mse_loss(x, p, reduction="none")
    F.mse_loss(x, p, reduction="sum")
    F.mse_loss(x, p, weight=p)
    F.l1_loss(x, p)
    F.l1_loss(x, p, reduction="none")
    F.l1_loss(x, p, reduction="sum")
    F.smooth_l1_loss(x, p)
    F.smooth_l1_loss(x, p, reduction="none")
    F.smooth_l1_loss(x, p, beta=0.0)
    F.huber_loss(x, p)
    F.huber_loss(x, p, reduction="sum")
    F.huber_loss(x, p, reduction="none")
    F.kl_div(x, p)
    F.kl_div(x, p, reduction="batchmean")
    F.kl_div(x, p, reduction="none")
    F.kl_div(x, p, log_target=True)
    F.kl_div(x, p, log_target=True, reduction="none")
    F.binary_cross_entropy_with_logits(x, p)
    F.binary_cross_entropy_with_logits(x, p, reduction="none")
    F.binary_cross_entropy_with_logits(x, p, reduction="sum")
    F.binary_cross_entropy_with_logits(x, p, pos_weight=w)
    F.poisson_nll_loss(x, p)
    F.poisson_nll_loss(x, p, full=True)
    F.poisson_nll_loss(x, p, log_input=False)
    F.poisson_nll_loss(x, p, reduction="none")
    F.gaussian_nll_loss(x, p, p+1)
    F.gaussian_nll_loss(x, p, p+1, reduction="none")
    F.gaussian_nll_loss(x, p, p+1, full=True, reduction="sum")
    F.soft_margin_loss(x, p)
    F.soft_margin_loss(x, p, reduction="none")
    F.hinge_embedding_loss(x, sgn)
    F.hinge_embedding_loss(x, sgn, reduction="none")
    F.margin_ranking_loss(x, p, sgn)
    F.margin_ranking_loss(x, p, sgn, reduction="none")
    F.cosine_embedding_loss(x, p, sgn[:, 0])
    F.cosine_embedding_loss(x, p, sgn[:, 0], reduction="none")
    F.triplet_margin_loss(x, p, p*2)
    F.triplet_margin_loss(x, p, p*2, reduction="none")
    F.triplet_margin_with_distance_loss(x, p, p*2)
    F.multi_margin_loss(x, t)
    F.multi_margin_loss(x, t, reduction="none")
    F.multilabel_margin_loss(x, tml)
    F.multilabel_margin_loss(x, tml, reduction="none")
    F.multilabel_soft_margin_loss(x, p)
    F.multilabel_soft_margin_loss(x, p, reduction="none")
    F.embedding(t, W)
    F.embedding(t, W, padding_idx=0)
    F.linear(x, W)
    F.linear(x, W, b)
    F.linear(x[0], W)
    F.linear(x[0], W, b)
    F.linear(x3.transpose(1, 2)[..., :4], W)
    F.linear(q, WE)
    F.linear(q, WE, bE)
    F.linear(q4, WE, bE)
    F.linear(q4, WE)
    F.linear(x, W[0])
    F.bilinear(x, p, Wb)
    F.bilinear(x, p, Wb, b)
    F.layer_norm(x, (4, ))
    F.layer_norm(x, (4, ), w, w)
    F.rms_norm(x, (4, ))
    F.rms_norm(x, (4, ), w)
    F.group_norm(img, 2)
    F.instance_norm(img)
    F.batch_norm(img, None, None, training=True)
    F.batch_norm(img, rm, rv)
    F.batch_norm(x, None, None, training=True)
    F.local_response_norm(img, 2)
    F.normalize(x)
    F.cosine_similarity(x, p)
    F.pairwise_distance(x, p)
    F.pdist(x)
    F.dropout(x, training=False)
    F.dropout(x, p=1.0)
    F.dropout(x, p=0.0)
    F.dropout(x*1, inplace=True)
    F.dropout1d(x3)
    F.dropout2d(img)
    F.dropout3d(vol)
    F.alpha_dropout(x, training=True)
    F.feature_alpha_dropout(img, training=True)
    F.relu(x)
    F.relu(x*1, inplace=True)
    F.relu6(x)
    F.leaky_relu(x)
    F.elu(x)
    F.selu(x)
    F.celu(x)
    F.gelu(x)
    F.gelu(x, approximate="tanh")
    F.silu(x)
    F.mish(x)
    F.softplus(x)
    F.softsign(x)
    F.tanhshrink(x)
    F.hardtanh(x)
    F.hardsigmoid(x)
    F.hardswish(x)
    F.hardshrink(x)
    F.softshrink(x)
    F.logsigmoid(x)
    F.sigmoid(x)
    F.tanh(x)
    F.glu(x)
    F.prelu(x, w[:1])
    F.prelu(img, w)
    F.rrelu(x)
    F.rrelu(x, training=True)
    F.threshold(x, 0.1, 0.)
    F.pixel_shuffle(img, 2)
    F.pixel_unshuffle(img, 2)
    F.channel_shuffle(img, 2)
    F.interpolate(img, scale_factor=2)
    F.interpolate(img, scale_factor=2, mode="bilinear")
    F.interpolate(img, scale_factor=2, mode="bicubic")
    F.interpolate(img, scale_factor=2, mode="area")
    F.interpolate(img, scale_factor=2, mode="nearest-exact")
    F.interpolate(x3, scale_factor=2, mode="linear")
    F.interpolate(x3, scale_factor=2)
    F.interpolate(vol, scale_factor=2)
    F.interpolate(vol, scale_factor=2, mode="trilinear")
    F.conv1d(x3, Wc1)
    F.conv2d(img, Wc)
    F.conv_transpose2d(img, Wc)
    F.max_pool1d(x3, 2)
    F.max_pool2d(img, 2)
    F.max_pool2d(img, 2, return_indices=True)[0]
    F.max_pool3d(vol, 2)
    F.avg_pool1d(x3, 2)
    F.avg_pool2d(img, 2)
    F.avg_pool3d(vol, 2)
    F.adaptive_avg_pool1d(x3, 2)
    F.adaptive_avg_pool2d(img, 2)
    F.adaptive_avg_pool2d(img, 1)
    F.adaptive_avg_pool3d(vol, 2)
    F.adaptive_max_pool1d(x3, 2)
    F.adaptive_max_pool2d(img, 2)
    F.lp_pool1d(x3, 2, 2)
    F.lp_pool2d(img, 2, 2)
    F.pad(x, (1, 1))
    F.pad(img, (1, 1, 1, 1), mode="replicate")
    F.pad(img, (1, 1, 1, 1), mode="circular")
    F.unfold(img, 2)
    F.fold(F.unfold(img, 2), (4, 4), 2)
    F.scaled_dot_product_attention(q4, q4, q4)
    F.scaled_dot_product_attention(q4, q4, q4, is_causal=True)
    F.scaled_dot_product_attention(q4, q4, q4, attn_mask=am)
    nn.Linear(4, 2)(x)
    nn.Linear(4, 2)(q[..., :4])
    nn.Linear(4, 2, bias=False)(x)
    nn.Linear(4, 2)(x[0])
    nn.Bilinear(4, 4, 2)(x, p)
    nn.LayerNorm(4)(x)
    nn.RMSNorm(4)(x)
    nn.GroupNorm(2, 4)(img)
    nn.BatchNorm1d(4)(x)
    nn.BatchNorm2d(4)(img)
    nn.BatchNorm2d(4).eval()(img)
    nn.InstanceNorm2d(4)(img)
    nn.Embedding(5, 3)(t)
    nn.Embedding(5, 3, padding_idx=1)(t)
    nn.Flatten()(img)
    nn.Unflatten(1, (2, 2))(x)
    nn.Softmax2d()(img)
    nn.CrossEntropyLoss()(x, t)
    nn.NLLLoss()(x.log_softmax(1), t)
    nn.MSELoss()(x, p)
    nn.BCEWithLogitsLoss()(x, p)
    nn.RNN(4, 3)(q[..., :4])[0]
    nn.RNN(4, 3)(q[..., :4])[1]
    nn.LSTM(4, 3)(q[..., :4])[0]
    nn.LSTM(4, 3)(q[..., :4])[1][0]
    nn.LSTM(4, 3)(q[..., :4])[1][1]
    nn.LSTM(4, 3, 2)(q[..., :4])[1][1]
    nn.GRU(4, 3)(q[..., :4])[0]
    nn.GRU(4, 3)(q[..., :4])[1]
    nn.RNNCell(4, 3)(x)
    nn.LSTMCell(4, 3)(x)[0]
    nn.LSTMCell(4, 3)(x)[1]
    nn.GRUCell(4, 3)(x)
    nn.MultiheadAttention(8, 2)(q, q, q)[0]
    nn.MultiheadAttention(8, 2)(q, q, q)[1]
    nn.MultiheadAttention(8, 2, batch_first=True)(q, q, q)[0]
    nn.MultiheadAttention(8, 2, batch_first=True)(q, q, q, need_weights=False)[0]
    nn.TransformerEncoderLayer(8, 2, 16)(q)
    nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(q)
    nn.TransformerDecoderLayer(8, 2, 16)(q, q)
    nn.Transformer(8, 2, 1, 1, 16)(q, q)
    nn.CosineSimilarity()(x, p)
    nn.PairwiseDistance()(x, p)
    nn.Identity()(x)
    nn.Conv2d(4, 3, 3)(img)
    nn.ConvTranspose2d(4, 3, 3)(img)
    nn.PReLU()(x)
    nn.ZeroPad2d(1)(img)
    nn.ReflectionPad2d(1)(img)
    nn.UpsamplingBilinear2d(scale_factor=2)(img)
    nn.Hardtanh()(x)
    nn.ReLU(inplace=True)(x*1)
    nn.SiLU(inplace=True)(x*1)
    nn.GELU()(x)
    nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))(x)
    x.masked_fill(x>0, 1)
    x.index_fill(0, torch.tensor([0]), 1.)
    x**2
    x**x
    2**x
    x//1
    x.lerp(p, 0.5)
    x.lerp(p, p)
    (x*1).fill_(1)
    (x*1).masked_fill_(x>0, 0)
    F.binary_cross_entropy(x.sigmoid(), u)
    F.binary_cross_entropy(x.sigmoid(), u, reduction='none')
    x // 1
"""


def names(library: Any) -> dict[str, Any]:
    """The arguments. `x` (3, 4), `img` (2, 4, 4, 4), `x3` (2, 4, 6), `vol` (1, 2, 4, 4, 4), `q` (2, 3, 8) require grad."""
    generator = library.Generator().manual_seed(0)

    def rand(*shape: int) -> Any:
        return library.rand(*shape, generator=generator) + 0.1

    def leaf(*shape: int) -> Any:
        return rand(*shape).requires_grad_()

    nn = importlib.import_module(library.__name__ + ".nn")
    p = rand(3, 4)
    return {
        "torch": library,
        "nn": nn,
        "F": nn.functional,
        "x": leaf(3, 4),
        "p": p,
        "u": library.full((3, 4), 0.5),
        "t": library.tensor([0, 2, 1]),
        "w": rand(4),
        "W": leaf(5, 4),
        "b": leaf(5),
        "img": leaf(2, 4, 4, 4),
        "timg": library.zeros(2, 4, 4, dtype=library.int64),
        "x3": leaf(2, 4, 6),
        "tx3": library.zeros(2, 6, dtype=library.int64),
        "vol": leaf(1, 2, 4, 4, 4),
        "q": leaf(2, 3, 8),
        "q4": leaf(2, 2, 3, 8),
        "WE": leaf(8, 8),
        "bE": leaf(8),
        "Wb": leaf(5, 4, 4),
        "Wc": leaf(4, 4, 3, 3),
        "Wc1": leaf(4, 4, 3),
        "sgn": library.where(p > 0.5, 1.0, -1.0),
        "tml": library.tensor([[0, 1, -1, 0]] * 3),
        "rm": library.zeros(4),
        "rv": library.ones(4),
        "am": library.zeros(3, 3),
    }


def shown(source: str, library: Any) -> str | None:
    fn = eval(source, names(library)).grad_fn
    return None if fn is None else fn.name()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", CASES.strip().splitlines())
def test_name(source: str) -> None:
    with tabtorch.device("cpu"):
        assert shown(source.strip(), tabtorch) == shown(source.strip(), torch)


def test_an_argument_keeps_its_own() -> None:
    f = tabtorch.nn.functional
    y = tabtorch.ones(2, 3, requires_grad=True) * 2
    assert f.dropout(y, 0.0) is y and f.dropout(y, training=False) is y
    f.softmax(y, -1), f.mse_loss(y, y.detach()), f.interpolate(y[None], size=3)
    assert y.grad_fn.name() == "MulBackward0"


def test_it_can_still_be_differentiated_twice() -> None:
    x = tabtorch.tensor([1.0, 2.0], device="cpu", requires_grad=True)
    y = tabtorch.nn.functional.softmax(x, 0)
    (g,) = tabtorch.autograd.grad(y[0], x, create_graph=True)
    (gg,) = tabtorch.autograd.grad(g[0], x)
    want_x = torch.tensor([1.0, 2.0], requires_grad=True)
    (want,) = torch.autograd.grad(torch.softmax(want_x, 0)[0], want_x, create_graph=True)
    (want,) = torch.autograd.grad(want[0], want_x)
    assert gg.tolist() == pytest.approx(want.tolist())
