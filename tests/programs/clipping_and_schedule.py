"""Gradient clipping, parameter groups, learning-rate schedules, AdamW."""

import torch
import torch.nn as nn

torch.manual_seed(9)
model = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 2))
decay = [p for p in model.parameters() if p.dim() >= 2]
no_decay = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.95)
)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.2, total_iters=3)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[3])
x, y = torch.randn(10, 4) * 5, torch.randn(10, 2) * 5
for step in range(8):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    total = sum(p.grad.pow(2).sum() for p in model.parameters()).sqrt()
    print(f"{step} {loss.item():.4f} {norm.item():.4f} {total.item():.4f} {scheduler.get_last_lr()[0]:.6f}")
torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
print(max(p.grad.abs().max().item() for p in model.parameters()))
print([len(g["params"]) for g in optimizer.param_groups], optimizer.state[decay[0]]["step"])
