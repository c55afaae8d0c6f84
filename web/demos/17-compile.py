"""torch.compile: the same training step before and after, and how often the GPU is called"""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"

STEPS = 60

torch.manual_seed(0)
x = torch.rand(64, 32).to(device)
y = torch.randint(10, (64,)).to(device)


def setup():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step():
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


losses = {}
for name, wrap in [("eager", lambda f: f), ("compiled", torch.compile)]:
    step = wrap(setup())
    for _ in range(5):  # what is done once only: recording, shaders
        step().item()
    begin = time.perf_counter()
    for _ in range(STEPS):
        loss = step()
    losses[name] = loss.item()  # waits for the GPU
    each = (time.perf_counter() - begin) / STEPS
    print(f"{name:9} {each * 1e3:7.2f} ms a step   loss {losses[name]:.6f}")
print("the same loss:", abs(losses["eager"] - losses["compiled"]) < 1e-5)
