"""``nn`` against real PyTorch: seeded weights, ``repr``, forward, gradients, errors, and the machinery of modules."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch

import tabtorch as tt

DEVICES = ["cpu"] + ([tt.accelerator.current_accelerator().type] if tt.accelerator.is_available() else [])


@pytest.fixture(params=DEVICES, autouse=True)
def device(request):
    """Everything is made on this device."""
    with tt.device(request.param):
        yield request.param


def mine(t):
    """A tabtorch copy of a torch tensor (of anything that holds some)."""
    if isinstance(t, torch.Tensor):
        out = tt.tensor(t.detach().cpu().numpy())
        return out.requires_grad_() if t.requires_grad else out
    if isinstance(t, (list, tuple)):
        return type(t)(mine(x) for x in t)
    return {k: mine(v) for k, v in t.items()} if isinstance(t, dict) else t


def flat(value):
    """The tensors in a result, as arrays."""
    if isinstance(value, (torch.Tensor, tt.Tensor)):
        return [value.detach().cpu().numpy()]
    return [a for v in value or () for a in flat(v)]


def close(ours, theirs, tol=2e-5, what=""):
    ours, theirs = flat(ours), flat(theirs)
    assert len(ours) == len(theirs), what
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype, what
        assert a.shape == b.shape, what
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol, err_msg=what)


def compare(f, ours_args, theirs_args, tol=2e-5, params=((), ())):
    """f(namespace, *args) in both, and the gradients of a fixed weighting of its floating point outputs."""
    a, b = f(tt, *ours_args), f(torch, *theirs_args)
    close(a, b, tol, "forward")
    outs = [[t for t in _tensors(x) if t.requires_grad] for x in (a, b)]
    assert len(outs[0]) == len(outs[1])
    if not outs[1]:
        return
    weights = [torch.linspace(-1, 1, t.numel()).reshape(t.shape) for t in outs[1]]
    sum((t * mine(w)).sum() for t, w in zip(outs[0], weights, strict=True)).backward()
    sum((t * w).sum() for t, w in zip(outs[1], weights, strict=True)).backward()
    for x, y in zip([*_tensors(ours_args), *params[0]], [*_tensors(theirs_args), *params[1]], strict=True):
        if y.requires_grad:
            assert (x.grad is None) == (y.grad is None)
            if y.grad is not None:
                close(x.grad, y.grad, 10 * tol, "gradient")


def _tensors(value):
    if isinstance(value, (torch.Tensor, tt.Tensor)):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in _tensors(v)] if isinstance(value, (list, tuple)) else []


def rand(*shape, seed=0, grad=True):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


def ints(high, *shape, seed=0):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


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


def both(name, arguments):
    """The same layer in both, made from the same seed."""
    out = []
    for ns in (tt, torch):
        ns.manual_seed(3)
        out.append(getattr(ns.nn, name)(**arguments))
    return out


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
    with pytest.raises(NotImplementedError, match="max_norm"):
        tt.nn.Embedding(3, 2, max_norm=1.0)


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


# -- errors: the exception and message of PyTorch


def _fail(f, ns):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            f(ns, ns.nn, ns.nn.functional)
        except Exception as error:
            # Class names carry their package; PyTorch's C++ adds a trace.
            text = str(error).split("\nException raised from")[0].replace("tabtorch", "torch")
            text = text.replace("torch.webgpu.", "torch.")  # types are named by device, as torch.cuda.FloatTensor
            return type(error).__name__, text
    return None


ERRORS = [
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.tensor([1, 2, 3, 4])),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.tensor([1.0, 2, 3])),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.zeros(3, 5).long()),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.zeros(3, 4)),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.zeros(3, 1).long()),
    lambda t, nn, F: F.cross_entropy(t.ones(2, 5, 4), t.zeros(2, 3).long()),
    lambda t, nn, F: F.cross_entropy(t.ones(2, 5, 4, 4), t.zeros(2, 3, 4).long()),
    lambda t, nn, F: F.cross_entropy(t.ones(2, 5, 4, 4), t.zeros(2, 4).long()),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.tensor([1, 2, 3]), weight=t.ones(4)),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.ones(3, 5), ignore_index=2),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.tensor([1, 2, 3]), label_smoothing=2.0),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.tensor([1, 2, 3]), reduction="foo"),
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5).long(), t.tensor([1, 2, 3])),
    lambda t, nn, F: F.softmax(t.tensor([1, 2]), 0),
    lambda t, nn, F: F.softmax(t.ones(2, 2), 4),
    lambda t, nn, F: F.binary_cross_entropy(t.ones(2), t.ones(3)),
    lambda t, nn, F: F.binary_cross_entropy_with_logits(t.ones(2), t.ones(3)),
    lambda t, nn, F: F.layer_norm(t.ones(3, 5), (4,)),
    lambda t, nn, F: F.layer_norm(t.ones(3, 5), ()),
    lambda t, nn, F: F.layer_norm(t.ones(3, 5), (5,), t.ones(4)),
    lambda t, nn, F: F.rms_norm(t.ones(3, 5), (4,)),
    lambda t, nn, F: F.batch_norm(t.ones(3, 5), t.zeros(4), t.ones(4), training=True),
    lambda t, nn, F: F.batch_norm(t.ones(3, 5), None, None),
    lambda t, nn, F: F.batch_norm(t.ones(1, 5), None, None, training=True),
    lambda t, nn, F: F.group_norm(t.ones(2, 5, 4), 2),
    lambda t, nn, F: F.instance_norm(t.ones(2, 3, 1)),
    lambda t, nn, F: F.one_hot(t.tensor([1.0]), 3),
    lambda t, nn, F: F.embedding(t.tensor([1.0]), t.ones(5, 3)),
    lambda t, nn, F: F.pad(t.ones(3, 5), (1,)),
    lambda t, nn, F: F.pad(t.ones(3, 5), (1,) * 6),
    lambda t, nn, F: F.pad(t.ones(3, 5), (5, 5), mode="reflect"),
    lambda t, nn, F: F.pad(t.ones(3, 5), (1, 1), mode="foo"),
    lambda t, nn, F: F.pad(t.ones(5), (1, 1), mode="reflect"),
    lambda t, nn, F: F.glu(t.ones(3, 5)),
    lambda t, nn, F: F.linear(t.ones(3, 5), t.ones(4, 3)),
    lambda t, nn, F: F.pixel_shuffle(t.ones(1, 3, 2, 2), 2),
    lambda t, nn, F: F.prelu(t.ones(3, 5), t.ones(3)),
    lambda t, nn, F: F.unfold(t.ones(1, 2, 3, 3), 4),
    lambda t, nn, F: F.fold(t.ones(1, 8, 5), (3, 3), 2),
    lambda t, nn, F: F.dropout(t.ones(2), 2.0),
    lambda t, nn, F: F.hardtanh(t.ones(2), 1, -1),
    lambda t, nn, F: F.multi_margin_loss(t.ones(3, 5), t.tensor([1, 2])),
    lambda t, nn, F: F.margin_ranking_loss(t.ones(3), t.ones(3), t.ones(3, 1)),
    lambda t, nn, F: F.interpolate(t.ones(1, 1, 2, 2), size=(3,)),
    lambda t, nn, F: F.interpolate(t.ones(1, 1, 2, 2)),
    lambda t, nn, F: F.interpolate(t.ones(1, 1, 2, 2), size=3, mode="linear"),
    lambda t, nn, F: F.interpolate(t.ones(1, 1, 2, 2), size=3, align_corners=True),
    lambda t, nn, F: F.scaled_dot_product_attention(*[t.ones(3, 5)] * 3, attn_mask=t.ones(3, 3), is_causal=True),
    lambda t, nn, F: nn.BatchNorm2d(3)(t.ones(3, 3)),
    lambda t, nn, F: nn.BatchNorm1d(3)(t.ones(3)),
    lambda t, nn, F: nn.GroupNorm(3, 4),
    lambda t, nn, F: nn.Conv2d(3, 4, 3, groups=2),
    lambda t, nn, F: nn.Conv2d(4, 3, 3, groups=2),
    lambda t, nn, F: nn.Conv2d(4, 4, 3, groups=0),
    lambda t, nn, F: nn.Conv2d(4, 4, 3, padding="same", stride=2),
    lambda t, nn, F: nn.Dropout(1.5),
    lambda t, nn, F: nn.Embedding(3, 2, padding_idx=3),
    lambda t, nn, F: nn.MultiheadAttention(5, 2),
    lambda t, nn, F: nn.MultiheadAttention(4, 0),
    lambda t, nn, F: nn.MultiheadAttention(4, 2)(*[t.ones(4)] * 3),
    lambda t, nn, F: nn.LSTM(3, 4, dropout=2.0),
    lambda t, nn, F: nn.LSTM(3, 4)(t.ones(2, 2, 5)),
    lambda t, nn, F: nn.GRU(3, 4)(t.ones(2, 2, 3), t.ones(1, 1, 4)),
    lambda t, nn, F: nn.RNN(3, 4, nonlinearity="foo"),
    lambda t, nn, F: nn.LSTMCell(3, 4)(t.ones(2, 5)),
    lambda t, nn, F: nn.Unflatten(1, 3),
    # modules
    lambda t, nn, F: nn.Module(1),
    lambda t, nn, F: nn.Module(a=1),
    lambda t, nn, F: nn.Module()(1),
    lambda t, nn, F: nn.Linear(2, 2).foo,
    lambda t, nn, F: setattr(nn.Linear(2, 2), "weight", t.ones(2)),
    lambda t, nn, F: setattr(nn.Sequential(nn.ReLU()), "0", 3),
    lambda t, nn, F: setattr(nn.BatchNorm1d(2), "running_mean", 3),
    lambda t, nn, F: nn.Module().register_buffer("a.b", None),
    lambda t, nn, F: nn.Module().register_buffer("", None),
    lambda t, nn, F: nn.Module().register_buffer(3, None),
    lambda t, nn, F: nn.Module().register_buffer("training", None),
    lambda t, nn, F: nn.Module().register_buffer("a", 3),
    lambda t, nn, F: nn.Module().register_parameter("a", t.ones(2)),
    lambda t, nn, F: nn.Module().register_parameter("a.b", None),
    lambda t, nn, F: nn.Module().register_parameter("training", None),
    lambda t, nn, F: nn.Module().add_module("a.b", None),
    lambda t, nn, F: nn.Module().add_module("", None),
    lambda t, nn, F: nn.Module().add_module("training", None),
    lambda t, nn, F: nn.Module().add_module("a", 3),
    lambda t, nn, F: nn.Module().add_module(3, None),
    lambda t, nn, F: type("M", (nn.Module,), {"__init__": lambda self: setattr(self, "a", nn.ReLU())})(),
    lambda t, nn, F: type("M", (nn.Module,), {"__init__": lambda self: setattr(self, "a", nn.Parameter(t.ones(1)))})(),
    lambda t, nn, F: nn.Linear(2, 2).train(3),
    lambda t, nn, F: nn.Linear(2, 2).to(t.int64),
    lambda t, nn, F: nn.Linear(2, 2).get_submodule("a"),
    lambda t, nn, F: nn.Linear(2, 2).get_parameter("a"),
    lambda t, nn, F: nn.Linear(2, 2).get_buffer("weight"),
    lambda t, nn, F: nn.Sequential(nn.ReLU())[3],
    lambda t, nn, F: nn.Sequential(nn.ReLU()) + 3,
    lambda t, nn, F: nn.Sequential(nn.ReLU()) * 0,
    lambda t, nn, F: nn.ModuleList(3),
    lambda t, nn, F: nn.ModuleDict(3),
    lambda t, nn, F: nn.ParameterList(t.ones(2)),
    lambda t, nn, F: nn.ParameterDict({3: t.ones(2)}),
    lambda t, nn, F: nn.Linear(2, 2).load_state_dict(3),
    lambda t, nn, F: nn.Linear(2, 2).load_state_dict({"a": t.ones(2)}),
    lambda t, nn, F: nn.Linear(2, 2).load_state_dict({"weight": t.ones(3, 2), "bias": t.ones(2)}),
    lambda t, nn, F: nn.Linear(2, 2).load_state_dict({"weight": 3, "bias": t.ones(2)}),
    lambda t, nn, F: nn.Sequential(nn.Linear(2, 2)).load_state_dict({"0.weight.x": t.ones(2, 2), "1.a": t.ones(1)}),
    lambda t, nn, F: nn.init.xavier_uniform_(t.ones(2)),
    lambda t, nn, F: nn.init.calculate_gain("foo"),
    lambda t, nn, F: nn.init.kaiming_uniform_(t.ones(2, 2), mode="foo"),
]


@pytest.mark.parametrize("i", range(len(ERRORS)))
def test_error(i):
    expected = _fail(ERRORS[i], torch)
    assert expected is not None
    assert _fail(ERRORS[i], tt) == expected


CPU_ERRORS = [
    lambda t, nn, F: F.cross_entropy(t.ones(3, 5), t.tensor([1, 2, 7])),
    lambda t, nn, F: F.nll_loss(t.ones(3, 5), t.tensor([1, -2, 3])),
    lambda t, nn, F: F.embedding(t.tensor([7]), t.ones(5, 3)),
    lambda t, nn, F: F.one_hot(t.tensor([1, 5]), 3),
    lambda t, nn, F: F.one_hot(t.tensor([1, -5]), 3),
    lambda t, nn, F: F.binary_cross_entropy(t.ones(2) * 2, t.ones(2)),
]


@pytest.mark.parametrize("i", range(len(CPU_ERRORS)))
def test_error_of_values(i, device):
    """Values are checked where reading them is cheap; on a GPU a bad index reads nothing outside its tensor."""
    if device != "cpu":
        pytest.skip("values are not read back to be checked")
    assert _fail(CPU_ERRORS[i], tt) == _fail(CPU_ERRORS[i], torch)


def test_missing_names():
    with pytest.raises(NotImplementedError, match="torch.nn.CTCLoss"):
        tt.nn.CTCLoss()
    assert not isinstance(tt.nn.ReLU(), tt.nn.CTCLoss)
    with pytest.raises(NotImplementedError, match="torch.nn.functional.ctc_loss"):
        tt.nn.functional.ctc_loss(1)
    assert not hasattr(tt.nn, "NoSuchLayer")


# -- the machinery of modules: the same program in both, and what it saw


def model(ns):
    nn = ns.nn

    class Block(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.linear = nn.Linear(n, n)
            self.scale = nn.Parameter(ns.full((n,), 2.0))
            self.register_buffer("shift", ns.ones(n))
            self.register_buffer("cache", ns.zeros(1), persistent=False)
            self.again = self.linear

        def forward(self, x, gain=1.0):
            return self.linear(x) * self.scale * gain + self.shift

        def extra_repr(self):
            return "two\nlines"

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(2) for _ in range(2)])
            self.by_name = nn.ModuleDict({"act": nn.ReLU(), "out": nn.Linear(2, 1)})
            self.nothing = None
            self.register_module("empty", None)

        def forward(self, x):
            for block in self.blocks:
                x = self.by_name["act"](block(x, gain=0.5))
            return self.by_name["out"](x)

    ns.manual_seed(0)
    return Net()


def walk(ns):
    net = model(ns)
    yield repr(net)
    for method in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        yield [name for name, _ in getattr(net, method)()]
    for method in ("named_parameters", "named_modules"):
        yield [name for name, _ in getattr(net, method)(remove_duplicate=False)]
    yield [n for n, _ in net.named_parameters(prefix="p", recurse=False)], len(list(net.parameters()))
    yield [(k, tuple(v.shape), v.requires_grad) for k, v in net.state_dict(prefix="x.").items()]
    yield [v.requires_grad for v in net.state_dict(keep_vars=True).values()]
    yield dict(net.state_dict()._metadata)
    yield net.get_submodule("blocks.1.linear") is net.blocks[1].linear, net.get_submodule("") is net
    yield tuple(net.get_parameter("blocks.0.scale").shape), tuple(net.get_buffer("blocks.0.shift").shape)
    net.eval()
    yield [m.training for m in net.modules()]
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    yield seen
    net.requires_grad_(False)
    yield [p.requires_grad for p in net.parameters()]
    block = net.blocks[0]
    del block.scale
    block.scale = ns.ones(2)
    yield "scale" in block._parameters, "scale" in block.__dict__
    block.shift = None
    yield list(block.state_dict())
    block.extra = ns.nn.Buffer(ns.ones(1), persistent=False)
    yield list(block.state_dict()), [n for n, _ in block.named_buffers()]
    block.linear = None
    yield repr(block)
    net.set_submodule("by_name.act", ns.nn.Tanh())
    yield repr(net.by_name), "blocks" in dir(net), "0" in dir(net.blocks)
    seq = ns.nn.Sequential(ns.nn.ReLU(), ns.nn.Tanh(), ns.nn.Linear(2, 2))
    yield repr(seq[1:]), repr(seq[-1]), len(seq), repr(seq + seq[:1]), repr(seq[:2] * 2)
    seq.insert(1, ns.nn.Sigmoid())
    seq.append(ns.nn.ELU()).extend([ns.nn.GELU()])
    yield repr(seq)
    del seq[1]
    yield repr(seq.pop(0)), repr(seq)
    seq[0] = ns.nn.Identity()
    seq += ns.nn.Sequential(ns.nn.Flatten())
    seq *= 2
    yield repr(seq)
    layers = ns.nn.ModuleList([ns.nn.Linear(2, 2), ns.nn.Linear(2, 2), ns.nn.ReLU()])
    layers.insert(0, ns.nn.ReLU())
    yield repr(layers), repr(layers[1:3]), repr(layers.pop(-1)), repr(layers + [ns.nn.Tanh()])
    params = ns.nn.ParameterList([ns.ones(2, 3), ns.nn.Parameter(ns.ones(1)), 3])
    yield [n for n, _ in params.named_parameters()], len(params), params[2]
    params = ns.nn.ParameterDict({"b": ns.ones(2), "a": ns.ones(1)})
    yield list(params), [n for n, _ in params.named_parameters()], "a" in params
    names = ns.nn.ModuleDict([("x", ns.nn.ReLU())])
    names.update({"y": ns.nn.Tanh()})
    yield list(names), repr(names.pop("x")), len(names)


def test_walk():
    for ours, theirs in zip(walk(tt), walk(torch), strict=True):
        assert ours == theirs


def hooks(ns):
    """A log of everything that hooks are called with."""
    log = []

    def shapes(x):
        if isinstance(x, ns.Tensor):
            return tuple(x.shape)
        return tuple(shapes(v) for v in x) if isinstance(x, (tuple, list)) else x

    net = model(ns)
    block = net.blocks[0]
    handles = [
        block.register_forward_pre_hook(lambda m, a: log.append(("pre", shapes(a)))),
        block.register_forward_pre_hook(
            lambda m, a, k: (log.append(("pre kwargs", shapes(a), k)), (a, {"gain": 2.0}))[1], with_kwargs=True
        ),
        block.register_forward_hook(lambda m, a, o: log.append(("post", shapes(a), shapes(o)))),
        block.register_forward_hook(lambda m, a, k, o: (log.append(("post kwargs", k)), o * 2)[1], with_kwargs=True),
        block.register_forward_hook(lambda m, a, o: log.append("first"), prepend=True),
        block.register_full_backward_hook(lambda m, i, o: log.append(("back", shapes(i), shapes(o)))),
        block.register_full_backward_pre_hook(lambda m, o: (o[0] * 3,)),
        net.blocks[1].register_full_backward_hook(lambda m, i, o: (i[0] * 10,)),
        ns.nn.modules.module.register_module_forward_hook(lambda m, a, o: log.append(type(m).__name__)),
    ]
    x = ns.ones(2, 2, requires_grad=True)
    out = net(x)
    out.sum().backward()
    log.append([round(v, 4) for v in x.grad.reshape(-1).tolist()])
    log.append([round(v, 4) for p in net.parameters() for v in p.grad.reshape(-1).tolist()])
    for handle in handles:
        handle.remove()
    log.append(len(block._forward_hooks) + len(block._forward_hooks_with_kwargs) + len(block._backward_hooks))
    n = len(log)
    net(x)
    assert len(log) == n

    # An input that needs no gradient; a hook that must run though forward raises.
    with block.register_full_backward_hook(lambda m, i, o: log.append(("no input", shapes(i), shapes(o)))):
        block(ns.ones(2)).sum().backward()
    block.register_forward_hook(lambda m, a, o: log.append(("always", o)), always_call=True)
    try:
        block(ns.ones(5))
    except RuntimeError as error:
        log.append(str(error)[:40])
    try:
        block.register_backward_hook(print)
    except RuntimeError as error:
        log.append(str(error))

    # State hooks.
    layer = ns.nn.Linear(1, 1)
    layer.register_state_dict_pre_hook(lambda m, p, k: log.append(("state pre", p, k)))
    layer.register_state_dict_post_hook(lambda m, s, p, meta: log.append(("state post", list(s), p)))
    layer.register_load_state_dict_pre_hook(lambda m, s, *rest: log.append(("load pre", list(s), rest[0])))
    layer.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    state = ns.nn.Sequential(layer).state_dict()
    del state["0.bias"]
    log.append(repr(ns.nn.Sequential(layer).load_state_dict(state)))
    log.append(repr(ns.nn.Linear(1, 1).load_state_dict({"weight": ns.ones(1, 1)}, strict=False)))
    return log


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_hooks():
    assert hooks(tt) == hooks(torch)


def test_registration_hooks():
    def run(ns):
        log = []
        module = ns.nn.modules.module
        handles = [
            module.register_module_parameter_registration_hook(lambda m, n, p: log.append(("param", n))),
            module.register_module_buffer_registration_hook(lambda m, n, p: log.append(("buffer", n))),
            module.register_module_module_registration_hook(lambda m, n, p: log.append(("module", n))),
        ]
        model(ns)
        for handle in handles:
            handle.remove()
        return log

    assert run(tt) == run(torch)


def test_extra_state():
    def run(ns):
        class Counter(ns.nn.Module):
            n = 1

            def get_extra_state(self):
                return {"n": self.n}

            def set_extra_state(self, state):
                self.n = state["n"]

        counter = Counter()
        counter.n = 7
        state = ns.nn.Sequential(counter).state_dict()
        fresh = ns.nn.Sequential(Counter())
        fresh.load_state_dict(state)
        return list(state), fresh[0].n

    assert run(tt) == run(torch)


def test_state_dict_exchange():
    """A state_dict of one loads into the other, and the models agree."""
    ours, theirs = model(tt), model(torch)
    theirs.blocks[0].linear.weight.data.fill_(0.25)
    ours.load_state_dict({k: mine(v) for k, v in theirs.state_dict().items()})
    x = rand(3, 2)
    close(ours(mine(x)), theirs(x))
    taken = tt.nn.Linear(2, 2)
    weight = tt.ones(2, 2)
    taken.load_state_dict({"weight": weight, "bias": tt.ones(2)}, assign=True)
    assert isinstance(taken.weight, tt.nn.Parameter) and taken.weight.requires_grad
    weight.fill_(3.0)
    close(taken.weight, torch.full((2, 2), 3.0))


def test_parameter():
    p = tt.nn.Parameter(tt.ones(2))
    assert isinstance(p, tt.nn.Parameter) and isinstance(p, tt.Tensor) and p.requires_grad and p.is_leaf
    assert not isinstance(tt.ones(2), tt.nn.Parameter)
    assert type(p + 1) is tt.Tensor
    assert repr(p).startswith("Parameter containing:\n")
    with tt.no_grad():
        assert tt.nn.Parameter(tt.ones(2)).requires_grad
    data = tt.zeros(2)
    shared = tt.nn.Parameter(data, requires_grad=False)
    data.fill_(5.0)
    close(shared, torch.full((2,), 5.0))
    again = copy.deepcopy(p)
    assert isinstance(again, tt.nn.Parameter) and again is not p
    assert tuple(tt.nn.Parameter().shape) == (0,)


def test_copies():
    net = tt.nn.Sequential(tt.nn.Linear(2, 3), tt.nn.BatchNorm1d(3), tt.nn.Linear(3, 3))
    net[2].weight = net[0].bias  # shared, of whatever shape
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert twin[2].weight is twin[0].bias and twin[0].bias is not net[0].bias
        close(list(twin.state_dict().values()), list(net.state_dict().values()), 0)
        assert repr(twin) == repr(net)


def test_to(device):
    net = tt.nn.Sequential(tt.nn.Linear(2, 2), tt.nn.BatchNorm1d(2))
    weight = net[0].weight
    net(tt.ones(3, 2)).sum().backward()
    assert net.half() is net and net[0].weight is weight
    assert weight.dtype == weight.grad.dtype == net[1].running_mean.dtype == tt.float16
    assert net[1].num_batches_tracked.dtype == tt.int64
    assert net.to(tt.float32)[0].bias.dtype == tt.float32
    assert net.to(device, tt.float16)[0].bias.dtype == tt.float16
    assert net.to(tt.ones(1))[0].bias.dtype == tt.float32
    assert net.to("cpu")[0].weight.device.type == "cpu" and net[0].weight is weight
    assert net.cpu().double()[0].weight.dtype == tt.float64
    net.zero_grad()
    assert weight.grad is None
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        net.to(1.5)


def test_zero_grad_to_zero():
    layer = tt.nn.Linear(2, 2)
    layer(tt.ones(2)).sum().backward()
    layer.zero_grad(set_to_none=False)
    close(layer.weight.grad, torch.zeros(2, 2))


# -- nn.utils


def test_clip_grad():
    for norm_type in (2.0, 1.0, float("inf")):
        out = []
        for ns in (tt, torch):
            params = [ns.ones(3, requires_grad=True), ns.ones(2, requires_grad=True), ns.ones(1)]
            (params[0] * ns.tensor([1.0, 2.0, 3.0])).sum().backward()
            (params[1] * 4).sum().backward()
            total = ns.nn.utils.clip_grad_norm_(params, 1.5, norm_type)
            out.append([total, params[0].grad, params[1].grad])
            ns.nn.utils.clip_grad_value_(params, 0.3)
            out[-1].append(params[1].grad)
        close(*out)
    close(tt.nn.utils.clip_grad_norm_([tt.ones(1)], 1.0), torch.tensor(0.0))


def test_parameters_to_vector():
    layer = tt.nn.Linear(3, 2)
    vector = tt.nn.utils.parameters_to_vector(layer.parameters())
    assert tuple(vector.shape) == (8,)
    tt.nn.utils.vector_to_parameters(tt.arange(8.0), layer.parameters())
    close(layer.weight, torch.arange(6.0).reshape(2, 3))
    close(layer.bias, torch.tensor([6.0, 7.0]))


def test_pad_sequence():
    rows = [rand(n, 2, seed=n) for n in (3, 1, 2)]
    for arguments in ({}, {"batch_first": True, "padding_value": 1.5, "padding_side": "left"}):
        close(tt.nn.utils.rnn.pad_sequence(mine(rows), **arguments), torch.nn.utils.rnn.pad_sequence(rows, **arguments))
