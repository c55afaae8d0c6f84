"""Saving and loading: files of weights, a training state that goes on, what is shared stays shared."""

import io
import os
import tempfile
from collections import OrderedDict

import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
x, y = torch.randn(16, 4), torch.randint(0, 2, (16,))


def train(model, optimizer, scheduler, steps):
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(round(loss.item(), 4))
    return losses


print(train(model, optimizer, scheduler, 3))
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "checkpoint.pt")
    torch.save(
        {
            "epoch": 3,
            "model_state_dict": model.state_dict(),
            "optimizer_state_dict": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "rng": torch.get_rng_state(),
        },
        path,
    )
    on = train(model, optimizer, scheduler, 3)
    checkpoint = torch.load(path, map_location="cpu")
again = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(again.parameters(), lr=0.7, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
print(again.load_state_dict(checkpoint["model_state_dict"]))
optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
scheduler.load_state_dict(checkpoint["scheduler"])
torch.set_rng_state(checkpoint["rng"])
print(checkpoint["epoch"], list(checkpoint["model_state_dict"]), scheduler.get_last_lr())
print(train(again, optimizer, scheduler, 3) == on, torch.rand(2))

buffer = io.BytesIO()
base = torch.arange(10)
torch.save(OrderedDict(even=base[::2], odd=base[1::2], size=base.size(), kind=base.dtype), buffer)
buffer.seek(0)
loaded = torch.load(buffer)
loaded["even"][0] = -1
loaded["odd"].mul_(10)
print(loaded)
print(loaded["even"].untyped_storage().data_ptr() == loaded["odd"].untyped_storage().data_ptr())

buffer = io.BytesIO()
torch.save(again, buffer)
buffer.seek(0)
try:
    torch.load(buffer)
except Exception as e:
    print(type(e).__name__, str(e).split(". ")[0])
buffer.seek(0)
whole = torch.load(buffer, weights_only=False)
print(whole, torch.equal(whole(x), again(x)))
