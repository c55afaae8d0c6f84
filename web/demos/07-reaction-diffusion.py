"""Reaction and diffusion: two substances that make patterns, by a convolution and a few products"""

import torch
import torch.nn.functional as F

import tabtorch  # for canvas() and slider(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

SIZE = 96
STEPS, EVERY = 2000, 8  # EVERY: steps from one picture to the next

# the Laplacian: how much more there is around a point than at it
laplacian = torch.tensor([[0.05, 0.2, 0.05], [0.2, -1.0, 0.2], [0.05, 0.2, 0.05]], device=device)
laplacian = laplacian.expand(2, 1, 3, 3)
rates = torch.tensor([1.0, 0.5], device=device).view(1, 2, 1, 1)  # of the diffusion of u and of v

torch.manual_seed(0)
v = 0.5 * (torch.rand(SIZE // 8, SIZE // 8) < 0.12).float().repeat_interleave(8, 0).repeat_interleave(8, 1)
uv = torch.stack([1 - v, v])[None].to(device)  # (1, 2, SIZE, SIZE)
dark, bright = torch.tensor([[0.03, 0.05, 0.15], [1.0, 0.75, 0.35]], device=device)[:, :, None, None]


def step(uv, feed, kill):
    """Gray and Scott's model: u + 2 v -> 3 v; u is fed, v is taken away."""
    spread = F.conv2d(F.pad(uv, (1, 1, 1, 1), mode="circular"), laplacian, groups=2) * rates
    u, v = uv[:, :1], uv[:, 1:]
    reaction = u * v * v
    change = torch.cat([feed * (1 - u) - reaction, reaction - (feed + kill) * v], 1)
    return uv + spread + change


canvas = tabtorch.canvas(SIZE, SIZE, 4, alt="How much of v there is")
feed = tabtorch.slider("feed", 0.02, 0.06, 0.037, 0.001)
kill = tabtorch.slider("kill", 0.055, 0.067, 0.06, 0.0005)
for i in range(STEPS + 1):
    if i % EVERY == 0:
        canvas.draw(torch.lerp(dark, bright, (uv[0, 1] * 2.8).clamp(0, 1)))
        if canvas.pointer and canvas.pointer[2]:  # it is down: some of v is put there
            x, y, _ = canvas.pointer
            uv[0, 1, max(0, y - 3) : y + 4, max(0, x - 3) : x + 4] = 0.5
    if i % 500 == 0:
        print(f"step {i:4d}  mean of u {uv[0, 0].mean().item():.4f}, of v {uv[0, 1].mean().item():.4f}")
    uv = step(uv, feed.value, kill.value)
