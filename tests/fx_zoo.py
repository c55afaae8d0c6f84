"""Modules and functions that tests/test_fx.py traces with real PyTorch and with tabtorch. `make(torch)` gives them for one of them.

They are made from text, so that each library has functions whose `torch` is its own.
"""

from __future__ import annotations

import functools
import linecache
import sys
import types
from typing import Any

SOURCE = """
import math
import operator
import collections
import dataclasses
import enum
from operator import setitem
from typing import Dict, List, NamedTuple, Optional, Tuple

nn = torch.nn
F = torch.nn.functional
Tensor = torch.Tensor


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.p = nn.Parameter(torch.ones(8))
        self.register_buffer("b", torch.zeros(8))

    def forward(self, x, y=None):
        x = torch.relu(self.a(x))
        x = x + self.p
        x = F.relu(x) * 2
        x = 2 - x / 3
        z = x.sum(dim=-1, keepdim=True)
        w = torch.cat([x, z], dim=-1)
        return F.dropout(w, 0.5, False), w[:, 1:], F.gelu(x), x @ self.b, F.layer_norm(x, (8,))


class Basic(nn.Module):
    def __init__(self, i, o, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(o)
        self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride), nn.BatchNorm2d(o)) if stride != 1 or i != o else None

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, 2, 1)
        self.bn1 = nn.BatchNorm2d(4)
        self.maxpool = nn.MaxPool2d(2)
        self.layer1 = nn.Sequential(Basic(4, 4), Basic(4, 8, 2))
        self.layer2 = nn.Sequential(Basic(8, 8))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Attention(nn.Module):
    def __init__(self, dim=8, heads=2):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q @ k.transpose(-2, -1)) * self.scale
        attn = attn.softmax(dim=-1)
        attn = F.dropout(attn, p=0.1, training=False)
        x = (attn @ v).transpose(1, 2).reshape(B, N, C)
        return self.proj(x)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(8)
        self.attn = Attention()
        self.norm2 = nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.gamma = nn.Parameter(torch.full((8,), 0.5))

    def forward(self, x):
        x = x + self.gamma * self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Sdpa(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Varied(nn.Module):
    def forward(self, x, *args, flag=True, **kwargs):
        return x + args[0], kwargs["k"] * 2


class Annotated(nn.Module):
    def forward(self, x: Tensor, n: int = 3, pair: Tuple[int, int] = (1, 2), names: Optional[List[str]] = None) -> Dict[str, Tensor]:
        return {"a": x * n, "b": x + pair[0]}


class Setting(nn.Module):
    def forward(self, x):
        x = x.clone()
        setitem(x, 0, 1.0)
        x.add_(1)
        x -= 2
        x *= 3
        x /= 2
        x **= 2
        x //= 1
        return x


class Slices(nn.Module):
    def forward(self, x):
        n = x.size(0)
        a = x[..., None]
        b = x[1:, ::2]
        c = x[:, -1]
        d = x[None, n - 1 :]
        e = x[[0, 1]]
        return a, b, c, d, e, x[n // 2 : n]


class Constants(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain = torch.arange(3.0)
        self.scale = 2.5
        self.register_buffer("buf", torch.ones(3))

    def forward(self, x):
        y = x + self.plain
        y = torch.tensor([1.0, 2.0, 3.0]) + y
        y = y * torch.tensor([3.0, 2.0, 1.0])
        return y * self.buf * self.scale + torch.zeros(3)


class Attributes(nn.Module):
    def forward(self, x):
        s = x.shape
        t = x.T
        d = x.dtype
        z = torch.zeros_like(x, dtype=d, device=x.device) * s[0]
        return z + x + t.mean(), x.ndim, getattr(x, "real")


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.act = nn.Tanh()
        self.seq = nn.Sequential(self.lin, self.act)
        self.items = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.table = nn.ModuleDict({"x": nn.Linear(3, 3), "y-z": nn.Sigmoid()})

    def forward(self, x):
        x = self.lin(self.act(self.seq(x)))
        for m in self.items:
            x = m(x)
        for m in self.table.values():
            x = m(x)
        return self.lin(x)


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


class Named(nn.Module):
    def forward(self, x):
        top = torch.topk(x, 2)
        values, indices = torch.max(x, dim=-1)
        p = Pair(x, values)
        return Pair(p.left + 1, top.values), top.indices


@dataclasses.dataclass
class Data:
    a: Tensor
    b: int


class Color(enum.Enum):
    RED = 1


def takes(x, data=None, color=None):
    return x + 1


class Datas(nn.Module):
    def forward(self, x):
        return takes(x, Data(x, 3), Color.RED) + takes(x, color=Color.RED), Data(x, 2)


torch.fx.wrap("takes")


@torch.fx.wrap
def decorated(x, n):
    if x.sum() > 0:
        return x + n
    return x - n


torch.fx.wrap("len")
torch.fx.wrap("setitem")


class Wrapped(nn.Module):
    def forward(self, x):
        return decorated(x, 2) * len(x), decorated(torch.ones(2), 1), math.sqrt(x.shape[0])


class Formatted(nn.Module):
    def forward(self, x):
        torch._assert(x.shape[0] == 2, "not two")
        name = f"value {3:d}"
        return x, name, {"k": [x, (x, 1)], 2: slice(None)}


class Asserting(nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, -x), ~(x != x), abs(x), +x, x & 1 if False else x, (x < 1) | (x >= 3), (x <= 2) ^ (x == 1)


class Reflected(nn.Module):
    def forward(self, x):
        return 1 + x, 1 - x, 2 * x, 2 / x, 2 ** x, 7 // x, 7 % x, x % 3, x // 2, x ** 2, torch.ones(2, 2) @ x, torch.ones(2, 2) - x


class Functions(nn.Module):
    def forward(self, x):
        a, b = torch.split(x, 1, dim=0)
        c = torch.einsum("ij,kj->ik", x, x) + torch.einsum("ij,kj->ik", [x, x])
        d, e = torch.chunk(x, 2, dim=1)
        m = torch.meshgrid(a[0], b[0], indexing="ij")
        n = torch.norm(x, dim=1)
        s = torch.stack([a, b]).squeeze(1)
        u = torch.cdist(x, x) + torch.tensordot(x, x, dims=([1], [1]))
        return a, c, d + e, m[0], n, s, u, torch.linalg.norm(x), torch.fft.rfft(x).abs(), torch.special.expit(x)


class Losses(nn.Module):
    def __init__(self):
        super().__init__()
        self.ce = nn.CrossEntropyLoss()

    def forward(self, x, t):
        return self.ce(x, t), F.cross_entropy(x, t), F.mse_loss(x, x), F.l1_loss(x, x), F.nll_loss(F.log_softmax(x, dim=1), t)


class Images(nn.Module):
    def forward(self, x):
        a = F.interpolate(x, scale_factor=2, mode="nearest")
        b = F.pad(x, (1, 1, 1, 1))
        c = F.avg_pool2d(x, 2) + F.max_pool2d(x, kernel_size=2, stride=2)
        d = F.conv2d(x, torch.ones(1, 2, 1, 1))
        e = F.batch_norm(x, torch.zeros(2), torch.ones(2))
        return a, b, c, d, e, F.softmax(x, dim=1), F.one_hot(torch.zeros(2, dtype=torch.long), 3), F.normalize(x), F.leaky_relu(x, 0.1)


class Activations(nn.Module):
    def forward(self, x):
        return [
            F.silu(x), F.hardswish(x), F.elu(x), F.selu(x), F.softplus(x), F.logsigmoid(x), F.hardtanh(x), F.relu6(x), F.mish(x),
            F.softsign(x), F.tanhshrink(x), F.glu(x), F.celu(x), F.hardsigmoid(x), F.log_softmax(x, -1), F.softmin(x, -1),
            F.tanh(x), F.sigmoid(x), F.threshold(x, 0.1, 20.0) if False else x, F.softshrink(x), F.hardshrink(x), F.prelu(x, torch.ones(1)),
            torch.sigmoid(x), torch.tanh(x), torch.softmax(x, -1), torch.rsqrt(x * x + 1), torch.clamp(x, 0, 1), x.clamp(min=0),
        ]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.emb = nn.Embedding(10, 3)

    def forward(self, ids):
        out, (h, c) = self.lstm(self.emb(ids))
        return out[:, -1], h


class KeywordOnly(nn.Module):
    def forward(self, x, *, scale: float = 2.0):
        return x * scale


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(3)
        self.inner = nn.Module()
        self.inner.register_buffer("b", torch.ones(3))
        self.inner.w = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.bn(x) + self.inner.b * self.inner.w + self.bn.running_mean


def function(a, b=2, *rest):
    return torch.add(a, b, alpha=2)


def many_outputs(x):
    lst = [x]
    for i in range(3):
        lst.append(lst[-1] * i)
    return tuple(lst), {"last": lst[-1]}


def methods(x):
    y = x.view(-1).contiguous().to(torch.float64).unsqueeze(0)
    y = y.expand(2, -1).masked_fill(y > 2, 0.0)
    return y.permute(1, 0).flip(0).mean(dim=0, keepdim=True).type_as(x), y.float().t().argmax(-1), x.new_zeros(2)


def chained(x):
    return x.a.b(1).c["k"](2)


class KeyStr(nn.Module):
    def forward(self, d):
        return d["x"] + d["y"][0]


def dtypes(x):
    a = x.to(torch.float16), x.to(device=torch.device("cpu")), torch.ones(2, dtype=torch.int64)
    return a, x.contiguous(memory_format=torch.channels_last), float("inf") * x, x + float("nan"), (x, ...)
"""

#: name -> arguments for a call, as a function of the library; None where the trace is compared only
INPUTS: dict[str, Any] = {
    "MLP": lambda t: (_ramp(t, 2, 4),),
    "ResNet": lambda t: (_ramp(t, 2, 3, 16, 16),),
    "Transformer": lambda t: (_ramp(t, 2, 5, 8),),
    "Attention": lambda t: (_ramp(t, 2, 5, 8),),
    "Sdpa": lambda t: (_ramp(t, 1, 2, 3, 4),) * 3,
    "Varied": None,
    "Annotated": lambda t: (_ramp(t, 3),),
    "Setting": lambda t: (_ramp(t, 3, 3),),
    "Slices": lambda t: (_ramp(t, 4, 3),),
    "Constants": lambda t: (_ramp(t, 3),),
    "Attributes": lambda t: (_ramp(t, 2, 3),),
    "Shared": lambda t: (_ramp(t, 2, 3),),
    "Named": lambda t: (_ramp(t, 2, 3),),
    "Datas": None,
    "Wrapped": lambda t: (_ramp(t, 4),),
    "Formatted": lambda t: (_ramp(t, 2),),
    "Asserting": lambda t: (_ramp(t, 3),),
    "Reflected": lambda t: (_ramp(t, 2, 2) + 1,),
    "Functions": lambda t: (_ramp(t, 2, 4),),
    "Losses": lambda t: (_ramp(t, 2, 3), t.tensor([0, 2])),
    "Images": lambda t: (_ramp(t, 1, 2, 4, 4),),
    "Activations": lambda t: (_ramp(t, 2, 4),),
    "Recurrent": lambda t: (t.tensor([[1, 2, 3]]),),
    "KeywordOnly": None,
    "Buffers": lambda t: (_ramp(t, 2, 3),),
    "function": lambda t: (_ramp(t, 3), 1),
    "many_outputs": lambda t: (_ramp(t, 3),),
    "methods": lambda t: (_ramp(t, 2, 3),),
    "chained": None,
    "KeyStr": lambda t: ({"x": _ramp(t, 2), "y": [_ramp(t, 2)]},),
    "dtypes": None,
}


def _ramp(t: Any, *shape: int) -> Any:
    n = 1
    for s in shape:
        n *= s
    return (t.arange(n, dtype=t.float32) % 7 - 2).reshape(shape) / 4


@functools.cache  # pickles find one module of each
def make(torch: Any) -> dict[str, Any]:
    """What SOURCE defines, where torch is this library."""
    name = f"zoo_of_{torch.__name__}"
    module = types.ModuleType(name)
    module.__dict__["torch"] = torch
    sys.modules[name] = module  # pickles find it there
    space = vars(module)
    file = f"<{name}>"
    linecache.cache[file] = (len(SOURCE), None, SOURCE.splitlines(True), file)
    exec(compile(SOURCE, file, "exec", dont_inherit=True), space)
    return space


def build(torch: Any, space: dict[str, Any], name: str) -> Any:
    """The module of that name with weights that both libraries have, in eval mode; or the function."""
    made = space[name]
    if not isinstance(made, type):
        return made
    module = made().eval()
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(_ramp(torch, *p.shape) / 3)
    return module
