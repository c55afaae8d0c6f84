"""The Mandelbrot set: every pixel at once, drawn in coloured text"""

import math

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"

WIDTH, HEIGHT = 64, 44  # pixels; two to a character, one above the other
STEPS = 120


def escape_time(centre, span):
    """How many steps each point of the plane takes to leave the circle of radius 16, smoothed: (HEIGHT, WIDTH)."""
    aspect = HEIGHT / WIDTH
    cx = torch.linspace(centre[0] - span / 2, centre[0] + span / 2, WIDTH, device=device)  # (W,)
    cy = torch.linspace(centre[1] + span * aspect / 2, centre[1] - span * aspect / 2, HEIGHT, device=device)[:, None]
    x = torch.zeros(HEIGHT, WIDTH, device=device)
    y = torch.zeros(HEIGHT, WIDTH, device=device)
    count = torch.zeros(HEIGHT, WIDTH, device=device)
    last = torch.ones(HEIGHT, WIDTH, device=device)  # |z|^2 when the point left
    for _ in range(STEPS):
        x, y = x * x - y * y + cx, 2 * x * y + cy  # z = z^2 + c
        x, y = x.clamp(-1e3, 1e3), y.clamp(-1e3, 1e3)
        size = x * x + y * y
        inside = size < 256
        count = count + inside
        last = torch.where((last < 256) & ~inside, size, last)
    smooth = count + 1 - torch.log2(torch.log2(last.clamp(min=256)) / 8)
    return torch.where(count >= STEPS, torch.zeros_like(smooth), smooth)


def colours(t):
    """Escape times (H, W) to red, green, blue bytes (H, W, 3): a cosine palette, and black inside."""
    phase = torch.tensor([0.0, 0.12, 0.25], device=device)
    wave = 0.5 - 0.5 * torch.cos(2 * math.pi * (torch.log(t + 1)[..., None] * 0.35 - phase + 0.1))
    return (wave * 255 * (t > 0)[..., None]).to(torch.uint8)


def draw(pixels):
    """Two rows of pixels a line: the upper half block takes the text colour, the lower half the background."""
    rows = pixels.tolist()
    for upper, lower in zip(rows[0::2], rows[1::2], strict=True):
        line = ""
        for (r, g, b), (r2, g2, b2) in zip(upper, lower, strict=True):
            line += f"\x1b[38;2;{r};{g};{b};48;2;{r2};{g2};{b2}m▀"
        print(line + "\x1b[0m")


for centre, span in [((-0.6, 0.0), 3.4), ((-0.16, 1.035), 0.06)]:
    print(f"centre {centre[0]} {centre[1]:+}i, {span} across")
    draw(colours(escape_time(centre, span)))
