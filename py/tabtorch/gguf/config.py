"""What the metadata of a GGUF file says of its model: sizes, what its architecture does otherwise, and the angles of positions."""

from __future__ import annotations

from math import ceil, floor, log, pi, sqrt
from typing import Any, NamedTuple

import tabtorch as torch
from tabtorch.gguf.header import GGUFError


class Family(NamedTuple):
    """What an architecture does otherwise than Llama.

    neox: the two numbers that a rotation turns are half a head apart, and not neighbours. gemma: embeddings are scaled, the
    network's activation is GELU. head_norms: queries and keys are normalized, each head by itself. post_norms: what attention
    and the network give is normalized before it is added. fused: one product gives queries, keys and values, another both
    halves of the network. layer_norm: LayerNorm, and a network without a gate. full: of so many blocks, the last one sees
    everything where the others have a window (1: all have it). unturned: of so many blocks, the last has no positions.
    """

    neox: bool = True
    gemma: bool = False
    head_norms: bool = False
    post_norms: bool = False
    fused: bool = False
    layer_norm: bool = False
    window: bool = False
    full: int = 1
    unturned: int = 0


FAMILIES = {
    "llama": Family(neox=False, window=True),
    "qwen2": Family(),
    "qwen3": Family(head_norms=True),
    "gemma": Family(gemma=True),
    "gemma2": Family(gemma=True, post_norms=True, window=True, full=2),
    "gemma3": Family(gemma=True, post_norms=True, head_norms=True, window=True, full=6),
    "phi3": Family(fused=True, window=True),
    "smollm3": Family(neox=False, unturned=4),
    "starcoder2": Family(layer_norm=True, window=True),
}

#: the base of the angles in blocks of Gemma 3 that have a window
_LOCAL_BASE = 10000.0


class Config(NamedTuple):
    """Sizes of a model.

    rotated: numbers of each head that positions turn. base, scaling, factor, attention_factor, original: of their angles.
    windows: for each block, how many tokens it sees (0: all). query: what products of queries and keys are multiplied by.
    attention_cap, final_cap: what those, and logits, are kept below (0: nothing). context: tokens that it was made for.
    """

    arch: str
    family: Family
    blocks: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    rotated: int
    base: float
    scaling: str
    factor: float
    attention_factor: float
    original: int
    betas: tuple[float, float]
    windows: tuple[int, ...]
    query: float
    attention_cap: float
    final_cap: float
    eps: float
    context: int


def config(metadata: dict[str, Any]) -> Config:
    """The sizes in a file's metadata. GGUFError where they are not those of a model that is supported."""
    arch = metadata.get("general.architecture")
    family = FAMILIES.get(arch) if isinstance(arch, str) else None
    if arch is None or family is None:
        raise GGUFError(f"the architecture {arch!r} is not supported; {', '.join(FAMILIES)} are")

    def number(key: str, default: Any = None, kind: Any = int, least: float = 1e-30) -> Any:
        value = metadata.get(f"{arch}.{key}", default)
        if isinstance(value, bool) or not isinstance(value, (int, kind)) or not least <= value < 2**31:
            raise GGUFError(f"{arch}.{key} must be a positive number, and not {value!r}")
        return kind(value)

    def refuse(key: str, *harmless: Any) -> None:
        value = metadata.get(f"{arch}.{key}")
        if value is not None and value not in harmless:
            raise GGUFError(f"{arch}.{key} is not supported")

    if metadata.get(f"{arch}.expert_count"):
        raise GGUFError("mixtures of experts are not supported")
    refuse("rope.scale_linear", 1.0)
    refuse("rope.scaling.yarn_log_multiplier", 0.0)
    scaling = metadata.get(f"{arch}.rope.scaling.type", "none")
    if scaling not in ("none", "linear", "yarn", "longrope"):
        raise GGUFError(f"positions that are scaled by {scaling!r} are not supported")
    width, heads, blocks = number("embedding_length"), number("attention.head_count"), number("block_count")
    head_dim = number("attention.key_length", max(1, width // heads))
    if number("attention.value_length", head_dim) != head_dim:
        raise GGUFError("heads of keys and values must have one size")
    window = number("attention.sliding_window", 0, least=0)
    if window and not family.window:
        raise GGUFError(f"{arch}.attention.sliding_window is not supported")
    context = number("context_length")
    eps = "attention.layer_norm_epsilon" if family.layer_norm else "attention.layer_norm_rms_epsilon"
    wide = (arch, blocks) in (("gemma2", 46), ("gemma3", 62))  # the 27B, whose queries are scaled by another size
    c = Config(
        arch,
        family,
        blocks,
        width,
        number("feed_forward_length"),
        heads,
        number("attention.head_count_kv", heads),
        head_dim,
        number("rope.dimension_count", head_dim),
        number("rope.freq_base", 10000.0, float),
        scaling,
        1.0 if scaling == "none" else number("rope.scaling.factor", 1.0, float),
        number("rope.scaling.attn_factor", 1.0, float),
        number("rope.scaling.original_context_length", context),
        (number("rope.scaling.yarn_beta_fast", 32.0, float), number("rope.scaling.yarn_beta_slow", 1.0, float)),
        _windows(metadata, arch, family, min(blocks, 1 << 16), window),
        1 / sqrt(width / heads if wide else head_dim),
        number("attn_logit_softcapping", 50.0 if arch == "gemma2" else 0.0, float, least=0),
        number("final_logit_softcapping", 30.0 if arch == "gemma2" else 0.0, float, least=0),
        number(eps, 1e-5 if family.layer_norm else 1e-6, float),
        context,
    )
    if c.heads % c.kv_heads or c.head_dim % 2 or c.rotated % 2 or c.rotated > c.head_dim:
        raise GGUFError(
            f"{c.heads} heads, {c.kv_heads} of keys, of {c.head_dim} numbers, {c.rotated} turned, do not fit"
        )
    return c


def _windows(metadata: dict[str, Any], arch: str, family: Family, blocks: int, window: int) -> tuple[int, ...]:
    """How many tokens each block sees; 0 is all."""
    full = metadata.get(f"{arch}.attention.sliding_window_pattern", family.full)
    if isinstance(full, list):
        if len(full) != blocks or not all(isinstance(x, bool) for x in full):
            raise GGUFError(
                f"{arch}.attention.sliding_window_pattern must say of each of {blocks} blocks whether it has one"
            )
        return tuple([window if has else 0 for has in full])
    if type(full) is not int or full < 1:
        raise GGUFError(f"{arch}.attention.sliding_window_pattern must be a positive number, and not {full!r}")
    return tuple([0 if full > 1 and (k + 1) % full == 0 else window for k in range(blocks)])


def angles(c: Config, length: int, factors: Any, device: Any, local: bool = False) -> tuple[Any, Any]:
    """Cosines and sines (length, rotated / 2) of the positions. factors (rotated / 2,): what the angles are divided by, or None.

    local: those of blocks with a window, where an architecture has other ones for them.
    """
    even = torch.arange(0, c.rotated, 2, dtype=torch.float32, device=device)
    own = local and c.arch == "gemma3"
    base = _LOCAL_BASE if own else c.base
    inverse = 1.0 / (base ** (even / c.rotated))
    if factors is not None:
        inverse = inverse / factors
    size = c.attention_factor
    if c.scaling == "linear" and not own:
        inverse = inverse / c.factor
    if c.scaling == "yarn" and not own:
        first, last = (c.rotated * log(c.original / (beta * 2 * pi)) / (2 * log(base)) for beta in c.betas)
        low, high = max(floor(first), 0), min(ceil(last), c.rotated - 1)
        ramp = ((even / 2 - low) / max(0.001, high - low)).clamp(0, 1)
        inverse = inverse / c.factor * ramp + inverse * (1 - ramp)
        size *= 1 + 0.1 * log(max(c.factor, 1.0))
    turned = torch.outer(torch.arange(length, dtype=torch.float32, device=device), inverse)
    return turned.cos() * size, turned.sin() * size
