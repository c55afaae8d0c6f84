"""A small language model, as tests and benchmarks of growing lengths use it."""

from __future__ import annotations

from typing import Any

import tabtorch
from tabtorch import nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any, cache: list[Any] | None = None) -> Any:
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.qkv(self.before(x)).split(c, 2)
        )
        if cache is not None:
            if cache:
                k, v = tabtorch.cat([cache[0], k], 2), tabtorch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class GPT(nn.Module):
    def __init__(self, width: int = 16, heads: int = 2, layers: int = 2, context: int = 128) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(13, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.end, self.head = nn.LayerNorm(width), nn.Linear(width, 13)

    def forward(self, x: Any, at: int = 0, caches: list[Any] | None = None) -> Any:
        h = self.tokens(x) + self.places(tabtorch.arange(at, at + x.shape[1], device=x.device))
        for i, block in enumerate(self.blocks):
            h = block(h, None if caches is None else caches[i])
        return self.head(self.end(h))
