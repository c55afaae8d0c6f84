"""`tabtorch.onnx.load`: ONNX's own cases, real files, what is refused, and that shapes never wait for a device."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_cases
import tabtorch as torch
from fuzz import onnx_files
from tabtorch.bridge import get_bridge
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


#: cases that do not pass though their types are here: of operators that are not supported, and of numbers that NumPy draws
MISSING = (
    "adagrad adam ai_onnx_ml basic_conv_with bernoulli blackman hamming hann dft image_decoder label_encoder "
    "maxunpool melweight momentum nesterov regex stft string strnorm tfidf training_dropout tree_ensemble"
).split()


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
    assert passed >= 290


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
