"""Models of the llama family (llama, qwen2, qwen3) over the tensors of a GGUF file, with keys and values kept in place.

A step of decoding does the same to the same buffers at every position, for the position is a tensor: its plan is made once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import tabtorch as torch
from tabtorch import nn
from tabtorch.gguf.header import GGUFError
from tabtorch.gguf.reader import GGUF, load
from tabtorch.nn import functional as F
from tabtorch.packed import Packed

#: architecture -> whether the two numbers that a rotation turns are half a head apart (NeoX), and not neighbours
_NEOX = {"llama": False, "qwen2": True, "qwen3": True}


class Config(NamedTuple):
    """Sizes of a model. base: of the angles of positions, which are divided by `scale`; context: what it was made for."""

    arch: str
    blocks: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    base: float
    scale: float
    eps: float
    context: int


def _config(metadata: dict[str, Any]) -> Config:
    arch = metadata.get("general.architecture")
    if arch not in _NEOX:
        raise GGUFError(f"the architecture {arch!r} is not supported; {', '.join(_NEOX)} are")

    def number(key: str, default: Any = None, kind: Any = int) -> Any:
        value = metadata.get(f"{arch}.{key}", default)
        if isinstance(value, bool) or not isinstance(value, (int, kind)) or not 0 < value < 2**31:
            raise GGUFError(f"{arch}.{key} must be a positive number, and not {value!r}")
        return kind(value)

    if metadata.get(f"{arch}.expert_count"):
        raise GGUFError("mixtures of experts are not supported")
    scaling = metadata.get(f"{arch}.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise GGUFError(f"positions that are scaled by {scaling!r} are not supported")
    width, heads = number("embedding_length"), number("attention.head_count")
    head_dim = number("attention.key_length", width // heads)
    if number("attention.value_length", head_dim) != head_dim:
        raise GGUFError("heads of keys and values must have one size")
    if number("rope.dimension_count", head_dim) != head_dim:
        raise GGUFError("positions that turn a part of each head are not supported")
    if metadata.get(f"{arch}.rope.scale_linear", 1.0) != 1.0 or metadata.get(f"{arch}.attention.sliding_window"):
        raise GGUFError("rope.scale_linear and attention.sliding_window are not supported")
    c = Config(
        arch,
        number("block_count"),
        width,
        number("feed_forward_length"),
        heads,
        number("attention.head_count_kv", heads),
        head_dim,
        number("rope.freq_base", 10000.0, float),
        number("rope.scaling.factor", 1.0, float) if scaling == "linear" else 1.0,
        number("attention.layer_norm_rms_epsilon", 1e-6, float),
        number("context_length"),
    )
    if c.heads % c.kv_heads or c.head_dim % 2:
        raise GGUFError(f"{c.heads} heads, {c.kv_heads} of keys, of {c.head_dim} numbers do not fit")
    return c


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
    """Root mean square normalization over the last dimension."""

    def __init__(self, weight: Any, eps: float) -> None:
        super().__init__()
        self.weight = weight
        self.eps = eps

    def forward(self, x: Any) -> Any:
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    """Attention over all that was written to `keys` and `values` (1, kv_heads, length, head_dim) so far."""

    keys: Any
    values: Any

    def __init__(self, take: _Taking, name: str, c: Config, length: int, device: Any) -> None:
        super().__init__()
        self.c = c
        self.neox = _NEOX[c.arch]
        self.q = Linear(take, name + "attn_q", c.width, c.heads * c.head_dim)
        self.k = Linear(take, name + "attn_k", c.width, c.kv_heads * c.head_dim)
        self.v = Linear(take, name + "attn_v", c.width, c.kv_heads * c.head_dim)
        self.output = Linear(take, name + "attn_output", c.heads * c.head_dim, c.width)
        self.q_norm = self.k_norm = None
        if c.arch == "qwen3":
            self.q_norm = Norm(take(name + "attn_q_norm.weight", c.head_dim), c.eps)
            self.k_norm = Norm(take(name + "attn_k_norm.weight", c.head_dim), c.eps)
        for held in ("keys", "values"):
            room = torch.zeros(1, c.kv_heads, length, c.head_dim, device=device)
            self.register_buffer(held, room, persistent=False)

    def _rotated(self, x: Any, cos: Any, sin: Any) -> Any:
        """(1, heads, T, head_dim), turned by the angles (T, head_dim / 2)."""
        if self.neox:
            a, b = x.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)

    def forward(self, x: Any, at: Any, cos: Any, sin: Any, mask: Any) -> Any:
        """x (1, T, width), whose keys and values are written to the places `at` (T,)."""
        c, n = self.c, x.shape[1]
        q = self.q(x).view(1, n, c.heads, c.head_dim)
        k = self.k(x).view(1, n, c.kv_heads, c.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        v = self.v(x).view(1, n, c.kv_heads, c.head_dim)
        q = self._rotated(q.transpose(1, 2), cos, sin)
        self.keys.index_copy_(2, at, self._rotated(k.transpose(1, 2), cos, sin))
        self.values.index_copy_(2, at, v.transpose(1, 2))
        y = F.scaled_dot_product_attention(q, self.keys, self.values, mask, enable_gqa=True)
        return self.output(y.transpose(1, 2).reshape(1, n, c.heads * c.head_dim))


class Block(nn.Module):
    """Attention and a gated network, each added to what comes in."""

    def __init__(self, take: _Taking, name: str, c: Config, length: int, device: Any) -> None:
        super().__init__()
        self.attn_norm = Norm(take(name + "attn_norm.weight", c.width), c.eps)
        self.attn = Attention(take, name, c, length, device)
        self.ffn_norm = Norm(take(name + "ffn_norm.weight", c.width), c.eps)
        self.gate = Linear(take, name + "ffn_gate", c.width, c.inner)
        self.up = Linear(take, name + "ffn_up", c.width, c.inner)
        self.down = Linear(take, name + "ffn_down", c.inner, c.width)

    def forward(self, x: Any, *places: Any) -> Any:
        """(1, T, width) to the same."""
        x = x + self.attn(self.attn_norm(x), *places)
        h = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """A model of the llama family for one sequence at a time, of at most `length` tokens. It computes in float32."""

    cos: Any
    sin: Any

    def __init__(self, file: GGUF, length: int | None = None) -> None:
        super().__init__()
        c = self.config = _config(file.metadata)
        self.length = min(c.context, 4096) if length is None else length
        if not 0 < self.length <= c.context:
            raise ValueError(f"length must be from 1 to the model's context of {c.context}, and not {length}")
        if c.blocks > len(file.tensors):
            raise GGUFError(f"a model of {c.blocks} blocks has more than {len(file.tensors)} tensors")
        take = _Taking(file.tensors)
        embd = file.tensors.get("token_embd.weight")
        vocabulary = embd.shape[0] if embd is not None and embd.ndim == 2 else 0
        self.token_embd = take("token_embd.weight", vocabulary, c.width)
        device = self.token_embd.device
        self.blocks = nn.ModuleList(Block(take, f"blk.{k}.", c, self.length, device) for k in range(c.blocks))
        self.output_norm = Norm(take("output_norm.weight", c.width), c.eps)
        output = take("output.weight", vocabulary, c.width, optional=True)
        self.output = self.token_embd if output is None else output
        factors = take("rope_freqs.weight", c.head_dim // 2, optional=True)
        if take.left:
            raise GGUFError(f"the file has tensors that no {c.arch} has: {', '.join(sorted(take.left)[:4])}")
        even = torch.arange(0, c.head_dim, 2, dtype=torch.float32, device=device)
        inverse = 1.0 / (c.base ** (even / c.head_dim))
        if factors is not None:
            inverse = inverse / factors
        angles = torch.outer(torch.arange(self.length, dtype=torch.float32, device=device) / c.scale, inverse)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    @torch.no_grad()
    def forward(self, ids: Any, position: Any = 0) -> Any:
        """Logits (1, T, vocabulary) of tokens `ids` (1, T), the first of which is at `position`: a number, or a tensor ().

        Keys and values of the tokens before must have been written, by calls with them. ValueError where a number reaches
        beyond `length`.
        """
        return self._logits(self._hidden(ids, position))

    def _logits(self, x: Any) -> Any:
        return F.linear(self.output_norm(x), self.output.to(x.dtype))

    def _hidden(self, ids: Any, position: Any) -> Any:
        n = ids.shape[1]
        if not isinstance(position, torch.Tensor) and not 0 <= position <= self.length - n:
            raise ValueError(f"{n} tokens from {position} on are more than the model's {self.length}")
        at = torch.arange(n, device=ids.device) + position
        mask = torch.arange(self.length, device=ids.device) <= at[:, None]
        cos, sin = self.cos[at], self.sin[at]
        x = F.embedding(ids, self.token_embd).float()
        for block in self.blocks:
            x = block(x, at, cos, sin, mask)
        return x

    @torch.no_grad()
    def generate(
        self,
        ids: Sequence[int],
        max_new_tokens: int,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: Collection[int] = (),
    ) -> Iterator[int]:
        """The tokens after `ids`, as they come; one of `stop` is the last, and so is the one that fills `length`.

        temperature: 0 takes the likeliest. top_k: of the k likeliest only (0: of all). top_p: of the likeliest that have this
        probability together. seed: of the draws. ValueError for no tokens, or more than `length`.
        """
        if not len(ids):
            raise ValueError("there must be a token to begin with")
        device = self.cos.device
        generator = None
        if temperature > 0 and seed is not None:
            generator = torch.Generator(device=device).manual_seed(seed)
        hidden = self._hidden(torch.tensor([list(ids)], device=device), 0)
        token = _pick(self._logits(hidden[:, -1:])[0, 0], temperature, top_k, top_p, generator)
        position = torch.tensor(len(ids), device=device)
        for left in range(min(max_new_tokens, self.length - len(ids) + 1) - 1, -1, -1):
            chosen = int(token.item())
            yield chosen
            if chosen in stop or not left:
                return
            with torch.no_grad():
                logits = self._logits(self._hidden(token.view(1, 1), position))
                token = _pick(logits[0, 0], temperature, top_k, top_p, generator)
                position = position + 1


def _pick(logits: Any, temperature: float, top_k: int, top_p: float, generator: Any) -> Any:
    """A token (a tensor of one number), as the logits (vocabulary,) have it."""
    if temperature <= 0:
        return logits.argmax(-1)
    logits = logits / temperature
    if 0 < top_k < logits.shape[0]:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -float("inf"))
    if top_p >= 1:
        return torch.multinomial(logits.softmax(-1), 1, generator=generator)
    p, order = logits.softmax(-1).sort(descending=True)
    p = torch.where(p.cumsum(-1) - p < top_p, p, 0.0)
    return order[torch.multinomial(p, 1, generator=generator)]


def model(source: Any, *, length: int | None = None, **options: Any) -> Llama:
    """The model of a file: of what `tabtorch.gguf.load` returned, or of what it takes, with its options.

    length: tokens that there is room for (None: what the model was made for, at most 4096). GGUFError where the file has no
    model of an architecture that is supported, or tensors that do not fit.
    """
    return Llama(source if isinstance(source, GGUF) else load(source, **options), length)
