"""The files of TensorBoard's projector."""

from __future__ import annotations

import math
import os
from typing import Any

from tabtorch import _lazy
from tabtorch.utils.tensorboard import _pictures


def write(mat: Any, metadata: Any, label_img: Any, header: Any, folder: str) -> None:
    """tensors.tsv, and metadata.tsv and sprite.png where there are such.

    mat: (N, D). metadata: N labels, or N rows of `header`'s columns. label_img: (N, C, H, W). AssertionError for other shapes.
    """
    mat = _pictures.as_tensor(mat)
    for what, count in (
        ("labels", None if metadata is None else len(metadata)),
        ("images", None if label_img is None else label_img.shape[0]),
    ):
        if count is not None and count != mat.shape[0]:
            raise AssertionError(f"#{what} should equal with #data points")
    if mat.dim() != 2:
        raise AssertionError("mat should be 2D, where mat.size(0) is the number of data points")
    os.makedirs(folder, exist_ok=True)
    if metadata is not None:
        if header and len(header) != len(metadata[0]):
            raise AssertionError("len of header must be equal to the number of columns in metadata")
        rows = ["\t".join(map(str, row)) for row in [header, *metadata]] if header else [str(each) for each in metadata]
        _save(folder, "metadata.tsv", "\n".join([*rows, ""]).encode())
    if label_img is not None:
        _save(folder, "sprite.png", _sprite(label_img))
    lines = ["\t".join(map(str, row)) + "\n" for row in mat.tolist()]
    _save(folder, "tensors.tsv", "".join(lines).encode())


def _save(folder: str, name: str, data: bytes) -> None:
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def _sprite(images: Any) -> bytes:
    """All images in one that is square, as the projector cuts it up."""
    images = _pictures.levels(_pictures.as_tensor(images))
    sheet = _pictures.grid(images, math.ceil(images.shape[0] ** 0.5))
    height, width, _ = sheet.shape
    square = sheet.new_zeros(width, width, 3)
    square[:height] = sheet[:width]
    return _pictures.png(_lazy.to_host.to_bytes(square.contiguous()), width, width, 3)


def config(tensor_name: str, subdir: str, metadata: Any, label_img: Any) -> str:
    """A line of projector_config.pbtxt, in Protocol Buffers' text format."""
    lines = ["embeddings {", f"  tensor_name: {_quoted(tensor_name)}"]
    if metadata is not None:
        lines.append(f"  metadata_path: {_quoted(subdir + '/metadata.tsv')}")
    if label_img is not None:
        lines += ["  sprite {", f"    image_path: {_quoted(subdir + '/sprite.png')}"]
        lines += [f"    single_image_dim: {label_img.shape[at]}" for at in (3, 2)] + ["  }"]
    return "\n".join([*lines, f"  tensor_path: {_quoted(subdir + '/tensors.tsv')}", "}", ""])


def _quoted(text: str) -> str:
    known = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 39: "\\'", 92: "\\\\"}
    return '"' + "".join(known.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in text.encode()) + '"'
