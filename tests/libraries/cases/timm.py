"""timm: models of its registry, made small, forward and backward, features, optimizers, training helpers."""

from __future__ import annotations

import timm
import torch
from timm.data import create_transform, resolve_data_config
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3
from torch import nn

NEEDS = ("torchvision",)


def _step(model, device, size=32):
    model = model.to(device)
    x, y = torch.randn(2, 3, size, size).to(device), torch.tensor([1, 3]).to(device)
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    loss.backward()
    grads = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    return {"out": out, "loss": loss, "grads": torch.stack([grads[0], grads[-1]])}


def residual(device):
    model = timm.create_model("resnet10t", num_classes=5, channels=(8, 8, 16, 16), stem_width=8)
    return {**_step(model, device, 64), "n": sum(p.numel() for p in model.parameters())}


def vision_transformer(device):
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=2, num_classes=5
    )
    return _step(model, device)


def convnext(device):
    model = timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 8, 16, 16), num_classes=5)
    return _step(model, device, 64)


def efficient_and_mobile(device):
    found = {}
    for name, more in {"efficientnet_lite0": {}, "mobilenetv3_small_050": {}}.items():
        model = timm.create_model(name, num_classes=5, **more).to(device).eval()
        found[name] = model(torch.randn(1, 3, 64, 64).to(device))
    return found


def features(device):
    model = timm.create_model(
        "resnet10t", features_only=True, out_indices=(1, 2), channels=(8, 8, 16, 16), stem_width=8
    )
    model = model.to(device).eval()
    whole = timm.create_model("resnet10t", num_classes=0, channels=(8, 8, 16, 16), stem_width=8).to(device).eval()
    x = torch.randn(1, 3, 64, 64).to(device)
    first, second = model(x)
    return {"first": first, "second": second, "channels": model.feature_info.channels(), "pooled": whole(x)}


def training(device):
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=16, patch_size=8, embed_dim=24, depth=1, num_heads=2, num_classes=4
    ).to(device)
    optimizer = create_optimizer_v2(model, opt="lamb", lr=1e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=4, warmup_t=1, warmup_lr_init=1e-4)
    ema = ModelEmaV3(model, decay=0.9)
    x, y = torch.randn(4, 3, 16, 16).to(device), torch.tensor([0, 1, 2, 3]).to(device)
    losses = [LabelSmoothingCrossEntropy(0.1)(model(x), y).item()]
    for i in range(3):
        target = nn.functional.one_hot(y, 4) * 0.9 + 0.025
        loss = SoftTargetCrossEntropy()(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step(i + 1)
        ema.update(model)
        losses.append(loss.item())
    return {"losses": losses, "rate": optimizer.param_groups[0]["lr"], "ema": ema.module.head.weight}


def preparing_pictures(device):
    import numpy as np
    from PIL import Image

    model = timm.create_model("resnet10t", num_classes=2)
    config = resolve_data_config({}, model=model)
    picture = Image.fromarray(np.random.RandomState(0).randint(0, 255, (60, 50, 3), dtype="uint8"))
    change = create_transform(**{**config, "input_size": (3, 32, 32)})
    return {"x": change(picture).to(device), "mean": config["mean"]}
