"""An LSTM: it sees some of a wave, then writes the rest by itself"""

import torch
import torch.nn as nn
import torch.nn.functional as F

import tabtorch  # for plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

STEPS, BATCH, WIDTH = 120, 24, 24
SEEN, WRITTEN = 32, 80


def waves(count, length):
    """Each a sine and one of twice its speed, from somewhere on: (count, length)."""
    t = 0.25 * torch.arange(length) + 2 * torch.pi * torch.rand(count, 1)
    return 0.7 * torch.sin(t) + 0.3 * torch.sin(2 * t)


class Model(nn.Module):
    """Says by how much each value differs from the one before it."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, 1)
        nn.init.zeros_(self.out.weight)  # at first: not at all
        nn.init.zeros_(self.out.bias)

    def forward(self, x, state=None):  # (B, T), and what the LSTM remembers
        y, state = self.lstm(x[..., None], state)
        return x + self.out(y)[..., 0], state


@torch.no_grad()
def go_on(model, start, length):
    """What the model writes after `start`, one value after the other: each is read to write the next."""
    guess, state = model(start)
    written = [guess[:, -1:]]
    while len(written) < length:
        guess, state = model(written[-1], state)
        written.append(guess)
    return torch.cat(written, 1)


torch.manual_seed(0)
wave = waves(1, SEEN + WRITTEN).to(device)
place = torch.arange(SEEN + WRITTEN)
tabtorch.plot("the wave", place, wave=wave[0])
model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

for step in range(STEPS + 1):
    if step % 30 == 0:
        written = go_on(model, wave[:, :SEEN], WRITTEN)[0]
        tabtorch.plot("the wave", place[SEEN:], written=written)
        print(f"step {step:3d}  mean error of what it wrote {(written - wave[0, SEEN:]).abs().mean().item():.3f}")
    x = waves(BATCH, SEEN + 1).to(device)
    x = x + 0.03 * torch.randn(x.shape).to(device)  # so that it learns to find back from its own errors
    loss = F.mse_loss(model(x[:, :-1])[0], x[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    tabtorch.plot("loss", loss.detach(), log=True)
