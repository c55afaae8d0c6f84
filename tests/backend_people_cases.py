"""Programs in the style of libraries that people use with PyTorch, each a function of a device: test_backend_people.py.

    TABTORCH_DEVICE=cpu|webgpu python tests/backend_people_cases.py [NAME ...]

runs each on the CPU, on "webgpu", and (those that are `compiled`) as `torch.compile(backend="webgpu")` there, compares what they
return, and prints a line a case: its name, and what went wrong, as JSON. tests/backend_people runs the libraries themselves.
"""

from __future__ import annotations

import io
import json
import math
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

CASES: dict[str, tuple[Callable[..., Any], bool]] = {}
Wrap = Callable[[Any], Any]


def case(f: Callable[..., Any]) -> Callable[..., Any]:
    """A case: `f(device)`."""
    CASES[f.__name__] = f, False
    return f


def compiled(f: Callable[..., Any]) -> Callable[..., Any]:
    """A case that is compiled, too: `f(device, wrap)`, where `wrap` is for the model."""
    CASES[f.__name__] = f, True
    return f


def trained(model: nn.Module, batch: tuple[torch.Tensor, ...], device: str, wrap: Wrap, loss: Any) -> list[Any]:
    """The model's result, the losses of three steps of AdamW, and a gradient of the first."""
    model.to(device)
    batch = tuple(t.to(device) for t in batch)
    run = wrap(model)
    with torch.no_grad():
        found: list[Any] = [run(*batch)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(3):
        value = loss(run(*batch))
        optimizer.zero_grad()
        value.backward()
        if not step:
            found += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(value.detach())
    return found


# ---- language models, as in transformers


class RMSNorm(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.to(torch.float32)
        return self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotated(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)


class Experts(nn.Module):
    """A mixture: each token goes to two of four."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.gate = nn.Linear(n, 4, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(4, n, 2 * n) * 0.1), nn.Parameter(torch.randn(4, 2 * n, n) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        weights, chosen = self.gate(flat).softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        mask = F.one_hot(chosen, 4).permute(2, 1, 0)
        result = torch.zeros_like(flat)
        for k in range(4):
            place, token = torch.where(mask[k])
            y = F.silu(flat[token] @ self.up[k]) @ self.down[k]
            result.index_add_(0, token, y * weights[token, place, None])
        return result.reshape(x.shape)


class Block(nn.Module):
    """Rotary embedding, fewer keys than queries, a gated layer or a mixture, and a cache of keys and values."""

    def __init__(self, n: int, experts: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Linear(n, n), nn.Linear(n, n // 2), nn.Linear(n, n // 2), nn.Linear(n, n)
        self.first, self.second = RMSNorm(n), RMSNorm(n)
        self.gate, self.up, self.down = nn.Linear(n, 2 * n), nn.Linear(n, 2 * n), nn.Linear(2 * n, n)
        self.experts = Experts(n) if experts else None

    def forward(self, x: torch.Tensor, cos: Any, sin: Any, mask: Any, cache: Any, at: Any) -> torch.Tensor:
        b, t, n = x.shape
        y = self.first(x)
        q = self.q(y).view(b, t, 4, n // 4).transpose(1, 2)
        k, v = (m(y).view(b, t, 2, n // 4).transpose(1, 2) for m in (self.k, self.v))
        q, k = q * cos + rotated(q) * sin, k * cos + rotated(k) * sin
        if cache is not None:
            if cache["kind"] == "static":
                cache["k"].index_copy_(2, at, k)
                cache["v"][:, :, at] = v
                k, v = cache["k"], cache["v"]
            else:
                k = cache["k"] = k if cache["k"] is None else torch.cat([cache["k"], k], 2)
                v = cache["v"] = v if cache["v"] is None else torch.cat([cache["v"], v], 2)
        k, v = (z[:, :, None].expand(b, 2, 2, z.shape[2], n // 4).reshape(b, 4, z.shape[2], n // 4) for z in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, n))
        y = self.second(x)
        return x + (self.experts(y) if self.experts is not None else self.down(F.silu(self.gate(y)) * self.up(y)))


class Language(nn.Module):
    def __init__(self, experts: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32, padding_idx=0)
        self.blocks = nn.ModuleList(Block(32, experts) for _ in range(2))
        self.norm = RMSNorm(32)
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("frequencies", 1.0 / 10000 ** (torch.arange(0, 8, 2).float() / 8), persistent=False)

    def forward(self, ids: torch.Tensor, caches: Any = None, at: Any = None, total: int = 0) -> torch.Tensor:
        t = ids.shape[1]
        if at is None:
            at = torch.arange(t, device=ids.device)
        angles = at[:, None].float() * self.frequencies
        angles = torch.cat((angles, angles), -1)[None, None]
        total = total or t
        seen = torch.arange(total, device=ids.device)[None] <= at[:, None]
        lowest = torch.finfo(torch.float32).min
        mask = torch.full((t, total), lowest, device=ids.device).masked_fill(seen, 0.0)[None, None]
        x = self.embed(ids)
        for i, block in enumerate(self.blocks):
            x = block(x, angles.cos(), angles.sin(), mask, caches and caches[i], at)
        return self.head(self.norm(x))


def _ids(batch: int = 2) -> torch.Tensor:
    return torch.randint(1, 50, (batch, 7))


@compiled
def a_llama_trains(device: str, wrap: Wrap) -> Any:
    ids = _ids()
    return trained(
        Language(), (ids,), device, wrap, lambda y: F.cross_entropy(y[:, :-1].flatten(0, 1), ids[:, 1:].flatten().to(device))
    )  # fmt: skip


@case
def a_mixture_trains(device: str) -> Any:
    ids = _ids()
    return trained(Language(True), (ids,), device, lambda m: m, lambda y: y.log_softmax(-1)[..., 3].mean().neg())


def _generated(device: str, run: Any, model: Language, static: bool) -> torch.Tensor:
    ids = _ids().to(device)
    total = 7 + 8
    caches: list[dict[str, Any]] = [
        {"kind": "static", **{n: torch.zeros(2, 2, total, 8, device=device) for n in "kv"}}
        if static
        else {"kind": "growing", "k": None, "v": None}
        for _ in range(2)
    ]
    at = torch.arange(7, device=device)
    step = ids
    for _ in range(8):
        logits = run(step, caches, at, total if static else int(at[-1]) + 1)[:, -1]
        score = logits.gather(1, ids)  # a penalty of what was said already
        logits = logits.scatter(1, ids, torch.where(score < 0, score * 1.3, score / 1.3))
        step = logits.argmax(-1, keepdim=True)
        ids = torch.cat([ids, step], 1)
        at = at[-1:] + 1
    return ids


@case
def tokens_with_a_growing_cache(device: str) -> Any:
    model = Language().to(device)
    with torch.inference_mode():
        return _generated(device, model, model, False)


@compiled
def tokens_with_a_static_cache(device: str, wrap: Wrap) -> Any:
    model = Language().to(device)
    with torch.no_grad():
        return _generated(device, wrap(model), model, True)


@case
def beams(device: str) -> Any:
    """The bookkeeping of a beam search."""
    model = Language().to(device)
    ids = _ids(1).to(device).repeat(3, 1)
    scores = torch.tensor([0.0, -1e9, -1e9], device=device)
    with torch.no_grad():
        for _ in range(5):
            logits = model(ids)[:, -1].log_softmax(-1)
            best, places = (scores[:, None] + logits).view(-1).topk(3)
            beam = torch.div(places, 50, rounding_mode="floor")
            ids, scores = torch.cat([ids.index_select(0, beam), (places % 50)[:, None]], 1), best
    return ids, scores


@case
def the_nucleus(device: str) -> Any:
    """What top-k, top-p and min-p leave; a draw of it is one of those."""
    logits = torch.randn(3, 40).to(device) * 2
    logits = logits.masked_fill(logits < logits.topk(20)[0][..., -1, None], -math.inf)
    ordered, places = logits.sort(descending=False)
    away = ordered.softmax(-1).cumsum(-1) <= 0.1
    away[..., -1:] = 0
    logits = logits.masked_fill(away.scatter(1, places, away), -math.inf)
    p = logits.softmax(-1)
    p = torch.where(p < 0.01 * p.amax(-1, keepdim=True), 0, p)
    drawn = torch.multinomial(p, 1)
    assert (p.gather(1, drawn) > 0).all()
    return logits, p


@compiled
def relative_positions(device: str, wrap: Wrap) -> Any:
    """The buckets of T5, whose table is a parameter."""

    class Bias(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.q = nn.Embedding(16, 2), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            place = torch.arange(x.shape[1], device=x.device)
            apart = place[None] - place[:, None]
            bucket = (apart > 0).long() * 8
            apart = apart.abs()
            far = 4 + (torch.log(apart.float() / 4) / math.log(16 / 4) * 4).to(torch.long)
            bucket = bucket + torch.where(apart < 4, apart, torch.min(far, torch.full_like(far, 7)))
            q = self.q(x).unflatten(-1, (2, 4)).transpose(1, 2)
            scores = q @ q.mT + self.table(bucket).permute(2, 0, 1)[None]
            return (scores.softmax(-1) @ q).transpose(1, 2).flatten(2)

    return trained(Bias(), (torch.randn(2, 9, 8),), device, wrap, lambda y: y.pow(2).mean())


@compiled
def a_state_space(device: str, wrap: Wrap) -> Any:
    """A causal convolution and a scan, as Mamba's slow way."""

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(8, 8, 4, groups=8, padding=3)
            self.a, self.b = nn.Parameter(torch.log(torch.arange(1.0, 5).repeat(8, 1))), nn.Linear(8, 17)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            u = F.silu(self.conv(x.mT)[..., : x.shape[1]]).mT
            step, b, c = self.b(u).split([9, 4, 4], -1)
            step = F.softplus(step[..., 1:])
            keep = torch.exp(step[..., None] * -self.a.exp())
            add = step[..., None] * b[:, :, None] * u[..., None]
            state = torch.zeros_like(add[:, 0])
            said = []
            for t in range(x.shape[1]):
                state = keep[:, t] * state + add[:, t]
                said.append((state * c[:, t, None]).sum(-1))
            return torch.stack(said, 1) * F.silu(x)

    return trained(Mixer(), (torch.randn(2, 6, 8),), device, wrap, lambda y: y.pow(2).mean())


# ---- pictures, as in timm, torchvision and diffusers


class Windows(nn.Module):
    """Attention in shifted windows; squeeze and excitation; a depthwise convolution with a layer scale."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 2, 2)
        self.qkv, self.norm = nn.Linear(8, 24), nn.LayerNorm(8)
        self.deep, self.scale = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Parameter(torch.full((8,), 0.5))
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.bn, self.head = nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        b, c, h, w = x.shape
        y = torch.roll(self.norm(x.permute(0, 2, 3, 1)), (-2, -2), (1, 2))
        y = y.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = self.qkv(y).reshape(-1, 16, 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
        region = torch.zeros(h, w, device=x.device)
        places = ((slice(0, -4), slice(-4, -2)), (slice(-4, -2), slice(0, -4)), (slice(-2, None), slice(-2, None)))
        for n, (i, j) in enumerate(places):
            region[i, j] = n + 1
        region = region.view(h // 4, 4, w // 4, 4).permute(0, 2, 1, 3).reshape(-1, 16)
        mask = (region[:, None] != region[:, :, None]) * -100.0
        s = (q @ k.mT * (c // 2) ** -0.5).view(b, -1, 2, 16, 16) + mask[None, :, None]
        y = (s.view(-1, 2, 16, 16).softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, c)
        y = y.view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        x = x + torch.roll(y, (2, 2), (1, 2)).permute(0, 3, 1, 2)
        x = x + self.scale.view(1, -1, 1, 1) * F.gelu(self.bn(self.deep(x)))
        x = x * self.excite(F.relu(self.squeeze(x.mean((2, 3), keepdim=True)))).sigmoid()
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


@compiled
def a_windowed_network_trains(device: str, wrap: Wrap) -> Any:
    x, y = torch.randn(2, 3, 16, 16), torch.tensor([1, 3])
    return trained(Windows(), (x,), device, wrap, lambda p: F.cross_entropy(p, y.to(device), label_smoothing=0.1))


@case
def the_last_layout(device: str) -> Any:
    model = Windows().to(device=device, memory_format=torch.channels_last)
    x = torch.randn(2, 3, 16, 16).to(device).contiguous(memory_format=torch.channels_last)
    return model(x), model(x.half().float()), model.state_dict()["bn.running_mean"]


@case
def noise_is_taken_away(device: str) -> Any:
    """Schedulers keep their tables on the CPU, and index them with steps that lie there or on the device."""
    betas = torch.linspace(1e-4**0.5, 0.02**0.5, 20) ** 2
    products = torch.cumprod(1 - betas, 0)
    net = nn.Conv2d(3, 3, 3, padding=1).to(device)
    x = torch.randn(2, 3, 8, 8).to(device)
    steps = torch.tensor([3, 11]).to(device)
    table = products.to(device=device)[steps].flatten()
    while table.dim() < x.dim():
        table = table.unsqueeze(-1)
    noisy = table.sqrt() * x + (1 - table).sqrt() * 0.3
    found = [noisy]
    with torch.no_grad():
        for t in torch.arange(19, 0, -6):
            here, before = products[t], products[max(int(t) - 6, 0)]
            noise = net(x)
            clean = ((x - (1 - here) ** 0.5 * noise) / here**0.5).clamp(-1, 1)
            x = before**0.5 * clean + (1 - before) ** 0.5 * noise
    return [*found, x]


@case
def boxes(device: str) -> Any:
    a, b = (torch.rand(5, 4).sort(-1)[0].to(device)[:, [0, 1, 2, 3]] for _ in range(2))
    low, high = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    inner = (high - low).clamp(min=0).prod(2)
    area = [(x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b)]
    iou = inner / (area[0][:, None] + area[1] - inner)
    best, match = iou.max(1)
    match[best < 0.3] = -1
    kept = torch.where(match >= 0)[0]
    centers = torch.stack([(a[:, 0] + a[:, 2]) / 2, (a[:, 1] + a[:, 3]) / 2], -1)
    return iou, match, kept, centers[kept], torch.cdist(centers, centers)


# ---- other libraries


@case
def messages_on_a_graph(device: str) -> Any:
    """As torch_geometric: sums, maxima and softmaxes over the edges of a node."""
    x, e = (
        torch.randn(6, 4).to(device).requires_grad_(),
        torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]]).to(device),
    )
    source, target = e
    degree = torch.zeros(6, device=device).scatter_add_(0, target, torch.ones(7, device=device))
    sent = x.index_select(0, source) / degree[target, None]
    summed = torch.zeros_like(x).index_add(0, target, sent)
    most = x.new_zeros(6, 4).scatter_reduce(0, target[:, None].expand(-1, 4), sent, "amax", include_self=False)
    score = (x[source] * x[target]).sum(-1)
    top = score.new_full((6,), -math.inf).scatter_reduce(0, target, score.detach(), "amax")
    weight = (score - top[target]).exp()
    weight = weight / weight.new_zeros(6).index_add(0, target, weight)[target]
    dense = torch.zeros(6, 6, device=device).index_put((source, target), weight, accumulate=True)
    (summed.sum() * 2 + most.pow(2).sum() + (dense @ x).pow(2).sum()).backward()
    return summed, most, dense, x.grad, torch.unique(e, return_counts=True), e[:, e[0] < e[1]]


@case
def a_gaussian_process(device: str) -> Any:
    x = torch.linspace(0, 1, 10).to(device)
    y, length, noise = (
        torch.sin(6 * x),
        torch.zeros((), device=device).requires_grad_(),
        torch.zeros((), device=device).requires_grad_(),
    )
    new = torch.linspace(0, 1, 4).to(device)

    def kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.exp(-0.5 * (a[:, None] - b).pow(2) / F.softplus(length) ** 2)

    covariance = torch.distributions.MultivariateNormal(
        torch.zeros(10, device=device), kernel(x, x) + torch.eye(10, device=device) * F.softplus(noise)
    )
    loss = -covariance.log_prob(y)
    loss.backward()
    factor = covariance.scale_tril.detach()
    mean = kernel(new, x) @ torch.cholesky_solve(y[:, None], factor)
    spread = torch.linalg.solve_triangular(factor, kernel(x, new), upper=False).pow(2).sum(0)
    return loss, length.grad, noise.grad, mean, spread


@case
def metrics(device: str) -> Any:
    p, y = torch.rand(30, 3).to(device), torch.randint(0, 3, (30,)).to(device)
    guess = p.argmax(1)
    confusion = torch.bincount(y * 3 + guess, minlength=9).reshape(3, 3)
    order = p[:, 0].argsort(descending=True, stable=True)
    hits = (y == 0)[order]
    rate = hits.cumsum(0) / hits.sum(), (~hits).cumsum(0) / (~hits).sum()
    rank = p[:, 1].argsort().argsort().float()
    bins = torch.bucketize(p[:, 0], torch.linspace(0, 1, 6).to(device)[1:-1])
    count = torch.zeros(5, device=device).scatter_add(0, bins, torch.ones_like(p[:, 0]))
    return (
        confusion,
        torch.trapz(rate[0], rate[1]),
        torch.corrcoef(torch.stack([rank, p[:, 1]])),
        count,
        p.quantile(0.3),
    )


@case
def a_low_rank_adapter(device: str) -> Any:
    """Of a frozen layer, merged at the end; and an average of weights."""
    base = nn.Linear(8, 8).requires_grad_(False).to(device)
    a, b = nn.Parameter(torch.randn(2, 8).to(device)), nn.Parameter(torch.zeros(8, 2, device=device))
    average = torch.optim.swa_utils.AveragedModel(base, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    x = torch.randn(4, 8).to(device)
    optimizer = torch.optim.AdamW([a, b], lr=1e-1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=4)
    for _ in range(3):
        (base(x) + x @ a.T @ b.T - 1).pow(2).mean().backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    merged = base(x) + x @ a.T @ b.T
    base.weight.data += b @ a
    average.update_parameters(base)
    assert torch.allclose(base(x), merged, atol=1e-5)
    return merged, average.module.weight


@case
def an_agent(device: str) -> Any:
    """Advantages backward in time, a clipped objective, and a target that follows."""
    policy, follower = nn.Linear(4, 2).to(device), nn.Linear(4, 2).to(device)
    states, actions = torch.randn(6, 4).to(device), torch.randint(0, 2, (6,)).to(device)
    said = torch.distributions.Categorical(logits=policy(states))
    advantages, last = torch.zeros(6, device=device), 0
    for t in reversed(range(6)):
        last = 1.0 + 0.9 * last
        advantages[t] = last
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = torch.exp(said.log_prob(actions) - said.log_prob(actions).detach() * 0.5)
    loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean() - 0.01 * said.entropy().mean()
    loss.backward()
    with torch.no_grad():
        for p, q in zip(policy.parameters(), follower.parameters()):
            q.mul_(0.9).add_(p, alpha=0.1)
    return loss, policy.weight.grad, follower.weight


@case
def files_of_tensors(device: str) -> Any:
    import safetensors.torch

    model = Language()
    here = Language().to(device)
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        safetensors.torch.save_model(model.to(device), file.name)
        missing, unexpected = safetensors.torch.load_model(here, file.name)
    assert not missing and not unexpected and here.head.weight is here.embed.weight
    kept = io.BytesIO()
    torch.save(model.state_dict(), kept)
    kept.seek(0)
    with torch.device("meta"):
        empty = Language()
    empty.load_state_dict(torch.load(kept, map_location=device), assign=True)
    assert empty.head.weight.device.type == torch.device(device).type
    with torch.device(device):
        made = Language()
    assert made.frequencies.device.type == torch.device(device).type
    return here.state_dict()["blocks.0.q.weight"], empty.blocks[1].o.weight


@case
def named_dimensions(device: str) -> Any:
    from einops import einsum, rearrange, reduce, repeat

    x = torch.randn(2, 3, 4, 4).to(device)
    y = rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2)
    return (
        y,
        reduce(x, "b c h w -> b c", "max"),
        repeat(x, "b c h w -> b c (h 2) w"),
        einsum(y, y, "b i d, b j d -> b i j"),
    )


# ---- running them


def _leaves(x: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]


def _compare(want: Any, got: Any, how: str) -> None:
    expected, found = _leaves(want), _leaves(got)
    assert len(expected) == len(found), how
    for i, (a, b) in enumerate(zip(expected, found)):
        assert b.device.type == "webgpu", f"{how}: result {i} is on {b.device}"
        torch.testing.assert_close(
            b.detach().cpu(), a.detach(), rtol=1e-4, atol=1e-4, msg=lambda m, i=i: f"{how}: result {i}: {m}"
        )


def check(name: str) -> None:
    """Raises if a case is not on "webgpu" what it is on the CPU."""
    function, also = CASES[name]

    def run(device: str, wrap: Wrap) -> Any:
        torch.manual_seed(0)
        return function(device, wrap) if also else function(device)

    want = run("cpu", lambda m: m)
    _compare(want, run("webgpu", lambda m: m), "eager")
    if also:
        _compare(want, run("webgpu", lambda m: torch.compile(m, backend="webgpu")), "compiled")


def main() -> None:
    import tabtorch.backend
    import tabtorch.backend.dynamo  # noqa: F401

    torch.set_num_threads(1)
    for name in sys.argv[1:] or CASES:
        try:
            check(name)
            answer = ""
        except Exception:
            answer = traceback.format_exc()
        print(json.dumps([name, answer]), flush=True)


if __name__ == "__main__":
    main()
