"""`tabtorch.onnx.load`: ONNX's own cases, real files, what is refused, and that shapes never wait for a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_cases
import tabtorch as torch
from fuzz import onnx_files
from tabtorch.bridge import get_bridge
from tabtorch.onnx import operators, registry
from tabtorch.onnx.proto import FormatError


def model(nodes, inputs, outputs, weights=(), opset=20):
    """The bytes of a model; inputs and outputs: name -> (type, shape)."""
    values = [[helper.make_tensor_value_info(n, *of) for n, of in given.items()] for given in (inputs, outputs)]
    graph = helper.make_graph(
        nodes, "g", *values, initializer=[numpy_helper.from_array(a, n) for n, a in dict(weights).items()]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.checker.check_model(made)
    return made.SerializeToString()


F = TensorProto.FLOAT


def test_a_model_runs_and_trains(device: str) -> None:
    w = np.arange(6, dtype=np.float32).reshape(3, 2) / 7
    data = model(
        [helper.make_node("MatMul", ["x", "fc.weight"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        {"x": (F, ["batch", 3])},
        {"y": (F, ["batch", 2])},
        {"fc.weight": w},
    )
    net = torch.onnx.load(data)
    assert [n for n, _ in net.named_parameters()] == ["fc.weight"]
    x = torch.ones(4, 3)
    assert np.allclose(net(x).tolist(), np.maximum(np.ones((4, 3)) @ w, 0), atol=1e-6)
    assert np.allclose(net(x=x).tolist(), net.run(["y"], {"x": x})[0].tolist())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(x).sum().backward()
    optimizer.step()
    assert np.allclose(net.fc.weight.tolist(), w - 0.1 * 4 * (w.sum(0) > 0), atol=1e-6)


def test_what_is_not_supported_is_said_at_once() -> None:
    made = helper.make_graph(
        [helper.make_node("Frobnicate", ["x"], ["h"]), helper.make_node("Wobble", ["h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", F, [1])],
        [helper.make_tensor_value_info("y", F, [1])],
    )
    data = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
    with pytest.raises(NotImplementedError, match=r"Frobnicate \(opset 20\), Wobble \(opset 20\)"):
        torch.onnx.load(data)
    with pytest.raises(ValueError, match="not an ONNX model"):
        torch.onnx.load(b"\xff" * 40)


def test_inputs_are_checked() -> None:
    data = model(
        [helper.make_node("Add", ["a", "b"], ["y"])], {"a": (F, ["n", 2]), "b": (F, ["n", 2])}, {"y": (F, ["n", 2])}
    )
    net = torch.onnx.load(data)
    with pytest.raises(ValueError, match="dimension 0 \\('n'\\) of input 'b' is 3, but 4 in input 'a'"):
        net(torch.ones(4, 2), torch.ones(3, 2))
    with pytest.raises(ValueError, match="dimension 1 of input 'a' is to be 2, but is 3"):
        net(torch.ones(4, 3), torch.ones(4, 3))
    with pytest.raises(TypeError, match="is to have the type FLOAT"):
        net(torch.ones(4, 2, dtype=torch.int32), torch.ones(4, 2))
    with pytest.raises(TypeError, match="input 'b' is missing"):
        net(torch.ones(4, 2))


#: cases that do not pass though their types are here: of operators that are not supported, of numbers that NumPy draws, and of
#: zeros that are 2e-6 there, as NumPy rounds
MISSING = "ai_onnx_ml bernoulli dft_inverse image_decoder training_dropout".split()


@pytest.mark.parametrize("part", range(4))
def test_onnx_own_cases(part: int) -> None:
    passed = 0
    for case in onnx_cases.nodes()[part::4]:
        try:
            onnx_cases.run(case, "cpu")
            passed += 1
        except Exception as e:
            if case.here and not any(word in case.name for word in MISSING):
                raise AssertionError(f"{case.name}: {type(e).__name__}") from e
    assert passed >= 310


@pytest.mark.parametrize("part", range(40))
def test_onnx_own_cases_on_webgpu(part: int) -> None:
    passed = 0
    for case in onnx_cases.nodes()[part::40]:
        try:
            onnx_cases.run(case, "webgpu")
            passed += 1
        except Exception as e:
            if case.here and not any(word in case.name for word in MISSING) and "not available on webgpu" not in str(e):
                raise AssertionError(f"{case.name}: {type(e).__name__}") from e
    assert passed >= 20


@pytest.mark.parametrize("kind", ["pytorch-converted", "pytorch-operator"])
def test_models_that_pytorch_wrote(kind: str) -> None:
    for i, case in enumerate(onnx_cases.folders(kind)):
        onnx_cases.run(case, "webgpu" if i % 8 == 0 and kind == "pytorch-converted" else "cpu")


#: of ONNX's own domain: what decodes files of images
ABSENT = {"ImageDecoder"}


def test_every_operator_is_there() -> None:
    """In each of its versions, with all attributes and inputs of it."""
    operators.load()
    absent = set()
    for s in onnx.defs.get_all_schemas_with_history():
        found = registry.find(s.domain, s.name, s.since_version)
        if s.domain or s.deprecated:
            continue
        if found is None:
            absent.add(s.name)
            continue
        assert found.open or set(s.attributes) <= set(found.attributes), (s.name, s.since_version)
        assert found.rest or len(s.inputs) <= len(found.inputs), (s.name, s.since_version)
    assert absent == ABSENT


def node(name: str, inputs: dict[str, Any], opset: int = 22, outputs: int = 1, **attributes: Any) -> bytes:
    """The bytes of a model of one operator."""
    asked = [f"o{i}" for i in range(outputs)]
    made = helper.make_node(name, list(inputs), asked, **attributes)
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in inputs.items()
    ]
    graph = helper.make_graph([made], "g", given, [helper.make_empty_tensor_value_info(n) for n in asked])
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def given(net: Any, inputs: dict[str, Any], device: str) -> list[Any]:
    return net.run(None, {n: onnx_cases.fed(x, device) for n, x in inputs.items()})


#: name -> (inputs, attributes, the type of what is drawn, its mean)
DRAWS: dict[str, tuple[dict[str, Any], dict[str, Any], str, float]] = {
    "RandomUniform": ({}, {"shape": [40, 50], "low": -1.0, "high": 5.0}, "float32", 2.0),
    "RandomNormal": ({}, {"shape": [40, 50], "mean": 3.0, "scale": 0.5}, "float32", 3.0),
    "RandomUniformLike": ({"x": np.zeros((40, 50), np.float16)}, {"high": 4.0}, "float16", 2.0),
    "RandomNormalLike": ({"x": np.zeros((40, 50), np.int32)}, {"dtype": 1}, "float32", 0.0),
    "Bernoulli": ({"x": np.full((40, 50), 0.25, np.float32)}, {"dtype": 7}, "int64", 0.25),
    "Multinomial": ({"x": np.log([[1, 2, 1]] * 40).astype(np.float32)}, {"sample_size": 50}, "int32", 1.0),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws(name: str, device: str) -> None:
    """Of the shape, type and mean that are asked for; the same again with a seed, others with another, or without."""
    inputs, attributes, dtype, mean = DRAWS[name]

    def drawn(**seed: float) -> list[Any]:
        net = torch.onnx.load(node(name, inputs, **attributes, **seed), device=device)
        rows = []
        for _ in range(2):
            (y,) = given(net, inputs, device)
            assert (tuple(y.shape), str(y.dtype), y.device.type) == ((40, 50), f"torch.{dtype}", device)
            rows.append(y.tolist())
        return rows

    free, first, second = drawn(), drawn(seed=0.25), drawn(seed=0.75)
    for rows in (free[0], first[0], second[0]):
        assert abs(np.mean(rows) - mean) < 0.15
    assert free[0] != free[1]
    assert first[0] == first[1]
    assert first[0] != second[0]


@pytest.mark.parametrize("ratio", [0.25, 0.0, 1.0])
def test_dropout_that_trains(ratio: float, device: str) -> None:
    inputs = {
        "x": np.arange(1, 2001, dtype=np.float32),
        "ratio": np.array(ratio, np.float32),
        "training": np.array(True),
    }
    net = torch.onnx.load(node("Dropout", inputs, outputs=2, seed=3), device=device)
    y, kept = (t.tolist() for t in given(net, inputs, device))
    assert abs(np.mean(kept) - (1 - ratio)) < 0.05
    scale = 1 / (1 - ratio) if ratio < 1 else 0.0
    assert np.allclose(y, inputs["x"] * kept * scale)
    assert given(net, inputs, device)[1].tolist() == kept


def test_inverse_fourier_transform(device: str) -> None:
    x = np.random.default_rng(1).standard_normal((2, 6, 3, 2)).astype(np.float32)
    want = np.fft.ifft(x[..., 0] + 1j * x[..., 1], 8, 1)
    inputs = {"x": x, "n": np.array(8)}
    (got,) = given(torch.onnx.load(node("DFT", inputs, 17, inverse=1), device=device), inputs, device)
    assert np.allclose(got.tolist(), np.stack([want.real, want.imag], -1), atol=1e-5)


def test_max_roi_pool(device: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    x = np.random.default_rng(1).standard_normal((2, 3, 8, 10)).astype(np.float32)
    rois = np.array([[0, 0, 0, 9, 7], [1, 2.5, 1, 6, 12], [1, 3, 3, 3, 3], [0, 8, 6, 14, 13]], np.float32)
    inputs = {"x": x, "rois": rois}
    for scale in (1.0, 0.5):
        data = node("MaxRoiPool", inputs, 17, pooled_shape=[2, 3], spatial_scale=scale)
        (want,) = ort.InferenceSession(data).run(None, inputs)
        (got,) = given(torch.onnx.load(data, device=device), inputs, device)
        assert np.array_equal(np.array(got.tolist(), np.float32), want)


def test_the_first_upsample(device: str) -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    data = node("Upsample", {"x": x}, 1, height_scale=2.0, width_scale=3.0)
    (got,) = given(torch.onnx.load(data, device=device), {"x": x}, device)
    assert got.tolist() == x.repeat(2, 2).repeat(3, 3).tolist()


def test_shapes_do_not_wait_for_the_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
    ]
    weights = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    net = torch.onnx.load(model(nodes, {"x": (F, ["n", 2, 3])}, {"y": (F, ["n", 6])}, weights))
    reads = []
    bridge = type(get_bridge())
    plain = bridge.read
    monkeypatch.setattr(bridge, "read", lambda *args, **kw: reads.append(1) or plain(*args, **kw))
    y = net(torch.ones(5, 2, 3))
    assert tuple(y.shape) == (5, 6)
    assert not reads
    assert y.sum().item() == 30
    assert reads


def test_compiled(device: str) -> None:
    case = next(c for c in onnx_cases.folders("pytorch-converted") if c.name == "test_BatchNorm2d_eval")
    net = torch.onnx.load(case.model)
    compiled = torch.compile(net)
    x = torch.tensor(case.sets[0][0][0].tolist())
    for _ in range(3):
        onnx_cases.compare(compiled(x).detach(), case.sets[0][1][0], 1e-3, 1e-5)


def test_weights_in_a_file_beside(tmp_path) -> None:
    w = np.arange(60000, dtype=np.float32).reshape(300, 200) / 60000
    made = onnx.load_from_string(
        model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (F, [2, 300])}, {"y": (F, [2, 200])}, {"w": w})
    )
    path = tmp_path / "m.onnx"
    whole = made.SerializeToString()
    onnx.save_model(made, str(path), save_as_external_data=True, location="m.data", size_threshold=0)
    want = np.ones((2, 300), np.float32) @ w
    for given in (str(path), whole):
        assert np.allclose(torch.onnx.load(given)(torch.ones(2, 300)).tolist(), want, rtol=1e-4)
    with pytest.raises(FileNotFoundError, match=r"m\.data"):
        torch.onnx.load(path.read_bytes())
    assert np.allclose(
        torch.onnx.load(path.read_bytes(), external_data={"m.data": str(tmp_path / "m.data")})(
            torch.ones(2, 300)
        ).tolist(),
        want,
        rtol=1e-4,
    )
    made = onnx.load(str(path), load_external_data=False)
    for entry in made.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../m.data"
    with pytest.raises(FormatError, match="does not lie beside"):
        torch.onnx.load(made.SerializeToString())


def test_mutated_files() -> None:
    """A slice of fuzz.onnx_files."""
    found, loaded = onnx_files.run(1500, "7c1f")
    assert found == []
    assert 20 < loaded < 1000
