"""A variational autoencoder: digits squeezed into two numbers, and the whole plane of these drawn"""

from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

import tabtorch  # for show(), plot() and controls; the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

STEPS, BATCH = 360, 96
FRAMES = 1500  # in which the sliders are looked at, at the end; Stop ends it too
GRID = 12  # digits in a row and in a column of the picture


def digits():
    """The 1,797 8x8 digits, as rows of 64 values from 0 to 1."""
    lines = (Path(__file__).parent / "data" / "digits.txt").read_text().splitlines()
    return torch.tensor([[int(c, 17) / 16 for c in line.split()[1]] for line in lines])


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 4))
        self.decoder = nn.Sequential(nn.Linear(2, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x):  # (B, 64)
        mean, log_var = self.encoder(x).chunk(2, -1)  # of what stands for each: two numbers
        z = mean + torch.randn(mean.shape).to(device) * (0.5 * log_var).exp()
        off = -0.5 * (1 + log_var - mean**2 - log_var.exp()).sum(-1)  # from the plain normal distribution
        return self.decoder(z), off.mean()


torch.manual_seed(0)
data = digits().to(device)
print(f"{len(data):,} digits of {data.shape[1]} numbers: each becomes two numbers, and is drawn again from these")
model = VAE().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3)
quantiles = torch.special.ndtri(torch.linspace(0.03, 0.97, GRID))
walk = torch.cartesian_prod(quantiles, quantiles).to(device)  # (GRID * GRID, 2)

for step in range(STEPS + 1):
    batch = data[torch.randint(len(data), (BATCH,)).to(device)]
    out, off = model(batch)
    loss = F.binary_cross_entropy_with_logits(out, batch, reduction="sum") / BATCH + off
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tabtorch.plot("loss", loss.detach())
    if step % 40 == 0:
        with torch.no_grad():
            images = torch.sigmoid(model.decoder(walk)).view(-1, 1, 8, 8)
        tabtorch.show(images, columns=GRID, padding=1, scale=3, name="plane", title=f"the plane, step {step}")
    if step % 120 == 0:
        print(f"step {step:3d}  loss {loss.item():.3f}")

print("move the sliders: where they stand on the plane is what is drawn")
across, down = tabtorch.slider("across", -2.0, 2.0, 0.0), tabtorch.slider("down", -2.0, 2.0, 0.0)
canvas = tabtorch.canvas(8, 8, 24, alt="The digit at this place of the plane")
for _ in range(FRAMES):
    z = torch.tensor([[down.value, across.value]], device=device)
    canvas.draw(torch.sigmoid(model.decoder(z)).detach().view(8, 8))
