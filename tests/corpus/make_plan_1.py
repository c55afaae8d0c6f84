"""How plan-1.safetensors was made. It is not made again: readers read what version 1 wrote."""

import json
from pathlib import Path

import tabtorch as torch
from tabtorch import nn, plan_files
from tabtorch.nn import functional as F

HERE = Path(__file__).resolve().parent
with torch.device("cpu"):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)

    def predict(x):
        return model(x)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    class Batch:
        __name__ = "batch"
        min, max = 2, 16

    x, y = torch.arange(12.0).reshape(3, 4) / 10 - 0.5, torch.tensor([0, 2, 1])
    plan_files.save(
        HERE / "plan-1.safetensors",
        {"predict": (predict, (x,)), "step": (step, (x, y))},
        model=model,
        optimizer=optimizer,
        dynamic={"x": {0: Batch()}, "y": {0: Batch()}},
    )
    expected = {"predict": predict(x).tolist(), "losses": [step(x, y)["loss"].item() for _ in range(20)]}
    (HERE / "plan-1.json").write_text(json.dumps(expected))
