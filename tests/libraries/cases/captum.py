"""captum: attributions of inputs, layers and neurons."""

from __future__ import annotations

import torch
from captum.attr import (
    DeepLift,
    FeatureAblation,
    GradientShap,
    GuidedBackprop,
    InputXGradient,
    IntegratedGradients,
    LayerConductance,
    LayerGradCam,
    NoiseTunnel,
    Occlusion,
    Saliency,
    ShapleyValueSampling,
)
from torch import nn


def _image_net(device):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 16, 3)
    ).to(device)


def gradients(device):
    net, x = _image_net(device), torch.randn(2, 1, 8, 8).to(device)
    return {
        "saliency": Saliency(net).attribute(x.clone().requires_grad_(), target=1),
        "times": InputXGradient(net).attribute(x.clone().requires_grad_(), target=0),
        "guided": GuidedBackprop(net).attribute(x.clone().requires_grad_(), target=2),
    }


def integrated(device):
    net, x = _image_net(device), torch.randn(2, 1, 8, 8).to(device)
    found, delta = IntegratedGradients(net).attribute(x, target=1, n_steps=8, return_convergence_delta=True)
    return {"found": found, "delta": delta.abs().max() < 0.1}


def layers(device):
    net, x = _image_net(device), torch.randn(2, 1, 8, 8).to(device)
    cam = LayerGradCam(net, net[0]).attribute(x, target=1)
    return {
        "cam": cam,
        "up": LayerGradCam.interpolate(cam, (16, 16)),
        "conductance": LayerConductance(net, net[4]).attribute(x, target=1, n_steps=8),
    }


def deep_lift(device):
    net, x = _image_net(device), torch.randn(2, 1, 8, 8).to(device)
    return {"found": DeepLift(net).attribute(x, torch.zeros_like(x), target=1)}


def perturbing(device):
    net, x = _image_net(device), torch.randn(2, 1, 8, 8).to(device)
    small = nn.Linear(4, 2).to(device)
    return {
        "occlusion": Occlusion(net).attribute(x, sliding_window_shapes=(1, 3, 3), strides=(1, 2, 2), target=1),
        "ablation": FeatureAblation(small).attribute(x[:, 0, 0, :4], target=1),
        "shapley": ShapleyValueSampling(small).attribute(x[:, 0, 0, :4], target=1, n_samples=5),
    }


def with_noise(device):
    net, x = _image_net(device), torch.randn(1, 1, 8, 8).to(device)
    tunnel = NoiseTunnel(Saliency(net))
    return {
        "smooth": tunnel.attribute(x.requires_grad_(), nt_type="smoothgrad", nt_samples=4, stdevs=0.1, target=1),
        "shap": GradientShap(net).attribute(x, torch.zeros(2, 1, 8, 8).to(device), n_samples=4, target=1).shape,
    }
