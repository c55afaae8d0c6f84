"""Game of Life: Conway's rules as one convolution; draw cells with the pointer"""

import torch
import torch.nn.functional as F

import tabtorch  # for canvas(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

HEIGHT, WIDTH = 96, 128
GENERATIONS = 900  # then it ends; Stop ends it too

torch.manual_seed(0)
life = (torch.rand(1, 1, HEIGHT, WIDTH) < 0.25).float().to(device)
around = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]], device=device).view(1, 1, 3, 3)
glow = torch.zeros(3, HEIGHT, WIDTH, device=device)  # what is seen: cells that died fade away
fade = torch.tensor([0.6, 0.85, 0.95], device=device)[:, None, None]


def step(life):
    """A cell with three neighbours lives; so does one with two that lived before. The edges meet."""
    neighbours = F.conv2d(F.pad(life, (1, 1, 1, 1), mode="circular"), around)
    return ((neighbours == 3) | ((neighbours == 2) & (life > 0))).float()


canvas = tabtorch.canvas(HEIGHT, WIDTH, 4, alt="Cells that live and die")
for generation in range(GENERATIONS + 1):
    glow = torch.maximum(glow * fade, life[0])
    canvas.draw(glow)
    if generation % 100 == 0:
        print(f"generation {generation:3d}  {int(life.sum())} cells live")
    life = step(life)
    if canvas.pointer and canvas.pointer[2]:  # it is down: cells come alive around it
        x, y, _ = canvas.pointer
        new = life[..., max(0, y - 3) : y + 4, max(0, x - 3) : x + 4]  # a view
        new.copy_(torch.rand(new.shape) < 0.5)
