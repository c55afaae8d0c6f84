"""Filters: blur, sharpen, edges and relief are convolutions with small kernels; on a picture or your camera"""

import torch
import torch.nn.functional as F

import tabtorch  # for show() and webcam(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

SIZE = 112
CAMERA = False  # True: not the picture that is made here, but what your camera sees; your browser asks first
FRAMES = 200 if CAMERA else 1


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


print(f"{SIZE} by {SIZE} pixels, and kernels of 9 by 9 and of 3 by 3")
torch.manual_seed(0)
distance = torch.arange(-4.0, 5.0)
bell = torch.exp(-(distance**2) / 8)
gauss = (bell[:, None] * bell) / bell.sum() ** 2
sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])
slope = torch.tensor([[-2.0, -1.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 1.0, 2.0]])


def filtered(image):
    """The image in six forms, by their names."""
    gray = image.mean(0, keepdim=True)
    smooth = convolve(image, gauss)
    return {
        "as it is": image,
        "blurred": smooth,
        "sharpened": image + 1.5 * (image - smooth),
        "edges": (convolve(image, sobel) ** 2 + convolve(image, sobel.T) ** 2).sqrt(),
        "relief": 0.5 + convolve(gray, slope).expand(3, -1, -1),
        "in few colours": (smooth * 4).round() / 4,
    }


for _ in range(FRAMES):
    image = tabtorch.webcam(SIZE, SIZE).frame().to(device) / 255 if CAMERA else scene()
    forms = filtered(image)
    sheet = torch.stack(list(forms.values())).clamp(0, 1)
    tabtorch.show(sheet, columns=3, scale=1.5, name="filters", title=", ".join(forms))
for name, each in forms.items():
    print(f"{name:15} mean {each.mean().item():.3f}  deviation {each.std().item():.3f}")
