"""Game of Life: Conway's rules as one convolution, on a torus"""

import torch
import torch.nn.functional as F

import tabtorch  # for show(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

HEIGHT, WIDTH = 90, 120
GENERATIONS = 240

torch.manual_seed(0)
life = (torch.rand(1, 1, HEIGHT, WIDTH) < 0.25).float().to(device)
around = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]], device=device).view(1, 1, 3, 3)


def step(life):
    """A cell with three neighbours lives; so does one with two that lived before."""
    neighbours = F.conv2d(F.pad(life, (1, 1, 1, 1), mode="circular"), around)
    return ((neighbours == 3) | ((neighbours == 2) & (life > 0))).float()


for generation in range(GENERATIONS + 1):
    if generation % 4 == 0:
        tabtorch.show(life[0, 0], scale=4, name="life", title=f"generation {generation}")
    if generation % 60 == 0:
        print(f"generation {generation:3d}  {int(life.sum())} cells live")
    life = step(life)
