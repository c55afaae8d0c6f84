"""Image processing & vision helper idioms."""

import math

import torch
import torch.nn.functional as F

torch.manual_seed(0)
img = torch.rand(3, 8, 8)
print(
    img.permute(1, 2, 0).shape,
    (img * 255).to(torch.uint8)[0, 0],
    img.mean((1, 2)),
    img.std(dim=(1, 2)),
    (img - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1))[:, 0, 0],
    img.flip(-1)[0, 0, :3],
    img[:, 1:5, 2:6].shape,
    torch.rot90(img, 1, (1, 2))[0, 0, :3],
    img.clamp(0.2, 0.8).min(),
    (img * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(0)[0, :3],
)
for m, kw in (
    ("nearest", {}),
    ("bilinear", {"align_corners": True}),
    ("bilinear", {"align_corners": False}),
    ("bicubic", {"align_corners": False}),
    ("area", {}),
    ("nearest-exact", {}),
    ("bilinear", {"antialias": True}),
):
    print(
        m,
        F.interpolate(img[None], size=(5, 3), mode=m, **kw)[0, 0, 0],
        F.interpolate(img[None], scale_factor=1.5, mode=m, **kw).sum(),
    )
th = math.pi / 6
A = torch.tensor([[math.cos(th), -math.sin(th), 0.1], [math.sin(th), math.cos(th), 0]])[None]
for pm in ("zeros", "border", "reflection"):
    for md in ("bilinear", "nearest", "bicubic"):
        print(
            pm,
            md,
            F.grid_sample(
                img[None],
                F.affine_grid(A, (1, 3, 4, 4), align_corners=False),
                mode=md,
                padding_mode=pm,
                align_corners=False,
            )[0, 0, 1],
        )
g = torch.tensor([1.0, 2, 1])
sx = torch.outer(g, torch.tensor([-1.0, 0, 1]))
k = torch.stack([sx, sx.T])[:, None]
e = F.conv2d(img.mean(0)[None, None], k, padding=1)
print(e.pow(2).sum(1).sqrt()[0, 3], torch.atan2(e[0, 1], e[0, 0])[3, :4])
bw = (img[0] > 0.5).float()[None, None]
print(
    F.max_pool2d(bw, 3, 1, 1)[0, 0, 0],
    -F.max_pool2d(-bw, 3, 1, 1)[0, 0, 3],
    F.unfold(img[None], 4, stride=4).shape,
    F.fold(F.unfold(img[None], 3, padding=1), 8, 3, padding=1)[0, 0, 0],
)
P = img.unfold(1, 4, 4).unfold(2, 4, 4).permute(1, 2, 0, 3, 4).reshape(4, -1)
print(P.shape, P.mean(1))
print(img.view(3, 2, 4, 2, 4).mean((2, 4))[0])
h = torch.histc(img, 5, 0, 1)
print(
    h,
    h.cumsum(0) / h.sum(),
    torch.bincount((img * 4).long().view(-1), minlength=4),
    torch.quantile(img, torch.tensor([0.1, 0.9])),
)
yy, xx = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
circ = ((yy - 3.5) ** 2 + (xx - 3.5) ** 2) < 9
print(
    circ.sum(),
    (yy[circ].float().mean(), xx[circ].float().mean()),
    circ.nonzero().min(0)[0],
    circ.any(0).nonzero().flatten()[[0, -1]],
    img[:, circ].shape,
)


def psnr(a, b):
    return 10 * torch.log10(1 / F.mse_loss(a, b))


n = (img + 0.1 * torch.randn_like(img)).clamp(0, 1)
print(psnr(img, n))
mu = F.avg_pool2d(img[None], 3, 1)
v = F.avg_pool2d(img[None] ** 2, 3, 1) - mu**2
print(v.mean(), mu[0, 0, 0])
tv = (img[:, 1:] - img[:, :-1]).abs().sum() + (img[:, :, 1:] - img[:, :, :-1]).abs().sum()
print(tv)
boxes = torch.tensor([[0.0, 0, 4, 4], [1, 1, 5, 5], [6, 6, 8, 8]])
sc = torch.tensor([0.9, 0.8, 0.7])


def nms(b, s, th):
    o = s.argsort(descending=True)
    keep = []
    while o.numel() > 0:
        i = o[0]
        keep.append(i.item())
        if o.numel() == 1:
            break
        xy1 = torch.maximum(b[i, :2], b[o[1:], :2])
        xy2 = torch.minimum(b[i, 2:], b[o[1:], 2:])
        inter = (xy2 - xy1).clamp(0).prod(1)
        ar = (b[:, 2:] - b[:, :2]).prod(1)
        o = o[1:][inter / (ar[i] + ar[o[1:]] - inter) <= th]
    return torch.tensor(keep)


print(
    nms(boxes, sc, 0.3),
    nms(boxes, sc, 0.5),
    torch.cat([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], 1),
)
u = img.clone().requires_grad_()
F.interpolate(u[None], scale_factor=0.5, mode="bicubic", align_corners=False).sum().backward()
print(u.grad[0, 0])
th = torch.zeros(1, 2, 3, requires_grad=True)
F.grid_sample(
    img[None], F.affine_grid(th + torch.eye(2, 3), (1, 3, 8, 8), align_corners=False), align_corners=False
).pow(2).sum().backward()
print(th.grad)
hsv = img.max(0)[0] - img.min(0)[0]
print(hsv[0], img.argmax(0)[0])
print(
    F.pixel_shuffle(torch.arange(16.0).view(1, 4, 2, 2), 2)[0, 0],
    F.pixel_unshuffle(torch.arange(16.0).view(1, 1, 4, 4), 2)[0, :, 0, 0],
    F.adaptive_avg_pool2d(img, (3, 3))[0],
    F.adaptive_max_pool2d(img[None], 3, return_indices=True)[1][0, 0],
    F.avg_pool2d(img, 3, 2, 1, count_include_pad=False)[0, 0],
    F.lp_pool2d(img[None], 2, 2)[0, 0, 0],
    F.conv2d(img[None], torch.ones(3, 1, 2, 2), groups=3, dilation=2, stride=2)[0, 0],
    F.conv_transpose2d(img[None, :1], torch.ones(1, 1, 3, 3), stride=2, padding=1, output_padding=1).shape,
    F.dropout2d(img[None], 0.0).equal(img[None]),
)
