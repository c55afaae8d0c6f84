"""k-means: clusters found by measuring every point against every centre at once"""

import torch

import tabtorch  # for show() and plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

CLUSTERS, POINTS, ROUNDS = 7, 3000, 12
SIZE = 72  # pixels of the picture, a side

torch.manual_seed(2)
middles = torch.rand(CLUSTERS, 2) * 1.6 - 0.8
points = middles[torch.randint(CLUSTERS, (POINTS,))] + 0.1 * torch.randn(POINTS, 2)
centres = points[torch.randperm(POINTS)[:CLUSTERS]].to(device)
points = points.to(device)

side = torch.linspace(-1.2, 1.2, SIZE, device=device)
plane = torch.cartesian_prod(-side, side).flip(1)


def pixels(points):
    """In which row and column each lies."""
    at = ((points.flip(1) * torch.tensor([-1.0, 1.0], device=device) + 1.2) / 2.4 * (SIZE - 1)).round().long()
    return at.clamp(0, SIZE - 1).unbind(1)


def picture(centres):
    """Whose each place of the plane is; the places where points lie are lighter, the centres white."""
    owner = torch.cdist(plane, centres).argmin(1).view(SIZE, SIZE)
    image = (owner + 1) / (CLUSTERS + 2)
        (((p.flip(1) * torch.tensor([-1.0, 1.0], device=device)) + 1.2) / 2.4 * (SIZE - 1))
        .round()
        .long()
        .clamp(0, SIZE - 1)
    )
    rows, columns = pixels(points)
    image[rows, columns] = image[rows, columns] + 0.5 / (CLUSTERS + 2)
    rows, columns = pixels(centres)
    image[rows, columns] = 1.0
    return image


for turn in range(ROUNDS):
    tabtorch.show(picture(centres), cmap="viridis", vmin=0, vmax=1, scale=5, name="clusters", title=f"round {turn}")
    distance, nearest = torch.cdist(points, centres).min(1)  # (POINTS,)
    print(f"round {turn:2d}  mean distance {distance.mean().item():.4f}")
    tabtorch.plot("mean distance", distance.mean())
    belongs = torch.nn.functional.one_hot(nearest, CLUSTERS).float()  # (POINTS, CLUSTERS)
    centres = (belongs.T @ points) / belongs.sum(0)[:, None].clamp(min=1)
