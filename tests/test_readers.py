"""`tabtorch.data`: files written here in the public formats, and files that only pretend to be."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

import tabtorch as tt
from tabtorch import data


def idx(a: np.ndarray, code: int = 8) -> bytes:
    return (
        bytes([0, 0, code, a.ndim])
        + struct.pack(f">{a.ndim}I", *a.shape)
        + a.astype(a.dtype.newbyteorder(">")).tobytes()
    )


@pytest.fixture
def digits() -> tuple[np.ndarray, np.ndarray]:
    r = np.random.default_rng(0)
    return r.integers(0, 256, (12, 28, 28), np.uint8), r.integers(0, 10, 12).astype(np.uint8)


def files_of(digits: tuple[np.ndarray, np.ndarray], packed: bool = True) -> dict[str, bytes]:
    end, pack = (".gz", gzip.compress) if packed else ("", bytes)
    return {
        "train-images-idx3-ubyte" + end: pack(idx(digits[0])),
        "train-labels-idx1-ubyte" + end: pack(idx(digits[1])),
    }


@pytest.mark.parametrize("packed", [True, False])
def test_mnist(device: str, digits: tuple[np.ndarray, np.ndarray], packed: bool, tmp_path: Path) -> None:
    files = files_of(digits, packed)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    for source in (files, tmp_path, str(tmp_path), [str(tmp_path / n) for n in files]):
        d = data.MNIST(source)
        assert d.images.device.type == device and d.images.dtype is tt.uint8
        np.testing.assert_array_equal(d.images.numpy(), digits[0])
        np.testing.assert_array_equal(d.labels.numpy(), digits[1])
        assert len(d) == 12 and d[3][1] == digits[1][3]


def test_batches(device: str, digits: tuple[np.ndarray, np.ndarray]) -> None:
    d = data.FashionMNIST(files_of(digits), transform=lambda x: x.float() / 255, target_transform=lambda y: y + 1)
    x, y = next(iter(tt.utils.data.DataLoader(d, batch_size=5)))
    np.testing.assert_allclose(x.numpy(), digits[0][:5].astype(np.float32) / 255, rtol=1e-6)
    assert y.tolist() == (digits[1][:5].astype(int) + 1).tolist() and y.dtype is tt.int64
    assert d.targets.dtype is tt.int64


@pytest.mark.parametrize(
    ("code", "dtype"), [(9, "int8"), (11, "int16"), (12, "int32"), (13, "float32"), (14, "float64")]
)
def test_types_of_idx(code: int, dtype: str) -> None:
    a = (np.arange(6).reshape(2, 3) - 3).astype(dtype)
    t = data.idx(idx(a, code), device="cpu")
    assert str(t.dtype) == "torch." + dtype
    np.testing.assert_array_equal(t.numpy(), a)


def tar(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo("cifar/" + name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def cifar(n: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r = np.random.default_rng(1)
    return r.integers(0, 256, (5, n, 3072), np.uint8), r.integers(0, 10, (5, n)), r.integers(0, 20, (5, n))


@pytest.mark.parametrize("version", ["binary", "python"])
def test_cifar10(device: str, version: str, tmp_path: Path) -> None:
    x, y, _ = cifar()
    if version == "binary":
        members = {
            f"data_batch_{k + 1}.bin": np.concatenate([y[k][:, None].astype(np.uint8), x[k]], 1).tobytes()
            for k in range(5)
        }
    else:  # of Python 2 are the real ones: their strings come as bytes
        members = {
            f"data_batch_{k + 1}": pickle.dumps(
                {b"data": x[k], b"labels": y[k].tolist(), b"batch_label": b"b", b"filenames": [b"f"]}, protocol=2
            )
            for k in range(5)
        }
    archive = tar(members)
    (tmp_path / f"cifar-10-{version}.tar.gz").write_bytes(archive)
    for source in (archive, io.BytesIO(archive), tmp_path, members):
        d = data.CIFAR10(source)
        assert tuple(d.images.shape) == (15, 3, 32, 32) and d.images.device.type == device
        np.testing.assert_array_equal(d.images.numpy(), x.reshape(15, 3, 32, 32))
        np.testing.assert_array_equal(d.labels.numpy(), y.reshape(15))
    with pytest.raises(FileNotFoundError, match="test_batch"):
        data.CIFAR10(archive, train=False)


def test_pickle_of_python_2() -> None:
    """The opcodes of the published files: strings of Python 2, an array by `numpy.core.multiarray._reconstruct`."""
    image = bytes(range(256)) * 12
    text = lambda s: b"U" + bytes([len(s)]) + s  # noqa: E731
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + text(b"b") + b"tR"
        b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR"
        b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00" + image + b"tb"
    )
    made = b"\x80\x02}(" + text(b"data") + array + text(b"labels") + b"]K\x07au."
    images, labels = data.cifar_python(made, device="cpu")
    assert labels == {"labels": [7]}
    assert images.reshape(-1).numpy().tobytes() == image


@pytest.mark.parametrize("coarse", [False, True])
def test_cifar100(coarse: bool) -> None:
    x, y, z = cifar()
    record = np.concatenate([z[0][:, None].astype(np.uint8), y[0][:, None].astype(np.uint8), x[0]], 1).tobytes()
    made = pickle.dumps({"data": x[0], "fine_labels": y[0].tolist(), "coarse_labels": z[0].tolist()})
    for source in ({"train.bin": record}, {"train": made}):
        d = data.CIFAR100(source, coarse=coarse)
        assert d.labels.tolist() == (z if coarse else y)[0].tolist()
        np.testing.assert_array_equal(d.images.numpy().reshape(3, 3072), x[0])


class Evil:
    def __reduce__(self) -> tuple:
        return (print, ("this must not be printed",))


BAD = {
    "empty": (lambda b: b"", "not an idx file"),
    "text": (lambda b: b"<html>404</html>", "not an idx file"),
    "header": (lambda b: b[:6], "truncated"),
    "short": (lambda b: b[:-1], "truncated"),
    "long": (lambda b: b + b"\0", "too long"),
    "gzip": (lambda b: gzip.compress(b)[:-20], "truncated|damaged"),
    "gzip inside": (lambda b: gzip.compress(b)[:30] + b"xxxx" + gzip.compress(b)[34:], "damaged|truncated"),
    "dimensions": (lambda b: b[:4] + b"\xff" * 12 + b[16:], "truncated"),
    "type": (lambda b: b[:2] + b"\x0d" + b[3:], "truncated"),
}


@pytest.mark.parametrize("case", BAD)
def test_damaged_idx(case: str, digits: tuple[np.ndarray, np.ndarray]) -> None:
    spoil, message = BAD[case]
    files = files_of(digits, False)
    files["train-images-idx3-ubyte"] = spoil(files["train-images-idx3-ubyte"])
    with pytest.raises(ValueError, match=message):
        data.MNIST(files)


def test_files_that_do_not_belong_together(digits: tuple[np.ndarray, np.ndarray]) -> None:
    files = files_of(digits) | {"train-labels-idx1-ubyte.gz": idx(digits[1][:5])}
    with pytest.raises(ValueError, match="do not belong together"):
        data.MNIST(files)
    with pytest.raises(FileNotFoundError, match="t10k-images"):
        data.MNIST(files, train=False)
    with pytest.raises(ValueError, match="not images"):
        data.MNIST(files | {"train-images-idx3-ubyte.gz": idx(digits[1])})


def test_hostile_cifar(capfd: pytest.CaptureFixture[str]) -> None:
    x, y, _ = cifar()
    good = {"data": x[0], "labels": y[0].tolist()}
    for bad, message in (
        (Evil(), "builtins.print"),
        ([1], "holds a list"),
        ({**good, "data": Evil()}, "builtins.print"),
        ({**good, "data": x[0][:, :7].copy()}, "no data of rows"),
        ({**good, "data": x[0].astype(np.int64)}, "not of bytes"),
        ({**good, "labels": [1]}, "not 3 small numbers"),
        ({**good, "labels": [1, 2, 1000]}, "not 3 small numbers"),
        ({"data": x[0]}, "no labels"),
    ):
        with pytest.raises(ValueError, match=message):
            data.cifar_python(pickle.dumps(bad))
    whole = pickle.dumps(good)
    for n in (0, 10, 100, len(whole) - 5):
        with pytest.raises(ValueError, match="cannot be read"):
            data.cifar_python(whole[:n])
    with pytest.raises(ValueError, match="records of 3073"):
        data.cifar_binary(b"\0" * 3072)
    archive = tar({"data_batch_1.bin": b"\0" * 3073})
    with pytest.raises(ValueError, match="truncated|damaged"):
        data.CIFAR10(archive[: len(archive) // 2])
    with pytest.raises(ValueError, match="neither a folder nor a tar archive"):
        data.CIFAR10(b"no archive at all")
    assert capfd.readouterr().out == ""
