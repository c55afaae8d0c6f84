"""Signals: filters, spectrograms, windows, convolution by FFT, Hilbert, autocorrelation, DCT."""

import math

import torch
import torch.nn.functional as F

fs = 100
t = torch.arange(200) / fs
x = torch.sin(2 * math.pi * 7 * t) + 0.5 * torch.cos(2 * math.pi * 20 * t)
for name in (
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
):
    f = getattr(torch.signal.windows, name)
    kw = {"std": 1.5} if name == "gaussian" else {"a": [0.5, 0.3, 0.2]} if name == "general_cosine" else {}
    print(name, f(6, **kw), f(5, sym=False, **kw).sum())
p = torch.fft.rfft(x * torch.hann_window(200)).abs() ** 2
fr = torch.fft.rfftfreq(200, 1 / fs)
print(fr[p.argsort(descending=True)[:4]].sort().values, p.max())


def fftconv(a, b):
    n = a.numel() + b.numel() - 1
    return torch.fft.irfft(torch.fft.rfft(a, n) * torch.fft.rfft(b, n), n)


X = torch.fft.fft(x)
X[30:-29] = 0
lp = torch.fft.ifft(X).real
print(lp[:5], lp.std(), (lp - torch.sin(2 * math.pi * 7 * t)).abs().max() < 1e-4)


def hilbert(x):
    n = len(x)
    h = torch.zeros(n)
    h[0] = 1
    h[1 : n // 2] = 2
    h[n // 2] = 1
    return torch.fft.ifft(torch.fft.fft(x) * h)


an = hilbert(torch.sin(2 * math.pi * 5 * t) * (1 + 0.5 * t))
print(an.abs()[50:55], torch.angle(an)[:4])
ac = torch.fft.irfft(torch.fft.rfft(x - x.mean(), 400).abs() ** 2)[:200]
print((ac / ac[0])[:5])
S = torch.stft(x, 32, 16, window=torch.hann_window(32), return_complex=True, center=False).abs()
print(S.shape, S.argmax(0), (20 * torch.log10(S + 1e-6)).mean())
S2 = torch.stft(
    x,
    n_fft=64,
    hop_length=16,
    win_length=32,
    window=torch.hamming_window(32),
    normalized=True,
    onesided=True,
    pad_mode="reflect",
    return_complex=True,
)
print(S2.shape, S2.abs().sum(), torch.view_as_real(S2).shape)
fb = torch.clamp(1 - (torch.linspace(0, 50, 33)[None] - torch.tensor([[10.0], [20.0], [30.0]])).abs() / 10, min=0)
print(fb @ S2.abs().pow(2).mean(1), fb.sum(1))
N = 8
k = torch.arange(N)
D = torch.cos(math.pi / N * (k[None] + 0.5) * k[:, None]) * math.sqrt(2 / N)
D[0] /= math.sqrt(2)
print((D @ D.T - torch.eye(N)).abs().max() < 1e-5, D @ torch.arange(8.0))
print(
    torch.fft.rfft2(torch.ones(2, 4)),
    torch.fft.irfft2(torch.fft.rfft2(torch.arange(8.0).view(2, 4))),
    torch.fft.ifftshift(torch.arange(5)),
    torch.fft.fftshift(torch.arange(6).view(2, 3)),
    torch.fft.fft(torch.eye(2), dim=0, norm="forward"),
    torch.fft.rfft(torch.arange(6.0), n=4),
    torch.fft.irfft(torch.tensor([1, 2j, 3]), n=5),
)
ker = torch.exp(-(torch.arange(-2.0, 3) ** 2) / 2)
ker /= ker.sum()
im = torch.zeros(1, 1, 7, 7)
im[0, 0, 3, 3] = 1
print(
    F.conv2d(F.pad(im, (2, 2, 2, 2), mode="reflect"), torch.outer(ker, ker)[None, None])[0, 0, 3],
    F.conv2d(im, ker.view(1, 1, 1, 5), padding="same")[0, 0, 3],
)
sm = F.avg_pool1d(F.pad(x[None, None], (2, 2), mode="replicate"), 5, 1)[0, 0]
med = F.pad(x[None], (1, 1), mode="reflect")[0].unfold(0, 3, 1).median(-1)[0]
print(sm[:4], med[:4], x.unfold(0, 50, 50).mean(1))
y = x.clone().requires_grad_()
torch.fft.rfft(y).abs().pow(2).sum().backward()
print(y.grad[:4])
w = torch.ones(16, requires_grad=True)
torch.stft(x, 16, 8, window=w, return_complex=True).abs().mean().backward()
print(w.grad)
