"""Pictures as PNG files, by operations of tensors: they are made on the device that the tensor is on."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from tabtorch import _lazy
from tabtorch.utils.tensorboard._wire import Message


def as_tensor(x: Any) -> Any:
    """A tensor without a gradient: of ours as it is, of an array or another library's tensor on the cpu device."""
    torch = _lazy.torch
    if isinstance(x, torch.Tensor):
        return x.detach()
    if not (hasattr(x, "tolist") and hasattr(x, "shape")):
        raise NotImplementedError(f"Got {type(x)}, but numpy array or torch tensor are expected.")
    kind = getattr(torch, str(x.dtype).removeprefix("torch."))
    return torch.tensor(x.tolist(), dtype=kind, device="cpu").reshape(tuple(x.shape))


def numbers(x: Any) -> list[Any]:
    """The elements of a tensor, an array or one number, row by row. NotImplementedError for others, as lists."""
    if isinstance(x, _lazy.torch.Tensor):
        return list(_lazy.to_host.tolists([x.detach()])[0])
    if hasattr(x, "tolist") and hasattr(x, "reshape"):
        return list(x.reshape(-1).tolist())
    if isinstance(x, (bool, int, float, complex, str)):
        return [x]
    raise NotImplementedError(f"Got {type(x)}, but numpy array or torch tensor are expected.")


def grid(images: Any, columns: int = 8) -> Any:
    """(N, C, H, W) -> (H, W, 3): rows of at most `columns`. AssertionError where C is not 1 or 3."""
    if images.dim() != 4 or images.shape[1] not in (1, 3):
        raise AssertionError("Input should be a 4D numpy array with 3 channels")
    count, _, height, width = images.shape
    images = images.expand(count, 3, height, width)
    columns = min(count, columns)
    rows = -(-count // columns)
    if missing := rows * columns - count:
        images = _lazy.torch.cat([images, images.new_zeros(missing, 3, height, width)])
    return (
        images.reshape(rows, columns, 3, height, width)
        .permute(0, 3, 1, 4, 2)
        .reshape(rows * height, columns * width, 3)
    )


def to_hwc(t: Any, dataformats: str) -> Any:
    """(H, W, C), of what `dataformats` says that the dimensions are; a batch becomes a grid.

    AssertionError where a letter comes twice or there is another number of dimensions, ValueError for other letters.
    """
    if len(set(dataformats)) != len(dataformats):
        raise AssertionError(f"You can not use the same dimension shorthand twice. input_format: {dataformats}")
    if t.dim() != len(dataformats):
        raise AssertionError(
            "size of input tensor and input format are different. "
            f"tensor shape: {tuple(t.shape)}, input_format: {dataformats}"
        )
    letters = dataformats.upper()
    if {*letters} not in ({*"NCHW"}, {*"CHW"}, {*"HW"}):
        raise ValueError(f"dataformats are the letters NCHW, CHW or HW in any order, not {dataformats!r}")
    if len(letters) == 4:
        return grid(t.permute([letters.find(c) for c in "NCHW"]))
    if len(letters) == 3:
        t = t.permute([letters.find(c) for c in "HWC"])
        return t.expand(*t.shape[:2], 3) if t.shape[2] == 1 else t
    return t.permute([letters.find(c) for c in "HW"]).unsqueeze(2).expand(-1, -1, 3)


def levels(t: Any) -> Any:
    """As uint8: of uint8 as it is, else 0 to 1 are 0 to 255, and what lies beyond is cut off."""
    torch = _lazy.torch
    if t.dtype == torch.uint8:
        return t
    return torch.nan_to_num(t.to(torch.float32) * 255, nan=0.0).clamp(0, 255).to(torch.uint8)


def png(pixels: bytes, width: int, height: int, channels: int) -> bytes:
    """A PNG file of rows of 3 (red, green, blue) or 4 (and opacity) bytes a pixel. https://www.w3.org/TR/png-3/"""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    stride = channels * width
    rows = b"".join(b"\0" + pixels[at : at + stride] for at in range(0, len(pixels), stride))
    header = struct.pack(">2I5B", width, height, 8, 2 if channels == 3 else 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 6)) + chunk(b"IEND", b"")


def make_image(tensor: Any, dataformats: str, boxes: Any = None) -> Message:
    """An Image. tensor: of `dataformats`; boxes: (N, 4), left, top, right, bottom, drawn in red.

    ValueError for channels other than 1, 3 or 4.
    """
    t = levels(to_hwc(as_tensor(tensor), dataformats))
    height, width, channels = t.shape
    if channels not in (3, 4) or not height or not width:
        raise ValueError(
            f"an image has 1, 3 or 4 channels and at least one pixel, not shape {(height, width, channels)}"
        )
    pixels = _lazy.to_host.to_bytes(t.contiguous())
    if boxes is not None:
        pixels = outlined(pixels, width, height, channels, boxes)
    data = png(pixels, width, height, channels)
    return Message("Image", height=height, width=width, colorspace=channels, encoded_image_string=data)


def outlined(pixels: bytes, width: int, height: int, channels: int, boxes: Any) -> bytes:
    """The pixels with the edges of boxes, two pixels wide."""
    found = bytearray(pixels)
    red = bytes((255, 0, 0, 255)[:channels])

    def fill(left: int, top: int, right: int, bottom: int) -> None:
        left, right = max(left, 0), min(right, width - 1)
        if left <= right:
            for y in range(max(top, 0), min(bottom, height - 1) + 1):
                at = (y * width + left) * channels
                found[at : at + (right - left + 1) * channels] = red * (right - left + 1)

    flat = [int(each) for each in numbers(boxes)]
    for left, top, right, bottom in zip(*[iter(flat)] * 4):
        # Pillow's line of two pixels, which goes down at the left first, lies beside its path on one hand
        fill(left, top - 1, right, top)
        fill(left, bottom, right, bottom + 1)
        fill(left, top, left + 1, bottom)
        fill(right - 1, top, right, bottom)
    return bytes(found)


def of_figure(figure: Any, close: bool) -> Any:
    """(3, H, W) of uint8: what matplotlib draws. ImportError where it is not installed."""
    from matplotlib import pyplot  # type: ignore[import-not-found]
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # type: ignore[import-not-found]

    torch = _lazy.torch
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    drawn = bytearray(memoryview(canvas.buffer_rgba()).tobytes())
    t = torch.frombuffer(drawn, dtype=torch.uint8).to("cpu").reshape(height, width, 4)
    if close:
        pyplot.close(figure)
    return t[..., :3].permute(2, 0, 1)


def stacked(pictures: list[Any]) -> Any:
    """(N, 3, H, W)."""
    return _lazy.torch.stack(pictures)
