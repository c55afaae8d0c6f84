"""PyTorch's layers as the root of a graph: the same code, nodes and types as PyTorch's tracer gives, or the same kind of error."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tabtorch as tt

EQUAL = """
Linear(2, 3); Linear(2, 3, bias=False); Bilinear(2, 3, 1); Identity(); Flatten(); Unflatten(1, (2, 3))
Conv1d(2, 3, 1); Conv2d(2, 3, 3, padding=1); Conv3d(2, 3, 1); Conv2d(2, 3, 3, padding=1, padding_mode="circular")
ConvTranspose2d(2, 3, 2); LayerNorm(3); LayerNorm(3, elementwise_affine=False); RMSNorm(3); GroupNorm(1, 3)
BatchNorm1d(3); BatchNorm2d(3).eval(); InstanceNorm1d(3); LocalResponseNorm(2); ReLU(); ReLU(inplace=True); ReLU6(); GELU()
GELU("tanh"); SiLU(); Sigmoid(); Tanh(); ELU(); SELU(); CELU(); LeakyReLU(0.2); Softplus(); Softmax(-1); LogSoftmax(-1)
Hardswish(); Hardsigmoid(); Hardtanh(); Mish(); PReLU(); GLU(); LogSigmoid(); Dropout(); Dropout2d(); AlphaDropout()
Dropout().eval(); Embedding(3, 2); EmbeddingBag(3, 2); RNN(2, 3); LSTM(2, 3); GRU(2, 3); RNNCell(2, 3); LSTMCell(2, 3)
GRUCell(2, 3); MaxPool2d(2); AvgPool2d(2); AdaptiveAvgPool1d(1); AdaptiveAvgPool2d(1)
AdaptiveAvgPool2d((2, None)); AdaptiveMaxPool2d(1); AdaptiveAvgPool3d(2); Upsample(scale_factor=2); PixelShuffle(2)
ZeroPad2d(1); ReflectionPad2d(1); Fold((4, 4), 2); Unfold(2); CosineSimilarity(); PairwiseDistance(); MSELoss()
CrossEntropyLoss(); L1Loss(); BCELoss(); BCEWithLogitsLoss(); NLLLoss(); KLDivLoss(); SmoothL1Loss(); HuberLoss()
TripletMarginLoss(); Sequential(Linear(2, 3), ReLU(), Dropout(0.1), LayerNorm(3), Conv1d(2, 3, 1))
Sequential(Embedding(3, 2), Sequential(Linear(2, 2), Tanh()), Softmax(1)); Sequential(Linear(2, 2), BatchNorm1d(2))
MaxPool2d(2, return_indices=True); MaxPool3d(2, return_indices=True)
Threshold(0.1, 2.0); Threshold(0.1, 2.0, inplace=True)
"""
LAYERS = [layer.strip() for layer in EQUAL.replace("\n", ";").split(";") if layer.strip()]


def traced(ns: Any, layer: str, leaves: bool) -> Any:
    class Tracer(ns.fx.Tracer):
        def is_leaf_module(self, m: Any, name: str) -> bool:
            return leaves and bool(super().is_leaf_module(m, name))

    root = eval(layer, {n: getattr(ns.nn, n) for n in dir(ns.nn)})
    try:
        graph = Tracer().trace(root)
    except Exception as e:
        return type(e).__name__
    kinds = [(n.op, n.name, str(n.type).replace("tabtorch.core.tensor.", "torch.")) for n in graph.nodes]
    return ns.fx.GraphModule(root, graph).code, kinds


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("layer", LAYERS)
def test_code_of_layers(layer: str, leaves: bool) -> None:
    assert traced(tt, layer, leaves) == traced(torch, layer, leaves)


def test_annotations_are_pytorchs() -> None:
    """Of every layer, whether it can be traced or not."""
    from tabtorch.fx._layer_types import layer_types

    for name in dir(torch.nn):
        theirs: Any = getattr(torch.nn, name)
        ours: Any = getattr(tt.nn, name, None)
        if not isinstance(ours, type) or torch.nn.Module not in getattr(theirs, "__mro__", ()):
            continue
        forward: Any = vars(ours).get("forward") or getattr(ours, "forward", None)
        passed = ("Container", "AdaptiveLogSoftmaxWithLoss")
        if (
            forward is tt.nn.Module.forward
            or name in passed
            or not forward.__module__.startswith("tabtorch.nn.modules.")
        ):
            continue
        want = {k: str(v) for k, v in theirs.forward.__annotations__.items()}
        got = {k: str(v).replace("tabtorch.core.tensor.", "torch.") for k, v in layer_types(forward).items()}
        assert got == want, name
