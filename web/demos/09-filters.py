"""Filters: blur, sharpen, edges and relief are convolutions with small kernels"""

import torch
import torch.nn.functional as F

import tabtorch  # for show(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

SIZE = 112


def scene():
    """A picture to work on: sky, hills, a sun and some noise, (3, SIZE, SIZE) from 0 to 1."""
    side = torch.linspace(-1, 1, SIZE, device=device)
    y, x = torch.meshgrid(side, side, indexing="ij")
    image = torch.stack([0.55 + 0.25 * y, 0.7 + 0.2 * y, 0.95 - 0.1 * y])
    sun = ((x - 0.45) ** 2 + (y + 0.5) ** 2 < 0.06)[None]
    image = torch.where(sun, torch.tensor([1.0, 0.9, 0.5], device=device)[:, None, None], image)
    for height, speed, shade in [(0.15, 3.0, 0.55), (0.4, 4.5, 0.4), (0.65, 7.0, 0.25)]:
        hill = (y > height + 0.18 * torch.sin(speed * x + 10 * shade))[None]
        colour = torch.tensor([0.3, 1.0, 0.4], device=device)[:, None, None] * shade
        image = torch.where(hill, colour.expand_as(image), image)
    return (image + 0.02 * torch.randn(3, SIZE, SIZE).to(device)).clamp(0, 1)


def convolve(image, kernel):
    """Each colour by itself, with the edge repeated."""
    kernel = torch.as_tensor(kernel, dtype=torch.float32, device=device)
    around = kernel.shape[-1] // 2
    padded = F.pad(image[:, None], (around,) * 4, mode="replicate")
    return F.conv2d(padded, kernel[None, None])[:, 0]


torch.manual_seed(0)
image = scene()
distance = torch.arange(-4.0, 5.0)
bell = torch.exp(-(distance**2) / 8)
gauss = (bell[:, None] * bell) / bell.sum() ** 2
sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])

filters = {
    "as it is": image,
    "blurred": convolve(image, gauss),
    "sharpened": image + 1.5 * (image - convolve(image, gauss)),
    "edges": (convolve(image, sobel) ** 2 + convolve(image, sobel.T) ** 2).sqrt(),
    "relief": 0.5
    + convolve(image.mean(0, keepdim=True), [[-2.0, -1.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 1.0, 2.0]]).expand(3, -1, -1),
    "in few colours": (convolve(image, gauss) * 4).round() / 4,
}
tabtorch.show(
    torch.stack([each.clamp(0, 1) for each in filters.values()]), columns=3, scale=1.5, title="; ".join(filters)
)
for name, each in filters.items():
    print(f"{name:15} mean {each.mean().item():.3f}  deviation {each.std().item():.3f}")
