"""torch.compile: the same training step before and after, measured"""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import tabtorch  # for plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

STEPS, EACH = 20, 5  # measurements, each of so many steps

torch.manual_seed(0)
x = torch.rand(64, 32).to(device)
y = torch.randint(10, (64,)).to(device)


def setup():
    """A training step: what comes before it, the loss, its gradients, and the optimizer."""
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


print("Eager: Python runs each line of the step, and what they ask for goes to the GPU as it comes.")
print("Compiled: the first calls are recorded; from then on one call replays all of it.\n")
steps = {"eager": setup(), "compiled": torch.compile(setup())}
for name, step in steps.items():
    begin = time.perf_counter()
    for _ in range(EACH):
        step().item()
    print(f"{name:9} first {EACH} steps, with what is done only once: {(time.perf_counter() - begin) * 1e3:7.1f} ms")

print()
spent, losses = {"eager": [], "compiled": []}, {}
for turn in range(STEPS):
    for name, step in steps.items():
        begin = time.perf_counter()
        for _ in range(EACH):
            loss = step()
        losses[name] = loss.item()  # waits for the GPU
        spent[name].append((time.perf_counter() - begin) / EACH * 1e3)
    tabtorch.plot("milliseconds a step", turn, **{name: times[-1] for name, times in spent.items()})
for name, times in spent.items():
    print(f"{name:9} {sorted(times)[STEPS // 2]:7.2f} ms a step   loss {losses[name]:.6f}")
print("the same loss:", abs(losses["eager"] - losses["compiled"]) < 1e-5)
