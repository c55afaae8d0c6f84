"""`torch.save` and `torch.load` against real PyTorch, bit for bit, and what strangers' files may not do."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import struct
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import tabtorch

DTYPES = (
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128".split()
)  # fmt: skip


def saved(T: Any, x: Any, **kw: Any) -> io.BytesIO:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of real PyTorch about its own storages
        T.save(x, file, **kw)
    file.seek(0)
    return file


def values(dtype: str, shape: tuple[int, ...] = (3, 4)) -> torch.Tensor:
    g = torch.Generator().manual_seed(len(dtype))
    n = int(np.prod(shape))
    d = getattr(torch, dtype)
    if d is torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    raw = torch.randint(0, 256, (n * d.itemsize,), generator=g, dtype=torch.uint8)
    return raw.view(d).reshape(shape) if n else torch.empty(shape, dtype=d)


def bits(t: Any) -> bytes:
    """The elements row by row, whatever they are: NaNs, too."""
    if isinstance(t, torch.Tensor):
        return (
            t.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
        )
    data = np.frombuffer(t.untyped_storage()._bytes(), np.uint8)
    size = t.element_size()
    at = t.storage_offset() * size
    strides = (*(s * size for s in t.stride()), 1)
    return np.lib.stride_tricks.as_strided(data[at:], (*t.shape, size), strides).tobytes() if t.numel() else b""


def alike(want: Any, got: Any) -> None:
    """The same value in both libraries."""
    if hasattr(want, "stride"):
        assert type(want).__name__ == type(got).__name__
        assert (tuple(want.shape), want.stride(), want.storage_offset(), str(want.dtype), want.requires_grad) == (
            (tuple(got.shape), got.stride(), got.storage_offset(), str(got.dtype), got.requires_grad)
        )
        assert bits(want) == bits(got)
    elif isinstance(want, dict):
        assert type(want) is type(got) and list(want) == list(got)
        for k in want:
            alike(want[k], got[k])
    elif isinstance(want, (list, tuple)):
        assert type(want).__name__ == type(got).__name__ and len(want) == len(got)
        for w, g in zip(want, got, strict=True):
            alike(w, g)
    else:
        assert repr(want) == repr(got)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_both_ways(dtype: str, old: bool, device: str) -> None:
    shapes: list[tuple[int, ...]] = [(), (1,), (3, 4), (0,), (2, 0, 3), (257,)]
    x: list[Any] = [values(dtype, s) for s in shapes]
    x += [x[2].t(), x[2][1:, ::2], x[5][3:200:7], x[0].expand(4)]
    got = tabtorch.load(saved(torch, x, _use_new_zipfile_serialization=not old))
    alike(x, got)
    assert got[2].data_ptr() == got[6].data_ptr() and got[2].untyped_storage() == got[7].untyped_storage()
    wide = dtype in ("float64", "complex128")
    assert {t.device.type for t in got} == {"cpu" if wide else device}
    back = torch.load(saved(tabtorch, got, _use_new_zipfile_serialization=not old), weights_only=True)
    alike(x, back)
    assert back[6].untyped_storage().data_ptr() == back[2].untyped_storage().data_ptr()
    alike(x, tabtorch.load(saved(tabtorch, got), weights_only=False))


def network(T: Any) -> Any:
    n = T.nn
    return n.Sequential(n.Conv2d(1, 2, 3), n.BatchNorm2d(2), n.ReLU(), n.Flatten(), n.Linear(8, 3), n.LayerNorm(3))


def trained(T: Any) -> dict[str, Any]:
    model = network(T)
    optimizer = T.optim.AdamW(model.parameters(), lr=0.01)
    schedule = T.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(3):
        optimizer.zero_grad()
        model(T.ones(2, 1, 4, 4)).square().mean().backward()
        optimizer.step()
        schedule.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "epoch": 3,
    }


@pytest.mark.parametrize("there", ["from torch", "to torch"])
def test_a_whole_training_state(there: str, device: str) -> None:
    A, B = (torch, tabtorch) if there == "from torch" else (tabtorch, torch)
    state = trained(A)
    got = B.load(saved(A, state))
    alike(*((state, got) if A is torch else (got, state)))
    assert got["model"]._metadata == state["model"]._metadata
    model = network(B)
    assert not model.load_state_dict(got["model"]).missing_keys
    optimizer = B.optim.AdamW(model.parameters())
    optimizer.load_state_dict(got["optimizer"])
    schedule = B.optim.lr_scheduler.StepLR(optimizer, 2)
    schedule.load_state_dict(got["schedule"])
    assert optimizer.param_groups[0]["lr"] == state["optimizer"]["param_groups"][0]["lr"]
    assert schedule.last_epoch == 3


def things(T: Any) -> dict[str, Any]:
    w = T.arange(6.0).reshape(2, 3)
    tagged, buffer = T.nn.Parameter(w * 2), T.nn.Buffer(w + 1)
    tagged.tag = "x"
    return {
        "parameter": T.nn.Parameter(w),
        "frozen": T.nn.Parameter(w[0], requires_grad=False),
        "tagged": tagged,
        "buffer": buffer,
        "leaf": T.ones(2, requires_grad=True),
        "inner": T.ones(2, requires_grad=True) * 2,
        "size": T.Size([1, 2]),
        "dtype": T.bfloat16,
        "device": T.device("cpu"),
        "layout": T.strided,
        "python": [1, -1, 2**40, -(2**90), 1.5, True, None, "ä", b"\x00\xff", bytearray(b"12"), 1 + 2j, (), {1, 2}],
        "nested": OrderedDict(a=[(w, {"b": w.t()})]),
    }


def test_what_else_checkpoints_hold(device: str) -> None:
    want = things(torch)
    got = tabtorch.load(saved(torch, want))
    assert isinstance(got["parameter"], tabtorch.nn.Parameter) and got["tagged"].tag == "x"
    assert isinstance(got["buffer"], tabtorch.nn.Buffer) and got["buffer"].persistent
    alike({k: v for k, v in want.items() if k != "inner"}, {k: v for k, v in got.items() if k != "inner"})
    assert got["parameter"].data_ptr() == got["nested"]["a"][0][0].data_ptr()
    back = torch.load(saved(tabtorch, things(tabtorch)))
    alike(want | {"inner": back["inner"]}, back)
    assert back["inner"].requires_grad and isinstance(back["buffer"], torch.nn.Buffer)
    assert back["parameter"].data_ptr() == back["nested"]["a"][0][0].data_ptr()


def test_conjugate_and_negative_marks(device: str) -> None:
    z = torch.randn(2, 3, dtype=torch.complex64)
    cases = {"c": z.conj(), "z": z, "h": z.mH}
    got = tabtorch.load(saved(torch, cases))
    got["n"], cases["n"] = tabtorch.load(saved(torch, z.conj().imag)), z.conj().imag
    for name, want in cases.items():
        back = torch.load(saved(tabtorch, got[name]))
        for t in (got[name], back):
            assert (t.is_conj(), t.is_neg()) == (want.is_conj(), want.is_neg())
            np.testing.assert_array_equal(
                t.resolve_conj().resolve_neg().numpy(), want.resolve_conj().resolve_neg().numpy()
            )
    got["z"][0] = 1 + 2j
    assert got["c"][0].tolist() == got["h"][:, 0].tolist() == [1 - 2j] * 3


def test_storages(device: str) -> None:
    t = tabtorch.arange(4.0)
    s = t.untyped_storage()
    assert (s.nbytes(), len(s), s.data_ptr(), bytes(s)[4:8]) == (16, 16, t.data_ptr(), struct.pack("<f", 1))
    assert t[1:].untyped_storage().data_ptr() == s.data_ptr() != t.clone().untyped_storage().data_ptr()
    assert t.data_ptr() + 4 == t[1:].data_ptr() and s == t.detach().untyped_storage()
    assert s.clone() != s and s.clone().tolist() == s.tolist() and s.cpu().device.type == "cpu"
    assert s[0] == 0 and bytes(s[4:8]) == bytes(s)[4:8] and tabtorch.is_storage(s)
    assert tabtorch.empty(0).untyped_storage().data_ptr() == 0 and not t.is_shared() and t.share_memory_() is t
    assert list(tabtorch.UntypedStorage(3)) == [0, 0, 0]
    typed = t._typed_storage()
    assert (typed.tolist(), typed.size(), typed.dtype, typed[2]) == ([0, 1, 2, 3], 4, tabtorch.float32, 2)
    want = torch.arange(4.0).untyped_storage()
    assert tabtorch.load(saved(torch, want)).tolist() == want.tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.load(saved(tabtorch, s)).tolist() == want.tolist()
    with pytest.raises(
        RuntimeError, match="Cannot save multiple tensors or storages that view the same data as different"
    ):
        tabtorch.save([t, s], io.BytesIO())


def test_pickle_copy_and_deepcopy(device: str) -> None:
    t = tabtorch.arange(6.0).reshape(2, 3).t()
    t.note = [1]
    again = pickle.loads(pickle.dumps(t))
    assert again.stride() == (1, 3) and tabtorch.equal(again, t) and again.note == [1] and again.device == t.device
    assert copy.copy(t).data_ptr() == t.data_ptr() != copy.deepcopy(t).data_ptr()
    assert pickle.loads(pickle.dumps(tabtorch.zeros(2, device="cpu"))).device.type == "cpu"
    for name in "bool uint8 int16 int64 float16 bfloat16 float32 float64 complex64".split():
        d = getattr(tabtorch, name)
        assert pickle.loads(pickle.dumps(d)) is d
        assert pickle.loads(pickle.dumps(tabtorch.ones(2, dtype=d, device="cpu"))).dtype is d
    model = network(tabtorch)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert repr(other) == repr(model)
        for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
            assert tabtorch.equal(a, b) and a.data_ptr() != b.data_ptr()
    optimizer = tabtorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    assert pickle.loads(pickle.dumps(optimizer)).param_groups[0]["momentum"] == 0.9
    pair = copy.deepcopy({"a": t, "s": t.untyped_storage()})
    assert pair["a"].untyped_storage() == pair["s"] != t.untyped_storage()


def test_whole_modules_both_ways(device: str) -> None:
    theirs = network(torch).eval()
    x = torch.randn(2, 1, 4, 4)
    file = saved(torch, theirs)
    with pytest.raises(pickle.UnpicklingError, match="GLOBAL torch.nn.modules.container.Sequential was not an allowed"):
        tabtorch.load(file)
    assert "torch.nn.modules.conv.Conv2d" in tabtorch.serialization.get_unsafe_globals_in_checkpoint(file)
    mine = tabtorch.load(file, weights_only=False)
    assert type(mine) is tabtorch.nn.Sequential and repr(mine) == repr(theirs)
    want = theirs(x).detach().numpy()
    np.testing.assert_allclose(mine(tabtorch.from_numpy(x.numpy())).detach().numpy(), want, atol=1e-5)
    back = torch.load(saved(tabtorch, mine), weights_only=False)
    assert repr(back) == repr(theirs)
    np.testing.assert_allclose(back(x).detach().numpy(), want, atol=1e-5)
    kinds = {type(m) for m in mine.modules()}
    with tabtorch.serialization.safe_globals(kinds):
        assert repr(tabtorch.load(saved(tabtorch, mine))) == repr(mine)


def test_every_class_is_written_under_a_name_that_torch_has() -> None:
    import importlib

    from tabtorch.serialization.pickler import public

    for space in ("nn", "optim"):
        here, there = getattr(tabtorch, space), getattr(torch, space)
        for name in set(dir(here)) & set(dir(there)):
            cls = getattr(here, name)
            if isinstance(cls, type):
                module, found = public(cls, None) or ("", "")
                assert getattr(importlib.import_module(module), found) is getattr(there, name), name


# ---- places


def test_where_tensors_go(device: str) -> None:
    x = {"a": torch.ones(2), "d": torch.ones(2, dtype=torch.float64)}
    file = saved(torch, x)

    def places(map_location: Any) -> list[str]:
        file.seek(0)
        return [t.device.type for t in tabtorch.load(file, map_location=map_location).values()]

    assert places(None) == [device, "cpu"]
    assert places("cpu") == places(tabtorch.device("cpu")) == places({"cpu": "cpu"}) == ["cpu", "cpu"]
    assert places(lambda storage, location: storage) == places(lambda storage, location: None) == [device, "cpu"]
    assert places(lambda storage, location: storage.cpu()) == ["cpu", "cpu"]
    if device == "webgpu":
        assert places("webgpu") == places({"cpu": "webgpu:0"}) == ["webgpu", "cpu"]
    for m in (tabtorch, torch):
        file.seek(0)
        with pytest.raises(
            RuntimeError, match="don't know how to restore data location of torch.storage.UntypedStorage"
        ):
            m.load(file, map_location="nowhere")
        file.seek(0)
        with pytest.raises(
            RuntimeError, match="Attempting to deserialize object on a CUDA device but torch.cuda.is_avail"
        ):
            m.load(file, map_location="cuda")


def test_checkpoints_of_cuda(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = saved(torch, torch.ones(2)).getvalue()
    assert data.count(b"X\x03\x00\x00\x00cpu") == 1
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        records = {n: z.read(n) for n in z.namelist()}
    pkl = records["archive/data.pkl"].replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
    file = archive(records | {"archive/data.pkl": pkl})
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on a CUDA device"):
        tabtorch.load(file)
    assert tabtorch.load(file, map_location="cpu").device.type == "cpu"
    assert tabtorch.load(file, map_location={"cuda:0": "cpu"}).device.type == "cpu"
    import sys

    monkeypatch.setattr(sys.modules["tabtorch.base.device"], "_cuda_alias", True)
    if device == "webgpu":
        assert tabtorch.load(file).device.type == "webgpu"
        second = archive(records | {"archive/data.pkl": pkl.replace(b"cuda:0", b"cuda:1")})
        with pytest.raises(RuntimeError, match=r"CUDA device 1 but torch.cuda.device_count\(\) is 1"):
            tabtorch.load(second)


# ---- files


def test_paths_files_and_arguments(tmp_path: Path) -> None:
    x = {"w": tabtorch.arange(5)}
    path = tmp_path / "model.v1.pth"
    tabtorch.save(x, path)
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None
        assert {i.filename.split("/", 1)[0] for i in z.infolist()} == {"model.v1"}
        assert all((i.header_offset + 30) % 1 == 0 for i in z.infolist())
    assert torch.equal(torch.load(path, mmap=True)["w"], torch.arange(5))
    assert tabtorch.load(str(path), mmap=True)["w"].tolist() == [0, 1, 2, 3, 4]
    with open(path, "rb") as file:
        assert tabtorch.load(file)["w"].numel() == 5
    # behind something else, as in a larger file
    file = io.BytesIO(b"before" + path.read_bytes())
    file.seek(6)
    assert tabtorch.load(file)["w"].numel() == 5
    # one legacy file after another
    both = io.BytesIO(saved(torch, 1.5, _use_new_zipfile_serialization=False).getvalue() * 2)
    assert (tabtorch.load(both), tabtorch.load(both)) == (1.5, 1.5)
    assert tabtorch.load(saved(tabtorch, x, pickle_protocol=4), weights_only=False)["w"].numel() == 5
    assert torch.load(saved(tabtorch, things(tabtorch), pickle_protocol=5), weights_only=False)["size"] == (1, 2)
    for m in (torch, tabtorch):
        with pytest.raises(RuntimeError, match="Parent directory .* does not exist"):
            m.save({}, tmp_path / "no" / "x.pt")
        with pytest.raises(AttributeError, match="expected 'f' to be string, path, or a file-like object"):
            m.save({}, 3)
        with pytest.raises(FileNotFoundError):
            m.load(tmp_path / "no.pt")
        with pytest.raises(ValueError, match="f must be a file path in order to use the mmap argument"):
            m.load(saved(torch, 1), mmap=True)
        with pytest.raises(RuntimeError, match="mmap can only be used with files saved with"):
            old = tmp_path / "old.pt"
            torch.save(1, old, _use_new_zipfile_serialization=False)
            m.load(old, mmap=True)
        with pytest.raises(RuntimeError, match="Can not safely load weights when explicit pickle_module is specified"):
            m.load(path, pickle_module=pickle, weights_only=True)
        with pytest.raises(AttributeError, match="You can only torch.load from a file that is seekable"):
            m.load(7)
    before = path.read_bytes()
    with pytest.raises((pickle.PicklingError, AttributeError)):
        tabtorch.save({"f": lambda: 0}, path)
    assert path.read_bytes() == before


def test_numpy_in_checkpoints(device: str) -> None:
    x = {"n": np.float64(1.5), "a": np.arange(3)}
    with pytest.raises(pickle.UnpicklingError, match="numpy.*was not an allowed global by default"):
        tabtorch.load(saved(torch, x))
    core = np._core.multiarray  # type: ignore[attr-defined]
    allow = [core.scalar, core._reconstruct, np.dtype, np.ndarray, type(np.dtype("f8")), type(np.dtype("i8"))]
    with tabtorch.serialization.safe_globals(allow):
        got = tabtorch.load(saved(torch, x))
    assert got["n"] == 1.5 and got["a"].tolist() == [0, 1, 2]
    assert tabtorch.load(saved(tabtorch, x), weights_only=False)["a"].tolist() == [0, 1, 2]


def test_numpy_files_take_tensors(tmp_path: Path, device: str) -> None:
    t = tabtorch.arange(6.0).reshape(2, 3)
    np.save(tmp_path / "t.npy", t)
    np.savez(tmp_path / "t.npz", t=t, u=t.t())
    assert tabtorch.from_numpy(np.load(tmp_path / "t.npy")).tolist() == t.tolist()
    with np.load(tmp_path / "t.npz") as z:
        assert tabtorch.equal(tabtorch.tensor(z["u"]), t.t())


def test_many_tensors_are_read_with_few_waits(device: str) -> None:
    from tabtorch.bridge import get_bridge

    x = [tabtorch.full((50,), float(i)) for i in range(300)]
    bridge = get_bridge()
    asked = []
    before = bridge._ask  # type: ignore[attr-defined]
    bridge._ask = lambda *a: (asked.append(a[0]), before(*a))[1]  # type: ignore[attr-defined]
    try:
        file = saved(tabtorch, x)
        assert len(asked) <= 2
        del asked[:]
        got = tabtorch.load(file)
        assert len(asked) == 0
    finally:
        del bridge._ask  # type: ignore[attr-defined]
    assert [t[7].item() for t in got[::50]] == [0, 50, 100, 150, 200, 250]


# ---- what is not supported says so


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_types_that_are_not_here_are_named() -> None:
    for dtype in (torch.uint16, torch.float8_e4m3fn, torch.complex32):
        x = {"fine": torch.ones(1), "layer.weight": torch.zeros(2, dtype=dtype)}
        with pytest.raises(TypeError, match=f"{dtype} is not supported by tabtorch.*layer.weight"):
            tabtorch.load(saved(torch, x))
    assert tabtorch.load(saved(torch, {"n": torch.ones(1)}))["n"].item() == 1


# ---- hostile files


def archive(records: dict[str, bytes]) -> io.BytesIO:
    from tabtorch.serialization.zip_archive import Writer

    file = io.BytesIO()
    w = Writer(file.write, "archive")
    for name, data in records.items():
        w.record(name.removeprefix("archive/"), data)
    w.close()
    file.seek(0)
    return file


def checkpoint(pkl: bytes, **records: bytes) -> io.BytesIO:
    return archive({"data.pkl": pkl, "version": b"3\n", **{k.replace("_", "/"): v for k, v in records.items()}})


def text(s: str) -> bytes:
    return b"X" + struct.pack("<I", len(s)) + s.encode()


RAN = "the checkpoint ran code"
EVIL = f"raise SystemError({RAN!r})"


def routes() -> dict[str, bytes]:
    """Pickles that call `os.system` or `exec`, each by another opcode."""
    import copyreg

    class Reduce:
        def __reduce__(self) -> Any:
            return os.system, ("exit 3",)

    code = text(EVIL)
    copyreg.add_extension("builtins", "exec", 0x77) if ("builtins", "exec") not in copyreg._extension_registry else None
    od = b"ccollections\nOrderedDict\n"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n"
    return {
        "reduce": pickle.dumps(Reduce(), 2),
        "global": b"\x80\x02cos\nsystem\n.",
        "posix": b"\x80\x02cposix\nsystem\n" + text("exit 3") + b"\x85R.",
        "python 2": b"\x80\x02c__builtin__\neval\n" + code + b"\x85R.",
        "exec": b"\x80\x02cbuiltins\nexec\n" + code + b"\x85R.",
        "inst": b"\x80\x02(" + code + b"ibuiltins\nexec\n.",
        "obj": b"\x80\x02(cbuiltins\nexec\n" + code + b"o.",
        "newobj": b"\x80\x02cbuiltins\nexec\n" + code + b"\x85\x81.",
        "newobj_ex": b"\x80\x04cbuiltins\nexec\n" + code + b"\x85}\x92.",
        "stack_global": b"\x80\x04" + text("builtins") + text("exec") + b"\x93" + code + b"\x85R.",
        "ext1": b"\x80\x02\x82\x77" + code + b"\x85R.",
        "ext2": b"\x80\x02\x83\x77\x00" + code + b"\x85R.",
        "ext4": b"\x80\x02\x84\x77\x00\x00\x00" + code + b"\x85R.",
        "build": b"\x80\x02ccollections\nCounter\n)R}" + text("__class__") + b"cos\nsystem\nsb.",
        "build a function": b"\x80\x02" + tensor + b"}" + text("__code__") + b"Nsb.",
        "build a tensor": b"\x80\x02ctorch\nTensor\n)\x81}b.",
        "method": b"\x80\x02cbuiltins\ngetattr\n" + od + text("fromkeys") + b"\x86R.",
        "dotted": b"\x80\x02ccollections\nOrderedDict.__init__.__globals__\n.",
        "submodule": b"\x80\x02ctorch.serialization\nos.system\n.",
        "our own": b"\x80\x02ctabtorch.hub\nos.system\n.",
        "codecs": b"\x80\x02c_codecs\nencode\n" + text("x") + text("rot13") + b"\x86R.",
        "load in load": b"\x80\x02ctorch.storage\n_load_from_bytes\n" + code + b"\x85R.",
        "call a text": b"\x80\x02" + text("os.system") + text("exit 3") + b"\x85R.",
        "rebuild with a function": b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(" + od + b"ctorch\nTensor\n)}tR.",
        "rebuild with a class": b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(" + tensor + od + b")}tR.",
        "persistent id": b"\x80\x02" + text("os.system") + b"Q.",
        "persistent module": b"\x80\x02(" + text("module") + b"NNNtQ.",
        "append to a dict": b"\x80\x02}Na.",
        "set in a tensor type": b"\x80\x02ctorch\nTensor\nNNs.",
        "memory": b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
        "a tensor of sizes": b"\x80\x02ctorch\nTensor\nJ\xff\xff\xff\x7f\x85R.",
        "a storage of a size": b"\x80\x02ctorch\nUntypedStorage\nJ\xff\xff\xff\x7f\x85R.",
    }


@pytest.mark.parametrize("name", list(routes()))
def test_a_checkpoint_runs_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pkl = routes()[name]

    def ran(*args: Any) -> None:
        raise SystemError(RAN)

    monkeypatch.setattr(os, "system", ran)
    old = b"".join(pickle.dumps(v, 2) for v in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})) + pkl
    for file in (checkpoint(pkl), io.BytesIO(old)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the protocol
            with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
                tabtorch.load(file)


@pytest.mark.parametrize(
    "name", ["global", "posix", "exec", "python 2", "newobj", "stack_global", "append to a dict", "build a function"]
)
def test_the_refusal_is_in_pytorchs_words(name: str) -> None:
    pkl, said = routes()[name], []
    for T in (torch, tabtorch):
        with warnings.catch_warnings(), pytest.raises(pickle.UnpicklingError) as error:
            warnings.simplefilter("ignore")
            T.load(checkpoint(pkl))
        said.append(str(error.value).replace("tabtorch", "torch"))
    if "function" in name or "dict" in name:
        assert said[0][:300] == said[1][:300]
    else:
        assert said[0] == said[1]


def test_safe_globals(tmp_path: Path) -> None:
    S = tabtorch.serialization
    x = {"args": SimpleNamespace(lr=0.1)}
    file = saved(torch, x)
    assert S.get_unsafe_globals_in_checkpoint(file) == ["types.SimpleNamespace"]
    with pytest.raises(pickle.UnpicklingError, match=r"add_safe_globals\(\[types.SimpleNamespace\]\)"):
        tabtorch.load(file)
    with S.safe_globals([SimpleNamespace]):
        assert tabtorch.load(file)["args"].lr == 0.1
    assert S.get_safe_globals() == []
    S.add_safe_globals([SimpleNamespace, (OrderedDict, "some.Thing")])
    assert len(S.get_safe_globals()) == 2
    S.clear_safe_globals()
    with pytest.raises(pickle.UnpicklingError):
        tabtorch.load(file)
    S.add_safe_globals([os.system])
    with pytest.raises(pickle.UnpicklingError, match="whose module posix is blocked"):
        tabtorch.load(checkpoint(routes()["posix"]))
    S.clear_safe_globals()


def pid(numel: int = 4, key: str = "0", kind: str = "FloatStorage") -> bytes:
    return (
        b"("
        + text("storage")
        + f"ctorch\n{kind}\n".encode()
        + text(key)
        + text("cpu")
        + struct.pack("<ci", b"J", numel)
        + b"tQ"
    )


def view(offset: int, size: tuple[int, ...], stride: tuple[int, ...], storage: bytes | None = None) -> bytes:
    def ints(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(b"J" + struct.pack("<i", v) for v in values) + b"t"

    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("
        + (pid() if storage is None else storage)
        + b"J"
        + struct.pack("<i", offset)
        + ints(size)
        + ints(stride)
        + b"\x89ccollections\nOrderedDict\n)RtR."
    )


DAMAGED = {
    "beyond": (view(1, (4,), (1,)), 16),
    "stride": (view(0, (2, 2), (3, 1)), 16),
    "negative stride": (view(3, (4,), (-1,)), 16),
    "negative offset": (view(-1, (2,), (1,)), 16),
    "negative size": (view(0, (-2,), (1,)), 16),
    "strides and sizes": (view(0, (2, 2), (1,)), 16),
    "too few bytes": (view(0, (4,), (1,)), 12),
    "too many bytes": (view(0, (4,), (1,)), 20),
    "absurd": (view(0, (2**30,), (1,), pid(2**30)), 16),
    "negative count": (view(0, (1,), (1,), pid(-1)), 16),
    "no record": (view(0, (4,), (1,), pid(4, "7")), 16),
    "no type": (view(0, (4,), (1,), pid(4, "0", "EvilStorage")), 16),
    "no storage": (view(0, (4,), (1,), b"N"), 16),
    "empty": (b"", 16),
    "cut": (view(0, (4,), (1,))[:-20], 16),
    "no stop": (view(0, (4,), (1,))[:-1], 16),
    "nothing on the stack": (b"\x80\x02R.", 16),
    "no mark": (b"\x80\x02t.", 16),
    "no memo": (b"\x80\x02h\x05.", 16),
    "no text": (b"\x80\x02X\xff\xff\xff\x7fabc.", 16),
    "deep": (b"\x80\x02}" + b")" + b"\x85" * 300_000 + b"Ns.", 16),
    "no utf-8": (b"\x80\x02X\x01\x00\x00\x00\xff.", 16),
}


@pytest.mark.parametrize("name", list(DAMAGED))
def test_damaged_pickles(name: str) -> None:
    pkl, nbytes = DAMAGED[name]
    with pytest.raises((RuntimeError, pickle.UnpicklingError, EOFError, TypeError)):
        tabtorch.load(checkpoint(pkl, data_0=bytes(nbytes)))


def test_what_fails_leaves_nothing_behind(device: str) -> None:
    from tabtorch.engine.graph import memory

    good = view(0, (4,), (1,))[:-1]
    gc.collect()
    before = list(memory.live)
    for pkl in (good + b"0.", good + view(1, (4,), (1,))[2:], good[:-1]):
        with pytest.raises((RuntimeError, pickle.UnpicklingError, EOFError)):
            tabtorch.load(checkpoint(pkl, data_0=bytes(16)))
    gc.collect()
    assert list(memory.live) == before


def test_a_view_beyond_its_storage_says_so() -> None:
    with pytest.raises(RuntimeError, match=r"requiring a storage size of 20 are out of bounds for storage of size 16"):
        tabtorch.load(checkpoint(view(1, (4,), (1,)), data_0=bytes(16)))


def test_cut_and_corrupted_files(device: str) -> None:
    x = {"a": torch.arange(1000.0), "b": [torch.ones(3)]}
    data = saved(torch, x).getvalue()
    for n in (0, 1, 3, 4, 100, 1000, len(data) // 2, len(data) - 50, len(data) - 1):
        with pytest.raises((RuntimeError, pickle.UnpicklingError, EOFError)):
            tabtorch.load(io.BytesIO(data[:n]))
    start = data.index(struct.pack("<3f", 1, 2, 3))
    for at in (start, start + 2000, data.index(b"_rebuild")):
        bad = bytearray(data)
        bad[at] ^= 1
        with pytest.raises(RuntimeError, match="PytorchStreamReader failed reading file"):
            tabtorch.load(io.BytesIO(bytes(bad)))
    old = saved(torch, x, _use_new_zipfile_serialization=False).getvalue()
    for n in (1, 20, 100, len(old) - 300, len(old) - 1):
        with pytest.raises((RuntimeError, pickle.UnpicklingError, EOFError)):
            tabtorch.load(io.BytesIO(old[:n]))
    with pytest.raises((RuntimeError, pickle.UnpicklingError)):
        tabtorch.load(io.BytesIO(b"hello, I am no checkpoint"))
    rng = np.random.default_rng(0)
    for _ in range(150):  # it loads, or says that it cannot: nothing else
        bad = bytearray(data)
        for at in rng.integers(0, len(bad), 3):
            bad[at] = int(rng.integers(0, 256))
        try:
            tabtorch.load(io.BytesIO(bytes(bad)))
        except (RuntimeError, pickle.UnpicklingError, EOFError, TypeError, NotImplementedError, ValueError):
            pass


def test_archives_that_lie() -> None:
    good = checkpoint(view(0, (4,), (1,)), data_0=bytes(16)).getvalue()
    assert tabtorch.load(io.BytesIO(good)).tolist() == [0] * 4
    table = good.rindex(b"PK\5\6")
    entry = good.index(b"PK\1\2")

    def with_(at: int, layout: str, *values: int) -> io.BytesIO:
        bad = bytearray(good)
        struct.pack_into(layout, bad, at, *values)
        return io.BytesIO(bytes(bad))

    lies = {
        "count": with_(table + 10, "<H", 60000),
        "place": with_(table + 16, "<I", 2**31),
        "length": with_(table + 12, "<I", 2**31),
        "size": with_(entry + 20, "<II", 2**31, 2**31),
        "bomb": with_(entry + 10, "<H", 8),
        "secret": with_(entry + 8, "<H", 0x801),
        "overlap": with_(good.index(b"PK\1\2", entry + 1) + 42, "<I", 0),
        "outside": with_(entry + 42, "<I", 2**31 - 1),
        "extra": with_(good.index(b"PK\3\4") + 28, "<H", 65535),
    }
    twice = checkpoint(b"\x80\x02N.").getvalue().replace(b"archive/version", b"archive/data.pk")
    lies["twice"] = io.BytesIO(twice.replace(b"archive/data.pkl", b"archive/data.pk"))
    for name, file in lies.items():
        with pytest.raises(RuntimeError, match="PytorchStreamReader failed"):
            tabtorch.load(file)
            raise AssertionError(name)
    bomb = checkpoint(view(0, (4,), (1,)), data_0=bytes(16))
    bad = bytearray(again(bomb.getvalue(), zipfile.ZIP_DEFLATED).getvalue())
    at = bad.index(b"PK\1\2")
    struct.pack_into("<I", bad, at + 24, 2**31)  # the pickle, when it is unpacked
    with pytest.raises(RuntimeError, match="would be 2147483648 when unpacked"):
        tabtorch.load(io.BytesIO(bytes(bad)))


def again(data: bytes, kind: int = zipfile.ZIP_STORED, rename: Any = None, **more: bytes) -> io.BytesIO:
    """The records of an archive in another one."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w", kind) as new:
        for info in old.infolist():
            name = rename(info.filename) if rename else info.filename
            new.writestr(name, more.pop(info.filename.partition("/")[2], old.read(info)))
        for name, content in more.items():
            new.writestr("archive/" + name.replace("__", "."), content)
    file.seek(0)
    return file


def test_archives_that_other_programs_wrote(device: str) -> None:
    x = {"a": torch.arange(3000.0), "b": torch.arange(7, dtype=torch.uint8), "c": torch.empty(0)}
    data = saved(torch, x).getvalue()
    alike(x, tabtorch.load(again(data)))
    alike(x, tabtorch.load(again(data, zipfile.ZIP_DEFLATED)))
    alike(x, tabtorch.load(again(data, rename=lambda name: name.replace("data.pkl", "DATA.pkl"))))
    from torch.utils.serialization import config

    before = config.save.storage_alignment
    config.save.storage_alignment = 4096  # so that headers are that long
    try:
        alike(x, tabtorch.load(saved(torch, x)))
    finally:
        config.save.storage_alignment = before


@pytest.mark.parametrize(
    "name, content",
    [("version", b"11"), ("version", b"x"), ("byteorder", b"middle"), ("__storage_alignment", b"x")]
    + [("__data/serialization_id", b"\xff"), ("constants.pkl", b"")],
)
def test_records_that_say_what_the_file_is(name: str, content: bytes) -> None:
    data = saved(torch, torch.ones(2)).getvalue()
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        kept = [n for n in z.namelist() if n != "archive/" + name.replace("__", ".")]
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as new:
            for n in kept:
                new.writestr(n.replace(".data/version", "version"), z.read(n))
            new.writestr("archive/" + name.replace("__", "."), content)
    for T in (torch, tabtorch):
        file.seek(0)
        with warnings.catch_warnings(), pytest.raises((RuntimeError, ValueError)):
            warnings.simplefilter("ignore")  # PyTorch, of TorchScript
            T.load(file)
            raise AssertionError(T)


def test_names_that_are_no_utf_8() -> None:
    data = saved(torch, torch.ones(2)).getvalue()
    at = data.rindex(b"archive/version")
    bad = data[: at + 10] + b"\xff" + data[at + 11 :]
    for T in (torch, tabtorch):
        with pytest.raises((RuntimeError, ValueError)):
            T.load(io.BytesIO(bad))
            raise AssertionError(T)


def test_storages_that_were_on_the_gpu_before_1_6(device: str) -> None:
    old = saved(torch, torch.arange(3.0), _use_new_zipfile_serialization=False).getvalue()
    file = io.BytesIO(old.replace(b"ctorch\nFloatStorage", b"ctorch.cuda\nFloatStorage"))
    assert tabtorch.load(file).tolist() == [0, 1, 2]
