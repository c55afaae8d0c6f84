"""A DCGAN (https://arxiv.org/abs/1511.06434) on 8x8 pictures: two optimizers, detached fakes, spectral normalization in the critic."""

import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import spectral_norm

torch.manual_seed(999)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
nz, ngf, ndf = 8, 8, 8


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1 and not hasattr(m, "parametrizations"):
        nn.init.normal_(m.weight.data, 0.0, 0.1)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
    nn.BatchNorm2d(ngf * 2),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 2, 1, 4, 2, 1, bias=False),
    nn.Tanh(),
).to(device)
netD = nn.Sequential(
    spectral_norm(nn.Conv2d(1, ndf, 4, 2, 1, bias=False)),
    nn.LeakyReLU(0.2, inplace=True),
    spectral_norm(nn.Conv2d(ndf, 1, 4, 1, 0, bias=False)),
    nn.Flatten(0),
).to(device)
netG.apply(weights_init)
netD.apply(weights_init)

criterion = nn.BCEWithLogitsLoss()
fixed_noise = torch.randn(4, nz, 1, 1, device=device)
optimizerD = torch.optim.Adam(netD.parameters(), lr=1e-2, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))


def real_batch(n):
    x = torch.linspace(-1, 1, 8)
    centre = torch.rand(n, 2, 1, 1) - 0.5
    blob = torch.exp(-4 * ((x[None, :, None] - centre[:, 0]) ** 2 + (x[None, None, :] - centre[:, 1]) ** 2))
    return (2 * blob - 1).unsqueeze(1).to(device)


for step in range(50):
    netD.zero_grad()
    real = real_batch(16)
    label = torch.full((16,), 1.0, dtype=torch.float, device=device)
    errD_real = criterion(netD(real), label)
    errD_real.backward()
    noise = torch.randn(16, nz, 1, 1, device=device)
    fake = netG(noise)
    label.fill_(0.0)
    errD_fake = criterion(netD(fake.detach()), label)
    errD_fake.backward()
    optimizerD.step()
    netG.zero_grad()
    label.fill_(1.0)
    errG = criterion(netD(fake), label)
    errG.backward()
    optimizerG.step()
    if step % 10 == 9:
        print(f"[{step}] Loss_D: {(errD_real + errD_fake).item():.3f} Loss_G: {errG.item():.3f}")

with torch.no_grad():
    fake = netG(fixed_noise).detach().cpu()
print(fake.shape, bool(fake.abs().max() <= 1), sorted(netD.state_dict()))
