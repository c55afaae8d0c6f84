"""Creation, joining and rearranging against real PyTorch: values, dtypes, strides, errors, gradients."""

from __future__ import annotations

import array
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tabtorch
from sidebyside import DEVICES, compare, same

CREATE = """
torch.tensor(5); torch.tensor(2.5); torch.tensor(True); torch.tensor(1j); torch.tensor([]); torch.tensor([[], []])
torch.tensor([[1, 2], [3, 4]]); torch.tensor([1, 2.]); torch.tensor([True, 2]); torch.tensor([1, 1j])
torch.tensor(((1., 2.), [3., 4.])); torch.tensor(range(3)); torch.tensor([[[1]]]); torch.tensor([[1, 2], [3]])
torch.tensor([[1, 2], [3, 4, 5]]); torch.tensor([1, [2]]); torch.tensor([[1], 2]); torch.tensor('a')
torch.tensor(['a']); torch.tensor(None); torch.tensor([None]); torch.tensor([x, x]); torch.tensor([z, z])
torch.tensor([z, 2]); torch.tensor([L(1), 2]); torch.tensor([L(1), 2.5]); torch.tensor(2**63); torch.tensor(-2**63)
torch.tensor(2**64); torch.tensor(300, dtype=torch.uint8); torch.tensor([300], dtype=torch.uint8)
torch.tensor(-1, dtype=torch.uint8); torch.tensor(1.5, dtype=torch.int32); torch.tensor(1e50)
torch.tensor(float('inf'), dtype=torch.int64); torch.tensor(1j, dtype=torch.float32)
torch.tensor([1, 2], dtype=torch.bool); torch.tensor([0.1, 70000., -1e-8], dtype=torch.float16)
torch.tensor([0.1, 1e39, float('nan')], dtype=torch.bfloat16).float(); torch.tensor([1.9, -1.9], dtype=torch.int16)
torch.tensor(np.ones(2)).dtype; torch.tensor([np.ones(2), np.ones(2)]).dtype; torch.tensor(np.float32(2))
torch.tensor([np.float32(2)]); torch.tensor(np.int32(2)); torch.tensor([np.int32(2), np.int32(3)])
torch.tensor(set([1])); torch.tensor({}); torch.tensor([1, 2], requires_grad=True)
torch.tensor(1, dtype=torch.int8, requires_grad=True); torch.tensor([1., 2.], requires_grad=True).requires_grad
torch.tensor(np.arange(6, dtype=np.int16).reshape(2, 3))
torch.tensor(np.arange(6, dtype=np.float32).reshape(2, 3).T); torch.tensor([1, 2, 3], dtype=torch.complex64)
torch.tensor([[True], [False]]); torch.zeros(3); torch.zeros(2, 3); torch.zeros((2, 3)); torch.zeros([])
torch.zeros(size=(2, 3)); torch.zeros(()); torch.zeros(-1); torch.zeros((2, -1)); torch.zeros(2.); torch.zeros('a')
torch.zeros(); torch.zeros(2, dtype=torch.int32, requires_grad=True); torch.zeros(2, dtype=torch.bool)
torch.zeros(2, dtype=torch.complex64); torch.zeros(torch.Size([2, 0])); torch.zeros(2, 3, out=torch.empty(0))
torch.zeros(2, foo=1); torch.ones(2, 3, dtype=torch.int8); torch.ones(2, dtype=torch.float16)
torch.ones(3, dtype=torch.bfloat16).float(); torch.ones(2, dtype=torch.uint8); torch.ones(5, dtype=torch.bool)
torch.empty(2, 3).shape; torch.empty(-1); torch.empty(1, 2, 3, 4, memory_format=torch.channels_last).stride()
torch.full((2,), 1); torch.full((2,), True); torch.full((2,), 1.); torch.full((2,), 1j); torch.full(2, 1)
torch.full((2,), 1.5, dtype=torch.int32); torch.full((2, 2), float('nan')); torch.full((), 3)
torch.full((2,), L(3)); torch.full((2,), 300, dtype=torch.uint8); torch.full((2,), -2**62); torch.arange(5)
torch.arange(5.); torch.arange(0, 5, 2); torch.arange(1, 2, 0.25); torch.arange(5, 0); torch.arange(5, 0, -1)
torch.arange(0, 5, 0); torch.arange(0, float('inf')); torch.arange(L(5)); torch.arange(L(5.))
torch.arange(5, dtype=torch.float16); torch.arange(5, dtype=torch.uint8); torch.arange(0, 5, dtype=torch.bool)
torch.arange(start=1, end=4); torch.arange(end=3); torch.arange(2, 9, step=3); torch.arange(2**40, 2**40 + 3)
torch.arange(-3, 3, dtype=torch.int16); torch.arange(0); torch.arange(3, requires_grad=True)
torch.arange(3., requires_grad=True); torch.arange(0, 1, 0.1, dtype=torch.int64); torch.linspace(0, 1, 1)
torch.linspace(0, 1, 0); torch.linspace(0, 1, -1); torch.linspace(0, 10, 5, dtype=torch.int64)
torch.linspace(3, -3, 7); torch.eye(3); torch.eye(2, 3); torch.eye(3, 2, dtype=torch.bool); torch.eye(-1)
torch.eye(2, dtype=torch.int64); torch.eye(0); torch.tril_indices(3, 3); torch.triu_indices(3, 4, 1)
torch.tril_indices(2, 3, -1); torch.tril_indices(-1, 3); torch.triu_indices(2, 2, dtype=torch.int32)
torch.scalar_tensor(5); torch.empty_strided((2, 3), (1, 2)).stride(); torch.empty_strided((2, 3), (1,))
torch.empty_permuted((2, 3, 4), (1, 2, 0)).stride(); torch.complex(x, i); torch.complex(i, i)
torch.complex(x, x * 2); torch.complex(x, x.double()); torch.zeros_like(x.t()); torch.zeros_like(y.transpose(0, 1))
torch.ones_like(i); torch.ones_like(x, dtype=torch.int32); torch.full_like(i, 1.5)
torch.full_like(x, 2, dtype=torch.bool); torch.ones_like(5); torch.zeros_like(x, requires_grad=True).requires_grad
torch.empty_like(x[:, ::2]).stride(); torch.empty_like(x.expand(2, 3, 4)).stride()
torch.empty_like(y.permute(2, 0, 1)[::2]).stride(); torch.zeros_like(x, memory_format=torch.contiguous_format)
torch.zeros_like(x.t(), memory_format=torch.contiguous_format); x.new_zeros(2, 3); x.new_tensor([1, 2])
x.new_tensor(5, dtype=torch.int64); x.new_full((2,), 1); x.new_empty((2,)).shape; i.new_ones(2)
i.new_zeros((2,), dtype=torch.float32); x.new_ones(()); i.new_full((2,), 7.9)
x.new_empty_strided((2, 2), (1, 2)).stride(); torch.from_numpy([1]); torch.from_numpy(np.array(['a']))
torch.from_numpy(np.ones(3, dtype=np.float32)[::-1]); torch.from_numpy(np.arange(6, dtype=np.int64).reshape(2, 3))
torch.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3).T); torch.from_numpy(np.array(3, dtype=np.int32))
torch.from_numpy(np.array([True, False])); torch.as_tensor([1, 2]); torch.as_tensor(x) is x
torch.as_tensor(x, dtype=torch.int64); torch.as_tensor(np.arange(3)); torch.asarray(5)
torch.asarray([1., 2.], dtype=torch.int32); torch.frombuffer(bytearray(b'abcd'), dtype=torch.uint8)
torch.frombuffer(bytearray(b''), dtype=torch.uint8); torch.frombuffer(bytearray(b'abc'), dtype=torch.int16)
torch.frombuffer(bytearray(b'abcd'), dtype=torch.int16, offset=4)
torch.frombuffer(bytearray(b'abcd'), dtype=torch.int16, count=5)
torch.frombuffer(bytearray(b'abcd'), dtype=torch.int16, offset=1)
torch.frombuffer(bytearray(b'abcdef'), dtype=torch.int16, offset=2, count=1)
"""
CLOSE = """
torch.linspace(0, 1, 5); torch.linspace(-2, 7, 23); torch.linspace(0.1, 0.7, 11); torch.logspace(0, 1, 5)
torch.logspace(-3, 4, 8, base=2); torch.logspace(0, 3, 4, dtype=torch.int64); torch.arange(0, 1, 0.1)
torch.arange(0.3, 900, 0.7); torch.linspace(0, 1, 5, dtype=torch.float16); torch.range(0, 2, 0.5)
"""
JOIN = """
torch.cat([x, x]); torch.cat([x, s], 1); torch.cat((x, s[:1]), dim=0); torch.cat([x, s], -1); torch.cat([])
torch.cat([x, y]); torch.cat([x, torch.zeros(2, 5)]); torch.cat([x, torch.zeros(0)]); torch.cat([z, z])
torch.cat([x, i]); torch.cat([x, 1]); torch.cat(x); torch.cat([x, x], 3)
torch.cat([y, y.transpose(0, 1).contiguous().transpose(0, 1)], 2); torch.cat([x.t(), s.t()], 1)
torch.cat([x] * 3 + [s] * 8, 1); torch.cat([x[k:k + 1] for k in range(3)] * 5); torch.cat([i, i > 3])
torch.cat([x[:, :0], x], 1); torch.cat([x[:0], x[:0]]); torch.cat([x.half(), s.half()])
torch.cat([i.to(torch.int8), i.to(torch.uint8)]); torch.concat([x, s]); torch.cat([x[1:], s[:1], x[:, :4]])
torch.cat([torch.zeros(0), torch.zeros(0)]); torch.stack([x, s]); torch.stack([x, s], 1); torch.stack([x, s, x], -1)
torch.stack([]); torch.stack([x, y]); torch.stack([x, x], 4); torch.stack([z, z]); torch.stack([x[0], s[1]] * 5, 1)
torch.stack([i, i > 2]); torch.hstack([z, z]); torch.hstack([x, s]); torch.vstack([z, z]); torch.vstack([x, s[0]])
torch.dstack([z, z]); torch.dstack([x, s]); torch.column_stack([x[0], s[0]]); torch.column_stack([x, s[:, 0]])
torch.row_stack([x[0], s[0]]); F.pad(x, (1, 2)); F.pad(x, (1, 2, 0, 3), value=5); F.pad(x, (-1, 2))
F.pad(x, (-1, -1, 1, 1)); F.pad(x, (1,)); F.pad(x, (1, 1, 1, 1, 1, 1)); F.pad(x, (-3, -3))
F.pad(x, (5, 5), mode='reflect'); F.pad(x, (1, 5), mode='circular'); F.pad(x, (1, 1, 1, 1), mode='reflect')
F.pad(x, (1, 1), mode='foo'); F.pad(x, (2, 3), mode='reflect'); F.pad(x, (2, 3), mode='replicate')
F.pad(y, (1, 2, 2, 0), mode='reflect'); F.pad(y, (1, 2, 0, 2), mode='replicate')
F.pad(y, (-1, 2), mode='replicate'); F.pad(i, (1, 1), value=7); F.pad(x > 3, (1, 0), value=True); F.pad(x, (0, 0))
F.pad(y, (0, 0, 1, 1, 2, 0)); torch.constant_pad_nd(x, (1, 1), 2.5); F.pad(x[:0], (1, 1, 2, 0)); x.roll(1)
x.roll((1, 2)); x.roll((1, 2), 0); x.roll(1, 5); x.roll(1, 0); x.roll((1, -2), (0, 1)); x.roll(-1, 1); x.roll(7, 0)
z.roll(1); y.roll((1, 1), (0, 0)); x.flip(0); x.flip(0, 1); x.flip((-1,)); x.flip(0, 0); x.flip(5)
torch.flip(y, [0, 2]); torch.fliplr(x); torch.flipud(x); torch.fliplr(z); torch.flipud(z); x.t().flip(0)
x.repeat(2, 2); x.repeat(2); x.repeat(3, 1, 2); x.repeat(-1, 2); x.repeat(0, 2); z.repeat(3); x.repeat(1, 1)
x.t().repeat(2, 1); x.tile(2); x.tile((2, 1, 2)); torch.tile(x, (2,)); x.repeat_interleave(2)
x.repeat_interleave(2, 0); x.repeat_interleave(L([1, 2, 3]), 0); x.repeat_interleave(L([1, 2]))
x.repeat_interleave(-1); torch.repeat_interleave(L([1, 2, 3])); x.repeat_interleave(L([2]), 1)
y.repeat_interleave(3, 1); torch.repeat_interleave(x, L([0, 2, 1]), dim=0); x.tril(); x.triu(); x.tril(1)
x.triu(-1); x.tril(-2); y.tril(); y.triu(2); z.tril(); x[0].triu(); torch.ones(3, 3, dtype=torch.bool).tril()
x.t().tril(); x.rot90(); x.rot90(2); x.rot90(-1); x.rot90(3, (1, 0)); x.rot90(4); y.rot90(1, (1, 2))
x.rot90(1, (0, 0)); x.rot90(1, (0,)); x[0].rot90(); torch.meshgrid(x[0], s[0, :2], indexing='ij')
torch.meshgrid(x[0], s[0, :2], indexing='xy'); torch.meshgrid(L([1]), L([[2]]), indexing='ij')
torch.meshgrid(L([1]), indexing='kk'); torch.meshgrid([x[0], x[1], z], indexing='ij')
torch.cartesian_prod(L([1, 2]), L([3, 4, 5])); torch.cartesian_prod(L([1]), L([[1]])); torch.cartesian_prod(x[0])
x.diag(); x[0].diag(); x[0].diag(1); x.diag(-1); z.diag(); y.diag(); torch.diag_embed(x); torch.diag_embed(x, 1)
torch.diag_embed(x, -1, 0, 2); torch.diagflat(x); torch.diagflat(x[0], -1); torch.combinations(x[0])
torch.combinations(L([1, 2, 3]), 2, True); torch.combinations(x[0], 3); torch.slice_scatter(x, s[:1], 0, 1, 2)
torch.select_scatter(x, s[0], 0, 2); torch.diagonal_scatter(x, s[0, :3]); torch.select_scatter(x, s, 0, 2)
x.slice_scatter(s[:, :2], 1, 0, 4, 2); x.unflatten(1, (2, 2)).diagonal(0, 1, 2).diag_embed()
torch.cat([x, s]).view(2, 3, 4).transpose(0, 1); torch.stack(x.unbind(1)); torch.cat(x.split(2, 1)[::-1], 1)
torch.stack([v * 2 for v in x.chunk(2, 1)]); torch.cat(torch.meshgrid(x[0], s[0], indexing='ij'))
"""
#: real PyTorch composes these of other functions, so their backward nodes have other names
NAMELESS = """
torch.polar(x, x / 3); torch.kron(x, s[:2, :2]); torch.kron(x[0], s); torch.block_diag(x, s[:1])
torch.block_diag(x, L(1), L([2, 3])); F.pad(x, (1, 2), mode='circular'); F.pad(y, (1, 1, 2, 0), mode='circular')
F.pad(x, (-1, 2), mode='circular')
"""


def inputs() -> dict[str, object]:
    return {
        "x": torch.arange(12.0).reshape(3, 4).requires_grad_(),
        "s": (torch.arange(12.0).reshape(3, 4) * 2 - 3).requires_grad_(),
        "y": torch.arange(24.0).reshape(2, 3, 4).requires_grad_(),
        "z": torch.tensor(1.5).requires_grad_(),
        "i": torch.arange(12).reshape(3, 4),
    }


def check_all(text: str, device: str, **kw: bool) -> None:
    wrong = []
    for e in [e.strip() for line in text.strip().split("\n") for e in line.split(";")]:
        try:
            compare(e, inputs, device, **kw)
        except Exception as err:  # all of them are wanted in one report
            wrong.append(f"{e}\n    {type(err).__name__}: {str(err).strip()[:500]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.filterwarnings(
    "ignore:To copy construct",
    "ignore:Casting complex",
    "ignore:torch.range is deprecated",
    "ignore:Converting a tensor",
    "ignore:Creating a tensor from a list",
)
@pytest.mark.parametrize("device", DEVICES)
def test_creation(device: str) -> None:
    text = CREATE if device == "cpu" else CREATE.replace("torch.complex(x, x.double())", "torch.zeros(1)")
    check_all(text, device)
    check_all(CLOSE, device, exact=False)


@pytest.mark.parametrize("device", DEVICES)
def test_joining(device: str) -> None:
    check_all(JOIN, device)
    check_all(NAMELESS, device, names_too=False, exact=False)


def test_float64_with_no_device_lives_on_cpu() -> None:
    assert tabtorch.zeros(2, dtype=tabtorch.float64).device.type == "cpu"
    assert tabtorch.tensor(np.ones(2)).device.type == "cpu"
    assert tabtorch.from_numpy(np.ones(2)).dtype is tabtorch.float64


@pytest.mark.skipif("webgpu" not in DEVICES, reason="needs webgpu")
def test_float64_on_webgpu_says_so() -> None:
    for make in (
        lambda: tabtorch.zeros(2, dtype=tabtorch.float64, device="webgpu"),
        lambda: tabtorch.tensor([1.0], dtype=tabtorch.complex128, device="webgpu"),
    ):
        with pytest.raises(TypeError, match="is not available on webgpu"):
            make()
    assert tabtorch.zeros(2, device="webgpu").tolist() == [0.0, 0.0]


def test_small_data_is_known_on_the_host() -> None:
    from tabtorch.ops.indexing.index_maps import host_values

    t = tabtorch.tensor([[3, 1], [2, 0]])
    assert list(host_values(t)) == [3, 1, 2, 0]
    assert host_values(t.t()) == [3, 2, 1, 0]
    t += 1
    assert host_values(t) is None


def test_constants_take_no_memory_of_their_own() -> None:
    from tabtorch.bridge import get_bridge

    x = tabtorch.ones(64, 64)
    y = x * tabtorch.full((64, 64), 3.0) + tabtorch.zeros(64, 64)
    del x
    get_bridge().synchronize()
    before = get_bridge().stats()["dispatches"]
    assert y[5, 5].item() == 3.0
    assert get_bridge().stats()["dispatches"] - before <= 1


def test_lists_of_every_kind() -> None:
    rng = np.random.default_rng(0)
    for shape in ((), (1,), (3, 4), (2, 0, 3), (2, 3, 1, 2)):
        data = rng.integers(-5, 5, shape)
        for convert in (int, float, bool, complex):
            nested = data.astype(convert).tolist()
            same(torch.tensor(nested), tabtorch.tensor(nested))
    same(torch.tensor(array.array("d", [1.0, 2.0]).tolist()), tabtorch.tensor(array.array("d", [1.0, 2.0]).tolist()))
    same(
        torch.frombuffer(bytearray(struct.pack("<3f", 1, 2, 3)), dtype=torch.float32),
        tabtorch.frombuffer(struct.pack("<3f", 1, 2, 3), dtype=tabtorch.float32),
    )


FILES = """
from_file("numbers", size=6, dtype=lib.float32); from_file("numbers", False, 3, dtype=lib.int32)
from_file("numbers", size=4); from_file("numbers", shared=False, size=2, dtype=lib.int64, requires_grad=False)
from_file("numbers", size=3, requires_grad=True).requires_grad; from_file("numbers"); from_file("numbers", size=7)
from_file("numbers", size=4, dtype=lib.float64); from_file("nothing", size=1); from_file("numbers", size=-1)
"""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("text", [x.strip() for x in FILES.replace("\n", ";").split(";") if x.strip()])
def test_from_file(text: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.arange(6, dtype=np.float32).tofile("numbers")

    def run(lib: Any, device: str) -> Any:
        def from_file(*args: Any, **kwargs: Any) -> Any:
            return lib.from_file(*args, device=device, **kwargs)

        try:
            found = eval(text, {"lib": lib, "from_file": from_file})
        except Exception as e:
            return type(e).__name__, str(e)
        return found if isinstance(found, bool) else (found.tolist(), str(found.dtype))

    where = "cpu" if "float64" in text else device
    assert run(tabtorch, where) == run(torch, "cpu")


def test_a_file_is_not_shared(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    np.arange(6, dtype=np.float32).tofile(path)
    x = tabtorch.from_file(str(path), size=6)
    x[0] = 7
    assert np.fromfile(path, np.float32)[0] == 0
    with pytest.raises(NotImplementedError, match="share memory with a file"):
        tabtorch.from_file(str(path), shared=True, size=6)


STORAGES = """
T(5, dtype=lib.float32); T([1, 2, 3], dtype=lib.int64); T(); T(3); T((1.5, 2)); T(1.5); T(1, 2)
T(wrap_storage=lib.UntypedStorage(8)); T(wrap_storage=lib.UntypedStorage(8), dtype=lib.float32)
T(wrap_storage=3, dtype=lib.float32); T(3, wrap_storage=lib.UntypedStorage(8), dtype=lib.float32)
T(wrap_storage=lib.UntypedStorage(8), dtype="x"); T(wrap_storage=lib.UntypedStorage(8), dtype=lib.int8, device="cpu")
written(T([1, 2, 3], dtype=lib.float32)); written(lib.arange(4).storage()); written(lib.arange(4).untyped_storage())
recorded(lib)
"""


def written(s: Any) -> Any:
    s[1] = 7
    seen = s.tolist()
    s[2:] = 5
    seen += s.tolist()
    return [*seen, s.fill_(2) is s, *s.tolist()]


def recorded(lib: Any) -> Any:
    """A write to a storage is nothing that autograd is told of."""
    x = lib.ones(3, requires_grad=True)
    y = x * x
    x.untyped_storage().fill_(0)
    y.sum().backward()
    return x.grad.tolist(), x.tolist(), x._version


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("text", [x.strip() for x in STORAGES.replace("\n", ";").split(";") if x.strip()])
def test_storages_that_scripts_make(text: str, device: str) -> None:
    def run(lib: Any) -> Any:
        try:
            found = eval(text, {"T": lib.TypedStorage, "lib": lib, "written": written, "recorded": recorded})
        except Exception as e:
            return type(e).__name__, str(e).split("\n")[0]
        if isinstance(found, lib.TypedStorage):
            size = found.size()
            return size, str(found.dtype).split(".")[-1], found.tolist() if "[" in text or "(1.5" in text else size
        return found

    with tabtorch.device(device):
        assert run(tabtorch) == run(torch)
