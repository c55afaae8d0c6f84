"""Attention maps: a layer learns to turn words around, and its maps show how"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

import tabtorch  # for show() and plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

LETTERS, LENGTH, WIDTH, HEADS = 12, 10, 32, 2
STEPS, BATCH = 80, 64


class Reverser(nn.Module):
    """One layer of attention: each place asks for the letter that it wants."""

    def __init__(self):
        super().__init__()
        self.letter = nn.Embedding(LETTERS, WIDTH)
        self.place = nn.Parameter(0.5 * torch.randn(LENGTH, WIDTH))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, LETTERS)

    def forward(self, words):  # (B, T)
        x = self.letter(words) + self.place
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        maps = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), -1)  # (B, HEADS, T, T)
        return self.out((maps @ v).transpose(1, 2).flatten(2)), maps


spell = lambda numbers: "".join(chr(ord("a") + i) for i in numbers)  # noqa: E731
print(f"it is to turn words of {LENGTH} letters around: {spell(range(LENGTH))} -> {spell(reversed(range(LENGTH)))}")

torch.manual_seed(0)
model = Reverser().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for step in range(STEPS + 1):
    words = torch.randint(LETTERS, (BATCH, LENGTH)).to(device)
    guess, maps = model(words)
    loss = F.cross_entropy(guess.flatten(0, 1), words.flip(1).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tabtorch.plot("loss", loss.detach())
    if step % 10 == 0:
        tabtorch.show(
            maps[0].detach(), cmap="viridis", scale=12, name="maps", title=f"where each place looks, step {step}"
        )
    if step % 20 == 0:
        right = (guess.argmax(-1) == words.flip(1)).float().mean().item()
        print(f"step {step:3d}  loss {loss.item():.4f}  right {right:.3f}")

word = torch.arange(LENGTH, device=device)[None]
print(spell(word[0].tolist()), "->", spell(model(word)[0].argmax(-1)[0].tolist()))
