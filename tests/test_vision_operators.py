"""torchvision's compiled operators, `torch.ops.torchvision`: against formulas of real PyTorch, on both devices, and each other.

tests/libraries compares them with torchvision's own, which the environment of these tests has not.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tabtorch as tt
from sidebyside import DEVICES, to_tab

OURS: Any = tt.ops.torchvision


def near(want: torch.Tensor, got: Any, tol: float = 2e-5) -> None:
    assert tuple(want.shape) == tuple(got.shape)
    torch.testing.assert_close(
        torch.tensor(got.detach().cpu().tolist()).reshape(want.shape), want.detach().float(), rtol=tol, atol=tol
    )


def both(want: Any, got: Any, inputs: list[torch.Tensor], ours: list[Any]) -> None:
    """The same values, and the same gradients of the inputs that want one."""
    near(want, got)
    weights = torch.randn(want.shape)
    asked = [(a, b) for a, b in zip(inputs, ours, strict=True) if a.requires_grad]
    grads = torch.autograd.grad((want * weights).sum(), [a for a, _ in asked])
    (got * to_tab(weights, got.device.type)).sum().backward()
    for g, (_, b) in zip(grads, asked, strict=True):
        near(g, b.grad, 1e-4)


def boxes(k: int, n: int, h: int, w: int) -> torch.Tensor:
    """k regions (example, x1, y1, x2, y2) inside of a map."""
    corner = torch.rand(k, 2) * torch.tensor([w / 2.0, h / 2.0])
    size = 1.2 + torch.rand(k, 2) * torch.tensor([w / 2.0 - 2, h / 2.0 - 2])
    return torch.cat([torch.arange(k).remainder(n).float()[:, None], corner, corner + size], 1)


def sampled(x: torch.Tensor, rois: torch.Tensor, ph: int, pw: int, ratio: int, shift: float) -> torch.Tensor:
    """roi_align as means of what grid_sample reads: (K, C, ph, pw)."""
    h, w = x.shape[2:]
    found = []
    for roi in rois:
        x1, y1, x2, y2 = (roi[1:] - shift).tolist()
        ys = y1 + (torch.arange(ph * ratio) + 0.5) * (y2 - y1) / (ph * ratio)
        xs = x1 + (torch.arange(pw * ratio) + 0.5) * (x2 - x1) / (pw * ratio)
        at = torch.stack(torch.meshgrid(xs / (w - 1) * 2 - 1, ys / (h - 1) * 2 - 1, indexing="xy"), -1)
        image = x[int(roi[0])][None]
        found.append(F.avg_pool2d(F.grid_sample(image, at[None], padding_mode="border", align_corners=True), ratio))
    return torch.cat(found)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("aligned", [False, True])
def test_roi_align(device: str, aligned: bool) -> None:
    torch.manual_seed(1)
    x, rois = torch.randn(2, 3, 12, 10, requires_grad=True), boxes(5, 2, 12, 10)
    ours = to_tab([x, rois], device)
    want = sampled(x, rois, 3, 2, 2, 0.5 if aligned else 0.0)
    both(want, OURS.roi_align(*ours, 1.0, 3, 2, 2, aligned), [x, rois], ours)


@pytest.mark.parametrize("device", DEVICES)
def test_roi_align_takes_about_a_sample_a_pixel(device: str) -> None:
    torch.manual_seed(2)
    x, rois = torch.randn(1, 2, 16, 16), torch.tensor([[0, 1.0, 2.0, 12.0, 9.5]])
    got = OURS.roi_align(*to_tab([x, rois], device), 1.0, 1, 2, -1, False)
    up, across = math.ceil(7.5), math.ceil(11.0 / 2)
    grid = sampled(x, rois, up, 2 * across, 1, 0.0)
    near(F.avg_pool2d(grid, (up, across)), got)


@pytest.mark.parametrize("device", DEVICES)
def test_ps_roi_align(device: str) -> None:
    torch.manual_seed(3)
    ph, pw = 2, 3
    x, rois = torch.randn(2, 2 * ph * pw, 12, 14, requires_grad=True), boxes(4, 2, 12, 14)
    whole = sampled(x, rois, ph, pw, 2, 0.5).reshape(4, 2, ph, pw, ph, pw)
    want = torch.stack([whole[:, :, i, j, i, j] for i in range(ph) for j in range(pw)], 2).reshape(4, 2, ph, pw)
    ours = to_tab([x, rois], device)
    got, channels = OURS.ps_roi_align(*ours, 1.0, ph, pw, 2)
    both(want, got, [x, rois], ours)
    assert channels.dtype is tt.int32
    assert channels[1].reshape(-1).tolist() == list(range(2 * ph * pw))


@pytest.mark.parametrize("device", DEVICES)
def test_roi_pool(device: str) -> None:
    torch.manual_seed(4)
    x = torch.randn(2, 3, 9, 9, requires_grad=True)
    rois = torch.tensor([[0, 1, 2, 6, 7], [1, 0, 0, 8, 8], [0, 3, 3, 3, 3], [1, 20, 20, 30, 30]], dtype=torch.float32)
    parts = []
    for n, x1, y1, x2, y2 in rois.int().tolist()[:3]:
        parts.append(F.adaptive_max_pool2d(x[n : n + 1, :, y1 : y2 + 1, x1 : x2 + 1], (2, 2)))
    want = torch.cat([*parts, torch.zeros(1, 3, 2, 2)])  # outside of the map there is nothing
    ours = to_tab([x, rois], device)
    got, place = OURS.roi_pool(*ours, 1.0, 2, 2)
    both(want, got, [x, rois], ours)
    assert place.dtype is tt.int32 and place[3].tolist() == [[[-1, -1], [-1, -1]]] * 3


@pytest.mark.parametrize("device", DEVICES)
def test_ps_roi_pool(device: str) -> None:
    torch.manual_seed(5)
    x = torch.randn(1, 4, 8, 8, requires_grad=True)
    rois = torch.tensor([[0, 1, 1, 5, 5]], dtype=torch.float32)
    want = torch.stack([x[0, 0, 1:3, 1:3], x[0, 1, 1:3, 3:5], x[0, 2, 3:5, 1:3], x[0, 3, 3:5, 3:5]]).mean((1, 2))
    ours = to_tab([x, rois], device)
    got, _ = OURS.ps_roi_pool(*ours, 1.0, 2, 2)
    both(want.reshape(1, 1, 2, 2), got, [x, rois], ours)


def deformed(
    x: Any, weight: Any, offset: Any, mask: Any, stride: int, pad: int, dilation: int, groups: int
) -> torch.Tensor:
    """deform_conv2d of one group of weights, as what grid_sample reads at each tap."""
    n, c, h, w = x.shape
    o, _, kh, kw = weight.shape
    oh, ow = offset.shape[2:]
    columns = []
    for g in range(groups):
        image = x[:, g * c // groups : (g + 1) * c // groups]
        for t in range(kh * kw):
            at = offset[:, (g * kh * kw + t) * 2 :][:, :2]
            y = torch.arange(oh)[:, None] * stride - pad + t // kw * dilation + at[:, 0]
            xx = torch.arange(ow) * stride - pad + t % kw * dilation + at[:, 1]
            grid = torch.stack([(xx * 2 + 1) / w - 1, (y * 2 + 1) / h - 1], -1)
            columns.append(F.grid_sample(image, grid, align_corners=False) * mask[:, g * kh * kw + t, None])
    parts = torch.stack(columns, 1).reshape(n, groups, kh * kw, c // groups, oh, ow).transpose(2, 3)
    return torch.einsum("nctyx,oct->noyx", parts.reshape(n, c, kh * kw, oh, ow), weight.reshape(o, c, -1))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("groups", [1, 2])
def test_deform_conv2d(device: str, groups: int) -> None:
    torch.manual_seed(6)
    x, weight = torch.randn(2, 4, 7, 8, requires_grad=True), torch.randn(3, 4, 3, 2, requires_grad=True)
    stride, pad, dilation = 2, 1, 1
    oh, ow = (7 + 2 - 3) // 2 + 1, (8 + 2 - 2) // 2 + 1
    offset = (torch.randn(2, groups * 12, oh, ow) * 1.5).requires_grad_()
    mask = torch.rand(2, groups * 6, oh, ow, requires_grad=True)
    bias = torch.randn(3, requires_grad=True)
    inputs = [x, weight, offset, mask, bias]
    ours = to_tab(inputs, device)
    want = deformed(x, weight, offset, mask, stride, pad, dilation, groups) + bias.reshape(-1, 1, 1)
    got = OURS.deform_conv2d(*ours, stride, stride, pad, pad, dilation, dilation, 1, groups, True)
    both(want, got, inputs, ours)


@pytest.mark.parametrize("device", DEVICES)
def test_deform_conv2d_without_offsets_is_a_convolution(device: str) -> None:
    torch.manual_seed(7)
    x, weight, bias = torch.randn(2, 4, 6, 6), torch.randn(6, 2, 3, 3), torch.randn(6)
    want = F.conv2d(x, weight, bias, 1, 1, 1, 2)
    offset, none = torch.zeros(2, 18, 6, 6), torch.zeros(2, 1)
    ours = to_tab([x, weight, offset, none, bias], device)
    near(want, OURS.deform_conv2d(*ours, 1, 1, 1, 1, 1, 1, 2, 1, False))
    with pytest.raises(RuntimeError, match=r"offset.shape\[1\] is not valid: got: 18 expected: 36"):
        OURS.deform_conv2d(*ours, 1, 1, 1, 1, 1, 1, 2, 2, False)


def kept(dets: torch.Tensor, scores: torch.Tensor, limit: float) -> list[int]:
    found: list[int] = []
    for k in torch.sort(scores, descending=True, stable=True).indices.tolist():
        for j in found:
            low, high = torch.maximum(dets[k, :2], dets[j, :2]), torch.minimum(dets[k, 2:], dets[j, 2:])
            shared = (high - low).clamp(min=0).prod()
            whole = (dets[k, 2:] - dets[k, :2]).prod() + (dets[j, 2:] - dets[j, :2]).prod() - shared
            if shared / whole > limit:
                break
        else:
            found.append(k)
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [0, 1, 7, 8, 50])
def test_nms(device: str, n: int) -> None:
    torch.manual_seed(n)
    dets = torch.rand(n, 4) * 10
    dets[:, 2:] += dets[:, :2]
    scores = (torch.rand(n) * 10).round()  # some are equal
    for limit in (0.1, 0.5, 0.9):
        got = OURS.nms(*to_tab([dets, scores], device), limit)
        assert got.dtype is tt.int64 and got.device.type == device
        assert got.tolist() == kept(dets, scores, limit)


def test_a_threshold_that_an_overlap_equals() -> None:
    """1/3 in single precision is above 1/3 in double, and torchvision compares with the latter."""
    dets, scores = tt.tensor([[0.0, 0, 2, 1], [1, 0, 3, 1]], device="cpu"), tt.tensor([2.0, 1], device="cpu")
    assert OURS.nms(dets, scores, 1 / 3).tolist() == [0]
    assert OURS.nms(dets, scores, math.nextafter(torch.tensor(1.0).div(3).item(), 1)).tolist() == [0, 1]


def test_shapes_and_types_are_checked() -> None:
    x, rois = tt.ones(1, 4, 5, 5, device="cpu"), tt.zeros(2, 5, device="cpu")
    with pytest.raises(RuntimeError, match=r"rois must have shape as Tensor\[K, 5\]"):
        OURS.roi_align(x, rois[:, :4], 1.0, 2, 2, 2, False)
    with pytest.raises(RuntimeError, match="Expected tensor for input to have the same type as tensor for rois"):
        OURS.roi_pool(x, rois.double(), 1.0, 2, 2)
    with pytest.raises(RuntimeError, match="input channels must be a multiple of pooling height"):
        OURS.ps_roi_align(x, rois, 1.0, 3, 2, 2)
    with pytest.raises(RuntimeError, match="boxes should be a 2d tensor, got 1D"):
        OURS.nms(x[0, 0, 0], rois[:, 0], 0.5)
    with pytest.raises(RuntimeError, match=r"expected grad of shape \(2, 1, 2, 2\), got \(1, 4, 5, 5\)"):
        OURS._ps_roi_pool_backward(x, rois, rois, 1.0, 2, 2, 1, 4, 5, 5)
    with pytest.raises(RuntimeError, match="expected grad of shape"):
        OURS._roi_pool_backward(x, rois, x[:, :1], 1.0, 2, 2, 1, 4, 5, 5)
    with pytest.raises(AttributeError, match="has no attribute 'no_such_operator'"):
        OURS.no_such_operator


def test_what_torchvision_registers_is_asked() -> None:
    """Its fakes, its formulas and its kernels for autocast are written over these operators."""
    library: Any = tt.library
    seen = []
    op = OURS._ps_roi_pool_backward.default
    before = dict(op._kernels)
    try:
        library.Library("torchvision", "IMPL", "Meta").impl(op, lambda grad, *rest: seen.append("fake") or grad)
        op(tt.ones(1, device="meta"), *[tt.ones(1)] * 2, 1.0, *[1] * 6)
        library.Library("torchvision", "IMPL").impl(
            "_ps_roi_pool_backward", lambda grad, *rest: seen.append("cast"), "AutocastCPU"
        )
        with tt.autocast("cpu"):
            op(tt.ones(1, device="cpu"), *[tt.ones(1)] * 2, 1.0, *[1] * 6)
            keys = tt._C.DispatchKeySet(tt._C.DispatchKey.AutocastCPU)
            with tt._C._ExcludeDispatchKeyGuard(keys), pytest.raises((TypeError, AttributeError, RuntimeError)):
                op(tt.ones(1, device="cpu"), *[tt.ones(1)] * 2, 1.0, *[1] * 6)
    finally:
        op._kernels = before
    assert seen == ["fake", "cast"]
    with pytest.raises(OSError, match="Could not load this library"):
        tt.ops.load_library("somewhere/_C.so")
    tt.ops.load_library("somewhere/torchvision/_C.so")
