"""Non-maximum suppression: boxes that overlap a better one too much are left out (torchvision's `nms`)."""

from __future__ import annotations

import math
import struct
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor


def _as_single(x: float) -> float:
    """The largest float32 that is no more than x: what is compared with one is above it where it is above x."""
    if not math.isfinite(x):
        return x
    y: float = struct.unpack("f", struct.pack("f", max(min(x, 3e38), -3e38)))[0]
    if y > x:
        bits = struct.unpack("i", struct.pack("f", y))[0]
        y = struct.unpack("f", struct.pack("i", bits - 1 if y > 0 else bits + 1))[0]
    return y


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices (int64) of the boxes that stay, best score first. dets: (N, 4) as x1, y1, x2, y2; scores: (N,).

    A box goes if it overlaps one that stays, and has a better score, by more than `iou_threshold` of their union. RuntimeError for
    other shapes and types. The overlaps are compared on the device; who stays is told here, as it hangs on who stayed before.
    """
    torch._check(dets.dim() == 2, lambda: f"boxes should be a 2d tensor, got {dets.dim()}D")
    torch._check(dets.size(1) == 4, lambda: f"boxes should have 4 elements in dimension 1, got {dets.size(1)}")
    torch._check(scores.dim() == 1, lambda: f"scores should be a 1d tensor, got {scores.dim()}D")
    n = dets.size(0)
    torch._check(
        n == scores.size(0),
        lambda: f"boxes and scores should have same number of elements in dimension 0, got {n} and {scores.size(0)}",
    )
    torch._check(
        dets.dtype == scores.dtype,
        lambda: f"dets should have the same type as scores, but got {dets.dtype} and {scores.dtype}",
    )
    with torch.no_grad():
        order = torch.sort(scores, stable=True, descending=True).indices
        if n == 0:
            return order
        boxes = dets[order]
        x1, y1, x2, y2 = boxes.unbind(1)
        area = (x2 - x1) * (y2 - y1)
        width = (torch.minimum(x2[:, None], x2) - torch.maximum(x1[:, None], x1)).clamp(min=0)
        height = (torch.minimum(y2[:, None], y2) - torch.maximum(y1[:, None], y1)).clamp(min=0)
        shared = width * height
        limit = iou_threshold if dets.dtype is torch.float64 else _as_single(iou_threshold)
        # one bit a pair, in bytes: a row is a number of N bits
        over = torch.nn.functional.pad(shared / (area[:, None] + area - shared) > limit, (0, -n % 8))
        bits = over.reshape(n, -1, 8) << torch.arange(8, device=dets.device)
        rows = bits.sum(-1).to(torch.uint8)
        data = _read(rows)
        size = rows.size(1)
        gone = 0
        kept = []
        for k in range(n):
            if not gone >> k & 1:
                kept.append(k)
                gone |= int.from_bytes(data[k * size : (k + 1) * size], "little")
        return order[torch.tensor(kept, device=dets.device)]


def _read(x: Tensor) -> bytes:
    """The elements of bytes, one after the other."""
    data: bytes = x.contiguous().untyped_storage()._bytes()
    return data


def _quantized(*args: Any) -> Any:
    raise NotImplementedError("torchvision's operators on quantized tensors: tabtorch has no quantized tensors")


OPERATORS = {
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor": (nms, None),
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor": (_quantized, None),
    "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, int rois_zero_point, "
    "float spatial_scale, int pooled_height, int pooled_width, int sampling_ratio, bool aligned) -> Tensor": (
        _quantized,
        None,
    ),
}
