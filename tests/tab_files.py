"""Run inside Pyodide by browser/test_files.py: files from a server, kept for the next time, and files that are chosen."""

import io
import sys

import torch
from js import Blob, Uint8Array
from pyodide_js import _module

import tabtorch
from tabtorch import safetensors
from tabtorch.utils.fetch import read_bytes, read_bytes_async

server, kept = sys.argv[1], sys.argv[2] == "kept"
await tabtorch.hub.clear_cache()  # noqa: F704


def asked() -> list[str]:
    return read_bytes(server + "asked", cache=False).decode().split()


def check(got: dict) -> None:
    assert got["big"].device == torch.ones(1).device and got["big"].dtype == torch.int32
    assert got["big"].numel() == 24 << 20 and got["big"][::1000003].tolist() == [
        i * 7 for i in range(0, 24 << 20, 1000003)
    ]
    assert [got[f"t{i}"].sum().item() for i in range(40)] == [i * i for i in range(40)]


# A file of 96 MB, which wasm memory has no room for.
torch.ones(1).item()
seen = []
before = _module.HEAP8.length
check(torch.hub.load_state_dict_from_url(server + "large.safetensors", progress=lambda *a: seen.append(a)))
grown = _module.HEAP8.length - before
assert grown < 48 << 20, f"wasm memory has grown by {grown >> 20} MB"
assert seen[-1][0] == seen[-1][1] > 96 << 20
assert asked() == ["large.safetensors"], asked()

# The second time, nothing is fetched; without blocking, too.
check(torch.hub.load_state_dict_from_url(server + "large.safetensors", progress=False))
check(await safetensors.load_file_async(server + "large.safetensors"))  # noqa: F704
assert (asked() == ["large.safetensors"]) == kept, asked()

# A checkpoint of PyTorch, whose directory is at its end.
for _ in range(2):
    got = torch.hub.load_state_dict_from_url(server + "state.pth", map_location="cpu", progress=False)
    assert got["w"].tolist() == [0, 1, 2] and got["w"].device.type == "cpu"
got = await torch.hub.load_state_dict_from_url_async(server + "state.pth", progress=False)  # noqa: F704
assert got["w"].device == torch.ones(1).device and got["w"].tolist() == [0, 1, 2]
got = await torch.hub.load_state_dict_from_url_async(server + "old.pth", progress=False)  # noqa: F704
assert got["w"].tolist() == [0, 1, 2]
assert asked().count("state.pth") == (1 if kept else 3), asked()

# What the user has chosen in the page; and the same in memory.
data = read_bytes(server + "state.safetensors")
assert data == await read_bytes_async(server + "state.safetensors")  # noqa: F704
chosen = Blob.new([Uint8Array.new(data)])
assert read_bytes(chosen) == data
assert safetensors.load_file(chosen)["w"].tolist() == [0, 1, 2]
import safetensors.torch  # noqa: E402

assert safetensors.torch.load(data)["w"].tolist() == [0, 1, 2]
file = io.BytesIO()
torch.save(got, file)
file.seek(0)
assert torch.load(file)["w"].tolist() == [0, 1, 2]

for wrong in ("no", "cut.safetensors"):
    try:
        torch.hub.load_state_dict_from_url(server + wrong + ("" if "." in wrong else ".pth"), progress=False)
    except (OSError, RuntimeError, safetensors.SafetensorError) as e:
        assert "404" in str(e) or "ended after" in str(e) or "file not fully covered" in str(e), e
    else:
        raise AssertionError(wrong)
await tabtorch.hub.clear_cache()  # noqa: F704
read_bytes(server + "state.safetensors")
assert asked().count("state.safetensors") == (2 if kept else 3), asked()
print("all good")
