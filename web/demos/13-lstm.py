"""An LSTM that goes on with a wave: it sees forty values, then writes the next hundred by itself"""

import torch
import torch.nn as nn
import torch.nn.functional as F

import tabtorch  # for plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

STEPS, BATCH, SEEN, WRITTEN = 160, 32, 40, 100


def waves(batch, length):
    """Sums of two sines of random speed and phase: (batch, length)."""
    t = torch.arange(length)
    speed = 0.15 + 0.2 * torch.rand(batch, 1)
    return 0.7 * torch.sin(speed * t + 6 * torch.rand(batch, 1)) + 0.3 * torch.sin(2 * speed * t)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 32, batch_first=True)
        self.out = nn.Linear(32, 1)

    def forward(self, x, state=None):  # (B, T), and what the LSTM remembers
        y, state = self.lstm(x[..., None], state)
        return self.out(y)[..., 0], state


torch.manual_seed(0)
model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(STEPS + 1):
    x = waves(BATCH, SEEN + 1).to(device)
    loss = F.mse_loss(model(x[:, :-1])[0], x[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    tabtorch.plot("loss", loss.detach(), log=True)
    if step % 40 == 0:
        print(f"step {step:3d}  loss {loss.item():.5f}")

wave = waves(1, SEEN + WRITTEN).to(device)
with torch.no_grad():
    guess, state = model(wave[:, :SEEN])
    written = [guess[:, -1:]]
    for _ in range(WRITTEN - 1):
        guess, state = model(written[-1], state)
        written.append(guess)
written = torch.cat(written, 1)[0]
place = torch.arange(SEEN + WRITTEN)
tabtorch.plot("the wave", place, truth=wave[0])
tabtorch.plot("the wave", place[SEEN:], written=written)
print(f"mean error of the first twenty written values: {(written - wave[0, SEEN:])[:20].abs().mean().item():.3f}")
