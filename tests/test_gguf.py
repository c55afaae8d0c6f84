"""GGUF files: what PyPI's `gguf` writes is read, bytes stay packed, and models of it are transformers' models."""

from __future__ import annotations

import gc
import io
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize

import tabtorch as torch
from fuzz import gguf_files
from gguf_models import pair, written
from tabtorch.engine import graph, memory
from tabtorch.gguf import GGUFError, load, model, reader
from tabtorch.packed import Packed


@pytest.fixture
def small(tmp_path: Any) -> Any:
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((40, 64), (3, 5), (24, 32)))
    tensors = {
        "a": (quantize(a, Kind.Q4_0), Kind.Q4_0),
        "b": (b, Kind.F32),
        "h": (b.astype(np.float16), Kind.F16),
        "c": (quantize(c, Kind.Q8_0), Kind.Q8_0),
    }
    metadata = {"n": 7, "x": 0.5, "yes": True, "s": "hé", "l": ["a", "", "ü"], "f": [1.5, -2.0], "i": [[1, 2], [3]]}
    return written(tmp_path / "small.gguf", metadata, tensors), metadata, tensors


def check_small(found: Any, metadata: Any, tensors: Any) -> None:
    for key, value in metadata.items():
        assert found.metadata[key] == value
    assert list(found.tensors) == list(tensors)
    for name, (data, kind) in tensors.items():
        want = dequantize(data, kind) if kind in (Kind.Q4_0, Kind.Q8_0) else data
        got = found.tensors[name]
        got = got.dequantize() if isinstance(got, Packed) else got
        assert np.array_equal(got.numpy(), want), name


def test_a_file_is_read_from_wherever_it_is(device: str, small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path, *want = small
    for source in (path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes())):
        check_small(load(source), *want)
    # pieces that end anywhere, and buffers that hold some rows
    monkeypatch.setattr("tabtorch.gguf.header.STEP", 7)
    monkeypatch.setattr("tabtorch.serialization.transfer.PIECE", 64)
    monkeypatch.setattr(reader, "largest", lambda device: 400)
    found = load(path)
    assert len(found.tensors["a"].parts) == 4
    check_small(found, *want)


def test_a_connection_is_read_forwards(small: Any) -> None:
    path, *want = small
    data, at = path.read_bytes(), 0

    class Forwards(reader.Reader):
        size = len(data)

        def read(self, offset: int, nbytes: int) -> Any:
            nonlocal at
            assert offset >= at
            at = offset + nbytes
            return data[offset : offset + nbytes]

    check_small(load(Forwards()), *want)


def test_it_takes_the_bytes_of_the_file(tmp_path: Any, device: str) -> None:
    rng = np.random.default_rng(1)
    w = quantize(rng.standard_normal((256, 512)).astype(np.float32), Kind.Q4_0)
    path = written(tmp_path / "w.gguf", {}, {"w": (w, Kind.Q4_0)})
    gc.collect()  # what tests before left in cycles would be given back while this one counts
    graph.flush()
    before = sum(memory.memory.live)
    found = load(path)
    graph.flush()
    took = sum(memory.memory.live) - before
    assert found.tensors["w"].packed_nbytes <= took <= 1.15 * path.stat().st_size


def test_what_is_no_such_file_is_refused(small: Any) -> None:
    data = small[0].read_bytes()
    for bad in (
        b"",
        b"GGUF",
        b"GGML" + data[4:],
        data[:4] + b"\1\0\0\0" + data[8:],
        data[:4] + b"\0\0\0\3",
        data[:-100],
    ):
        with pytest.raises(GGUFError):
            load(bad)
    for at in (8, 16, 24):  # counts and a length
        with pytest.raises(GGUFError, match="beyond"):
            load(data[:at] + b"\xff" * 7 + b"\x7f" + data[at + 8 :])


def test_version_2_is_read(small: Any) -> None:
    data = small[0].read_bytes()
    check_small(load(data[:4] + b"\2\0\0\0" + data[8:]), *small[1:])


def test_a_slice_of_the_fuzzer() -> None:
    done, refused, found = gguf_files.run("5ad01", 300)
    assert done == 300 and 0 < refused < 300 and found == []


# ---- models


def test_draws_are_those_of_the_seed(device: str, tmp_path: Any) -> None:
    ours = model(pair(tmp_path / "m.gguf", "llama", Kind.Q8_0)[0])
    options = {"temperature": 1.5, "top_k": 20, "top_p": 0.9}
    first = list(ours.generate([1, 2], 8, seed=1, **options))
    assert first == list(ours.generate([1, 2], 8, seed=1, **options))
    assert any(first != list(ours.generate([1, 2], 8, seed=s, **options)) for s in (2, 3))
    assert list(ours.generate([1, 2], 8, temperature=1.0, top_k=1)) == list(ours.generate([1, 2], 8))


def test_what_is_no_model_is_refused(small: Any, tmp_path: Any) -> None:
    with pytest.raises(GGUFError, match=r"llama\.embedding_length must be"):
        model(small[0])
    ours = model(pair(tmp_path / "m.gguf", "qwen2", Kind.Q8_0)[0])
    found = load(tmp_path / "m.gguf")
    with pytest.raises(GGUFError, match="experts"):
        model(found._replace(metadata={**found.metadata, "qwen2.expert_count": 8}))
    for key, value in (("rope.scale_linear", 2.0), ("attention.sliding_window", 4), ("rope.scaling.type", "su")):
        with pytest.raises(GGUFError, match="not supported"):
            model(found._replace(metadata={**found.metadata, f"qwen2.{key}": value}))
    with pytest.raises(GGUFError, match="no qwen2 has: extra"):
        model(found._replace(tensors={**found.tensors, "extra": torch.zeros(2)}))
    with pytest.raises(GGUFError, match="no tensor 'output_norm"):
        model(found._replace(tensors={k: v for k, v in found.tensors.items() if k != "output_norm.weight"}))
    with pytest.raises(GGUFError, match="is of"):
        model(found._replace(tensors={**found.tensors, "output_norm.weight": torch.zeros(2)}))
    with pytest.raises(ValueError, match="more than the model's 640"):
        ours(torch.tensor([[1]]), 640)
    with pytest.raises(ValueError, match="more than the model's 640"):
        next(ours.generate([1] * 641, 1))
    assert len(list(ours.generate([1] * 638, 9))) == 3  # the last is not written
