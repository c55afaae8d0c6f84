"""`torch.utils.tensorboard`: the files, read by a reader of this test's own, against what PyTorch writes for the same calls."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tabtorch
from tabtorch.display import charts
from tabtorch.utils.tensorboard import FileWriter, RecordWriter, SummaryWriter, _histograms, _records, summary

# -- reading


def crc32c(data: bytes) -> int:
    """Bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def records(data: bytes) -> Iterator[bytes]:
    while data:
        size, check = struct.unpack("<QI", data[:12])
        assert check == masked(data[:8])
        body, data = data[12 : 12 + size], data[12 + size :]
        assert struct.unpack("<I", data[:4])[0] == masked(body)
        yield body
        data = data[4:]


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def fields(data: bytes) -> dict[int, list[Any]]:
    """Number -> what came with it: integers, and bytes of all else."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        size = {1: 8, 5: 4}.get(key & 7, 0)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            if key & 7 == 2:
                size, at = varint(data, at)
            value, at = data[at : at + size], at + size
            assert len(value) == size
        found.setdefault(key >> 3, []).append(value)
    return found


def dig(data: bytes, *path: int) -> Any:
    """The one field at the end of the path."""
    for number in path:
        (data,) = fields(data)[number]
    return data


def doubles(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 8}d", data))


def floats(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def events(folder: Path) -> list[bytes]:
    paths = sorted(folder.glob("events.out.tfevents.*"), key=lambda path: path.stat().st_mtime_ns)
    return [each for path in paths for each in records(path.read_bytes())]


def values(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Tag -> step, the last Value."""
    found = {}
    for event in events(folder):
        each = fields(event)
        for data in each.get(5, []):
            for value in fields(data)[1]:
                found[dig(value, 1).decode()] = (each.get(2, [0])[0], value)
    return found


def scalars(folder: Path) -> list[tuple[str, int, float]]:
    found = []
    for event in events(folder):
        for data in fields(event).get(5, []):
            value = fields(dig(data, 1))
            if 2 in value:
                found.append((value[1][0].decode(), fields(event).get(2, [0])[0], floats(value[2][0])[0]))
    return found


def pixels(png: bytes) -> list[list[tuple[int, ...]]]:
    """Of a PNG file whose rows have no filter."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        chunks[kind] = png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + chunks[kind])
        at += 12 + size
    width, height, bits, colours = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    channels = {2: 3, 6: 4}[colours]
    rows = zlib.decompress(chunks[b"IDAT"])
    stride = 1 + width * channels
    assert bits == 8 and len(rows) == height * stride and not any(rows[::stride])
    flat = [rows[y * stride + 1 : (y + 1) * stride] for y in range(height)]
    return [list(zip(*[iter(row)] * channels)) for row in flat]


def written(tmp_path: Path, add: Any) -> bytes:
    """The one Value that `add` adds."""
    with SummaryWriter(tmp_path) as w:
        add(w)
    ((_, value),) = values(tmp_path).values()
    return value


# -- files


def test_checksums(tmp_path: Path) -> None:
    """https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4"""
    assert crc32c(bytes(32)) == 0x8A9136AA and crc32c(bytes(range(32))) == 0x46DD794E
    for data in (b"", bytes(32), bytes(range(256))):
        assert _records.masked_crc32c(data) == masked(data)
    path = tmp_path / "records"
    w = RecordWriter(path.open("wb"))
    w.write(b"one")
    w.write(b"")
    w.flush()
    assert not w.closed
    w.close()
    assert w.closed and list(records(path.read_bytes())) == [b"one", b""]


def test_an_event_is_pytorchs_byte_for_byte(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path, filename_suffix=".end") as w:
        w.add_scalar("loss/train", 0.5, 7, walltime=1.5)
        w.add_scalar("zero", 0, walltime=1.5)
        w.add_scalar("new", 0.1, -1, walltime=1.5, new_style=True, double_precision=True)
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("events.out.tfevents.") and path.name.endswith(".end")
    first, *rest = events(tmp_path)
    assert dig(first, 3) == b"brain.Event:2"
    assert [each.hex() for each in rest] == [
        "09000000000000f83f10072a130a110a0a6c6f73732f747261696e150000003f",
        "09000000000000f83f2a0d0a0b0a047a65726f1500000000",
        "09000000000000f83f10ffffffffffffffffff012a220a200a036e6577420c080232089a9999999999b93f4a0b0a090a077363616c617273",
    ]


def test_scalars(device: str, tmp_path: Path) -> None:
    """Of a tensor, the value that it had; read in one wait, when the file is written."""
    x = tabtorch.ones(())
    with SummaryWriter(tmp_path) as w:
        for step in range(3):
            w.add_scalar("x", x, step)
            x += 1
        w.add_scalar("y", tabtorch.tensor([[2.5]]), tabtorch.tensor(9))
        w.add_scalar("inf", 1e300)
        assert scalars(tmp_path) == []
        w.flush()
        assert scalars(tmp_path) == [("x", 0, 1), ("x", 1, 2), ("x", 2, 3), ("y", 9, 2.5), ("inf", 0, math.inf)]
        for _ in range(11):
            w.add_scalar("many", x)
        assert len(scalars(tmp_path)) == 16  # they were more than ten
        for value, error in ((tabtorch.ones(2), AssertionError), ([1.0], NotImplementedError)):
            with pytest.raises(error):
                w.add_scalar("x", value)
        with pytest.raises(TypeError):
            w.add_scalar("x", tabtorch.tensor(1j))
    w.add_scalar("later", 1)  # another file
    w.close()
    w.close()
    assert len(list(tmp_path.iterdir())) == 2 and scalars(tmp_path)[-1] == ("later", 0, 1)


def test_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with SummaryWriter(comment="-note") as w:
        w.add_scalars("run/abc", {"x": 1.0, "y": 2.0}, 5)
        w.add_scalars("run/abc", {"x": 3.0}, 6)
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("-note") and str(w.get_logdir()) == f"runs/{folder.name}"
    assert scalars(folder / "run_abc_x") == [("run/abc", 5, 1), ("run/abc", 6, 3)]
    assert scalars(folder / "run_abc_y") == [("run/abc", 5, 2)]
    with SummaryWriter("again", purge_step=3):
        pass
    _, version, start = events(tmp_path / "again")
    assert (dig(version, 2), dig(version, 3)) == (3, b"brain.Event:2")
    assert (dig(start, 2), dig(start, 7, 1)) == (3, 1)


def test_file_writers(tmp_path: Path) -> None:
    """Summaries of the module `summary`, as libraries write them."""

    class Foreign:  # what the protobuf package makes
        wall_time = step = 0.0

        def SerializeToString(self) -> bytes:
            return b"\x10\x05"

    w = FileWriter(tmp_path)
    w.add_summary(summary.scalar("a", 1.0), 2)
    w.add_event(Foreign(), 3)
    with pytest.raises(TypeError, match="Expected an event_pb2.Event proto"):
        w.event_writer.add_event("x")  # type: ignore[arg-type]
    w.close()
    with pytest.raises(OSError):
        w.add_summary(summary.scalar("a", 1.0), 2)
    w.reopen()
    w.close()
    assert scalars(tmp_path) == [("a", 2, 1)] and b"\x10\x05" in events(tmp_path)


@pytest.mark.parametrize("where", ["cpu", "webgpu"])
def test_what_waits_is_written_when_the_script_ends(where: str, tmp_path: Path) -> None:
    code = (
        "import sys\nimport tabtorch as torch\nassert 'tabtorch.utils.tensorboard' not in sys.modules\n"
        "w = torch.utils.tensorboard.SummaryWriter(sys.argv[1])\n"
        "w.add_scalar('a', 1)\nw.add_scalar('b', torch.ones((), device=sys.argv[2]).sum())\ndel w"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), where], check=True, capture_output=True, text=True
    )
    assert scalars(tmp_path) == [("a", 0, 1), ("b", 0, 1)] and done.stderr == ""


def test_what_cannot_be_read_costs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> None:
        raise RuntimeError("lost")

    w = SummaryWriter(tmp_path)
    w.add_scalar("a", 1)
    w.add_scalar("b", tabtorch.ones((), device="cpu"))
    monkeypatch.setattr("tabtorch.core.to_host.tolists", lost)
    with pytest.raises(RuntimeError, match="lost"):
        w.flush()
    w.add_scalar("c", 2)
    w.close()
    assert scalars(tmp_path) == [("a", 0, 1), ("c", 0, 2)]


# -- histograms

VALUES = [-1.5, -0.25, 0.0, 0.0, 0.5, 0.5625, 3.0]
#: bins -> limits and counts of VALUES, as PyTorch writes them
BINS: dict[Any, tuple[list[float], list[int]]] = {
    3: ([-1.5, 0.0, 1.5, 3.0], [0, 2, 4, 1]),
    (0.0, 0.5, 1.0, 2.0, 4.0): ([0.0, 0.5, 1.0, 2.0, 4.0], [0, 2, 2, 0, 1]),
    "sqrt": ([-1.5, 0.0, 1.5, 3.0], [0, 2, 4, 1]),
    "sturges": ([-1.5, -0.375, 0.75, 1.875, 3.0], [0, 1, 5, 0, 1]),
    "rice": ([-1.5, -0.375, 0.75, 1.875, 3.0], [0, 1, 5, 0, 1]),
    "scott": ([-1.5, 0.75, 3.0], [0, 6, 1]),
    "auto": ([-1.5, -0.75, 0.0, 0.75, 1.5, 2.25, 3.0], [0, 1, 1, 4, 0, 0, 1]),
    "doane": ([-1.5, -0.75, 0.0, 0.75, 1.5, 2.25, 3.0], [0, 1, 1, 4, 0, 0, 1]),
}


def histo(tmp_path: Path, values: Any, **settings: Any) -> tuple[list[float], list[float], list[float]]:
    """[min, max, num, sum, squares], limits, counts."""
    found = fields(dig(written(tmp_path, lambda w: w.add_histogram("h", values, **settings)), 5))
    numbers = [doubles(found[at][0])[0] if at in found else 0.0 for at in range(1, 6)]
    return numbers, doubles(found[6][0]), doubles(found[7][0])


def test_a_histogram(device: str, tmp_path: Path) -> None:
    numbers, limits, counts = histo(tmp_path, tabtorch.tensor(VALUES).reshape(7, 1))
    assert numbers == [-1.5, 3.0, 7.0, 2.3125, 11.87890625]
    assert len(limits) == len(counts) == 600
    assert {at: count for at, count in enumerate(counts) if count} == {1: 1, 20: 1, 297: 2, 580: 1, 581: 1, 599: 1}
    assert (limits[0], limits[-1]) == (-1.624957930213695, 3.1665833053880363)
    assert _histograms.default_bins()[774:777] == [0.0, 1e-12, 1e-12 * 1.1]


@pytest.mark.parametrize("bins", BINS, ids=str)
def test_bins(bins: Any, tmp_path: Path) -> None:
    x = tabtorch.tensor(VALUES, device="cpu")
    _, limits, counts = histo(tmp_path, x, bins=list(bins) if isinstance(bins, tuple) else bins)
    assert (limits, counts) == BINS[bins]


def test_fewer_bins(tmp_path: Path) -> None:
    _, limits, counts = histo(tmp_path, tabtorch.tensor(VALUES, device="cpu"), max_bins=10)
    assert counts == [0, 2, 0, 2, 3]
    expected = [
        -7.466637793298873,
        -3.1524744095520932e-06,
        -1.3310000000000005e-12,
        1.470652577978372e-06,
        3.48324163592684,
    ]
    assert limits == expected


@pytest.mark.parametrize(
    ("values_", "bins", "error", "words"),
    [
        ([], "tensorflow", ValueError, "no element"),
        ([1.0], "abc", ValueError, "not a valid estimator"),
        ([1.0], "stone", NotImplementedError, "stone"),
        ([1.0], 0, ValueError, "must be positive"),
        ([1.0], [1.0, 0.0], ValueError, "monotonically"),
        ([1.0, math.inf], 3, ValueError, "not finite"),
        ([1.0, math.nan], 3, ValueError, "not finite"),
        ([1e30], "tensorflow", ValueError, "empty"),
        ([0.0, 1e-13, 1e19, -5e18, 1.0], "fd", ValueError, "Maximum allowed size"),
    ],
)
def test_histograms_that_are_none(values_: Any, bins: Any, error: type[Exception], words: str, tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as w, pytest.raises(error, match=words):
        w.add_histogram("h", tabtorch.tensor(values_, device="cpu"), bins=bins)


def test_raw_histograms(tmp_path: Path) -> None:
    value = written(tmp_path, lambda w: w.add_histogram_raw("h", 0, 10, 3, 12.5, 60, [1.0, 5.0, 10.0], [1, 0, 2]))
    found = fields(dig(value, 5))
    assert (doubles(found[6][0]), doubles(found[7][0])) == ([1, 5, 10], [1, 0, 2]) and 1 not in found
    with SummaryWriter(tmp_path / "w") as w, pytest.raises(ValueError, match="bucket_limits"):
        w.add_histogram_raw("h", 0, 1, 1, 1, 1, [1.0], [1, 2])


# -- pictures and sounds


def picture(tmp_path: Path, add: Any) -> list[list[tuple[int, ...]]]:
    found = fields(dig(written(tmp_path, add), 4))
    rows = pixels(found[4][0])
    assert [found[at][0] for at in (1, 2, 3)] == [len(rows), len(rows[0]), len(rows[0][0])]
    return rows


@pytest.mark.parametrize("form", ["CHW", "HWC", "WHC", "chw"])
def test_images(form: str, device: str, tmp_path: Path) -> None:
    t = tabtorch.tensor([[[0.0, 0.25]], [[0.5, 1.0]], [[2.0, -1.0]]]).permute(["CHW".find(c) for c in form.upper()])
    rows = picture(tmp_path, lambda w: w.add_image("x", t, dataformats=form))
    assert rows == [[(0, 127, 255), (63, 255, 0)]]


def test_kinds_of_images(device: str, tmp_path: Path) -> None:
    t = tabtorch.tensor([[0, 7, 255]], dtype=tabtorch.uint8)
    gray = [[(0, 0, 0), (7, 7, 7), (255, 255, 255)]]
    assert picture(tmp_path / "a", lambda w: w.add_image("x", t, dataformats="HW")) == gray
    assert picture(tmp_path / "b", lambda w: w.add_image("x", t[None])) == gray
    assert picture(tmp_path / "c", lambda w: w.add_image("x", t.expand(4, 1, 3))) == [[p + p[:1] for p in gray[0]]]
    many = tabtorch.arange(9, dtype=tabtorch.uint8).reshape(9, 1, 1, 1)
    rows = picture(tmp_path / "d", lambda w: w.add_images("x", many))
    assert rows == [[(at,) * 3 for at in range(8)], [(8,) * 3] + [(0,) * 3] * 7]
    with SummaryWriter(tmp_path / "e") as w:
        for x, form, error in ((t, "CHW", AssertionError), (t, "HH", AssertionError), (t, "HX", ValueError)):
            with pytest.raises(error):
                w.add_image("x", x, dataformats=form)
        with pytest.raises(ValueError, match="1, 3 or 4 channels"):
            w.add_image("x", t.expand(2, 1, 3))


def test_boxes(tmp_path: Path) -> None:
    """As Pillow draws them for PyTorch."""
    boxes = tabtorch.tensor([[2.0, 2.0, 6.9, 5.0]], device="cpu")
    rows = picture(tmp_path, lambda w: w.add_image_with_boxes("x", tabtorch.zeros(3, 8, 9, device="cpu"), boxes))
    assert ["".join(".#"[p == (255, 0, 0)] for p in row) for row in rows] == [
        ".........",
        "..#####..",
        "..#####..",
        "..##.##..",
        "..##.##..",
        "..#####..",
        "..#####..",
        ".........",
    ]
    with SummaryWriter(tmp_path / "w") as w:
        for settings in ({"labels": "one"}, {"rescale": 2}):
            with pytest.raises(NotImplementedError):
                w.add_image_with_boxes("x", tabtorch.zeros(3, 8, 9), boxes, **settings)


def test_sounds(device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = written(tmp_path, lambda w: w.add_audio("a", tabtorch.tensor([[0.0, 0.5, -1.5]]), sample_rate=8000))
    assert dig(value, 6).hex() == (
        "0d0000fa45100118032232524946462a00000057415645666d74201000000001000100401f0000803e0000020010006461746106000000"
        "0000ff3f01802a09617564696f2f776176"
    )
    assert "auto clipped" in capsys.readouterr().out
    with SummaryWriter(tmp_path / "w") as w, pytest.raises(AssertionError):
        w.add_audio("a", tabtorch.zeros(2, 3))


# -- the others, as PyTorch writes them


def test_messages() -> None:
    experiment, start, end = summary.hparams({"lr": 0.5, "opt": "adam"}, {"acc": 1.0}, {"opt": ["adam", "sgd"]})
    layout = {"c": {"m": ["Multiline", ["a", "b"]], "n": ["Margin", ["a", "b", "c"]]}}
    made = [
        experiment,
        start,
        end,
        summary.custom_scalars(layout),
        summary.text("t", "hé"),
        summary.mesh("m", tabtorch.zeros(1, 1, 3, device="cpu"), None, None, {"b": 1}),
        summary.tensor_proto("t", tabtorch.tensor([1.5, -2.0], dtype=tabtorch.bfloat16, device="cpu")),
        summary.tensor_proto("t", tabtorch.tensor([[3, -1]], device="cpu")),
    ]
    assert [each.SerializeToString().hex() for each in made] == [
        "0a520a145f68706172616d735f2f6578706572696d656e744a3a0a380a0768706172616d73122d122b22060a026c72200322180a036f7074"
        "20012a0f0a061a046164616d0a051a037367642a070a051203616363",
        "0a4f0a1c5f68706172616d735f2f73657373696f6e5f73746172745f696e666f4a2f0a2d0a0768706172616d7312221a200a0f0a026c7212"
        "0911000000000000e03f0a0d0a036f707412061a046164616d",
        "0a2f0a1a5f68706172616d735f2f73657373696f6e5f656e645f696e666f4a110a0f0a0768706172616d73120422020801",
        "0a5a0a18637573746f6d5f7363616c6172735f5f636f6e6669675f5f422a08071200422412220a0163120b0a016d12060a01610a01621210"
        "0a016e1a0b0a090a01611201621a01634a120a100a0e637573746f6d5f7363616c617273",
        "0a290a0e742f746578745f73756d6d617279420d0807120412020801420368c3a94a080a060a0474657874",
        "0a4c0a086d5f564552544558421e0801120c1202080112020801120208032a0c0000000000000000000000004a200a1e0a046d6573681216"
        "12016d18012a087b2262223a20317d32030101033802",
        "0a2a0a01744219080e1204120208026a0f808080fe0380808080fcffffffff014a0a0a080a0674656e736f72",
        "0a2a0a01744219080912081202080112020802520b03ffffffffffffffffff014a0a0a080a0674656e736f72",
    ]


def test_hyperparameters(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as w:
        w.add_hparams({"lr": 0.5, "none": None}, {"acc": tabtorch.tensor(0.25)}, run_name="a", global_step=3)
        for dicts in (([], {}), ({"a": [1]}, {}), ({"a": 1}, {}, {"a": ["x"]})):
            with pytest.raises((TypeError, ValueError)):
                w.add_hparams(*dicts)
    assert scalars(tmp_path / "a") == [("acc", 3, 0.25)] and len(values(tmp_path / "a")) == 4


def test_curves(tmp_path: Path) -> None:
    labels, predictions = tabtorch.tensor([0, 1, 1, 0, 1]), tabtorch.tensor([0.1, 0.9, 0.4, 0.6, 0.7])
    value = written(tmp_path, lambda w: w.add_pr_curve("p", labels, predictions, num_thresholds=5))
    found = floats(dig(value, 8, 5))
    assert found[:20] == [3, 3, 2, 1, 0, 2, 1, 1, 0, 0, 0, 1, 1, 2, 2, 0, 0, 1, 2, 3]
    third = 0.3333333432674408
    assert found[20:] == pytest.approx([0.6, 0.75, 2 / 3, 1, 0, 1, 1, 2 / 3, third, 0])
    raw = written(tmp_path / "raw", lambda w: w.add_pr_curve_raw("p", *[[1.0, at] for at in range(6)]))
    assert floats(dig(raw, 8, 5)) == [each for at in range(6) for each in (1, at)]


def test_embeddings(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as w:
        points = tabtorch.tensor([[0.5, 1.0], [2.0, -1.0]])
        w.add_embedding(points, metadata=["a", "b"], label_img=tabtorch.ones(2, 1, 1, 1), global_step=2, tag="x/y")
        w.add_embedding(points, metadata=[["a", 1], ["b", 2]], metadata_header=["n", "v"])
        with pytest.raises(AssertionError, match="labels"):
            w.add_embedding(points, metadata=["a"], tag="z")
    first, second = tmp_path / "00002" / "x%2fy", tmp_path / "00000" / "default"
    assert (first / "tensors.tsv").read_text() == "0.5\t1.0\n2.0\t-1.0\n"
    assert (first / "metadata.tsv").read_text() == "a\nb\n"
    assert pixels((first / "sprite.png").read_bytes()) == [[(255,) * 3] * 2, [(0,) * 3] * 2]
    assert (second / "metadata.tsv").read_text() == "n\tv\na\t1\nb\t2\n"
    assert (
        (tmp_path / "projector_config.pbtxt")
        .read_text()
        .startswith(
            'embeddings {\n  tensor_name: "x/y:00002"\n  metadata_path: "00002/x%2fy/metadata.tsv"\n  sprite {\n'
        )
    )


def test_graphs(tmp_path: Path) -> None:
    class Net(tabtorch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = tabtorch.nn.Sequential(tabtorch.nn.Linear(3, 2), tabtorch.nn.ReLU())

        def forward(self, x: Any) -> Any:
            return self.body(x) + 1

    class Branch(tabtorch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with SummaryWriter(tmp_path) as w:
        w.add_graph(Net().to("cpu"), tabtorch.ones(4, 3, device="cpu"))
        with pytest.raises(RuntimeError, match="cannot trace Branch"):
            w.add_graph(Branch())
    _, graph, stats = events(tmp_path)
    nodes = [fields(each) for each in fields(dig(graph, 4))[1]]
    names = [node[1][0].decode() for node in nodes]
    assert names == [
        "input/x",
        "Net/Sequential[body]/Linear[0]/body_0",
        "Net/Sequential[body]/ReLU[1]/body_1",
        "Net/add",
        "output/output",
    ]
    assert [each.decode() for each in nodes[3][3]] == [names[2]]
    assert dig(stats, 8, 1) == b"step1"


def test_what_is_not_there(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as w:
        with pytest.raises(NotImplementedError, match="moviepy"):
            w.add_video("v", tabtorch.zeros(1, 1, 3, 2, 2))
        with pytest.raises(NotImplementedError, match="Netron"):
            w.add_onnx_graph("x.onnx")


# -- in the page


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """What a page that somebody looks at is given to show."""
    given: list[tuple[Any, ...]] = []
    module = ModuleType("tabdisplay")
    module.__dict__.update(looked_at=True, publish=lambda *args: given.append(args))
    monkeypatch.setitem(sys.modules, "tabdisplay", module)
    yield given
    charts.forget()


def test_live_charts(page: list[tuple[Any, ...]], device: str, tmp_path: Path) -> None:
    with SummaryWriter(tmp_path / "a") as w, SummaryWriter(tmp_path / "b") as other:
        for step in range(100):
            w.add_scalar("loss/train", tabtorch.tensor(1.0) / (step + 1), step)
            w.add_scalar("loss/log", 2, step)
        other.add_scalar("loss/train", 3.0, 10, new_style=True)
        w.add_scalars("both", {"x": 1, "y": 2}, 7)
        w.add_hparams({"lr": 1}, {"acc": 1.0})
    assert len(page) < 30  # not for each point
    charts.finish()
    shown = {about["name"]: (about, bundle) for bundle, *_ in page for about in [json.loads(bundle[charts.CHART])]}
    assert shown.keys() == {"loss", "both"}
    about, bundle = shown["loss"]
    lines = [(line["name"], line["count"]) for line in about["lines"]]
    assert lines == [("train", 100), ("log", 100), ("train (b)", 1)]
    assert doubles(bundle[charts.POINTS])[:200] == [*range(100), *(pytest.approx(1 / (at + 1)) for at in range(100))]
    assert [line["name"] for line in shown["both"][0]["lines"]] == ["x", "y"]
    assert scalars(tmp_path / "b") == [] and len(scalars(tmp_path / "a")) == 200
