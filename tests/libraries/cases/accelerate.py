"""accelerate: a loop of one's own, gradient accumulation, states, large models' parts."""

from __future__ import annotations

import tempfile

import torch
from accelerate import Accelerator, init_empty_weights, load_checkpoint_and_dispatch
from accelerate.state import AcceleratorState
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def _net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def _rows():
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x[:, :3].argmax(-1))


def training(device):
    set_seed(0)
    accelerator = Accelerator(cpu=device == "cpu")
    model = _net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rate = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4)
    model, optimizer, loader, rate = accelerator.prepare(model, optimizer, DataLoader(_rows(), 8, shuffle=True), rate)
    losses = []
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).item())
    return {"losses": losses, "rate": rate.get_last_lr(), "weight": accelerator.unwrap_model(model)[0].weight}


def accumulating(device):
    set_seed(0)
    accelerator = Accelerator(cpu=device == "cpu", gradient_accumulation_steps=2)
    model = _net()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(_rows(), 8)
    )
    steps = 0
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            steps += accelerator.sync_gradients
            optimizer.zero_grad()
    return {"steps": steps, "weight": model[0].weight}


def half_precision(device):
    set_seed(0)
    AcceleratorState._reset_state(True)  # it is of the process, and the case before had another type
    accelerator = Accelerator(cpu=device == "cpu", mixed_precision="bf16")
    model = _net()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(_rows(), 8)
    )
    losses = []
    for x, y in loader:
        with accelerator.autocast():
            loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    AcceleratorState._reset_state(True)
    return {"losses": losses}


def states(device):
    set_seed(0)
    accelerator = Accelerator(cpu=device == "cpu")
    model = _net()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.Adam(model.parameters(), lr=0.1), DataLoader(_rows(), 8)
    )

    def step():
        x, y = next(iter(loader))
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()

    step()
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
        step()
        first = model[0].weight.detach().clone()
        accelerator.load_state(folder)
        step()
    return {"first": first, "again": model[0].weight}


def empty_and_dispatched(device):
    full = _net()
    with tempfile.TemporaryDirectory() as folder:
        Accelerator(cpu=device == "cpu").save_model(full, folder)
        with init_empty_weights():
            model = _net()
        where = [str(p.device) for p in model.parameters()]
        model = load_checkpoint_and_dispatch(model, folder, device_map={"": "cpu" if device == "cpu" else 0})
    x = torch.randn(2, 4)
    return {"where": where, "y": model(x.to(device)), "expected": full(x)}
