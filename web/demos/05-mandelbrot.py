"""The Mandelbrot set: every pixel at once; click where you want to look closer"""

import math

import torch

import tabtorch  # for canvas() and button(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

HEIGHT, WIDTH = 96, 128
STEPS = 80
FRAMES = 400  # then it ends; Stop ends it too
TOUR = -0.1592, 1.0317, 0.04  # the place and the width to which it goes by itself, until you click

aspect = HEIGHT / WIDTH
column = torch.linspace(-0.5, 0.5, WIDTH, device=device)
row = torch.linspace(0.5, -0.5, HEIGHT, device=device)[:, None]
phase = torch.tensor([0.0, 0.12, 0.25], device=device)


def escape_time(x, y, span):
    """How many steps each point around (x, y) takes to leave the circle of radius 16, smoothed; 0 if it stays."""
    cx, cy = x + span * column, y + span * aspect * row  # (W,), (H, 1)
    x, y = torch.zeros(HEIGHT, WIDTH, device=device), torch.zeros(HEIGHT, WIDTH, device=device)
    count, last = torch.zeros_like(x), torch.ones_like(x)  # last: |z|^2 when the point left
    for _ in range(STEPS):
        x, y = x * x - y * y + cx, 2 * x * y + cy  # z = z^2 + c
        x, y = x.clamp(-1e3, 1e3), y.clamp(-1e3, 1e3)
        size = x * x + y * y
        inside = size < 256
        count = count + inside
        last = torch.where((last < 256) & ~inside, size, last)
    smooth = count + 1 - torch.log2(torch.log2(last.clamp(min=256)) / 8)
    return torch.where(count >= STEPS, 0.0, smooth)


def colours(t):
    """Escape times (H, W) to red, green and blue (H, W, 3): a cosine palette, and black inside."""
    wave = 0.5 - 0.5 * torch.cos(2 * math.pi * (torch.log(t + 1)[..., None] * 0.35 - phase + 0.1))
    return wave * (t > 0)[..., None]


x, y, span = -0.6, 0.0, 3.2
print(f"{HEIGHT * WIDTH:,} points, {STEPS} steps each, in one kernel")
times = escape_time(x, y, span)
print(f"{(times == 0).float().mean().item():.1%} of the points stay")
canvas = tabtorch.canvas(HEIGHT, WIDTH, 4, alt="The Mandelbrot set")
out = tabtorch.button("Zoom out")
(to_x, to_y, to_span), clicked = TOUR, False
for _ in range(FRAMES):
    canvas.draw(colours(times))
    for at_x, at_y in canvas.clicks:
        to_x, to_y = x + span * (at_x / WIDTH - 0.5), y - span * aspect * (at_y / HEIGHT - 0.5)
        to_span, clicked = max(span / 3, 2e-5), True  # smaller numbers float32 cannot tell apart
    if out.pressed():
        to_span, clicked = min(span * 3, 3.2), True
    speed = 0.2 if clicked else 0.015
    span *= (to_span / span) ** speed
    near = min(1.0, 2 * speed)  # it turns to the place sooner than it comes close
    x, y = x + near * (to_x - x), y + near * (to_y - y)
    times = escape_time(x, y, span)
