"""`tabtorch.onnx.load`: ONNX's own cases, real files, what is refused, and that shapes never wait for a device."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tabtorch as torch


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
