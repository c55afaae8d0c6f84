"""torchaudio: spectra, filters, effects, alignment, the transducer's loss, a model."""

from __future__ import annotations

import torch
import torchaudio.functional as F
import torchaudio.transforms as T
from torchaudio.models import Conformer


def _wave(device, n=4000):
    return (
        torch.arange(n, dtype=torch.float32)
        .mul(0.37)
        .sin()
        .mul(0.6)
        .add(torch.arange(n).mul(1.7).cos() * 0.3)[None]
        .to(device)
    )


def spectra(device):
    x = _wave(device)
    mel = T.MelSpectrogram(16000, n_fft=256, n_mels=20).to(device)(x)
    power = T.Spectrogram(n_fft=256).to(device)(x)
    return {
        "power": power,
        "mel": mel,
        "decibels": T.AmplitudeToDB().to(device)(mel + 1),
        "mfcc": T.MFCC(16000, n_mfcc=13, melkwargs={"n_fft": 256, "n_mels": 23}).to(device)(x),
        "phase": T.Spectrogram(n_fft=256, power=None).to(device)(x).abs(),
    }


def filters(device):
    x = _wave(device).requires_grad_()
    a, b = torch.tensor([1.0, 0.2, 0.1], device=device), torch.tensor([0.3, 0.4, 0.1], device=device)
    y = F.lfilter(x, a, b)
    y.square().sum().backward()
    low = F.lowpass_biquad(x.detach(), 16000, 3000)
    return {"y": y, "gradient": x.grad, "low": low, "resampled": F.resample(x.detach(), 16000, 8000)}


def effects(device):
    x = _wave(device, 1500)
    return {"overdrive": F.overdrive(x.cpu()), "phaser": F.phaser(x, 16000), "flanger": F.flanger(x[None], 16000)}


def alignment(device):
    scores = torch.arange(60.0).mul(1.3).sin().mul(2).reshape(1, 12, 5).log_softmax(-1).to(device)
    targets = torch.tensor([[1, 2, 2]], dtype=torch.int32, device=device)
    path, found = F.forced_align(scores, targets)
    return {
        "path": path,
        "scores": found,
        "spans": [[t.token, t.start, t.end] for t in F.merge_tokens(path[0], found[0])],
    }


def transducer(device):
    logits = torch.arange(120.0).mul(0.7).sin().reshape(2, 4, 3, 5).to(device).requires_grad_()
    targets = torch.tensor([[1, 2], [3, 1]], dtype=torch.int32, device=device)
    lengths = (torch.tensor(n, dtype=torch.int32, device=device) for n in ([4, 3], [2, 1]))
    loss = F.rnnt_loss(logits, targets, *lengths, blank=0)
    loss.backward()
    return {"loss": loss, "gradient": logits.grad}


def conformer(device):
    net = Conformer(input_dim=16, num_heads=2, ffn_dim=32, num_layers=2, depthwise_conv_kernel_size=5).eval()
    for k, p in enumerate(net.parameters()):
        p.data = torch.arange(p.numel()).add(k).mul(0.61).sin().mul(0.3).reshape(p.shape)
    net = net.to(device)
    x = torch.arange(2 * 10 * 16.0).mul(0.13).sin().reshape(2, 10, 16).to(device).requires_grad_()
    y, lengths = net(x, torch.tensor([10, 8], device=device))
    y.square().mean().backward()
    return {"y": y, "lengths": lengths, "gradient": x.grad}


KNOWN = {"effects webgpu": "phaser makes its table of waves in float64, which WGSL does not have"}
