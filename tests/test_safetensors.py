"""Files in the safetensors format against the library `safetensors` itself, byte for byte, and from a server."""

from __future__ import annotations

import http.server
import json
import struct
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

import tabtorch
from tabtorch import safetensors as st
from tabtorch.utils import fetch

THEIRS = safetensors.torch
DTYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64".split()


def tensors() -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    found = {}
    for name in DTYPES:
        d = getattr(torch, name)
        for shape in ((), (3,), (2, 5), (0, 2)):
            raw = torch.randint(0, 2 if name == "bool" else 256, (int(np.prod(shape)) * d.itemsize,), generator=g)
            found[f"{name} {len(found)}ä"] = raw.to(torch.uint8).view(d).reshape(shape).clone()
    return found


def test_every_dtype_both_ways_byte_for_byte(tmp_path: Path, device: str) -> None:
    want = tensors()
    for metadata in (None, {"format": 'pt "ü'}):
        data = THEIRS.save(want, metadata)
        got = st.load(data)
        assert set(got) == set(want)
        assert st.save(got, metadata) == data
        st.save_file(got, tmp_path / "x.safetensors", metadata)
        assert (tmp_path / "x.safetensors").read_bytes() == data
        back = THEIRS.load_file(tmp_path / "x.safetensors")
        for name, t in st.load_file(tmp_path / "x.safetensors").items():
            assert (tuple(t.shape), str(t.dtype)) == (tuple(want[name].shape), str(want[name].dtype))
            assert t.device.type == ("cpu" if name.startswith("float64") else device)
            a, b = (x.reshape(-1).view(torch.uint8) if x.numel() else x for x in (back[name], want[name]))
            assert torch.equal(a, b)
    assert list(st.load_file(tmp_path / "x.safetensors")) == list(back)
    assert {t.device.type for t in st.load_file(tmp_path / "x.safetensors", device="cpu").values()} == {"cpu"}
    assert list(tabtorch.load(str(tmp_path / "x.safetensors"), map_location="cpu")) == list(back)


def test_safe_open(tmp_path: Path, device: str) -> None:
    path = tmp_path / "x.safetensors"
    THEIRS.save_file({"b": torch.arange(12.0).reshape(3, 4), "a": torch.ones(2, dtype=torch.int64)}, path, {"k": "v"})
    indices = "0 2 -1 5 ... 0,0 ::2 1:2 0:9 2:1 :,1 1:,0 None [0] 0,0,0 (slice(1,3),slice(0,4,2))".split()
    asked = ["list(f.keys())", "f.offset_keys()", "f.metadata()", "f.get_tensor('a')", "f.get_tensor('no')"]
    asked += ["sorted(f.get_tensors())", "f.get_slice('b').get_shape()", "f.get_slice('b').get_dtype()"]
    asked += [f"f.get_slice('b')[{i}]" for i in indices]
    with st.safe_open(path, "pt") as mine, safetensors.safe_open(path, "pt") as theirs:
        for question in asked:
            said = []
            for f in (theirs, mine):
                try:
                    said.append(repr(eval(question, {"f": f})))
                except Exception as e:
                    said.append(f"{type(e).__name__}: {e}")
            assert said[0] == said[1], question
    with st.safe_open(path, "np") as f:
        assert isinstance(f.get_tensor("b"), np.ndarray)
    for kw in ({"framework": "xx"}, {"framework": "pt", "device": "foo"}):
        with pytest.raises(st.SafetensorError, match="(framework xx|device foo) is invalid"):
            with st.safe_open(path, **kw) as f:  # type: ignore[arg-type]
                f.get_tensor("a")


def tied(T: Any) -> Any:
    class Model(T.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = T.nn.Embedding(5, 3)
            self.head = T.nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

    return Model()


def test_models_with_tied_weights(tmp_path: Path, device: str) -> None:
    mine, theirs, again = tied(tabtorch), tied(torch), tied(tabtorch)
    st.save_model(mine, tmp_path / "a", {"x": "y"})
    assert st.load_model(again, tmp_path / "a") == (set(), [])
    assert tabtorch.equal(again.head.weight, mine.embed.weight) and again.head.weight is again.embed.weight
    THEIRS.load_model(theirs, tmp_path / "a")
    THEIRS.save_model(theirs, tmp_path / "b", {"x": "y"})
    assert (tmp_path / "a").read_bytes()[:8] == (tmp_path / "b").read_bytes()[:8]
    assert st.safe_open(tmp_path / "b", "pt").metadata() == st.safe_open(tmp_path / "a", "pt").metadata()
    for T, M in ((torch, THEIRS), (tabtorch, st)):
        for make in (T.nn.Linear(3, 5), T.nn.Embedding(5, 3)):
            with pytest.raises(RuntimeError, match=r"Error\(s\) in loading state_dict for (Linear|Embedding)"):
                M.load_model(make, tmp_path / "a")


def test_what_is_not_saved_is_said_in_their_words() -> None:
    def cases(T: Any) -> list[Any]:
        w = T.arange(4.0).reshape(2, 2)
        return [
            {"a": w, "b": w},
            {"a": w, "b": w[0]},
            {"a": w.t()},
            {"a": 1},
            [w],
            {"a": T.zeros(1, dtype=T.complex128)},
            {1: w},
        ]

    for a, b in zip(cases(torch), cases(tabtorch), strict=True):
        said = []
        for M, x in ((THEIRS, a), (st, b)):
            with pytest.raises((RuntimeError, ValueError, KeyError, TypeError)) as error:
                M.save(x)
            said.append((type(error.value), str(error.value).replace("{'b', 'a'}", "{'a', 'b'}")))
        assert said[0] == said[1]
    # halves of one storage share nothing
    w = tabtorch.arange(4.0).reshape(2, 2)
    got = THEIRS.load(st.save({"a": w[0], "b": w[1]}))
    assert got["b"].tolist() == [2, 3]


def file_of(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: str, shape: list[Any], begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


#: file -> whether the library reads it although the format's description forbids it
HOSTILE = {
    "empty": (b"", False),
    "short": (b"\1\0\0", False),
    "header too large": (struct.pack("<Q", 10**9) + b"{}", False),
    "header too long": (file_of({}, length=50), False),
    "2**64 - 1": (b"\xff" * 8 + b"{}", False),
    "no text": (file_of(b"\xff\xfe"), False),
    "no json": (file_of(b'{"a":'), False),
    "deep": (file_of(b'{"a":' * 100_000), False),
    "a list": (file_of(b"[]"), False),
    "dtype": (file_of({"a": entry("X9", [1], 0, 4)}, bytes(4)), False),
    "gap": (file_of({"a": entry("F32", [1], 4, 8)}, bytes(8)), False),
    "overlap": (file_of({"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 0, 4)}, bytes(4)), False),
    "overlap that adds up": (file_of({"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 0, 4)}, bytes(8)), False),
    "size": (file_of({"a": entry("F32", [2], 0, 4)}, bytes(4)), False),
    "more behind": (file_of({"a": entry("F32", [1], 0, 4)}, bytes(8)), False),
    "cut": (file_of({"a": entry("F32", [2], 0, 8)}, bytes(4)), False),
    "negative": (file_of({"a": entry("F32", [-1], 0, 4)}, bytes(4)), False),
    "product": (file_of({"a": entry("F32", [2**40, 2**40], 0, 4)}, bytes(4)), False),
    "product of nought": (file_of({"a": entry("F32", [2**40, 2**40, 0], 0, 0)}), False),
    "backwards": (file_of({"a": entry("F32", [0], 4, 0)}, bytes(4)), False),
    "a fraction": (file_of({"a": entry("F32", [1.0], 0, 4)}, bytes(4)), False),
    "a boolean": (file_of({"a": entry("F32", [True], 0, 4)}, bytes(4)), False),
    "twice": (file_of(b'{"a":%s,"a":%s}' % ((json.dumps(entry("U8", [1], 0, 1)).encode(),) * 2), b"\0"), True),
    "metadata": (file_of({"__metadata__": {"a": 1}}), False),
    "a field missing": (file_of({"a": {"dtype": "F32"}}), False),
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_files(name: str, tmp_path: Path) -> None:
    data, read_there = HOSTILE[name]
    (tmp_path / "x").write_bytes(data)
    if not read_there and name != "product of nought":
        with pytest.raises(safetensors.SafetensorError):
            THEIRS.load(data)
    for load in (lambda: st.load(data), lambda: st.load_file(tmp_path / "x")):
        with pytest.raises(st.SafetensorError, match="Error while deserializing"):
            load()


def test_hostile_files_are_refused_in_their_words() -> None:
    same = "empty short gap size cut product backwards".split() + ["header too large", "header too long", "more behind"]
    for name in same + ["overlap that adds up"]:
        said = []
        for M in (THEIRS, st):
            with pytest.raises((safetensors.SafetensorError, st.SafetensorError)) as error:
                M.load(HOSTILE[name][0])
            said.append(str(error.value).replace("`b`", "`a`"))
        assert said[0] == said[1], name


def test_types_that_are_not_here_are_named() -> None:
    data = THEIRS.save({"fine": torch.ones(2), "w": torch.zeros(2, dtype=torch.uint16)})
    with pytest.raises(TypeError, match="'w' has the type U16, which is not supported by tabtorch"):
        st.load(data)


# ---- large files, and files from elsewhere


MEGABYTE = 1 << 20


def large(path: Path) -> dict[str, torch.Tensor]:
    want = {f"w{i}": torch.full((MEGABYTE,), float(i)) for i in range(12)}  # 4 MB each
    want["big"] = torch.arange(5 * MEGABYTE, dtype=torch.int32)
    want |= {f"small{i}": torch.full((i,), i, dtype=torch.int16) for i in range(1, 60)}
    THEIRS.save_file(want, path)
    return want


def same(want: dict[str, torch.Tensor], got: dict[str, Any]) -> None:
    assert set(want) == set(got)
    for name, t in want.items():
        np.testing.assert_array_equal(got[name].numpy(), t.numpy(), err_msg=name)


def test_a_large_file_is_never_held_as_a_whole(tmp_path: Path, device: str) -> None:
    path = tmp_path / "large.safetensors"
    want = large(path)
    pth = tmp_path / "large.pth"
    torch.save(want, pth)
    size = path.stat().st_size
    assert size > 68 * MEGABYTE
    tabtorch.zeros(1).item()
    for load in (lambda: st.load_file(path), lambda: tabtorch.load(pth)):
        pieces: list[int] = []
        tracemalloc.start()
        got = load()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # a piece, the block of commands that it goes into, and as much again while the block grows
        assert peak < 5 * fetch.PIECE + MEGABYTE, f"{peak / MEGABYTE:.1f} MB of {size / MEGABYTE:.1f}"
        same(want, got)
    with st.safe_open(path, "pt") as f:
        read = f._reader.read
        f._reader.read = lambda offset, n: (pieces.append(n), read(offset, n))[1]  # type: ignore[method-assign]
        assert f.get_slice("big")[10:12].tolist() == [10, 11]
        assert f.get_tensor("small3").tolist() == [3, 3, 3]
    assert sum(pieces) < 100


class Server(http.server.BaseHTTPRequestHandler):
    """Gives bytes, ranges of them too; `breaks`: after so many bytes the connection ends, once each."""

    files: dict[str, bytes] = {}
    breaks: list[int] = []
    asked: list[tuple[str, str | None]] = []
    ranges = True

    def do_GET(self) -> None:
        name = self.path[1:].partition("?")[0]
        wanted = self.headers.get("Range")
        self.asked.append((name, wanted))
        data = self.files.get(name)
        if data is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.send_header("ETag", '"1"')
        self.end_headers()
        end = self.breaks.pop(0) if self.breaks else len(data)
        self.wfile.write(data[start:end])

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Server.files, Server.breaks, Server.asked, Server.ranges = {}, [], [], True
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as s:
        threading.Thread(target=s.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{s.server_port}/"
        s.shutdown()


@pytest.mark.parametrize("ranges", [True, False])
def test_from_a_url_that_breaks_off(server: str, ranges: bool, tmp_path: Path) -> None:
    want = {f"t{i}": torch.arange(i * 50_000, dtype=torch.float32) for i in range(8)}
    data = THEIRS.save(want)
    Server.files["m.safetensors"] = data
    Server.breaks, Server.ranges = [100, 1_000_000, 3_000_001], ranges
    seen: list[tuple[int, int | None]] = []
    same(want, st.load_file(server + "m.safetensors?x=1", progress=lambda done, total: seen.append((done, total))))
    assert [r for _, r in Server.asked] == [None, "bytes=100-", "bytes=1000000-", "bytes=3000001-"]
    assert seen[-1] == (len(data), len(data)) and seen == sorted(seen)
    Server.files["cut.safetensors"] = data
    Server.breaks = [1000] * 20
    with pytest.raises(OSError, match="ended after 1000 of"):
        st.load_file(server + "cut.safetensors")
    with pytest.raises(OSError, match="404"):
        st.load_file(server + "no.safetensors")


def test_shards_of_a_folder_and_of_a_url(server: str, tmp_path: Path) -> None:
    parts = [{"a": torch.ones(3)}, {"b": torch.arange(4), "c": torch.zeros(2)}]
    index = {"metadata": {}, "weight_map": {}}
    for i, part in enumerate(parts):
        THEIRS.save_file(part, tmp_path / f"model-{i}.safetensors")
        index["weight_map"] |= dict.fromkeys(part, f"model-{i}.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    Server.files = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for place in (tmp_path / "model.safetensors.index.json", server + "model.safetensors.index.json?download=1"):
        same(parts[0] | parts[1], st.load_file(place))
    for weights in ({"a": "../x"}, {"a": "/etc/passwd"}, {"a": "http://elsewhere/x"}, {"a": 1}, [], None):
        (tmp_path / "bad.index.json").write_text(json.dumps({"weight_map": weights}))
        with pytest.raises(st.SafetensorError, match="Error while deserializing index"):
            st.load_file(tmp_path / "bad.index.json")
    (tmp_path / "bad.index.json").write_text(json.dumps({"weight_map": {"z": "model-0.safetensors"}}))
    with pytest.raises(st.SafetensorError, match="File does not contain tensor z"):
        st.load_file(tmp_path / "bad.index.json")


def test_hub(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib
    import io

    file = io.BytesIO()
    torch.save({"w": torch.arange(3)}, file)
    data = file.getvalue()
    good = f"m-{hashlib.sha256(data).hexdigest()[:8]}.pth"
    Server.files = {good: data, "m-01234567.pth": data, "m.safetensors": THEIRS.save({"w": torch.arange(3)})}
    Server.breaks = [500]
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert tabtorch.hub.get_dir() == torch.hub.get_dir() == str(tmp_path / "hub")
    for _ in range(2):
        got = tabtorch.hub.load_state_dict_from_url(server + good, check_hash=True, map_location="cpu")
        assert got["w"].tolist() == [0, 1, 2] and got["w"].device.type == "cpu"
    assert [r for _, r in Server.asked] == [None, "bytes=500-"]
    assert (tmp_path / "hub" / "checkpoints" / good).read_bytes() == data
    said = capsys.readouterr()
    assert said.out == f'Downloading: "{server}{good}" to {tmp_path}/hub/checkpoints/{good}\n' and "100%" in said.err
    with pytest.raises(RuntimeError, match='invalid hash value \\(expected "01234567"'):
        tabtorch.hub.load_state_dict_from_url(server + "m-01234567.pth", model_dir=str(tmp_path), check_hash=True)
    assert not list(tmp_path.glob("m-*"))
    got = tabtorch.hub.load_state_dict_from_url(server + "m.safetensors", model_dir=str(tmp_path), progress=False)
    assert got["w"].tolist() == [0, 1, 2]
    import asyncio

    for name in (good, "m.safetensors"):
        got = asyncio.run(tabtorch.hub.load_state_dict_from_url_async(server + name, progress=False))
        assert got["w"].tolist() == [0, 1, 2]


def test_bytes_of_anything(server: str, tmp_path: Path) -> None:
    import io

    data = bytes(range(256)) * 100
    (tmp_path / "x").write_bytes(data)
    Server.files["x"] = data
    seen: list[Any] = []
    for source in (tmp_path / "x", str(tmp_path / "x"), server + "x", io.BytesIO(data), data, bytearray(data)):
        assert fetch.read_bytes(source, lambda *a: seen.append(a)) == data
    assert (len(data), len(data)) in seen
    assert fetch.read_bytes(fetch.join(server, "x")) == data == fetch.read_bytes(fetch.join(tmp_path, "x"))
    assert fetch.join("https://h/a?b=1", "x") == "https://h/a/x?b=1" and fetch.join({"x": 3}, "x") == 3
    with pytest.raises(TypeError, match="expected a path, a URL, bytes, or a file object, got int"):
        fetch.read_bytes(3)
    with pytest.raises(FileNotFoundError):
        fetch.read_bytes(tmp_path / "no")


def test_install_makes_safetensors_ours_and_leaves_an_installed_one_the_rest() -> None:
    import subprocess
    import sys

    script = (
        "import sys, importlib.machinery as m\n"
        "real = m.PathFinder.find_spec\n"
        "hidden = lambda name, *a: None if name.startswith('safetensors') and HIDE else real(name, *a)\n"
        "m.PathFinder.find_spec = hidden\n"
        "import tabtorch; tabtorch.install()\n"
        "import safetensors.torch, safetensors\n"
        "from safetensors import safe_open\n"
        "from safetensors.torch import save_file\n"
        "print(safetensors.__name__, save_file.__module__, safe_open.__module__)\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", f"HIDE = {hide}\n{script}"], capture_output=True, text=True
        ).stdout.split()
        for hide in (True, False)
    ]
    assert said[0] == ["tabtorch.safetensors"] * 3
    assert said[1][:2] == ["safetensors", "tabtorch.safetensors"]  # whose own reads the memory of PyTorch
