"""A U-Net that finds discs: transposed convolutions, skip connections by concatenation, BCE with logits and the Dice loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels, mid_channels=None):
        super().__init__()
        mid_channels = mid_channels or out_channels
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, mid_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(mid_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(mid_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(2, out_channels),
            nn.LeakyReLU(0.1, inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels, bilinear):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(in_channels, out_channels, in_channels // 2)
        else:
            self.up = nn.ConvTranspose2d(in_channels * 2 // 3, in_channels * 2 // 3, kernel_size=2, stride=2)
            self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        dy, dx = x2.size(2) - x1.size(2), x2.size(3) - x1.size(3)
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self, channels=1, classes=1, width=4):
        super().__init__()
        self.inc = DoubleConv(channels, width)
        self.down1 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(width, 2 * width))
        self.down2 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(2 * width, 4 * width))
        self.up1 = Up(6 * width, 2 * width, bilinear=False)
        self.up2 = Up(3 * width, width, bilinear=True)
        self.outc = nn.Conv2d(width, classes, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        return self.outc(self.up2(self.up1(x3, x2), x1))


def discs(n, size=18):
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    centre = torch.randint(4, size - 4, (n, 2, 1, 1))
    radius = torch.randint(2, 5, (n, 1, 1))
    mask = ((y - centre[:, 0]) ** 2 + (x - centre[:, 1]) ** 2 <= radius**2).float()[:, None]
    return mask + 0.4 * torch.randn(n, 1, size, size), mask


def dice_loss(logits, target, eps=1e-6):
    p = torch.sigmoid(logits)
    inter = 2 * (p * target).sum(dim=(-1, -2))
    sets = p.sum(dim=(-1, -2)) + target.sum(dim=(-1, -2))
    sets = torch.where(sets == 0, inter, sets)
    return 1 - ((inter + eps) / (sets + eps)).mean()


net = UNet().to(device)
print(sum(p.numel() for p in net.parameters()))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.7)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=1)
for step in range(50):
    images, masks = (t.to(device) for t in discs(6))
    loss = F.binary_cross_entropy_with_logits(net(images), masks) + dice_loss(net(images), masks)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.3f}")

net.eval()
with torch.no_grad():
    images, masks = (t.to(device) for t in discs(8))
    score = 1 - dice_loss(net(images), masks)
    scheduler.step(score)
print("found them:", score.item() > 0.5)
