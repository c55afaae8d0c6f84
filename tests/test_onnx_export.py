"""`torch.onnx.export`: models that onnx's checker passes and onnxruntime runs to the same numbers, at other sizes too."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tabtorch as torch

nn, F = torch.nn, torch.nn.functional


class Of(nn.Module):
    """A function as a model, with some layers."""

    def __init__(self, f: Callable[..., Any], *layers: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.f = f

    def forward(self, *xs: Any) -> Any:
        return self.f(*self.layers, *xs)


def image(*channels: int) -> Any:
    return lambda n: (torch.randn(n, *(channels or (3, 8, 8))),)


def words(n: int) -> Any:
    return (torch.randint(0, 11, (n, 6)),)


def rows(n: int) -> Any:
    return (torch.randn(n, 6),)


def sequence(n: int) -> Any:
    return (torch.randn(n, 5, 8),)


def residual(conv: Any, norm: Any, x: Any) -> Any:
    return F.relu(norm(conv(x)) + x)


def attended(x: Any) -> Any:
    q = x.reshape(x.shape[0], 5, 2, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q * 2, q + 1, is_causal=True).transpose(1, 2).reshape(x.shape[0], 5, 8)


MODELS: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3), nn.LogSoftmax(-1)), rows),
    "gelu": (lambda: nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Mish()), rows),
    "activations": (lambda: nn.Sequential(nn.ELU(), nn.Hardswish(), nn.Softplus(), nn.LeakyReLU(), nn.PReLU(), nn.Hardsigmoid()), rows),
    "glu": (lambda: nn.Sequential(nn.GLU(), nn.Softmin(1)), rows),
    "cnn": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5)),
        image(),
    ),
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU6()), image()),
    "residual": (lambda: Of(residual, nn.Conv2d(3, 3, 3, padding="same"), nn.BatchNorm2d(3)), image()),
    "depthwise": (lambda: nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.Conv2d(6, 2, 1), nn.AdaptiveAvgPool2d(1)), image()),
    "dilated": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3, dilation=2, padding=2, padding_mode="reflect")), image(3, 9)),
    "volume": (lambda: nn.Sequential(nn.Conv3d(2, 3, 2), nn.AvgPool3d(2)), image(2, 5, 5, 5)),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 2, 3, stride=2, output_padding=1, padding=1), nn.Tanh()), image()),
    "group norm": (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)), image(4, 5, 5)),
    "layer norm": (lambda: nn.Sequential(nn.LayerNorm(8), nn.RMSNorm(8), nn.LayerNorm([5, 8], elementwise_affine=False)), sequence),
    "outer": (lambda: Of(lambda x: torch.outer(torch.arange(3), x[0]) + x.sum()), rows),
    "resize": (
        lambda: Of(lambda x: F.interpolate(F.interpolate(x, scale_factor=2.0), size=(11, 7), mode="bilinear")),
        image(),
    ),
    "cubic": (lambda: Of(lambda x: F.interpolate(x, size=(5, 12), mode="bicubic", align_corners=True)), image()),
    "pixel shuffle": (lambda: nn.PixelShuffle(2), image(8, 3, 3)),
    "grid sample": (lambda: Of(lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).clamp(-1, 1), align_corners=False)), image()),
    "embedding": (lambda: Of(lambda e, i: e(i).mean(1), nn.Embedding(11, 4)), words),
    "lstm": (lambda: Of(lambda r, x: r(x)[0], nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)), sequence),
    "gru": (lambda: Of(lambda r, x: r(x), nn.GRU(8, 6, batch_first=True)), sequence),
    "rnn": (lambda: Of(lambda r, x: r(x)[1], nn.RNN(8, 6, batch_first=True, nonlinearity="relu")), sequence),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), sequence),
    "attention": (lambda: Of(attended), sequence),
    "multihead": (lambda: Of(lambda a, x: a(x, x, x)[0], nn.MultiheadAttention(8, 2, batch_first=True)), sequence),
    "einsum": (lambda: Of(lambda x: torch.einsum("bij,bkj->bik", x, x).softmax(-1)), sequence),
    "topk": (lambda: Of(lambda x: torch.topk(x, 3, -1)), sequence),
    "sort": (lambda: Of(lambda x: torch.sort(x, 1, descending=True)[0]), sequence),
    "reductions": (lambda: Of(lambda x: (x.sum(1), x.amax((1, 2)), x.std(-1), x.logsumexp(1), x.argmax(-1), x.norm(dim=-1))), sequence),
    "indices": (lambda: Of(lambda x: (x.index_select(1, torch.tensor([0, 2])), x[:, -1, 1:5:2], x[..., None].flip(1))), sequence),
    "masks": (lambda: Of(lambda x: torch.where(x > 0, x, x * 0.1).masked_fill(x.isnan(), 0.0).tril()), sequence),
    "shapes": (lambda: Of(lambda x: torch.cat([x.flatten(1), x.reshape(x.shape[0], -1) * x.shape[0]], 1).chunk(2, 1)), sequence),
    "stack": (lambda: Of(lambda x: torch.stack(x.split([2, 3], 1)[1].unbind(2), 1).expand(-1, 8, 3)), sequence),
    "whole numbers": (lambda: Of(lambda i: (i // 2, i % 3, i.float() / 7, (i > 3) & (i != 5), -i, i.clamp(2, 7), i.cumsum(1))), words),
    "gather": (lambda: Of(lambda i: F.one_hot(i, 11).float().gather(2, i[..., None]).squeeze(-1)), words),
    "positions": (lambda: Of(lambda e, x: x + e(torch.arange(x.shape[1], device=x.device)), nn.Embedding(5, 8)), sequence),
    "pads": (lambda: Of(lambda x: F.pad(F.pad(x, (1, 2), value=3.0), (2, 1), mode="replicate")), sequence),
}  # fmt: skip


def run(data: bytes, args: Any) -> list[Any]:
    onnx.checker.check_model(data, full_check=True)
    session = onnxruntime.InferenceSession(data)
    given = {x.name: a.numpy() for x, a in zip(session.get_inputs(), args, strict=True)}
    found: list[Any] = session.run(None, given)
    return found


def leaves(x: Any) -> list[Any]:
    return [v for e in x for v in leaves(e)] if isinstance(x, (list, tuple)) else [x]


@pytest.mark.parametrize("name", MODELS)
def test_model(name: str) -> None:
    make, inputs = MODELS[name]
    with torch.device("cpu"):
        torch.manual_seed(0)
        model, args = make().eval(), inputs(3)
        batch = torch.export.Dim("batch", min=2, max=64)
        program = torch.onnx.export(model, args, dynamic_shapes=({0: batch},))
        data = program.tobytes()
        declared = onnx.load_model_from_string(data).graph.input[0].type.tensor_type.shape.dim[0]
        assert declared.dim_param == "batch"
        for n in (3, 7):
            args = inputs(n)
            want, got = leaves(model(*args)), run(data, args)
            here = program(*args)
            assert len(want) == len(got) == len(here)
            for w, g, h in zip(want, got, here, strict=True):
                assert str(w.dtype) == f"torch.{g.dtype}"
                np.testing.assert_allclose(g, w.detach().numpy(), rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(h.detach().numpy(), w.detach().numpy(), rtol=1e-4, atol=1e-5)


def written(x: Any) -> Any:
    """Writes to views, and reads by others."""
    y = x.clone()
    a, t = y[1:], y.t()
    b = a[:, 1]
    b.mul_(3)
    y[-1] = 7.0
    y[:, ::2] += x[:, :3]
    a[0, 1:3] = x[0, :2]
    c = y[0].clone()
    y.relu_()
    y[..., -1].zero_()
    return y, a, b, c, t


def test_writes_in_place() -> None:
    with torch.device("cpu"):
        rows_ = torch.export.Dim("rows", min=3, max=64)
        data = torch.onnx.export(Of(written).eval(), rows(4), dynamic_shapes=({0: rows_},)).tobytes()
        for n in (4, 7):
            args = rows(n)
            for w, g in zip(written(*args), run(data, args), strict=True):
                np.testing.assert_allclose(g, w.numpy(), rtol=1e-5)
        data = torch.onnx.export(Of(lambda x: torch.relu_((x * 2).flatten()) + 1).eval(), rows(2)).tobytes()
        np.testing.assert_allclose(run(data, (torch.ones(2, 6),))[0], 3)

        def both(x: Any) -> Any:
            z = x * 2
            return torch.relu_(z.flatten()), z

        with pytest.raises(torch.onnx.errors.OnnxExporterError, match="may share memory"):
            torch.onnx.export(Of(both).eval(), rows(2))


def test_names_files_and_weights(tmp_path: Any) -> None:
    with torch.device("cpu"):
        net, x = nn.Linear(2, 3).eval(), torch.ones(4, 2)
        path, buffer = tmp_path / "m.onnx", io.BytesIO()
        torch.onnx.export(net, (x,), path, input_names=["points"], output_names=["scores"], verify=True)
        torch.onnx.export(
            net, x, buffer, input_names=["points"], dynamic_axes={"points": {0: "n"}}, dynamo=False, opset_version=20
        )
    model = onnx.load(path)
    assert [x.name for x in (*model.graph.input, *model.graph.output)] == ["points", "scores"]
    assert {t.name for t in model.graph.initializer} == {"weight", "bias"}
    other = onnx.load_model_from_string(buffer.getvalue())
    assert other.opset_import[0].version == 20
    assert other.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"


def test_what_is_not_exported_is_said() -> None:
    errors = torch.onnx.errors
    with torch.device("cpu"):
        x = torch.ones(3, 4)
        with pytest.raises(errors.UnsupportedOperatorError, match=r"No ONNX translation of torch\.ops\.aten\.cummax"):
            torch.onnx.export(Of(lambda x: torch.cummax(x, 1)[0]).eval(), (x,))
        with pytest.warns(errors.OnnxExporterWarning), pytest.raises(errors.OnnxExporterError, match="in training"):
            torch.onnx.export(nn.Dropout(0.5), (x,))
        with pytest.raises(ValueError, match="opset_version 9 is not supported"):
            torch.onnx.export(nn.ReLU().eval(), (x,), opset_version=9)
        with pytest.raises(ValueError, match="2 input_names were given for 1"):
            torch.onnx.export(nn.ReLU().eval(), (x,), input_names=["a", "b"])
        with pytest.raises(TypeError, match="ExportedProgram"):
            torch.onnx.export(lambda x: x, (x,))
