"""Style: gradient descent on the pixels, until a picture has the texture of another"""

import torch
import torch.nn.functional as F

import tabtorch  # for show() and plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

SIZE = 64
STEPS, EVERY = 60, 10
STYLE = 30.0  # against the content; more of it leaves less of the picture

torch.manual_seed(0)
side = torch.linspace(-1, 1, SIZE, device=device)
y, x = torch.meshgrid(side, side, indexing="ij")


def mix(mask, colour, image):
    """`colour` where the mask is true."""
    return torch.where(mask, torch.tensor(colour, device=device)[:, None, None], image)


def content():
    """A house under the sun, (3, SIZE, SIZE)."""
    image = torch.stack([0.55 + 0.2 * y, 0.75 + 0.1 * y, 0.95 - 0.05 * y])
    image = mix((x - 0.55) ** 2 + (y + 0.55) ** 2 < 0.06, [1.0, 0.85, 0.3], image)
    image = mix(y > 0.45, [0.35, 0.6, 0.25], image)
    image = mix((x.abs() < 0.45) & (y > -0.1) & (y < 0.6), [0.85, 0.75, 0.6], image)
    image = mix((y > -0.6) & (y < -0.1) & (x.abs() < (y + 0.6) * 1.15), [0.65, 0.2, 0.15], image)
    return mix(((x + 0.15).abs() < 0.11) & (y > 0.2) & (y < 0.6), [0.35, 0.2, 0.15], image)


def style():
    """Waves of blue, gold and white, (3, SIZE, SIZE)."""
    wave = torch.sin(14 * (x + 0.25 * torch.sin(5 * y)) + 9 * y)
    image = torch.stack([0.5 + 0.45 * wave, 0.5 + 0.3 * wave, 0.55 - 0.25 * wave])
    return mix(torch.sin(22 * (y - 0.2 * torch.sin(6 * x))) > 0.9, [0.95, 0.95, 0.9], image)


# Filters that were never trained: what is alike in their answers is enough to tell a texture.
fine, wide = torch.randn(16, 3, 5, 5).to(device) / 5, torch.randn(32, 3, 7, 7).to(device) / 7
fine, wide = (each - each.mean((2, 3), keepdim=True) for each in (fine, wide))  # blind to what is all one colour


def texture(image):
    """Which colours there are, and which answers of the filters come together: Gram matrices."""
    half = F.avg_pool2d(image, 2)
    answers = F.relu(F.conv2d(image, fine)), F.relu(F.conv2d(half, wide)), half
    return [each.flatten(1) @ each.flatten(1).T / each[0].numel() for each in answers]


house = content()
tabtorch.show(house, scale=2.5, title="a picture")
waves = style()
tabtorch.show(waves, scale=2.5, title="and a style")
wanted = texture(waves)
image = (house + 0.03 * torch.randn(3, SIZE, SIZE).to(device)).requires_grad_()
optimizer = torch.optim.Adam([image], lr=0.03)
for step in range(STEPS + 1):
    if step % EVERY == 0:
        tabtorch.show(image.detach().clamp(0, 1), scale=5, name="mixed", title=f"both, step {step}")
    off = sum(F.mse_loss(mine, each) / each.square().mean() for mine, each in zip(texture(image), wanted, strict=True))
    far = F.mse_loss(F.avg_pool2d(image, 8), F.avg_pool2d(house, 8))  # the picture may change, but not from afar
    loss = STYLE * 0.01 * off + far
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tabtorch.plot("loss", style=off.detach(), content=far.detach(), log=True)
    if step % 20 == 0:
        print(f"step {step:2d}  style off by {off.item():.4f}, content by {far.item():.4f}")
