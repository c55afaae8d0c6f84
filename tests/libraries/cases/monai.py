"""monai: networks, losses, metrics, transforms, inference in windows."""

from __future__ import annotations

import numpy as np
import torch
from monai.data import DataLoader, Dataset, decollate_batch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss, DiceLoss, FocalLoss, TverskyLoss
from monai.metrics import DiceMetric, HausdorffDistanceMetric
from monai.networks.nets import DenseNet121, SegResNet, UNet, ViT
from monai.transforms import (
    Activations,
    AsDiscrete,
    Compose,
    EnsureChannelFirstd,
    EnsureTyped,
    RandFlipd,
    RandRotate90d,
    Resized,
    ScaleIntensityd,
    Spacing,
)
from monai.utils import set_determinism

NEEDS = ("einops",)  # of its vision transformer


def _unet():
    return UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,), num_res_units=1)


def segmenting(device):
    set_determinism(0)
    net, loss = _unet().to(device), DiceCELoss(to_onehot_y=True, softmax=True)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    x, y = torch.rand(2, 1, 16, 16).to(device), torch.randint(2, (2, 1, 16, 16)).to(device)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        value = loss(net(x), y)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return {"losses": losses, "y": net(x)}


def volumes(device):
    set_determinism(0)
    net = SegResNet(spatial_dims=3, init_filters=8, in_channels=1, out_channels=2, blocks_down=(1, 1), blocks_up=(1,))
    net = net.to(device)
    x = torch.rand(1, 1, 8, 8, 8).to(device)
    y = net(x)
    y.square().mean().backward()
    return {"y": y, "grad": next(net.parameters()).grad}


def networks(device):
    set_determinism(0)
    dense = DenseNet121(2, 1, 3, init_features=8, growth_rate=4, block_config=(2, 2)).to(device).eval()
    vit = ViT(1, (16, 16), (8, 8), hidden_size=16, mlp_dim=32, num_layers=2, num_heads=2, spatial_dims=2).to(device)
    x = torch.rand(2, 1, 16, 16).to(device)
    return {"dense": dense(torch.rand(2, 1, 32, 32).to(device)), "vit": vit(x)[0]}


def losses(device):
    logits = torch.randn(2, 3, 8, 8).to(device).requires_grad_()
    target = torch.nn.functional.one_hot(torch.randint(3, (2, 8, 8)), 3).movedim(-1, 1).float().to(device)
    found = {}
    for loss in (DiceLoss(softmax=True), FocalLoss(gamma=2.0), TverskyLoss(sigmoid=True, alpha=0.3, beta=0.7)):
        value = loss(logits, target)
        (grad,) = torch.autograd.grad(value, logits)
        found[type(loss).__name__] = value
        found[type(loss).__name__ + " grad"] = grad
    return found


def metrics_and_windows(device):
    set_determinism(0)
    net = _unet().to(device).eval()
    with torch.no_grad():
        y = sliding_window_inference(torch.rand(1, 1, 24, 24).to(device), (16, 16), 2, net, overlap=0.5)
    finish = Compose([Activations(softmax=True), AsDiscrete(argmax=True, to_onehot=2)])
    said = [finish(i) for i in decollate_batch(y)]
    truth = [torch.nn.functional.one_hot((torch.rand(24, 24) > 0.5).long(), 2).movedim(-1, 0).float().to(device)]
    dice, distance = DiceMetric(include_background=True, reduction="mean"), HausdorffDistanceMetric(percentile=95)
    dice(said, truth)
    distance(said, truth)
    return {"y": y, "dice": dice.aggregate(), "distance": distance.aggregate()}


def transforms(device):
    set_determinism(0)
    rows = [
        {"image": np.random.RandomState(i).rand(12, 10).astype("float32"), "label": np.eye(12, 10, dtype="float32")}
        for i in range(4)
    ]
    keys = ["image", "label"]
    change = Compose(
        [
            EnsureChannelFirstd(keys, channel_dim="no_channel"),
            ScaleIntensityd("image"),
            Resized(keys, (16, 16), mode=("bilinear", "nearest")),
            RandFlipd(keys, prob=0.5, spatial_axis=0),
            RandRotate90d(keys, prob=0.5),
            EnsureTyped(keys),
        ]
    )
    change.set_random_state(0)
    found = list(DataLoader(Dataset(rows, change), batch_size=2))
    spaced = Spacing(pixdim=(2.0, 2.0), mode="bilinear")(found[0]["image"][0])
    return {
        "image": torch.cat([b["image"].as_tensor() for b in found]).to(device),
        "label": found[0]["label"].as_tensor(),
        "shape": spaced.shape,
        "affine": spaced.affine,
        "spaced": spaced.as_tensor(),
    }


KNOWN = {"metrics_and_windows webgpu": "the Hausdorff distance is of NumPy's float64, which WGSL does not have"}
