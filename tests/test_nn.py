"""Layers and functions of ``nn`` against real PyTorch: seeded weights, ``repr``, forward, gradients."""

import numpy as np
import pytest
import torch

import tabtorch as tt
from nn_oracle import DEVICES, both, close, compare, flat, ints, mine, rand


@pytest.fixture(params=DEVICES, autouse=True)
def device(request):
    """Everything is made on this device."""
    with tt.device(request.param):
        yield request.param


# -- layers: (name, arguments, input shapes)

ACTIVATIONS = (
    "ReLU ReLU6 LeakyReLU PReLU ELU SELU CELU GELU SiLU Mish Softplus Softsign Sigmoid LogSigmoid Tanh Tanhshrink "
    "Hardtanh Hardsigmoid Hardswish Hardshrink Softshrink GLU RReLU"
).split()

LAYERS = [
    *((name, {}, [(3, 4)]) for name in ACTIVATIONS if name != "RReLU"),
    ("GELU", {"approximate": "tanh"}, [(3, 4)]),
    ("Threshold", {"threshold": 0.1, "value": 2.0}, [(3, 4)]),
    ("PReLU", {"num_parameters": 4}, [(3, 4, 2)]),
    ("Softmax", {"dim": 1}, [(3, 4)]),
    ("Softmax2d", {}, [(2, 3, 2, 2)]),
    ("LogSoftmax", {"dim": 0}, [(3, 4)]),
    ("Softmin", {"dim": -1}, [(3, 4)]),
    ("Identity", {}, [(3, 4)]),
    ("Linear", {"in_features": 4, "out_features": 5}, [(3, 4)]),
    ("Linear", {"in_features": 4, "out_features": 5, "bias": False}, [(2, 3, 4)]),
    ("Linear", {"in_features": 4, "out_features": 5}, [(4,)]),
    ("Bilinear", {"in1_features": 3, "in2_features": 4, "out_features": 5}, [(2, 6, 3), (2, 6, 4)]),
    ("Flatten", {}, [(2, 3, 4)]),
    ("Unflatten", {"dim": 1, "unflattened_size": (2, 3)}, [(2, 6)]),
    ("Conv1d", {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "padding": 1, "groups": 2}, [(2, 4, 9)]),
    ("Conv2d", {"in_channels": 3, "out_channels": 4, "kernel_size": 3, "stride": 2, "padding": 1}, [(2, 3, 8, 7)]),
    ("Conv2d", {"in_channels": 3, "out_channels": 4, "kernel_size": (2, 3), "padding": "same"}, [(2, 3, 6, 5)]),
    ("Conv2d", {"in_channels": 3, "out_channels": 4, "kernel_size": 3, "padding": "valid", "dilation": 2}, [(3, 7, 7)]),
    (
        "Conv2d",
        {"in_channels": 2, "out_channels": 4, "kernel_size": 3, "padding": (1, 2), "padding_mode": "reflect"},
        [(2, 2, 5, 6)],
    ),
    (
        "Conv1d",
        {"in_channels": 2, "out_channels": 3, "kernel_size": 4, "padding": "same", "padding_mode": "circular"},
        [(2, 2, 7)],
    ),
    ("ConvTranspose1d", {"in_channels": 3, "out_channels": 4, "kernel_size": 3, "stride": 2}, [(2, 3, 5)]),
    (
        "ConvTranspose2d",
        {
            "in_channels": 4,
            "out_channels": 6,
            "kernel_size": 3,
            "stride": 2,
            "padding": 1,
            "output_padding": 1,
            "groups": 2,
        },
        [(2, 4, 5, 4)],
    ),
    ("MaxPool1d", {"kernel_size": 2}, [(2, 3, 7)]),
    ("MaxPool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, [(2, 3, 8, 7)]),
    ("MaxPool2d", {"kernel_size": 2, "return_indices": True}, [(2, 3, 6, 6)]),
    ("AvgPool1d", {"kernel_size": 3, "stride": 2}, [(2, 3, 8)]),
    ("AvgPool2d", {"kernel_size": 2, "padding": 1, "count_include_pad": False}, [(2, 3, 6, 5)]),
    ("AdaptiveAvgPool1d", {"output_size": 3}, [(2, 3, 7)]),
    ("AdaptiveAvgPool2d", {"output_size": (1, None)}, [(2, 3, 7, 5)]),
    ("AdaptiveMaxPool1d", {"output_size": 3}, [(2, 3, 7)]),
    ("AdaptiveMaxPool2d", {"output_size": 2}, [(2, 3, 7, 5)]),
    ("LPPool2d", {"norm_type": 2, "kernel_size": 2}, [(2, 3, 4, 4)]),
    ("Conv3d", {"in_channels": 2, "out_channels": 3, "kernel_size": (1, 2, 3), "padding": "same"}, [(1, 2, 3, 4, 5)]),
    ("ConvTranspose3d", {"in_channels": 2, "out_channels": 3, "kernel_size": 2, "stride": 2}, [(1, 2, 2, 3, 2)]),
    ("MaxPool3d", {"kernel_size": 2}, [(1, 2, 4, 5, 4)]),
    ("AvgPool3d", {"kernel_size": 2, "divisor_override": 3}, [(1, 2, 4, 5, 4)]),
    ("AdaptiveAvgPool3d", {"output_size": (1, 2, None)}, [(1, 2, 4, 5, 3)]),
    ("AdaptiveMaxPool3d", {"output_size": 2}, [(1, 2, 4, 5, 3)]),
    ("LPPool1d", {"norm_type": 2, "kernel_size": 2}, [(2, 3, 6)]),
    ("BatchNorm1d", {"num_features": 4}, [(5, 4)]),
    ("BatchNorm1d", {"num_features": 4, "momentum": None}, [(5, 4, 3)]),
    ("BatchNorm2d", {"num_features": 3, "affine": False}, [(2, 3, 4, 4)]),
    ("BatchNorm2d", {"num_features": 3, "track_running_stats": False}, [(2, 3, 4, 4)]),
    ("BatchNorm3d", {"num_features": 2, "bias": False}, [(2, 2, 2, 3, 2)]),
    ("LayerNorm", {"normalized_shape": 4}, [(3, 4)]),
    ("LayerNorm", {"normalized_shape": (3, 4), "bias": False}, [(2, 3, 4)]),
    ("RMSNorm", {"normalized_shape": 4}, [(3, 4)]),
    ("GroupNorm", {"num_groups": 2, "num_channels": 4}, [(2, 4, 3, 3)]),
    ("InstanceNorm1d", {"num_features": 3, "affine": True}, [(2, 3, 5)]),
    ("InstanceNorm2d", {"num_features": 3, "track_running_stats": True}, [(2, 3, 5, 4)]),
    ("LocalResponseNorm", {"size": 2}, [(2, 4, 3)]),
    ("PixelShuffle", {"upscale_factor": 2}, [(2, 8, 3, 2)]),
    ("PixelUnshuffle", {"downscale_factor": 2}, [(2, 2, 4, 6)]),
    ("ChannelShuffle", {"groups": 2}, [(2, 4, 3)]),
    ("Unfold", {"kernel_size": (2, 3), "padding": 1, "stride": (2, 1)}, [(2, 3, 5, 6)]),
    ("Fold", {"output_size": (4, 5), "kernel_size": 2, "padding": 1}, [(2, 12, 30)]),
    ("Upsample", {"scale_factor": 2}, [(2, 3, 3, 4)]),
    ("Upsample", {"size": (5, 3), "mode": "bilinear"}, [(2, 3, 3, 4)]),
    ("UpsamplingBilinear2d", {"scale_factor": 2}, [(2, 3, 3, 4)]),
    ("ZeroPad2d", {"padding": (1, 2, 0, 1)}, [(2, 3, 3, 4)]),
    ("ConstantPad1d", {"padding": 2, "value": 1.5}, [(2, 3, 3)]),
    ("ReflectionPad2d", {"padding": (1, 2, 2, 1)}, [(2, 3, 3, 4)]),
    ("ReplicationPad2d", {"padding": 2}, [(2, 3, 3, 4)]),
    ("CircularPad1d", {"padding": 2}, [(2, 3, 3)]),
    ("ReflectionPad3d", {"padding": 1}, [(1, 2, 3, 2, 4)]),
    ("CosineSimilarity", {}, [(3, 4), (3, 4)]),
    ("PairwiseDistance", {"keepdim": True}, [(3, 4), (3, 4)]),
    ("RNN", {"input_size": 3, "hidden_size": 4, "nonlinearity": "relu"}, [(5, 2, 3)]),
    ("LSTM", {"input_size": 3, "hidden_size": 4, "num_layers": 2, "bidirectional": True}, [(5, 2, 3)]),
    ("LSTM", {"input_size": 3, "hidden_size": 4, "proj_size": 2, "batch_first": True}, [(2, 5, 3)]),
    ("GRU", {"input_size": 3, "hidden_size": 4, "bias": False, "batch_first": True}, [(2, 5, 3)]),
    ("GRU", {"input_size": 3, "hidden_size": 4}, [(5, 3)]),
    ("RNNCell", {"input_size": 3, "hidden_size": 4}, [(2, 3), (2, 4)]),
    ("LSTMCell", {"input_size": 3, "hidden_size": 4}, [(2, 3)]),
    ("GRUCell", {"input_size": 3, "hidden_size": 4}, [(2, 3), (2, 4)]),
    ("MultiheadAttention", {"embed_dim": 4, "num_heads": 2}, [(3, 2, 4), (5, 2, 4), (5, 2, 4)]),
    (
        "MultiheadAttention",
        {
            "embed_dim": 4,
            "num_heads": 2,
            "kdim": 3,
            "vdim": 5,
            "batch_first": True,
            "add_bias_kv": True,
            "add_zero_attn": True,
        },
        [(2, 3, 4), (2, 5, 3), (2, 5, 5)],
    ),
    (
        "TransformerEncoderLayer",
        {"d_model": 4, "nhead": 2, "dim_feedforward": 8, "dropout": 0.0, "norm_first": True},
        [(3, 2, 4)],
    ),
    (
        "TransformerDecoderLayer",
        {"d_model": 4, "nhead": 2, "dim_feedforward": 8, "dropout": 0.0, "activation": "gelu"},
        [(3, 2, 4), (5, 2, 4)],
    ),
    (
        "Transformer",
        {
            "d_model": 4,
            "nhead": 2,
            "num_encoder_layers": 2,
            "num_decoder_layers": 1,
            "dim_feedforward": 8,
            "dropout": 0.0,
            "batch_first": True,
        },
        [(2, 3, 4), (2, 5, 4)],
    ),
]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:Using padding='same'", "ignore:LSTM with proj")
@pytest.mark.parametrize("name,arguments,shapes", LAYERS, ids=[f"{i}-{r[0]}" for i, r in enumerate(LAYERS)])
def test_layer(name, arguments, shapes):
    """Seeded weights exactly PyTorch's; repr, outputs, gradients, and buffers after a step; then evaluation mode."""
    ours, theirs = both(name, arguments)
    assert repr(ours) == repr(theirs)
    a, b = ours.state_dict(), theirs.state_dict()
    assert list(a) == list(b)
    assert dict(a._metadata) == dict(b._metadata)
    for key in b:
        assert np.array_equal(a[key].cpu().numpy(), b[key].numpy()), key
    inputs = [rand(*shape, seed=i) for i, shape in enumerate(shapes)]
    compare(
        lambda ns, *xs: (ours if ns is tt else theirs)(*xs),
        mine(inputs),
        inputs,
        params=(list(ours.parameters()), list(theirs.parameters())),
    )
    close(list(ours.buffers()), list(theirs.buffers()), what="buffers")
    inputs = [x.detach() for x in inputs]
    close(ours.eval()(*mine(inputs)), theirs.eval()(*inputs), what="evaluation")


def test_embedding():
    for arguments in ({}, {"padding_idx": 2}, {"padding_idx": -1}):
        ours, theirs = both("Embedding", {"num_embeddings": 5, "embedding_dim": 3, **arguments})
        assert repr(ours) == repr(theirs)
        close(ours.weight, theirs.weight, 0)
        index = torch.tensor([[1, 2, 4], [2, 2, 0]])
        compare(
            lambda ns, i, ours=ours, theirs=theirs: (ours if ns is tt else theirs)(i),
            [mine(index)],
            [index],
            params=([ours.weight], [theirs.weight]),
        )
    table = rand(4, 2, grad=False)
    frozen = tt.nn.Embedding.from_pretrained(mine(table))
    assert not frozen.weight.requires_grad
    close(frozen(tt.tensor([3, 0])), table[[3, 0]])
    small = tt.nn.Embedding(3, 2, max_norm=1.0)
    assert (small(tt.arange(3)).norm(dim=1) <= 1.0001).all()


def test_unpool():
    for n in (1, 2, 3):
        x = rand(2, 3, *(4, 6, 4)[:n])

        def f(ns, x, n=n):
            values, indices = getattr(ns.nn, f"MaxPool{n}d")(2, return_indices=True)(x)
            return getattr(ns.nn, f"MaxUnpool{n}d")(2)(values, indices)

        compare(f, mine([x]), [x])
        assert repr(getattr(tt.nn, f"MaxUnpool{n}d")(2)) == repr(getattr(torch.nn, f"MaxUnpool{n}d")(2))


@pytest.mark.parametrize("name", "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout".split())
def test_dropout(name):
    layer = getattr(tt.nn, name)(0.25)
    assert repr(layer) == repr(getattr(torch.nn, name)(0.25))
    shape = {"Dropout1d": (16, 32, 4), "Dropout2d": (16, 32, 2, 2), "Dropout3d": (16, 32, 2, 2, 1)}.get(name, (64, 32))
    x = tt.ones(shape, requires_grad=True)
    y = layer(x)
    values = set(np.unique(y.detach().cpu().numpy().round(4)))
    assert len(values) == 2
    if "Alpha" not in name:
        assert sorted(values) == pytest.approx([0, 4 / 3], abs=1e-3)
        y.sum().backward()
        close(x.grad, y)
        per_channel = y.detach().cpu().numpy().reshape(shape[0], shape[1], -1)
        assert (per_channel == per_channel[:, :, :1]).all()
    kept = (y.detach().cpu().numpy() > np.mean(list(values))).mean()
    assert abs(kept - 0.75) < 0.12
    assert layer.eval()(x) is x or np.array_equal(flat(layer(x))[0], flat(x)[0])


# -- losses

N, C = 5, 4
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
PROBABILITIES = torch.softmax(rand(N, C, seed=9, grad=False), 1)

LOSSES = [
    ("mse_loss", [rand(N, C), rand(N, C, seed=1)], {}),
    ("l1_loss", [rand(N, C), rand(N, C, seed=1)], {}),
    ("smooth_l1_loss", [rand(N, C), rand(N, C, seed=1)], {"beta": 0.5}),
    ("smooth_l1_loss", [rand(N, C), rand(N, C, seed=1)], {"beta": 0.0}),
    ("huber_loss", [rand(N, C), rand(N, C, seed=1)], {"delta": 0.7}),
    ("cross_entropy", [rand(N, C), ints(C, N)], {}),
    ("cross_entropy", [rand(C), torch.tensor(2)], {}),
    ("cross_entropy", [rand(N, C, 3), ints(C, N, 3)], {"label_smoothing": 0.1}),
    ("cross_entropy", [rand(N, C, 3, 2), ints(C, N, 3, 2)], {"ignore_index": 1}),
    ("cross_entropy", [rand(N, C), ints(C, N)], {"weight": torch.rand(C), "label_smoothing": 0.2, "ignore_index": 0}),
    ("cross_entropy", [rand(N, C), torch.tensor([0, -100, 2, 3, -100])], {"weight": torch.rand(C)}),
    ("cross_entropy", [rand(N, C), PROBABILITIES], {}),
    ("cross_entropy", [rand(N, C), PROBABILITIES], {"weight": torch.rand(C), "label_smoothing": 0.3}),
    ("cross_entropy", [rand(C), PROBABILITIES[0]], {}),
    ("nll_loss", [torch.log_softmax(rand(N, C, grad=False), 1).requires_grad_(), ints(C, N)], {}),
    ("nll_loss", [rand(N, C, 3, 2), ints(C, N, 3, 2)], {"weight": torch.rand(C), "ignore_index": 2}),
    ("binary_cross_entropy", [torch.rand(N, C).requires_grad_(), torch.rand(N, C)], {"weight": torch.rand(C)}),
    (
        "binary_cross_entropy",
        [torch.tensor([0.0, 1.0, 1.0, 0.3]).requires_grad_(), torch.tensor([0.0, 1.0, 0.0, 1.0])],
        {},
    ),
    ("binary_cross_entropy_with_logits", [rand(N, C), torch.rand(N, C)], {}),
    (
        "binary_cross_entropy_with_logits",
        [rand(N, C), torch.rand(N, C)],
        {"pos_weight": torch.rand(C), "weight": torch.rand(C)},
    ),
    ("kl_div", [torch.log_softmax(rand(N, C, grad=False), 1).requires_grad_(), PROBABILITIES], {}),
    ("kl_div", [rand(N, C), rand(N, C, seed=1)], {"log_target": True}),
    ("cosine_embedding_loss", [rand(N, C), rand(N, C, seed=1), SIGNS], {"margin": 0.2}),
    ("margin_ranking_loss", [rand(N), rand(N, seed=1), SIGNS], {"margin": 0.3}),
    ("hinge_embedding_loss", [rand(N), SIGNS], {}),
    ("soft_margin_loss", [rand(N), SIGNS], {}),
    ("triplet_margin_loss", [rand(N, C), rand(N, C, seed=1), rand(N, C, seed=2)], {"swap": True}),
    ("triplet_margin_loss", [rand(N, C), rand(N, C, seed=1), rand(N, C, seed=2)], {"p": 1.0, "margin": 2.0}),
    ("poisson_nll_loss", [rand(N, C), ints(5, N, C).float()], {"full": True}),
    ("poisson_nll_loss", [torch.rand(N, C).requires_grad_(), ints(5, N, C).float()], {"log_input": False}),
    ("gaussian_nll_loss", [rand(N, C), rand(N, C, seed=1), torch.rand(N, C).requires_grad_()], {"full": True}),
    ("gaussian_nll_loss", [rand(N, C), rand(N, C, seed=1), torch.rand(N, 1)], {}),
    ("multi_margin_loss", [rand(N, C), ints(C, N)], {}),
    ("multi_margin_loss", [rand(N, C), ints(C, N)], {"p": 2, "weight": torch.rand(C), "margin": 0.5}),
    ("multilabel_margin_loss", [rand(2, C), torch.tensor([[3, 0, -1, 1], [1, -1, 2, 0]])], {}),
    ("multilabel_soft_margin_loss", [rand(N, C), ints(2, N, C).float()], {"weight": torch.rand(C)}),
]


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name,inputs,arguments", LOSSES, ids=[f"{i}-{r[0]}" for i, r in enumerate(LOSSES)])
def test_loss(name, inputs, arguments, reduction):
    inputs = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]

    def f(ns, *xs):
        given = mine(arguments) if ns is tt else arguments
        return getattr(ns.nn.functional, name)(*xs, **given, reduction=reduction)

    compare(f, mine(inputs), inputs)


def test_loss_modules():
    """A module holds the settings of its function, in PyTorch's order."""
    for make in (
        lambda nn: nn.CrossEntropyLoss(label_smoothing=0.1),
        lambda nn: nn.NLLLoss(ignore_index=1, reduction="sum"),
        lambda nn: nn.MultiMarginLoss(2, 0.5),
    ):
        x, t = rand(N, C), ints(C, N)
        compare(lambda ns, *xs, make=make: make(ns.nn)(*xs), mine([x, t]), [x, t])
    ours, theirs = tt.nn.CrossEntropyLoss(mine(torch.rand(3))), torch.nn.CrossEntropyLoss(torch.rand(3))
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["weight"]
    x, y = rand(N, C), torch.rand(N, C)
    for name in ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCEWithLogitsLoss"):
        x.grad = None
        assert repr(getattr(tt.nn, name)()) == repr(getattr(torch.nn, name)())
        compare(lambda ns, *xs, name=name: getattr(ns.nn, name)()(*xs), mine([x, y]), [x, y])


# -- other functions

FUNCTIONS = {
    "softmax of -inf": lambda ns, x: ns.nn.functional.softmax(ns.where(x > 1, -float("inf"), x), -1),
    "log_softmax": lambda ns, x: ns.nn.functional.log_softmax(x * 50, 1),
    "softmax dtype": lambda ns, x: ns.nn.functional.softmax(x.half(), -1, dtype=ns.float32),
    "softmax half": lambda ns, x: ns.nn.functional.softmax(x.detach().half(), -1),
    "layer_norm": lambda ns, x: ns.nn.functional.layer_norm(x * 3 + 100, (5,)),
    "rms_norm": lambda ns, x: ns.nn.functional.rms_norm(x, (4, 5), eps=0.1),
    "normalize": lambda ns, x: ns.nn.functional.normalize(x, p=1, dim=2),
    "cosine": lambda ns, x: ns.nn.functional.cosine_similarity(x, x.flip(0), dim=-1),
    "pdist": lambda ns, x: ns.nn.functional.pdist(x[0, 0]),
    "pad": lambda ns, x: ns.nn.functional.pad(x, (1, -1, 0, 2), value=3.0),
    "pad none": lambda ns, x: ns.nn.functional.pad(x, (0, 0)),
    "pad bool": lambda ns, x: ns.nn.functional.pad(x > 0, (1, 1), value=True),
    "one_hot": lambda ns, x: ns.nn.functional.one_hot((x > 0).long(), 3),
    "one_hot -1": lambda ns, x: ns.nn.functional.one_hot((x > 0).long()),
    "nearest": lambda ns, x: ns.nn.functional.interpolate(x, size=(7, 3)),
    "nearest scale": lambda ns, x: ns.nn.functional.interpolate(x, scale_factor=(1.7, 0.6)),
    "nearest-exact": lambda ns, x: ns.nn.functional.interpolate(x, size=(7, 3), mode="nearest-exact"),
    "nearest 1d": lambda ns, x: ns.nn.functional.interpolate(x[0], scale_factor=3),
    "linear": lambda ns, x: ns.nn.functional.interpolate(x[0], size=8, mode="linear"),
    "bilinear": lambda ns, x: ns.nn.functional.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "bilinear corners": lambda ns, x: ns.nn.functional.interpolate(x, (9, 2), mode="bilinear", align_corners=True),
    "bilinear recompute": lambda ns, x: ns.nn.functional.interpolate(
        x, scale_factor=1.3, mode="bilinear", recompute_scale_factor=True
    ),
    "bicubic": lambda ns, x: ns.nn.functional.interpolate(x, (7, 9), mode="bicubic"),
    "area": lambda ns, x: ns.nn.functional.interpolate(x, (2, 3), mode="area"),
    "unfold 3d": lambda ns, x: ns.nn.functional.unfold(x[0], 2, dilation=(1, 2)),
    "fold": lambda ns, x: ns.nn.functional.fold(x.reshape(3, 4, 10), (3, 6), 2),
    "glu": lambda ns, x: ns.nn.functional.glu(x, 2),
    "local_response_norm": lambda ns, x: ns.nn.functional.local_response_norm(x, 3),
    "lp_pool": lambda ns, x: ns.nn.functional.lp_pool1d(x[0].abs(), 3.0, 2),
    "conv same even": lambda ns, x: ns.nn.functional.conv2d(x, ns.ones(1, 2, 2, 4), padding="same"),
    "batch_norm eval": lambda ns, x: ns.nn.functional.batch_norm(x, ns.ones(2), ns.full((2,), 2.0)),
    "instance_norm": lambda ns, x: ns.nn.functional.instance_norm(x),
    "hardtanh_": lambda ns, x: ns.nn.functional.hardtanh(x * 2, -0.5, 0.7, inplace=True),
    "relu_": lambda ns, x: ns.nn.functional.relu(x * 2, inplace=True),
    "elu_": lambda ns, x: ns.nn.functional.elu_(x * 2, 0.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    x = rand(3, 2, 4, 5)
    compare(FUNCTIONS[name], mine([x]), [x])


SDPA = [
    {},
    {"is_causal": True},
    {"scale": 0.3},
    {"attn_mask": torch.rand(4, 5) > 0.4},
    {"attn_mask": torch.zeros(4, 5, dtype=torch.bool)},
    {"attn_mask": rand(2, 3, 4, 5, seed=5, grad=False)},
]


@pytest.mark.parametrize("arguments", SDPA)
def test_attention(arguments):
    """Against PyTorch's own; a row that is masked as a whole gives zeros."""
    inputs = [rand(2, 3, 4, 6), rand(2, 3, 5, 6, seed=1), rand(2, 3, 5, 7, seed=2)]

    def f(ns, *xs):
        given = mine(arguments) if ns is tt else arguments
        return ns.nn.functional.scaled_dot_product_attention(*xs, **given)

    compare(f, mine(inputs), inputs)


def test_grouped_query_attention():
    inputs = [rand(2, 4, 3, 6), rand(2, 2, 5, 6, seed=1), rand(2, 2, 5, 7, seed=2)]
    compare(lambda ns, *xs: ns.nn.functional.scaled_dot_product_attention(*xs, enable_gqa=True), mine(inputs), inputs)


def test_attention_masks():
    ours, theirs = both("MultiheadAttention", {"embed_dim": 4, "num_heads": 2, "batch_first": True})
    x = rand(2, 3, 4)
    padding = torch.tensor([[False, False, True], [False, True, True]])
    causal = torch.nn.Transformer.generate_square_subsequent_mask(3)
    close(tt.nn.Transformer.generate_square_subsequent_mask(3), causal)
    for arguments in (
        {"key_padding_mask": padding},
        {"key_padding_mask": padding, "need_weights": False},
        {"attn_mask": causal, "average_attn_weights": False},
        {"attn_mask": causal, "is_causal": True, "need_weights": False},
        {"attn_mask": causal == 0},
    ):
        a = ours(*[mine(x)] * 3, **mine(arguments))
        b = theirs(x, x, x, **arguments)
        close([t for t in a if t is not None], [t for t in b if t is not None])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_transformer_encoder():
    def make(ns):
        ns.manual_seed(1)
        layer = ns.nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
        return ns.nn.TransformerEncoder(layer, 2, ns.nn.LayerNorm(4))

    ours, theirs = make(tt), make(torch)
    assert repr(ours) == repr(theirs)
    x, padding = rand(2, 3, 4), torch.tensor([[False, False, True], [False, True, True]])
    close(ours(mine(x), src_key_padding_mask=mine(padding)), theirs(x, src_key_padding_mask=padding))
    mask = torch.nn.Transformer.generate_square_subsequent_mask(3)
    close(ours(mine(x), mine(mask)), theirs(x, mask))


# -- initial values

INITS = [
    ("uniform_", (3, 4), {"a": -1.0, "b": 2.0}),
    ("normal_", (5, 4), {"mean": 1.0, "std": 0.1}),
    ("trunc_normal_", (20, 20), {"std": 0.5, "a": -0.6, "b": 0.9}),
    ("trunc_normal_", (20, 20), {"std": 3.0, "a": -0.2, "b": 0.3}),
    ("constant_", (3,), {"val": 0.3}),
    ("ones_", (3,), {}),
    ("zeros_", (3,), {}),
    ("eye_", (3, 4), {}),
    ("dirac_", (4, 2, 3, 3), {"groups": 2}),
    ("xavier_uniform_", (3, 4, 3, 3), {"gain": 2.0}),
    ("xavier_normal_", (3, 4), {}),
    ("kaiming_uniform_", (3, 4, 2), {"a": 0.2, "mode": "fan_out"}),
    ("kaiming_normal_", (16, 4), {"nonlinearity": "relu"}),
    ("sparse_", (6, 4), {"sparsity": 0.4}),
    ("orthogonal_", (5, 3), {"gain": 1.5}),
    ("orthogonal_", (3, 2, 4), {}),
]


@pytest.mark.parametrize("name,shape,arguments", INITS, ids=[r[0] for r in INITS])
def test_init(name, shape, arguments):
    """The same seed gives PyTorch's numbers, and leaves the generator where PyTorch's is."""
    out = []
    for ns in (tt, torch):
        ns.manual_seed(5)
        t = ns.empty(shape, requires_grad=True)
        assert getattr(ns.nn.init, name)(t, **arguments) is t
        out.append([t, ns.rand(2)])
    close(*out, tol=1e-6)


def test_calculate_gain():
    for name, param in (("tanh", None), ("relu", None), ("leaky_relu", 0.3), ("leaky_relu", None), ("conv2d", None)):
        assert tt.nn.init.calculate_gain(name, param) == torch.nn.init.calculate_gain(name, param)
