"""Models that are exported, in PyTorch and here: the same source over either `torch`.

A case: a function that makes (module, args, kwargs, sizes): `sizes` of an input by position, {dimension: (symbol, another size)}.
"""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

Case = tuple[Any, tuple[Any, ...], dict[int, dict[int, tuple[str, int]]]]
Pair = namedtuple("Pair", ["first", "second"])  # as a user writes it


def _batch(*where: int, size: int = 5, symbol: str = "batch") -> dict[int, dict[int, tuple[str, int]]]:
    return {i: {0: (symbol, size)} for i in where or (0,)}


def cases(torch: Any) -> dict[str, Callable[[], Case]]:
    """Name -> case, over this torch: PyTorch or tabtorch."""
    nn, F = torch.nn, torch.nn.functional
    found: dict[str, Callable[[], Case]] = {}

    def case(f: Callable[[], Case]) -> Callable[[], Case]:
        found[f.__name__] = f
        return f

    def x(*shape: int) -> Any:
        return torch.linspace(-1.0, 1.3, max(1, torch.Size(shape).numel())).reshape(shape).sin()

    def ids(*shape: int, top: int = 10) -> Any:
        return (torch.arange(torch.Size(shape).numel()) * 7 % top).reshape(shape)

    def layer(name: str, module: Callable[[], Any], *shapes: tuple[int, ...], dynamic: bool = True) -> None:
        found[name] = lambda: (module(), tuple(x(*s) for s in shapes), _batch(*range(len(shapes))) if dynamic else {})

    layer("linear", lambda: nn.Linear(4, 3), (3, 4))
    layer(
        "mlp",
        lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.5), nn.LayerNorm(8), nn.Linear(8, 2)).eval(),
        (3, 4),
    )
    layer(
        "cnn",
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5)
        ).eval(),
        (2, 3, 8, 8),
    )
    layer(
        "cnn_training",
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        (2, 3, 6, 6),
    )
    layer(
        "depthwise",
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=4, stride=2), nn.Hardswish(), nn.Conv2d(4, 2, 1), nn.SiLU()),
        (2, 4, 7, 7),
    )
    layer("conv1d", lambda: nn.Sequential(nn.Conv1d(3, 4, 3, padding="same"), nn.ELU(), nn.AvgPool1d(2)), (2, 3, 8))
    layer("conv3d", lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.ReLU(), nn.MaxPool3d(2)), (2, 1, 5, 5, 5))
    layer(
        "deconv",
        lambda: nn.Sequential(nn.ConvTranspose2d(3, 2, 3, stride=2, output_padding=1), nn.Tanh()),
        (2, 3, 4, 4),
    )
    layer(
        "group_norm", lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.LeakyReLU(0.1)), (2, 4, 5, 5)
    )
    layer(
        "upsample",
        lambda: nn.Sequential(
            nn.Upsample(scale_factor=2), nn.Conv2d(2, 2, 1), nn.Upsample(scale_factor=2, mode="bilinear")
        ),
        (2, 2, 3, 3),
    )
    layer(
        "pad_shuffle",
        lambda: nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(2, 4, 3), nn.PixelShuffle(2), nn.ZeroPad2d(1)),
        (2, 2, 4, 4),
    )
    layer(
        "activations",
        lambda: nn.Sequential(
            nn.Softplus(),
            nn.Mish(),
            nn.Hardtanh(),
            nn.PReLU(),
            nn.Softmax(-1),
            nn.LogSigmoid(),
            nn.CELU(),
            nn.Threshold(-1.0, 0.5),
        ),
        (3, 4),
    )
    layer("bilinear", lambda: nn.Bilinear(3, 4, 2), (3, 3), (3, 4))
    layer(
        "encoder",
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0), 2, enable_nested_tensor=False
        ).train(),
        (3, 4, 8),
    )
    layer(
        "decoder",
        lambda: nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, dropout=0.0).train(),
        (3, 4, 8),
        (3, 5, 8),
    )
    layer("attention", lambda: _Attention(nn), (3, 4, 8))
    layer("lstm", lambda: nn.LSTM(4, 3, 2, batch_first=True), (3, 5, 4), dynamic=False)
    layer("gru", lambda: nn.GRU(4, 3, bidirectional=True), (5, 3, 4), dynamic=False)
    layer("rnn", lambda: nn.RNN(4, 3, nonlinearity="relu"), (5, 3, 4), dynamic=False)
    layer("lstm_cell", lambda: nn.LSTMCell(4, 3), (3, 4), dynamic=False)

    @case
    def embedding_bag_of_words() -> Case:
        class Words(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embedding = nn.Embedding(10, 6, padding_idx=0)
                self.head = nn.Linear(6, 10, bias=False)
                self.head.weight = self.embedding.weight

            def forward(self, i: Any) -> Any:
                return self.head(self.embedding(i).mean(1))

        return Words(), (ids(3, 4),), {0: {0: ("batch", 5), 1: ("length", 6)}}

    @case
    def gpt() -> Case:
        class Block(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
                self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
                self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

            def forward(self, h: Any) -> Any:
                b, t, c = h.shape
                q, k, v = self.qkv(self.norm(h)).split(8, dim=2)
                q, k, v = (y.view(b, t, 2, c // 2).transpose(1, 2) for y in (q, k, v))
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                h = h + self.out(y.transpose(1, 2).contiguous().view(b, t, c))
                return h + self.mlp(self.norm2(h))

        class GPT(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.tokens, self.places = nn.Embedding(10, 8), nn.Embedding(16, 8)
                self.blocks = nn.ModuleList([Block(), Block()])
                self.head = nn.Linear(8, 10, bias=False)

            def forward(self, i: Any) -> Any:
                h = self.tokens(i) + self.places(torch.arange(i.shape[1], device=i.device))
                for block in self.blocks:
                    h = block(h)
                return self.head(h)

        return GPT(), (ids(3, 5),), {0: {0: ("batch", 2), 1: ("length", 7)}}

    def of(name: str, forward: Callable[..., Any], *args: Any, sizes: Any = None) -> None:
        """A case of a module without parameters."""

        class Function(nn.Module):
            def forward(self, *given: Any) -> Any:
                return forward(*given)

        found[name] = lambda: (_named(nn, forward, len(args)), tuple(a() for a in args), sizes or {})

    X = lambda *s: lambda: x(*s)  # noqa: E731
    batch = _batch()
    of(
        "views",
        lambda a: (
            a.view(a.shape[0], 2, 3)
            .transpose(1, 2)
            .flatten(1)
            .unsqueeze(0)
            .squeeze(0)
            .expand(2, -1, -1)
            .permute(1, 0, 2)
        ),
        X(4, 6),
        sizes=batch,
    )
    of("slices", lambda a: torch.cat([a[:, 1:], a[:, :1], a[:, ::2]], 1) + a[..., -1, None], X(4, 6), sizes=batch)
    of(
        "masks",
        lambda a: torch.where(a > 0, a, -a).masked_fill(a < -0.5, 2.0).clamp(max=1.5) * torch.tril(torch.ones(6, 6))[2],
        X(4, 6),
        sizes=batch,
    )
    of(
        "reductions",
        lambda a: (
            a.sum(),
            a.mean(-1),
            a.amax(0),
            a.var(1),
            a.std(),
            a.argmax(1),
            a.norm(dim=1),
            a.logsumexp(1),
            a.cumsum(1),
            a.prod(1),
        ),
        X(4, 6),
        sizes=batch,
    )
    of(
        "sorting",
        lambda a: (a.sort(1).values, a.topk(2, 1).indices, a.max(1).values, a.flip(1), a.roll(1, 1)),
        X(4, 6),
        sizes=batch,
    )
    of(
        "gather_scatter",
        lambda a: (
            torch.zeros_like(a).scatter_add(1, a.argsort(1), a)
            + a.gather(1, a.argsort(1))
            + a.index_select(1, torch.arange(6))
        ),
        X(4, 6),
        sizes=batch,
    )
    of(
        "einsum",
        lambda a, b: torch.einsum("bij,bjk->bik", a, b) + (a @ b).relu() + torch.bmm(a, b),
        X(3, 2, 4),
        X(3, 4, 2),
        sizes=_batch(0, 1),
    )
    of(
        "arithmetic",
        lambda a: (
            (a * 2 - 1) / (a.abs() + 0.5)
            + a**2
            - a.exp().log1p()
            + 3
            - torch.sqrt(a * a + 1).reciprocal()
            + a.sin() * a.cos()
            + (1 - a).tanh()
        ),
        X(4, 6),
        sizes=batch,
    )
    of(
        "integers",
        lambda a: (a // 2 + a % 3, (a > 2) & (a < 8), a.float().round().long(), (a == 4).any(1), ~(a > 2)),
        lambda: ids(4, 6),
        sizes=batch,
    )
    of(
        "losses",
        lambda a, b: (
            F.cross_entropy(a, b),
            F.mse_loss(a, a * 2),
            F.nll_loss(F.log_softmax(a, 1), b),
            F.smooth_l1_loss(a, a + 1),
            F.binary_cross_entropy_with_logits(a, a.sigmoid()),
        ),
        X(4, 6),
        lambda: ids(4, top=6),
        sizes=_batch(0, 1),
    )
    of(
        "containers",
        lambda a: {"sum": a.sum(), "rest": [a + 1, (a * 2, {"deep": a - 1})], "ordered": OrderedDict(b=a, a=a * 3)},
        X(4, 6),
        sizes=batch,
    )
    of(
        "stacks",
        lambda a: (
            torch.stack([a, a * 2], 1),
            torch.cat([a, a], 0),
            *a.chunk(2, 1),
            *a.split([2, 4], 1),
            *a.unbind(1)[:2],
        ),
        X(4, 6),
        sizes=batch,
    )
    of(
        "numbers_of_sizes",
        lambda a: a.reshape(a.shape[0] * 2, 3) / a.shape[0] + torch.arange(a.size(0) * 2).unsqueeze(1),
        X(4, 6),
        sizes=batch,
    )
    of(
        "normalised",
        lambda a: (
            F.normalize(a, dim=1)
            + F.softmax(a, 1)
            + F.layer_norm(a, (6,))
            + F.rms_norm(a, (6,))
            + F.gelu(a, approximate="tanh")
        ),
        X(4, 6),
        sizes=batch,
    )
    of("written", lambda a: a.clone().add_(1).mul_(2).clamp_(min=0), X(4, 6), sizes=batch)
    of(
        "pads",
        lambda a: F.pad(a, (1, 2), value=0.5) + F.pad(a, (1, 2), mode="replicate").sum(),
        X(2, 3, 4),
        sizes=batch,
    )
    of("one_hot", lambda i: F.one_hot(i, 10).float().cumsum(1), lambda: ids(4, 6), sizes=batch)

    @case
    def counting() -> Case:
        class Counting(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("calls", torch.zeros(()))
                self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)

            def forward(self, a: Any) -> Any:
                self.calls.add_(1)
                return a * self.scale + self.calls

        return Counting(), (x(3, 4),), _batch()

    @case
    def pools_of_one_size() -> Case:
        def pool(a: Any) -> Any:
            y, at = F.max_pool2d(a, 2, return_indices=True)
            return F.adaptive_avg_pool2d(a, 1), F.adaptive_avg_pool2d(a, (None, 2)), F.max_unpool2d(y, at, 2)

        return _named(nn, pool, 1), (x(2, 3, 4, 4),), _batch()

    @case
    def shifts_and_products() -> Case:
        def both(a: Any, b: Any) -> Any:
            return a << 1, a >> 1, torch.tensordot(b, b.t(), 1), torch.tensordot(b, b, ([0], [0]))

        return _named(nn, both, 2), (ids(3), x(3, 4)), {}

    return found


def _named(nn: Any, forward: Callable[..., Any], count: int) -> Any:
    """A module that calls a function of so many arguments."""
    if count == 1:

        class One(nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, a: Any) -> Any:
                return forward(a)

        return One()

    class Two(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, a: Any, b: Any) -> Any:
            return forward(a, b)

    return Two()


def _Attention(nn: Any) -> Any:
    class Attention(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, a: Any) -> Any:
            return self.inner(a, a, a, need_weights=True)

    return Attention()
