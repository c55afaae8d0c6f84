"""A variational autoencoder (https://arxiv.org/abs/1312.6114): torch.distributions, the KL divergence, an averaged copy of the weights."""

import torch
from torch import nn, optim
from torch.distributions import Independent, Normal, kl_divergence
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Bars(Dataset):
    """8x8 pictures of a horizontal or a vertical bar."""

    def __init__(self, n):
        at = torch.randint(8, (n,))
        upright = torch.rand(n) < 0.5
        bar = F.one_hot(at, 8).float()
        self.data = torch.where(
            upright[:, None, None], bar[:, None, :].expand(n, 8, 8), bar[:, :, None].expand(n, 8, 8)
        )

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


class VAE(nn.Module):
    def __init__(self, hidden=48, latent=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.SiLU(), nn.Linear(hidden, 2 * latent))
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden), nn.SiLU(), nn.Linear(hidden, 64), nn.Unflatten(1, (8, 8))
        )
        self.register_buffer("zero", torch.zeros(latent))

    def forward(self, x):
        mean, scale = self.encoder(x).chunk(2, dim=-1)
        posterior = Independent(Normal(mean, F.softplus(scale) + 1e-4), 1)
        z = posterior.rsample()
        return self.decoder(z), posterior

    def loss(self, x):
        logits, posterior = self(x)
        prior = Independent(Normal(self.zero, torch.ones_like(self.zero)), 1).expand(posterior.batch_shape)
        reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum((1, 2))
        return (reconstruction + kl_divergence(posterior, prior)).mean()


model = VAE().to(device)
averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = optim.AdamW(model.parameters(), lr=1e-2)
schedule = optim.lr_scheduler.SequentialLR(
    optimizer,
    [optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5), optim.lr_scheduler.CosineAnnealingLR(optimizer, 45)],
    milestones=[5],
)
loader = DataLoader(Bars(320), batch_size=32, shuffle=True, num_workers=2)
step = 0
for _ in range(5):
    for batch in loader:
        loss = model.loss(batch.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        averaged.update_parameters(model)
        step += 1
    print(f"step {step} loss {loss.item():.2f} lr {schedule.get_last_lr()[0]:.5f}")

with torch.no_grad():
    x = Bars(64).data.to(device)
    print(f"averaged: {averaged.module.loss(x).item():.1f}")
    print(torch.sigmoid(model.decoder(torch.randn(5, 4, device=device))).shape)
