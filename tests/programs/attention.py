"""A causal self-attention block, by hand and with scaled_dot_product_attention."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(5)


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd=16, n_head=4, block_size=8):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.n_head, self.n_embd = n_head, n_embd
        self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size))

    def forward(self, x, fast):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        if fast:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = F.softmax(att, dim=-1)
            y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class Block(nn.Module):
    def __init__(self, n_embd=16):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention(n_embd)
        self.ln_2 = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x, fast=False):
        x = x + self.attn(self.ln_1(x), fast)
        return x + self.mlp(self.ln_2(x))


block = Block()
x = torch.randn(2, 8, 16)
slow = block(x)
fast = block(x, fast=True)
print(torch.allclose(slow, fast, atol=1e-5), slow.shape)
slow.pow(2).mean().backward()
print(slow[0, -1, :4])
print({n: round(p.grad.norm().item(), 4) for n, p in block.named_parameters()})
print(list(block.state_dict()))
