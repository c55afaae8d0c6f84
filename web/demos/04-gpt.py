"""A small GPT: it learns to write Python from Python's own source, word by word"""

import argparse
import ast
import dataclasses
import enum
import inspect
import re
import typing
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F

import tabtorch  # for plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

WORDS = 256  # the most common ones; a name, a sign, an indentation and the end of a line are each a word
CONTEXT, WIDTH, HEADS, LAYERS = 24, 32, 4, 2  # CONTEXT: words that the model sees
STEPS, BATCH, RATE = 200, 16, 0.012
LOOKS = 4  # samples while it learns

torch.manual_seed(0)
modules = argparse, ast, dataclasses, enum, inspect, typing
source = "".join(inspect.getsource(module) for module in modules)
source = re.sub(r'""".*?"""|#[^\n]*', "", source, flags=re.DOTALL)
lines = [re.findall(r"^ +| ?\w+| ?[^\w\s]+", line) + ["\n"] for line in source.splitlines() if line.strip()]
words = [word for word, _ in Counter(word for line in lines for word in line).most_common(WORDS)]
number = {word: i for i, word in enumerate(words)}
lines = [line for line in lines if all(word in number for word in line)]
data = torch.tensor([number[word] for line in lines for word in line]).to(device)
print(f"{len(lines):,} lines of {len(words)} different words, for example:\n")
print("".join(word for line in lines[200:208] for word in line))


class Block(nn.Module):
    """Attention, in which each word looks at those before it, and a network for each word."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):  # (B, T, WIDTH)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, HEADS, T, WIDTH / HEADS)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.place = nn.Embedding(len(words), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        nn.init.normal_(self.place.weight, std=0.1)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(words)))

    def forward(self, i):  # (B, T)
        return self.head(self.blocks(self.word(i) + self.place.weight[: i.size(1)]))


@torch.no_grad()
def write(model, length=CONTEXT, temperature=0.7):
    """A sample; each word is drawn from what the model makes of those before it."""
    i = torch.tensor([[number["\n"]]], device=device)
    for _ in range(length):
        probability = F.softmax(model(i[:, -CONTEXT:])[:, -1] / temperature, -1)
        i = torch.cat([i, torch.multinomial(probability, 1)], 1)
    return "".join(words[each] for each in i[0].tolist()).strip("\n")


model = GPT().to(device)
print(f"{sum(p.numel() for p in model.parameters()):,} parameters. Before it has learnt anything it writes\n")
print(write(model, 24))
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95))
for step in range(STEPS):
    for group in optimizer.param_groups:
        group["lr"] = RATE * min((step + 1) / 10, 1 - step / STEPS)
    window = data[torch.randint(len(data) - CONTEXT, (BATCH, 1)).to(device) + torch.arange(CONTEXT + 1, device=device)]
    loss = F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tabtorch.plot("loss", loss.detach())
    if (step + 1) % (STEPS // LOOKS) == 0:
        print(f"\n--- step {step + 1}, loss {loss.item():.2f}\n\n{write(model)}")
