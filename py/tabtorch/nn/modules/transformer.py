"""Transformer layers (Vaswani et al., 2017)."""

import copy
import inspect
import warnings

import tabtorch as torch
from tabtorch.nn import functional as F
from tabtorch.nn.init import xavier_uniform_
from tabtorch.nn.modules.activation import GELU, ReLU
from tabtorch.nn.modules.attention import MultiheadAttention
from tabtorch.nn.modules.container import ModuleList
from tabtorch.nn.modules.dropout import Dropout
from tabtorch.nn.modules.linear import Linear
from tabtorch.nn.modules.module import Module
from tabtorch.nn.modules.normalization import LayerNorm

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]


def _generate_square_subsequent_mask(size, device=None, dtype=None):
    """(size, size): -inf above the diagonal, 0 elsewhere."""
    return torch.triu(torch.full((size, size), float("-inf"), dtype=dtype, device=device), diagonal=1)


def _get_clones(module, n):
    return ModuleList([copy.deepcopy(module) for _ in range(n)])


def _get_activation_fn(name):
    if name == "relu":
        return F.relu
    if name == "gelu":
        return F.gelu
    raise RuntimeError(f"activation should be relu/gelu, not {name}")


def _detect_is_causal_mask(mask, is_causal=None, size=None):
    """The hint as given; where None, whether ``mask`` is the causal one, which reads it."""
    if is_causal is not None:
        return is_causal
    if mask is None or size is None or tuple(mask.shape[-2:]) != (size, size):
        return False
    return bool((mask == _generate_square_subsequent_mask(size, mask.device, mask.dtype)).all())


def _get_seq_len(src, batch_first):
    return src.size(0) if src.dim() == 2 or not batch_first else src.size(1)


class _Layer(Module):
    """What encoder and decoder layers share: self-attention and two linear maps, each with norm and dropout."""

    __constants__ = ["norm_first"]

    def __init__(
        self,
        d_model,
        nhead,
        dim_feedforward=2048,
        dropout=0.1,
        activation=F.relu,
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        n = 3 if self._cross else 2
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **factory)
        if self._cross:
            self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **factory)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **factory)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **factory)
        self.norm_first = norm_first
        for i in range(1, n + 1):
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory))
        for i in range(1, n + 1):
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _get_activation_fn(activation) if isinstance(activation, str) else activation

    _cross = False

    def __setstate__(self, state):
        super().__setstate__(state)
        self.__dict__.setdefault("activation", F.relu)

    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal):
        x = self.self_attn(
            x,
            x,
            x,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            need_weights=False,
            is_causal=is_causal,
        )[0]
        return self.dropout1(x)

    def _ff(self, x):
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention, then two linear maps. (L, N, d_model), or (N, L, d_model) with ``batch_first``."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        f = self.activation
        relu, gelu = f is F.relu or isinstance(f, ReLU), f is F.gelu or isinstance(f, GELU)
        self.activation_relu_or_gelu = 1 if relu else 2 if gelu else 0

    __init__.__signature__ = inspect.signature(_Layer.__init__)  # type: ignore[attr-defined]

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        src_key_padding_mask = F._canonical_mask(
            src_key_padding_mask, "src_key_padding_mask", F._none_or_dtype(src_mask), "src_mask", src.dtype
        )
        src_mask = F._canonical_mask(src_mask, "src_mask", None, "", src.dtype, False)
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
        return self.norm2(x + self._ff_block(x))

    def _ff_block(self, x):
        return self.dropout2(self._ff(x))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to ``memory``, then two linear maps."""

    _cross = True

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=False,
        memory_is_causal=False,
    ):
        def self_attention(x):
            return self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal)

        def attention(x):
            return self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal)

        x = tgt
        if self.norm_first:
            x = x + self_attention(self.norm1(x))
            x = x + attention(self.norm2(x))
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self_attention(x))
        x = self.norm2(x + attention(x))
        return self.norm3(x + self._ff_block(x))

    def _mha_block(self, x, memory, attn_mask, key_padding_mask, is_causal):
        x = self.multihead_attn(
            x,
            memory,
            memory,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            need_weights=False,
        )[0]
        return self.dropout2(x)

    def _ff_block(self, x):
        return self.dropout3(self._ff(x))


class TransformerEncoder(Module):
    """``num_layers`` copies of an encoder layer.

    ``enable_nested_tensor``: where PyTorch's fast path packs the sequences (evaluation, no gradients, a padding mask at the
    ends), what is padding comes out as zeros, as it does there. There is one path here.
    """

    __constants__ = ["norm"]

    def __init__(self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True):
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = self.use_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check
        why = _why_not_nested(encoder_layer) if enable_nested_tensor else ""
        if why:
            warnings.warn(
                f"enable_nested_tensor is True, but self.use_nested_tensor is False because {why}", stacklevel=2
            )
            self.use_nested_tensor = False

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        src_key_padding_mask = F._canonical_mask(
            src_key_padding_mask, "src_key_padding_mask", F._none_or_dtype(mask), "mask", src.dtype
        )
        mask = F._canonical_mask(mask, "mask", None, "", src.dtype, False)
        is_causal = _detect_is_causal_mask(mask, is_causal, _get_seq_len(src, self.layers[0].self_attn.batch_first))
        output = src
        for layer in self.layers:
            output = layer(output, src_mask=mask, is_causal=is_causal, src_key_padding_mask=src_key_padding_mask)
        if src_key_padding_mask is not None and mask is None and self._nested(src):
            output = _without_padding(output, src_key_padding_mask, self.mask_check)
        return output if self.norm is None else self.norm(output)

    def _nested(self, src):
        """Whether PyTorch packs the sequences."""
        first = self.layers[0]
        usable = self.use_nested_tensor and not first.training and src.dim() == 3
        if not usable or not torch.is_grad_enabled():
            return usable
        return not src.requires_grad and not any(p.requires_grad for p in first.parameters())


def _without_padding(output, mask, check):
    """Zeros where ``mask`` (N, L) is -inf; ``check``: only if what it leaves are beginnings of the sequences."""
    padding = mask.isinf()
    if check:
        padding = padding & (~padding).cumprod(1).eq(~padding).all()
    return output.masked_fill(padding.unsqueeze(-1), 0.0)


def _why_not_nested(layer):
    """What of an encoder layer PyTorch's fast path does not take."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not TransformerEncoderLayer"
    attention = layer.self_attn
    for wrong, why in (
        (layer.norm_first, ".norm_first was True"),
        (
            not attention.batch_first,
            ".self_attn.batch_first was not True(use batch_first for better inference performance)",
        ),
        (not attention._qkv_same_embed_dim, ".self_attn._qkv_same_embed_dim was not True"),
        (attention.in_proj_bias is None, ".self_attn was passed bias=False"),
        (not layer.activation_relu_or_gelu, ".activation_relu_or_gelu was not True"),
        (layer.norm1.eps != layer.norm2.eps, ".norm1.eps was not equal to encoder_layer.norm2.eps"),
        (attention.num_heads % 2 == 1, ".self_attn.num_heads is odd"),
    ):
        if wrong:
            return "encoder_layer" + why
    return ""


class TransformerDecoder(Module):
    """``num_layers`` copies of a decoder layer."""

    __constants__ = ["norm"]

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=None,
        memory_is_causal=False,
    ):
        size = _get_seq_len(tgt, self.layers[0].self_attn.batch_first)
        tgt_is_causal = _detect_is_causal_mask(tgt_mask, tgt_is_causal, size)
        output = tgt
        for layer in self.layers:
            output = layer(
                output,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=tgt_is_causal,
                memory_is_causal=memory_is_causal,
            )
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """Encoder and decoder. ``src`` (S, N, E), ``tgt`` (T, N, E); N first with ``batch_first``."""

    def __init__(
        self,
        d_model=512,
        nhead=8,
        num_encoder_layers=6,
        num_decoder_layers=6,
        dim_feedforward=2048,
        dropout=0.1,
        activation=F.relu,
        custom_encoder=None,
        custom_decoder=None,
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        settings = (
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
            bias,
        )
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            layer: _Layer = TransformerEncoderLayer(*settings, **factory)
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory)
            self.encoder = TransformerEncoder(layer, num_encoder_layers, norm)
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            layer = TransformerDecoderLayer(*settings, **factory)
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory)
            self.decoder = TransformerDecoder(layer, num_decoder_layers, norm)
        for p in self.parameters():
            if p.dim() > 1:
                xavier_uniform_(p)
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src,
        tgt,
        src_mask=None,
        tgt_mask=None,
        memory_mask=None,
        src_key_padding_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        src_is_causal=None,
        tgt_is_causal=None,
        memory_is_causal=False,
    ):
        batch_dim = 0 if self.batch_first else 1
        if src.dim() == 3 and src.size(batch_dim) != tgt.size(batch_dim):
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz, device=None, dtype=None):
        """(sz, sz): -inf above the diagonal, 0 elsewhere."""
        return _generate_square_subsequent_mask(sz, device, dtype)
