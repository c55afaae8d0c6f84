"""k-means: clusters found by measuring every point against every centre at once"""

import torch
import torch.nn.functional as F

import tabtorch  # for show() and plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

CLUSTERS, POINTS, ROUNDS = 7, 2000, 12
SIZE = 96  # pixels of the picture, a side

torch.manual_seed(2)
middles = torch.rand(CLUSTERS, 2) * 1.6 - 0.8
points = middles[torch.randint(CLUSTERS, (POINTS,))] + 0.1 * torch.randn(POINTS, 2)
centres = points[torch.randperm(POINTS)[:CLUSTERS]].to(device)
points = points.to(device)

hue = torch.arange(CLUSTERS, device=device) * (2 * torch.pi / CLUSTERS)
palette = 0.6 + 0.4 * torch.stack([torch.cos(hue), torch.cos(hue - 2.1), torch.cos(hue + 2.1)], 1)
side = torch.linspace(-1.2, 1.2, SIZE, device=device)
plane = torch.cartesian_prod(-side, side).flip(1)  # every pixel, row by row


def pixels(points):
    """In which row and which column each lies."""
    place = torch.stack([-points[:, 1], points[:, 0]]) / 2.4 + 0.5
    return (place * (SIZE - 1)).round().long().clamp(0, SIZE - 1)


def picture(centres, nearest):
    """Whose each place of the plane is, the points in the colour of their centre, and the centres in white."""
    image = 0.35 * palette[torch.cdist(plane, centres).argmin(1)].view(SIZE, SIZE, 3)
    rows, columns = pixels(points)
    image[rows, columns] = palette[nearest]
    rows, columns = pixels(centres)
    for down, right in [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)]:  # a cross
        image[(rows + down).clamp(0, SIZE - 1), (columns + right).clamp(0, SIZE - 1)] = 1.0
    return image


for turn in range(ROUNDS):
    distance, nearest = torch.cdist(points, centres).min(1)  # (POINTS,)
    tabtorch.show(picture(centres, nearest), scale=4, name="clusters", title=f"round {turn}")
    tabtorch.plot("mean distance", distance.mean())
    print(f"round {turn:2d}  mean distance {distance.mean().item():.4f}")
    belongs = F.one_hot(nearest, CLUSTERS).float()  # (POINTS, CLUSTERS)
    centres = (belongs.T @ points) / belongs.sum(0)[:, None].clamp(min=1)  # each to the middle of its points
