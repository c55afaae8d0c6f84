"""Models of the llama family over the tensors of a GGUF file, with keys and values kept in place.

A step of decoding does the same to the same buffers at every position, for the position is a tensor: its plan is made once.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import tabtorch as torch
from tabtorch import nn
from tabtorch.gguf.config import Config, angles, config
from tabtorch.gguf.generating import Generating
from tabtorch.gguf.header import GGUFError
from tabtorch.gguf.reader import GGUF, load, load_async
from tabtorch.gguf.tokenizer import Tokenizer
from tabtorch.nn import functional as F
from tabtorch.packed import Packed


class _Taking:
    """Hands out the tensors of a file, each once, and each of the shape that is expected."""

    def __init__(self, tensors: dict[str, Any]) -> None:
        self.left = dict(tensors)

    def __call__(self, name: str, *shape: int, optional: bool = False) -> Any:
        t = self.left.pop(name, None)
        if t is None:
            if optional:
                return None
            raise GGUFError(f"the file has no tensor {name!r}")
        if shape != tuple(t.shape):
            raise GGUFError(f"the tensor {name!r} is of {list(t.shape)}, and not of {list(shape)}")
        if not t.dtype.is_floating_point:
            raise GGUFError(f"the tensor {name!r} is of {t.dtype}")
        return t.float() if isinstance(t, Packed) else nn.Parameter(t, requires_grad=False)


class Linear(nn.Module):
    """`x @ weight.T + bias`; the weight may be packed, or of half precision, which is read as it lies."""

    def __init__(self, take: _Taking, name: str, ins: int, outs: int) -> None:
        super().__init__()
        self.weight = take(name + ".weight", outs, ins)
        self.bias = take(name + ".bias", outs, optional=True)

    def forward(self, x: Any) -> Any:
        """(…, ins) to (…, outs)."""
        bias = self.bias
        return F.linear(x, self.weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


class Norm(nn.Module):
    """Root mean square normalization over the last dimension, or LayerNorm where the architecture has that."""

    def __init__(self, take: _Taking, name: str, size: int, c: Config) -> None:
        super().__init__()
        self.weight = take(name + ".weight", size)
        self.bias = take(name + ".bias", size, optional=True) if c.family.layer_norm else None
        self.centred = c.family.layer_norm
        self.eps = c.eps

    def forward(self, x: Any) -> Any:
        weight = self.weight.to(x.dtype)
        if self.centred:
            return F.layer_norm(
                x, (x.shape[-1],), weight, None if self.bias is None else self.bias.to(x.dtype), self.eps
            )
        return F.rms_norm(x, (x.shape[-1],), weight, self.eps)


class Attention(nn.Module):
    """Attention over all that was written to `keys` and `values` (1, kv_heads, length, head_dim) so far."""

    keys: Any
    values: Any

    def __init__(self, take: _Taking, number: int, c: Config, length: int, device: Any) -> None:
        super().__init__()
        self.c = c
        name, outs, kv = f"blk.{number}.", c.heads * c.head_dim, c.kv_heads * c.head_dim
        if c.family.fused:
            self.qkv = Linear(take, name + "attn_qkv", c.width, outs + 2 * kv)
        else:
            self.q = Linear(take, name + "attn_q", c.width, outs)
            self.k = Linear(take, name + "attn_k", c.width, kv)
            self.v = Linear(take, name + "attn_v", c.width, kv)
        self.output = Linear(take, name + "attn_output", outs, c.width)
        self.q_norm = self.k_norm = None
        if c.family.head_norms:
            self.q_norm = Norm(take, name + "attn_q_norm", c.head_dim, c)
            self.k_norm = Norm(take, name + "attn_k_norm", c.head_dim, c)
        self.turned = not c.family.unturned or (number + 1) % c.family.unturned != 0
        for held in ("keys", "values"):
            room = torch.zeros(1, c.kv_heads, length, c.head_dim, device=device)
            self.register_buffer(held, room, persistent=False)

    def _rotated(self, x: Any, cos: Any, sin: Any) -> Any:
        """(1, heads, T, head_dim), whose first numbers are turned by the angles (T, rotated / 2)."""
        if not self.turned:
            return x
        n = self.c.rotated
        rest = (x[..., n:],) if n < self.c.head_dim else ()
        if self.c.family.neox:
            a, b = x[..., :n].chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin, *rest), -1)
        a, b = x[..., 0:n:2], x[..., 1:n:2]
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        return torch.cat((turned, *rest), -1) if rest else turned

    def forward(self, x: Any, at: Any, cos: Any, sin: Any, mask: Any) -> Any:
        """x (1, T, width), whose keys and values are written to the places `at` (T,)."""
        c, n = self.c, x.shape[1]
        if c.family.fused:
            q, k, v = self.qkv(x).split([c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim], -1)
        else:
            q, k, v = self.q(x), self.k(x), self.v(x)
        q, k = q.reshape(1, n, c.heads, c.head_dim), k.reshape(1, n, c.kv_heads, c.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        v = v.reshape(1, n, c.kv_heads, c.head_dim)
        q = self._rotated(q.transpose(1, 2), cos, sin)
        self.keys.index_copy_(2, at, self._rotated(k.transpose(1, 2), cos, sin))
        self.values.index_copy_(2, at, v.transpose(1, 2))
        y = self._capped(q, mask) if c.attention_cap else self._attended(q, mask)
        return self.output(y.transpose(1, 2).reshape(1, n, c.heads * c.head_dim))

    def _attended(self, q: Any, mask: Any) -> Any:
        return F.scaled_dot_product_attention(q, self.keys, self.values, mask, scale=self.c.query, enable_gqa=True)

    def _capped(self, q: Any, mask: Any) -> Any:
        """As `_attended`, where products of queries and keys are kept below a number."""
        c, n = self.c, q.shape[2]
        grouped = q.reshape(1, c.kv_heads, c.heads // c.kv_heads, n, c.head_dim)
        score = (grouped * c.query) @ self.keys.unsqueeze(2).transpose(-1, -2)
        score = (score / c.attention_cap).tanh() * c.attention_cap
        weights = score.masked_fill(~mask, -float("inf")).softmax(-1)
        return (weights @ self.values.unsqueeze(2)).reshape(1, c.heads, n, c.head_dim)


class Network(nn.Module):
    """The network of a block: gated, but for architectures with LayerNorm."""

    def __init__(self, take: _Taking, name: str, c: Config) -> None:
        super().__init__()
        self.gelu = c.family.gemma or c.family.layer_norm
        self.gate = None if c.family.fused or c.family.layer_norm else Linear(take, name + "ffn_gate", c.width, c.inner)
        self.halves = c.family.fused
        self.up = Linear(take, name + "ffn_up", c.width, 2 * c.inner if self.halves else c.inner)
        self.down = Linear(take, name + "ffn_down", c.inner, c.width)

    def _activated(self, x: Any) -> Any:
        return F.gelu(x, approximate="tanh") if self.gelu else F.silu(x)

    def forward(self, x: Any) -> Any:
        """(1, T, width) to the same."""
        h = self.up(x)
        if self.halves:
            gate, h = h.chunk(2, -1)
            return self.down(self._activated(gate) * h)
        if self.gate is None:
            return self.down(self._activated(h))
        return self.down(self._activated(self.gate(x)) * h)


class Block(nn.Module):
    """Attention and a network, each added to what comes in."""

    def __init__(self, take: _Taking, number: int, c: Config, length: int, device: Any) -> None:
        super().__init__()
        name = f"blk.{number}."
        self.attn_norm = Norm(take, name + "attn_norm", c.width, c)
        self.attn = Attention(take, number, c, length, device)
        self.ffn_norm = Norm(take, name + "ffn_norm", c.width, c)
        self.network = Network(take, name, c)
        self.attn_post = self.ffn_post = None
        if c.family.post_norms:
            self.attn_post = Norm(take, name + "post_attention_norm", c.width, c)
            self.ffn_post = Norm(take, name + "post_ffw_norm", c.width, c)

    def forward(self, x: Any, *places: Any) -> Any:
        """(1, T, width) to the same."""
        y = self.attn(self.attn_norm(x), *places)
        x = x + (y if self.attn_post is None else self.attn_post(y))
        y = self.network(self.ffn_norm(x))
        return x + (y if self.ffn_post is None else self.ffn_post(y))


class Llama(Generating, nn.Module):
    """A model of the llama family for one sequence at a time, of at most `length` tokens. It computes in float32.

    `generate` writes texts, of a prompt or of a talk; `forward` gives logits.
    """

    def __init__(self, file: GGUF, length: int | None = None) -> None:
        super().__init__()
        c = self.config = config(file.metadata)
        self.metadata = file.metadata
        self.length = min(c.context, 4096) if length is None else length
        if not 0 < self.length <= c.context:
            raise ValueError(f"length must be from 1 to the model's context of {c.context}, and not {length}")
        if c.blocks > len(file.tensors):
            raise GGUFError(f"a model of {c.blocks} blocks has more than {len(file.tensors)} tensors")
        take = _Taking(file.tensors)
        embd = file.tensors.get("token_embd.weight")
        self.vocabulary = embd.shape[0] if embd is not None and embd.ndim == 2 else 0
        self.token_embd = take("token_embd.weight", self.vocabulary, c.width)
        device = self.token_embd.device
        self.blocks = nn.ModuleList(Block(take, k, c, self.length, device) for k in range(c.blocks))
        self.output_norm = Norm(take, "output_norm", c.width, c)
        output = take("output.weight", self.vocabulary, c.width, optional=True)
        self.output = self.token_embd if output is None else output
        self.output_bias = take("output.bias", self.vocabulary, optional=True)
        factors = take("rope_freqs.weight", c.rotated // 2, optional=True)
        long, short = (take(f"rope_factors_{n}.weight", c.rotated // 2, optional=True) for n in ("long", "short"))
        if long is not None and short is not None:
            factors = long if self.length > c.original else short
        elif c.scaling == "longrope":
            raise GGUFError("the file has no tensors 'rope_factors_long.weight' and 'rope_factors_short.weight'")
        if take.left:
            raise GGUFError(f"the file has tensors that no {c.arch} has: {', '.join(sorted(take.left)[:4])}")
        for name, local in (("", False), ("local_", True)):
            if not local or any(c.windows):
                cos, sin = angles(c, self.length, factors, device, local)
                self.register_buffer(name + "cos", cos, persistent=False)
                self.register_buffer(name + "sin", sin, persistent=False)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The file's vocabulary. GGUFError where it has none that is supported."""
        return Tokenizer(self.metadata)

    @property
    def device(self) -> Any:
        """Where it computes."""
        return self.token_embd.device

    @torch.no_grad()
    def forward(self, ids: Any, position: Any = 0) -> Any:
        """Logits (1, T, vocabulary) of tokens `ids` (1, T), the first of which is at `position`: a number, or a tensor ().

        Keys and values of the tokens before must have been written, by calls with them. ValueError where a number reaches
        beyond `length`.
        """
        self.forget()
        return self._logits(self._hidden(ids, position))

    def _logits(self, x: Any) -> Any:
        bias, cap = self.output_bias, self.config.final_cap
        y = F.linear(self.output_norm(x), self.output.to(x.dtype), None if bias is None else bias.to(x.dtype))
        return (y / cap).tanh() * cap if cap else y

    def _hidden(self, ids: Any, position: Any) -> Any:
        n, c = ids.shape[1], self.config
        if not isinstance(position, torch.Tensor) and not 0 <= position <= self.length - n:
            raise ValueError(f"{n} tokens from {position} on are more than the model's {self.length}")
        at = torch.arange(n, device=ids.device) + position
        before = torch.arange(self.length, device=ids.device)
        mask = before <= at[:, None]
        seen = {0: (at, self.cos[at], self.sin[at], mask)}
        for window in set(c.windows) - {0}:
            seen[window] = (at, self.local_cos[at], self.local_sin[at], mask & (before > at[:, None] - window))
        x = F.embedding(ids, self.token_embd).float()
        if c.family.gemma:
            x = x * c.width**0.5
        for block, window in zip(self.blocks, c.windows):
            x = block(x, *seen[window])
        return x


def model(source: Any, *, length: int | None = None, **options: Any) -> Llama:
    """The model of a file: of what `tabtorch.gguf.load` returned, or of what it takes, with its options.

    length: tokens that there is room for (None: what the model was made for, at most 4096). GGUFError where the file has no
    model of an architecture that is supported, or tensors that do not fit.
    """
    return Llama(source if isinstance(source, GGUF) else load(source, **options), length)


async def model_async(source: Any, *, length: int | None = None, **options: Any) -> Llama:
    """As `model`, without blocking while the file comes."""
    return Llama(source if isinstance(source, GGUF) else await load_async(source, **options), length)
