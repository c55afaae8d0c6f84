"""A GPT and its training step, written once: for PyTorch and for tabtorch, which is the module that is handed in as `torch`."""

from __future__ import annotations

from types import ModuleType
from typing import Any

#: layers, heads, width, context, batch
SMALL, LARGE = (4, 4, 128, 64, 12), (6, 6, 384, 256, 64)
VOCABULARY = 65


def make(torch: ModuleType, layers: int, heads: int, width: int, context: int, device: str | None = None) -> Any:
    """The model, of seed 0: tokens in, logits out."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

        def forward(self, ids: Any) -> Any:
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
            return self.head(self.norm(self.blocks(x)))

    torch.manual_seed(0)
    model = GPT()
    return model if device is None else model.to(device)


def tokens(torch: ModuleType, context: int, batch: int, device: str | None = None) -> tuple[Any, Any]:
    """Inputs and targets: the same numbers in either."""
    torch.manual_seed(1)
    ids = torch.randint(0, VOCABULARY, (batch, context + 1))
    if device is not None:
        ids = ids.to(device)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def step_of(torch: ModuleType, model: Any, optimizer: Any) -> Any:
    """(inputs, targets) -> the loss, detached: one training step."""
    F = torch.nn.functional

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
