"""Part of backend_people.py: models of torchvision and timm, of random weights, on small pictures; torchvision's own operators.

Batch norms of small pictures make some networks so steep that their gradients differ between any two computations in float32. So
what is compared is the distance to float64: it may be a few times that of the CPU's float32.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from backend_people_common import WAYS, D, answer, import_torchvision, near

import_torchvision()
#: name -> (size of the pictures, arguments)
TORCHVISION: dict[str, tuple[int, dict[str, Any]]] = {
    "resnet18": (64, {}),
    "mobilenet_v2": (64, {"dropout": 0.0}),
    "mobilenet_v3_small": (64, {"dropout": 0.0}),
    "shufflenet_v2_x0_5": (64, {}),
    "squeezenet1_1": (64, {"dropout": 0.0}),
    "densenet121": (64, {}),
    "efficientnet_b0": (64, {"dropout": 0.0, "stochastic_depth_prob": 0.0}),
    "convnext_tiny": (32, {"stochastic_depth_prob": 0.0}),
    "regnet_y_400mf": (64, {}),
    "googlenet": (64, {"aux_logits": False, "dropout": 0.0, "init_weights": False}),
    "vgg11_bn": (32, {"dropout": 0.0}),
    "vit_b_16": (32, {"image_size": 32}),
    "swin_t": (64, {}),
    "alexnet": (64, {"dropout": 0.0}),
}
TIMM: dict[str, tuple[int, dict[str, Any]]] = {
    "resnet18": (64, {}),
    "resnet26d": (64, {}),
    "vit_tiny_patch16_224": (32, {"img_size": 32}),
    "convnext_atto": (32, {}),
    "efficientnet_lite0": (64, {}),
    "tf_efficientnet_b0": (64, {}),
    "swin_tiny_patch4_window7_224": (32, {"img_size": 32, "window_size": 2, "depths": (1, 1, 1, 1)}),
    "mobilenetv3_small_050": (64, {}),
    "regnetx_002": (64, {}),
    "ghostnet_050": (64, {}),
    "mobilevit_xxs": (64, {}),
    "edgenext_xx_small": (64, {}),
    "poolformer_s12": (32, {}),
    "maxvit_rmlp_pico_rw_256": (64, {"img_size": 64}),
    "coatnet_nano_rw_224": (64, {"img_size": 64}),
    "xcit_nano_12_p16_224": (32, {}),
    "levit_128s": (64, {"img_size": 64}),
    "nfnet_f0": (32, {}),
    "hrnet_w18_small": (64, {}),
    "eva02_tiny_patch14_224": (28, {"img_size": 28}),
    "fastvit_t8": (64, {}),
    "repvgg_a0": (64, {}),
    "inception_next_atto": (32, {}),
}


def _built(library: str, name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    if library == "timm":
        import timm

        size, kw = TIMM[name]
        model = timm.create_model(name, pretrained=False, num_classes=5, **kw)
    else:
        from torchvision.models import get_model

        size, kw = TORCHVISION[name]
        model = get_model(name, weights=None, num_classes=5, **kw)
    for m in model.modules():  # what is left out at random
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.0
        for attribute in ("drop_prob", "drop_rate"):
            if isinstance(getattr(m, attribute, None), float):
                setattr(m, attribute, 0.0)
        if type(m).__name__ == "StochasticDepth":
            m.p = 0.0
    torch.manual_seed(1)
    return model, torch.randn(4, 3, size, size)


def forward(library: str, name: str, way: str) -> None:
    device, wrap = WAYS[way]
    model, x = _built(library, name)
    model.eval()
    with torch.no_grad():
        want = model(x)
        got = wrap(model.to(device))(x.to(device))
    assert got.device.type == device
    near(got, want)


def _step(library: str, name: str, device: str, dtype: torch.dtype, wrap: Any) -> list[torch.Tensor]:
    """Losses of two steps, the gradients of the first, and the buffers after them."""
    model, x = _built(library, name)
    model.to(device, dtype).train()
    x, y = x.to(device, dtype), torch.tensor([1, 3, 0, 2], device=device)
    run = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    losses, found = [], []
    for step in range(2):
        loss = torch.nn.functional.cross_entropy(run(x), y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        if not step:
            found = [p.grad.detach().cpu().double() for p in model.parameters() if p.grad is not None]
        optimizer.step()
        losses.append(loss.detach().cpu().double())
    return [*losses, *found, *(b.cpu().double() for b in model.buffers())]


def train(library: str, name: str, way: str) -> None:
    exact = _step(library, name, "cpu", torch.float64, lambda m: m)
    here = _step(library, name, "cpu", torch.float32, lambda m: m)
    device, wrap = WAYS[way]
    found = _step(library, name, device, torch.float32, wrap)
    assert len(exact) == len(found)

    def off(xs: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([(x - e).norm() / e.norm().clamp(min=1e-3) for x, e in zip(xs, exact)])

    allowed, seen = off(here), off(found)
    worst = (seen - 10 * allowed).max().item()
    assert worst <= 2e-3, (
        f"a value is off by {worst:g} more than ten times what the CPU's is: {seen.max():g}, {allowed.max():g}"
    )
    assert seen.median() <= 4 * allowed.median() + 1e-4, (seen.median(), allowed.median())


def _boxes() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([[0, 0, 2, 2.0], [0, 0, 2, 2.1], [4, 4, 6, 6]]), torch.tensor([0.5, 0.6, 0.1])


def operators() -> None:
    """Those that are Python work; those of torchvision's C++ are refused by name, as no device but the CPU and CUDA has them."""
    from torchvision import ops

    boxes, scores = _boxes()
    near(ops.box_iou(boxes.to(D), boxes.to(D)), ops.box_iou(boxes, boxes))
    near(ops.generalized_box_iou(boxes.to(D), boxes.to(D)), ops.generalized_box_iou(boxes, boxes))
    near(ops.sigmoid_focal_loss(scores.to(D), scores.to(D)), ops.sigmoid_focal_loss(scores, scores))
    near(ops.box_convert(boxes.to(D), "xyxy", "cxcywh"), ops.box_convert(boxes, "xyxy", "cxcywh"))
    try:
        ops.nms(boxes.to(D), scores.to(D), 0.5)
    except NotImplementedError as e:
        assert "torchvision" in str(e) and "nms" in str(e), e
    else:
        raise AssertionError("nms works: say so")


def transforms() -> None:
    import torchvision.transforms.v2 as V

    x = torch.randint(0, 256, (3, 24, 24), dtype=torch.uint8)
    both = V.Compose([V.Resize((16, 16), antialias=True), V.CenterCrop(12), V.ToDtype(torch.float32, scale=True)])
    near(both(x.to(D)), both(x), 5e-3)
    for t in (
        *(V.RandomHorizontalFlip(1.0), V.ColorJitter(0.2, 0.2, 0.2, 0.2), V.RandomRotation(20), V.GaussianBlur(3)),
        *(V.Grayscale(), V.RandomPerspective(p=1.0), V.RandAugment(), V.RandomPosterize(3, 1.0), V.RandomEqualize(1.0)),
    ):
        assert t(x.to(D)).device.type == D, t
    pictures, y = torch.rand(2, 3, 8, 8).to(D), torch.tensor([0, 1]).to(D)
    V.MixUp(num_classes=2)(pictures, y)
    V.CutMix(num_classes=2)(pictures, y)


CASES: dict[str, Any] = {"torchvision/operators": operators, "torchvision/transforms": transforms}
for _library, _models in (("torchvision", TORCHVISION), ("timm", TIMM)):
    for _name in _models:
        for _way in WAYS:
            CASES[f"forward_{_way}/{_library}.{_name}"] = partial(forward, _library, _name, _way)
            CASES[f"train_{_way}/{_library}.{_name}"] = partial(train, _library, _name, _way)

if __name__ == "__main__":
    answer(dict(sorted(CASES.items())))
