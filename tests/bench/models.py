"""The models that are timed, written once: for PyTorch and for tabtorch, which is the module that is handed in as `torch`."""

from __future__ import annotations

from typing import Any


def perceptron(torch: Any) -> Any:
    """784-256-128-10."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


def convolutions(torch: Any) -> Any:
    """Two convolutions with pooling and two linear layers, for images of 28 x 28."""
    nn = torch.nn
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def resnet18(torch: Any) -> Any:
    """ResNet-18 (He et al., 2015), with 1000 classes."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inside: int, out: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
            self.bn1, self.bn2, self.relu = nn.BatchNorm2d(out), nn.BatchNorm2d(out), nn.ReLU(inplace=True)
            self.shortcut = nn.Identity()
            if stride != 1 or inside != out:
                self.shortcut = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

        def forward(self, x: Any) -> Any:
            y = self.relu(self.bn1(self.conv1(x)))
            return self.relu(self.bn2(self.conv2(y)) + self.shortcut(x))

    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
    blocks = [Block(a, b, 1 if a == b else 2) for a, b in zip(widths, widths[1:])]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def gpt(torch: Any, layers: int, heads: int, width: int, context: int, vocabulary: int) -> Any:
    """A GPT whose `forward(ids, caches, begin)` writes keys and values of what it is given into caches of (batch, heads, context,
    width / heads), if there are any, from place `begin` on."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any, cache: Any, begin: int) -> Any:
            b, t, c = x.shape
            q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
            if cache is not None:
                for kept, new in zip(cache, (k, v)):
                    kept[:, :, begin : begin + t] = new
                k, v = (kept[:, :, : begin + t] for kept in cache)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, ids: Any, caches: Any = None, begin: int = 0) -> Any:
            places = torch.arange(begin, begin + ids.shape[1], device=ids.device)
            x = self.tokens(ids) + self.places(places)
            for i, block in enumerate(self.blocks):
                x = block(x, None if caches is None else caches[i], begin)
            return self.head(self.norm(x))

    return GPT()
