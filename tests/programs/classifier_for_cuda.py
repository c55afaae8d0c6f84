"""The usual skeleton of an image classifier: seeds, cuDNN flags, workers, mixed precision, timing, checkpoints of random states."""

import random
import warnings

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset, random_split

warnings.simplefilter("ignore", UserWarning)  # of workers that are none, and of pinned memory where there is no GPU


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


seed_everything(7)
torch.set_float32_matmul_precision("high")
use_cuda = torch.cuda.is_available()
device = torch.device("cuda:0" if use_cuda else "cpu")
if use_cuda:
    torch.cuda.set_device(device)
    assert torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0
    assert torch.cuda.get_device_name(0) and torch.cuda.get_device_properties(device).total_memory > 0
    assert torch.cuda.get_device_capability() < (7, 0)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
use_amp = False

images, labels = torch.randn(60, 1, 8, 8, device="cpu"), torch.randint(0, 3, (60,), device="cpu")
train_set, test_set = random_split(
    TensorDataset(images, labels), [0.8, 0.2], generator=torch.Generator().manual_seed(1)
)
train = DataLoader(
    train_set, batch_size=16, shuffle=True, num_workers=2, pin_memory=True, drop_last=True, persistent_workers=True
)
test = DataLoader(test_set, batch_size=12, num_workers=0, pin_memory=True)

model = nn.Sequential(
    nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)
).to(device, memory_format=torch.channels_last)
criterion = nn.CrossEntropyLoss().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
scaler = GradScaler(device.type, enabled=use_amp)

for epoch in range(3):
    model.train()
    if use_cuda:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
    total = torch.zeros((), device=device)
    for x, y in train:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with autocast(device_type=device.type, enabled=use_amp):
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        total += loss.detach()
    scheduler.step()
    if use_cuda:
        end.record()
        torch.cuda.synchronize()
        assert start.elapsed_time(end) > 0
    model.eval()
    with torch.inference_mode():
        losses = [F.cross_entropy(model(x.to(device)), y.to(device)).item() for x, y in test]
    print(
        f"epoch {epoch}: train {total.item() / len(train):.4f} test {losses[0]:.4f} lr {scheduler.get_last_lr()[0]:.5f}"
    )

states = torch.get_rng_state(), torch.cuda.get_rng_state_all(), random.getstate(), np.random.get_state()
first = torch.rand(2, device="cpu"), random.random(), np.random.rand()
torch.set_rng_state(states[0])
torch.cuda.set_rng_state_all(states[1])
random.setstate(states[2])
np.random.set_state(states[3])
again = torch.rand(2, device="cpu"), random.random(), np.random.rand()
print(first[0], first[1] == again[1], first[2] == again[2], torch.equal(first[0], again[0]), states[0].shape)
with torch.random.fork_rng():
    torch.manual_seed(0)
    print(torch.rand(1, device="cpu"))
print(torch.rand(1, device="cpu"), torch.initial_seed())
