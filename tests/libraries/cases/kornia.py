"""kornia: colours, filters, geometry, augmentation, losses, features."""

from __future__ import annotations

import kornia
import kornia.augmentation as K
import torch


def _images(device, n=2, c=3, size=16):
    return torch.rand(n, c, size, size).to(device)


def colours(device):
    x = _images(device).requires_grad_()
    found = {
        "gray": kornia.color.rgb_to_grayscale(x),
        "hsv": kornia.color.rgb_to_hsv(x),
        "lab": kornia.color.rgb_to_lab(x),
        "ycbcr": kornia.color.rgb_to_ycbcr(x),
        "bright": kornia.enhance.adjust_brightness(x, 0.2),
        "equal": kornia.enhance.equalize(x.detach()),
    }
    found["lab"].sum().backward()
    return {**found, "grad": x.grad}


def filters(device):
    x = _images(device).requires_grad_()
    y = kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0))
    y.square().sum().backward()
    return {
        "blurred": y,
        "grad": x.grad,
        "sobel": kornia.filters.sobel(x),
        "median": kornia.filters.median_blur(x, (3, 3)),
        "laplacian": kornia.filters.laplacian(x, 3),
        "canny": kornia.filters.canny(x)[0],
        "unsharp": kornia.filters.unsharp_mask(x, (3, 3), (1.0, 1.0)),
    }


def geometry(device):
    x = _images(device)
    angle = torch.tensor([20.0, -35.0]).to(device).requires_grad_()
    rotated = kornia.geometry.rotate(x, angle)
    rotated.square().sum().backward()
    corners = torch.tensor([[[0.0, 0.0], [15.0, 0.0], [15.0, 15.0], [0.0, 15.0]]]).to(device)
    moved = torch.tensor([[[1.0, 2.0], [14.0, 0.0], [15.0, 13.0], [2.0, 15.0]]]).to(device)
    h = kornia.geometry.get_perspective_transform(corners, moved)
    return {
        "rotated": rotated,
        "angle": angle.grad,
        "homography": h,
        "warped": kornia.geometry.warp_perspective(x[:1], h, (16, 16)),
        "small": kornia.geometry.resize(x, (8, 8)),
        "q": kornia.geometry.axis_angle_to_quaternion(torch.tensor([[0.1, 0.2, 0.3]]).to(device)),
        "r": kornia.geometry.axis_angle_to_rotation_matrix(torch.tensor([[0.1, 0.2, 0.3]]).to(device)),
    }


def augmenting(device):
    torch.manual_seed(1)
    augment = K.AugmentationSequential(
        K.RandomHorizontalFlip(p=0.5),
        K.RandomAffine(degrees=15.0, translate=(0.1, 0.1), p=1.0),
        K.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0),
        K.RandomErasing(p=0.5),
        data_keys=["input", "mask"],
    )
    x = _images(device)
    image, mask = augment(x, (x[:, :1] > 0.5).float())
    return {"image": image, "mask": mask}


def losses_and_metrics(device):
    a, b = _images(device), _images(device)
    logits, labels = torch.randn(2, 3, 8, 8).to(device).requires_grad_(), torch.randint(3, (2, 8, 8)).to(device)
    dice = kornia.losses.dice_loss(logits, labels)
    focal = kornia.losses.focal_loss(logits, labels, alpha=0.5, reduction="mean")
    (dice + focal).backward()
    return {
        "dice": dice,
        "focal": focal,
        "grad": logits.grad,
        "ssim": kornia.losses.ssim_loss(a, b, 5),
        "tv": kornia.losses.total_variation(a),
        "psnr": kornia.metrics.psnr(a, b, 1.0),
    }


def features(device):
    x = _images(device, 1, 1, 32)
    corners = kornia.feature.harris_response(x)
    patches = _images(device, 3, 1, 32)
    sift = kornia.feature.SIFTDescriptor(32).to(device)(patches)
    distance, pairs = kornia.feature.match_nn(sift, sift.flip(0))
    return {"corners": corners, "sift": sift, "distance": distance, "pairs": pairs}


def morphology_and_contrib(device):
    x, kernel = _images(device, 1, 1), torch.ones(3, 3).to(device)
    return {
        "dilated": kornia.morphology.dilation(x, kernel),
        "eroded": kornia.morphology.erosion(x, kernel),
        "opened": kornia.morphology.opening(x, kernel),
        "patches": kornia.contrib.extract_tensor_patches(x, 4, stride=4),
        "joined": kornia.utils.image_to_tensor(x[0, 0].cpu().numpy()[..., None]),
    }
