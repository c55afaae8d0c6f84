"""state_dict round trips: the same network again, an optimizer that goes on."""

import copy

import torch
import torch.nn as nn

torch.manual_seed(0)


def make():
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))


def steps(model, optimizer, n):
    for _ in range(n):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
    return loss.item()


x = torch.randn(6, 3)
model = make()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
print(steps(model, optimizer, 3))
for name, value in model.state_dict().items():
    print(name, "\t", value.size(), value.dtype)
state = optimizer.state_dict()
print(state["param_groups"][0]["lr"], sorted(state["state"]), sorted(state["state"][0]))
checkpoint = copy.deepcopy({"epoch": 3, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
again = make()
optimizer2 = torch.optim.Adam(again.parameters(), lr=0.5)
print(again.load_state_dict(checkpoint["model"]))
optimizer2.load_state_dict(checkpoint["optimizer"])
print(checkpoint["epoch"], optimizer2.param_groups[0]["lr"])
print(torch.equal(again[0].weight, model[0].weight), again[0].weight.requires_grad)
print(steps(model, optimizer, 2) == steps(again, optimizer2, 2))
try:
    nn.Linear(2, 2).load_state_dict({"weight": torch.zeros(3, 2), "other": torch.zeros(1)})
except RuntimeError as e:
    print(e)
print(nn.Linear(3, 1).load_state_dict({"weight": torch.zeros(1, 3)}, strict=False))
