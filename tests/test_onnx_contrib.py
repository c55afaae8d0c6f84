"""onnxruntime's own operators (`com.microsoft`), against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnx_cases
import tabtorch as torch
from tabtorch.engine import graph
from tabtorch.onnx.operators.contrib import multi_head_attention
from tabtorch.onnx.operators.contrib_quantized import matmul_nbits
from test_counts import counted

ort = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(7)
MICROSOFT = "com.microsoft"


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def u(*shape: int) -> Any:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def i8(*shape: int) -> Any:
    """Seven bits of eight: onnxruntime adds products of pairs in sixteen, which saturate, on a CPU without VNNI."""
    return RNG.integers(-64, 64, shape, dtype=np.int8)


def scale(of: float = 0.05) -> Any:
    return np.array(of, np.float32)


def zero(of: int = 120, dtype: Any = np.uint8) -> Any:
    return np.array(of, dtype)


def check(
    name: str,
    inputs: list[Any],
    device: str,
    outputs: Any = 1,
    step: float = 0.0,
    domain: str = MICROSOFT,
    compared: int = 9,
    **attributes: Any,
) -> None:
    """The same as onnxruntime: floats within 1e-4 of the largest, quantized numbers within `step`."""
    names = [f"i{i}" if x is not None else "" for i, x in enumerate(inputs)]
    asked = [f"o{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
    node = helper.make_node(name, names, asked, domain=domain, **attributes)
    given = {n: x for n, x in zip(names, inputs) if x is not None}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in given.items()],
        [helper.make_empty_tensor_value_info(n) for n in asked if n],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    want = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, given)
    net = torch.onnx.load(data, device=device)
    with torch.no_grad():
        got = net.run(None, {n: onnx_cases.fed(x, device) for n, x in given.items()})
    for g, w in zip(got[:compared], want):
        largest = float(np.abs(w.astype(np.float64)).max()) if w.size else 0.0
        onnx_cases.compare(g, w, 1e-4, step or 1e-4 * largest)


def test_activations(device: str) -> None:
    x, b = f(3, 8), f(8)
    check("Gelu", [x], device)
    check("QuickGelu", [x], device)
    check("QuickGelu", [x], device, alpha=1.0)
    check("BiasGelu", [x, b], device)
    check("FastGelu", [x, b], device)
    check("FastGelu", [x], device)


def test_products(device: str) -> None:
    check("FusedMatMul", [f(2, 4, 3), f(2, 5, 4)], device, alpha=0.5, transA=1, transB=1)
    check("FusedMatMul", [f(3, 2, 4), f(2, 4, 5)], device, transBatchA=1)
    check("FusedMatMul", [f(2, 3, 4), f(5, 2, 4)], device, transB=1, transBatchB=1)


def test_normalizations(device: str) -> None:
    x, skip, g, b = f(2, 3, 8), f(2, 3, 8), f(8), f(8)
    check("SkipLayerNormalization", [x, skip, g, b], device, epsilon=1e-5)
    check("SkipLayerNormalization", [x, skip, g, b, f(8)], device, ["y", "", "", "s"])
    check("SkipSimplifiedLayerNormalization", [x, skip, g], device, ["y", "", "", "s"], epsilon=1e-6)
    check("SkipSimplifiedLayerNormalization", [x, skip, g, b], device)
    check("SimplifiedLayerNormalization", [x, g], device, domain="", epsilon=1e-6)
    ids, parts = RNG.integers(0, 9, (2, 4), dtype=np.int32), RNG.integers(0, 2, (2, 4), dtype=np.int32)
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    check("EmbedLayerNormalization", [ids, parts, f(9, 8), f(6, 8), f(2, 8), g, b, mask], device, 3)
    check("EmbedLayerNormalization", [ids, None, f(9, 8), f(6, 8), None, g, b], device, 2)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int, device: str) -> None:
    cos, sin = f(10, 4), f(10, 4)
    at = np.array([[1, 2, 3], [4, 5, 6]], np.int64)
    check("RotaryEmbedding", [f(2, 3, 16), at, cos, sin], device, interleaved=interleaved)
    check("RotaryEmbedding", [f(2, 3, 16), at, cos, sin], device, scale=2.0)
    check("RotaryEmbedding", [f(2, 2, 3, 8), at, cos, sin], device, interleaved=interleaved)
    check("RotaryEmbedding", [f(2, 3, 16), np.array([2], np.int64), cos, sin], device, interleaved=interleaved)
    check(
        "RotaryEmbedding",
        [f(2, 3, 32), at, cos, sin],
        device,
        interleaved=interleaved,
        num_heads=2,
        rotary_embedding_dim=8,
    )


def test_multi_head_attention(device: str) -> None:
    q, k, v = f(2, 3, 8), f(2, 5, 8), f(2, 5, 8)
    check("MultiHeadAttention", [q, k, v], device, num_heads=2)
    check("MultiHeadAttention", [q, k, v, f(24)], device, num_heads=2, scale=0.3)
    check("MultiHeadAttention", [q, k, v, None, np.array([3, 5], np.int32)], device, num_heads=2)
    mask = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]], np.int32)
    check("MultiHeadAttention", [q, k, v, None, mask, f(1, 2, 3, 5)], device, num_heads=2)
    check("MultiHeadAttention", [q, f(2, 2, 5, 4), f(2, 2, 5, 4)], device, num_heads=2)
    k, v = f(2, 3, 8), f(2, 3, 8)
    past = f(2, 2, 4, 4), f(2, 2, 4, 4)
    check("MultiHeadAttention", [q, k, v, None, None, None, *past], device, 3, num_heads=2, unidirectional=1)


def test_multi_head_attention_of_packed_heads(device: str) -> None:
    """onnxruntime has them on CUDA only: they are compared with what is not packed."""
    packed = torch.tensor(f(2, 3, 2, 3, 4).tolist(), device=device)
    q, k, v = (t.flatten(2) for t in packed.unbind(3))
    (want,) = multi_head_attention(q, k, v, num_heads=2)
    for given in ((packed,), (q, packed[:, :, :, 1:])):
        (got,) = multi_head_attention(*given, num_heads=2)
        assert torch.allclose(got, want, atol=1e-5)


def test_attention(device: str) -> None:
    x, w, b = f(2, 3, 6), f(6, 24), f(24)
    check("Attention", [x, w, b], device, num_heads=2)
    check("Attention", [x, w, b], device, num_heads=2, unidirectional=1)
    check("Attention", [x, w, b, np.array([2, 3], np.int32)], device, num_heads=2)
    check("Attention", [x, w, b, np.array([3, 3, 1, 0], np.int32)], device, num_heads=2)
    check("Attention", [x, w, b, np.array([[1, 1, 0], [0, 1, 1]], np.int32)], device, num_heads=2)
    check("Attention", [x, w, b, np.tril(np.ones((2, 3, 3), np.int32))], device, num_heads=2)
    check("Attention", [x, f(6, 20), f(20)], device, num_heads=2, qkv_hidden_sizes=[8, 8, 4])
    check("Attention", [x, w, b, None, f(2, 2, 2, 4, 4)], device, 2, num_heads=2, unidirectional=1)


def lengths(*n: int) -> Any:
    return np.array(n, np.int32)


@pytest.mark.parametrize("given", [{}, {"local_window_size": 2}, {"softcap": 2.0}, {"smooth_softmax": 1}])
def test_group_query_attention(given: dict[str, Any], device: str) -> None:
    given = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, **given}
    angles, whole = (f(12, 8), f(12, 8)), np.array(5, np.int32)
    none = None, None

    def new(batch: int, length: int) -> Any:
        return f(batch, length, 64), f(batch, length, 32), f(batch, length, 32)

    def past(batch: int, length: int) -> Any:
        return f(batch, 2, length, 16), f(batch, 2, length, 16)

    name = "GroupQueryAttention"
    check(name, [*new(2, 5), *none, lengths(4, 4), whole], device, 3, **{**given, "do_rotary": 0})
    check(name, [f(2, 5, 128), *none, *none, lengths(4, 4), whole, *angles], device, 3, **given)
    # more tokens: of one text, of two of different lengths, of several at once, and into a past that has room
    check(name, [*new(1, 1), *past(1, 4), lengths(4), whole, *angles], device, 3, **given)
    check(name, [*new(2, 1), *past(2, 4), lengths(4, 2), whole, *angles], device, 3, compared=1, **given)
    check(name, [*new(1, 3), *past(1, 2), lengths(4), whole, *angles], device, 3, rotary_interleaved=1, **given)
    check(name, [*new(2, 1), *past(2, 8), lengths(4, 2), whole, *angles], device, 3, compared=1, **given)


def test_group_query_attention_with_more(device: str) -> None:
    given = {"num_heads": 4, "kv_num_heads": 2}
    q, k, v = f(2, 5, 32), f(2, 5, 16), f(2, 5, 16)
    more = [None, None, lengths(4, 4), np.array(5, np.int32), None, None]
    check("GroupQueryAttention", [q, k, v, *more, None, f(1, 4, 5, 5)], device, 3, **given)
    check("GroupQueryAttention", [q, k, v, *more, None, None, f(4)], device, 3, **given)


@pytest.mark.parametrize("k", [48, 40])  # whole blocks, which the product's kernel unpacks, and not
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_of_few_bits(bits: int, k: int, device: str) -> None:
    n, block = 6, 16
    blocks = -(-k // block)
    b, s = u(n, blocks, block * bits // 8), np.abs(f(n, blocks)) / 8
    given = {"K": k, "N": n, "bits": bits, "block_size": block}
    check("MatMulNBits", [f(3, k), b, s], device, **given)
    check("MatMulNBits", [f(2, 3, k), b, s, u(n, -(-blocks * bits // 8))], device, **given)
    if bits < 8:  # onnxruntime has no other
        check("MatMulNBits", [f(3, k), b, s.reshape(-1), f(n, blocks)], device, **given)
    check("MatMulNBits", [f(3, k), b, s, None, None, f(n)], device, **given)
    if (
        bits == 4
    ):  # onnxruntime has no other here, and leaves zero points out, so that they are compared with blocks in order
        order = RNG.integers(0, blocks, k).astype(np.int32)
        check("MatMulNBits", [f(3, k), b, s, None, order], device, **given)
        x, scales = torch.tensor(f(3, k).tolist()), torch.tensor(s.tolist())
        data, zeros = (torch.tensor(t.tolist(), dtype=torch.uint8) for t in (b, u(n, 2)))
        want = matmul_nbits(x, data, scales, zeros, **given)
        got = matmul_nbits(x, data, scales, zeros, torch.arange(k) // block, **given)
        assert torch.allclose(got, want, atol=1e-4)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_product_unpacks_its_weights_in_its_own_kernel(bits: int, device: str) -> None:
    b, s, zeros = (
        torch.tensor(t.tolist(), dtype=d)
        for t, d in zip(
            (u(8, 2, 16 * bits // 8), f(8, 2), u(8, -(-2 * bits // 8))),
            (torch.uint8, torch.float32, torch.uint8),
            strict=True,
        )
    )
    for x in (torch.ones(1, 32), torch.ones(5, 32)):
        graph.flush()
        with counted() as n:
            y = matmul_nbits(x, b, s, zeros, K=32, N=8, bits=bits, block_size=16)
        assert n.dispatches == 1 and y.shape == (x.shape[0], 8)


def test_rows_of_few_bits(device: str) -> None:
    rows = np.array([[0, 5], [2, 2]], np.int64)
    data, s = u(6, 32), np.abs(f(6, 4))
    check("GatherBlockQuantized", [data, rows, s], device, bits=4, block_size=16)
    check("GatherBlockQuantized", [data, rows, s, u(6, 2)], device, bits=4, block_size=16)
    check("GatherBlockQuantized", [data, rows, np.abs(f(6, 2)), u(6, 2)], device, bits=8, block_size=16)


def test_functions_of_quantized_numbers(device: str) -> None:
    # a number between two may go to either
    a, b, many = u(2, 3, 4), u(2, 3, 4), u(1, 3, 6, 6)
    at, out = [scale(), zero()], [scale(0.11), zero(100)]
    check("QLinearAdd", [a, *at, b, scale(0.03), zero(7), *out], device, step=1)
    check("QLinearMul", [a, *at, u(4), scale(0.03), zero(7), *out], device, step=1)
    check("QLinearSigmoid", [a, *at, scale(0.004), zero(0)], device, step=1)
    check("QLinearLeakyRelu", [a, *at, *out], device, step=1, alpha=0.2)
    check("QLinearGlobalAveragePool", [many, *at, *out], device, step=1)
    check("QLinearGlobalAveragePool", [u(1, 6, 6, 3), *at, *out], device, step=1, channels_last=1)
    check("QLinearAveragePool", [many, *at, *out], device, step=1, kernel_shape=[2, 2], strides=[2, 2])
    check("QLinearAveragePool", [many, *at, *out], device, step=1, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    check("QLinearConcat", [*out, a, *at, b, scale(0.2), zero(30)], device, step=1, axis=1)
    check("QuantizeLinear", [f(3, 4), np.abs(f(4)), u(4)], device, step=1, axis=1)
    check("DequantizeLinear", [u(3, 4), np.abs(f(4)), u(4)], device, axis=1)


def test_products_of_quantized_numbers(device: str) -> None:
    columns = np.abs(f(4))
    check("MatMulIntegerToFloat", [u(3, 5), i8(5, 4), scale(), columns, zero(), np.zeros(4, np.int8), f(4)], device)
    check("MatMulIntegerToFloat", [u(2, 3, 5), u(5, 4), scale(), scale(0.2), zero(), zero(99)], device)
    check("DynamicQuantizeMatMul", [f(3, 5), i8(5, 4), columns, None, f(4)], device)
    at, out = [scale(), zero()], [scale(2.5), zero(100)]
    check("QGemm", [u(3, 5), *at, i8(5, 4), scale(), zero(0, np.int8), lengths(3, -5, 7, 100)], device)
    check("QGemm", [u(5, 3), *at, u(4, 5), scale(), zero(), None, *out], device, step=1, transA=1, transB=1, alpha=2.0)


def test_where_attention_is_not_there() -> None:
    node = helper.make_node("Attention", ["x", "w"], ["y"], domain=MICROSOFT, num_heads=2, do_rotary=1)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xw"],
        [helper.make_empty_tensor_value_info("y")],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid(MICROSOFT, 1)], ir_version=9)
    net = torch.onnx.load(data.SerializeToString())
    with pytest.raises(NotImplementedError, match="do_rotary"):
        net(torch.zeros(1, 2, 6), torch.zeros(6, 24))
