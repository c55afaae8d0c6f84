"""torchvision: models, operators of detection, transforms of both kinds, features."""

from __future__ import annotations

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import nn
from torchvision import ops, transforms
from torchvision.models.feature_extraction import create_feature_extractor
from torchvision.transforms import v2
from torchvision.tv_tensors import BoundingBoxes, Mask


def _step(model, device, size=32):
    model = model.to(device)
    x, y = torch.randn(2, 3, size, size).to(device), torch.tensor([1, 3]).to(device)
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    loss.backward()
    grads = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    return {"out": out, "loss": loss, "grads": torch.stack([grads[0], grads[-1]])}


def residual(device):
    net = torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5)
    return _step(net, device, 64)


def other_models(device):
    found = {}
    x = torch.randn(1, 3, 64, 64).to(device)
    for name in ("mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1"):
        found[name] = torchvision.models.get_model(name, num_classes=4).to(device).eval()(x)
    vit = torchvision.models.VisionTransformer(32, 8, 2, 2, 24, 48, num_classes=5)
    return {**found, **_step(vit, device)}


def segmentation(device):
    net = torchvision.models.segmentation.lraspp_mobilenet_v3_large(num_classes=3, weights=None, weights_backbone=None)
    out = net.to(device).eval()(torch.randn(1, 3, 32, 32).to(device))["out"]
    return {"out": out}


def boxes(device):
    corner = torch.rand(12, 2) * 20
    found = torch.cat([corner, corner + 2 + torch.rand(12, 2) * 10], -1).to(device)
    scores, kinds = torch.rand(12).to(device), torch.randint(2, (12,)).to(device)
    return {
        "nms": ops.nms(found, scores, 0.3),
        "batched": ops.batched_nms(found, scores, kinds, 0.3),
        "iou": ops.box_iou(found[:4], found[4:]),
        "giou": ops.generalized_box_iou(found[:4], found[4:]),
        "loss": ops.complete_box_iou_loss(found[:4], found[4:8], reduction="mean"),
        "centres": ops.box_convert(found, "xyxy", "cxcywh"),
        "clipped": ops.clip_boxes_to_image(found, (16, 16)),
        "small": ops.remove_small_boxes(found, 6.0),
        "of masks": ops.masks_to_boxes(torch.eye(6)[None].to(device)),
    }


def regions(device):
    rois = torch.tensor([[0, 1.0, 1.0, 7.0, 6.0], [1, 0.0, 2.0, 5.0, 7.0]]).to(device)
    found = {}
    for name, pool, channels in (
        ("roi_align", ops.roi_align, 4),
        ("roi_pool", ops.roi_pool, 4),
        ("ps_roi_align", ops.ps_roi_align, 8),
        ("ps_roi_pool", ops.ps_roi_pool, 8),
    ):
        x = torch.randn(2, channels, 8, 8).to(device).requires_grad_()
        y = pool(x, rois, (2, 2), 0.5)
        y.square().sum().backward()
        found[name], found[name + " grad"] = y, x.grad
    return found


def deformed(device):
    layer = ops.DeformConv2d(3, 4, 3, padding=1).to(device)
    x = torch.randn(1, 3, 6, 6).to(device).requires_grad_()
    offset = (torch.randn(1, 18, 6, 6) * 0.5).to(device).requires_grad_()
    mask = torch.rand(1, 9, 6, 6).to(device).requires_grad_()
    y = layer(x, offset, mask)
    y.square().sum().backward()
    return {"y": y, "x": x.grad, "offset": offset.grad, "mask": mask.grad, "weight": layer.weight.grad}


def layers_and_losses(device):
    x = torch.randn(2, 4, 6, 6).to(device).requires_grad_()
    net = nn.Sequential(
        ops.Conv2dNormActivation(4, 8, activation_layer=nn.SiLU), ops.SqueezeExcitation(8, 2), ops.Permute([0, 2, 3, 1])
    ).to(device)
    y = net(x)
    loss = ops.sigmoid_focal_loss(y, (y > 0).float(), reduction="mean")
    loss.backward()
    pyramid = ops.FeaturePyramidNetwork([8, 16], 4).to(device)
    maps = pyramid({"a": torch.randn(1, 8, 8, 8).to(device), "b": torch.randn(1, 16, 4, 4).to(device)})
    return {"y": y, "loss": loss, "grad": x.grad, **maps}


def detection(device):
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.rpn import AnchorGenerator

    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU())
    backbone.out_channels = 8
    net = FasterRCNN(
        backbone,
        num_classes=3,
        min_size=64,
        max_size=64,
        rpn_anchor_generator=AnchorGenerator(((8, 16),), ((1.0,),)),
        box_roi_pool=ops.MultiScaleRoIAlign(["0"], 3, 2),
        rpn_pre_nms_top_n_train=20,
        rpn_post_nms_top_n_train=10,
        rpn_pre_nms_top_n_test=20,
        rpn_post_nms_top_n_test=10,
    ).to(device)
    x = torch.rand(1, 3, 64, 64).to(device)
    target = {"boxes": torch.tensor([[5.0, 5.0, 30.0, 40.0]]).to(device), "labels": torch.tensor([1]).to(device)}
    losses = net(list(x), [target])
    sum(losses.values()).backward()
    found = net.eval()(list(x))[0]
    return {**losses, "grad": backbone[0].weight.grad, "n": len(found["boxes"]), "scores": found["scores"]}


def _picture():
    return Image.fromarray(np.random.RandomState(0).randint(0, 255, (24, 20, 3), dtype="uint8"))


def transforms_of_pictures(device):
    torch.manual_seed(1)
    change = transforms.Compose(
        [
            transforms.Resize(20),
            transforms.RandomCrop(16),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.2, 0.2, 0.2, 0.1),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.2, 0.2, 0.2)),
            transforms.RandomErasing(1.0),
        ]
    )
    return {"x": change(_picture()), "back": np.asarray(transforms.ToPILImage()(torch.arange(48).view(3, 4, 4) / 48))}


def transforms_of_tensors(device):
    torch.manual_seed(1)
    x = transforms.functional.pil_to_tensor(_picture()).to(device)
    change = transforms.Compose(
        [
            transforms.ConvertImageDtype(torch.float32),
            transforms.RandomAffine(20, (0.1, 0.1)),
            transforms.RandomResizedCrop(12, antialias=True),
            transforms.GaussianBlur(3),
            transforms.RandomPerspective(p=1.0),
        ]
    )
    return {"x": change(x), "equal": transforms.functional.equalize(x), "turned": transforms.functional.rotate(x, 30.0)}


def second_transforms(device):
    torch.manual_seed(1)
    x = v2.functional.to_image(_picture()).to(device)
    boxes = BoundingBoxes(torch.tensor([[2.0, 3.0, 10.0, 12.0]]).to(device), format="XYXY", canvas_size=(24, 20))
    mask = Mask((x[:1] > 100).to(torch.uint8))
    change = v2.Compose(
        [
            v2.RandomHorizontalFlip(1.0),
            v2.RandomAffine(10, (0.1, 0.1)),
            v2.Resize((16, 16), antialias=True),
            v2.ToDtype({torchvision.tv_tensors.Image: torch.float32, "others": None}, scale=True),
            v2.Normalize((0.5, 0.5, 0.5), (0.2, 0.2, 0.2)),
        ]
    )
    image, boxes, mask = change(x, boxes, mask)
    mixed, label = v2.MixUp(num_classes=3)(torch.rand(2, 3, 4, 4).to(device), torch.tensor([0, 2]).to(device))
    return {"image": image, "boxes": boxes, "mask": mask, "kind": type(boxes).__name__, "mixed": mixed, "label": label}


def features(device):
    net = torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5).to(device).eval()
    found = create_feature_extractor(net, {"layer1": "low", "layer3.0.relu": "high"})
    return found(torch.randn(1, 3, 32, 32).to(device))


def pictures_and_data(device):
    grid = torchvision.utils.make_grid(torch.rand(5, 3, 4, 4).to(device), nrow=3, padding=1)
    drawn = torchvision.utils.draw_bounding_boxes(
        torch.zeros(3, 16, 16, dtype=torch.uint8), torch.tensor([[2, 2, 10, 12]]), colors="red"
    )
    data = torchvision.datasets.FakeData(4, (3, 8, 8), 3, transforms.ToTensor())
    loader = torch.utils.data.DataLoader(data, batch_size=2)
    return {"grid": grid, "drawn": drawn, "labels": [y.tolist() for _, y in loader], "x": next(iter(loader))[0]}


KNOWN = {
    "second_transforms webgpu": "bytes are resized in whole numbers on PyTorch's CPU, in float on any GPU: a step of 255 apart"
}
