"""Random training programs as Python text: a small model, an optimizer, and what people do around a step."""

from __future__ import annotations

from .draft import Draft, indented

#: name -> (attributes of the network, lines of its forward, in which h is (B, 6))
LAYERS: dict[str, tuple[str, str]] = {
    "linear": ("self.{n} = nn.Linear(6, 6)", "h = self.{n}(h)"),
    "linear without bias": ("self.{n} = nn.Linear(6, 6, bias=False)", "h = self.{n}(h)"),
    "batch norm": ("self.{n} = nn.BatchNorm1d(6)", "h = self.{n}(h)"),
    "batch norm by averages": ("self.{n} = nn.BatchNorm1d(6, momentum=None)", "h = self.{n}(h)"),
    "layer norm": ("self.{n} = nn.LayerNorm(6)", "h = self.{n}(h)"),
    "rms norm": ("self.{n} = nn.RMSNorm(6)", "h = self.{n}(h)"),
    "group norm": ("self.{n} = nn.GroupNorm(2, 6)", "h = self.{n}(h)"),
    "instance norm": (
        "self.{n} = nn.InstanceNorm1d(2, affine=True, track_running_stats=True)",
        "h = self.{n}(h.view(-1, 2, 3)).flatten(1)",
    ),
    "relu": ("", "h = h.relu()"),
    "tanh": ("", "h = torch.tanh(h)"),
    "gelu": ("self.{n} = nn.GELU()", "h = self.{n}(h)"),
    "silu": ("", "h = F.silu(h)"),
    "softmax": ("", "h = h.softmax(-1)"),
    "prelu": ("self.{n} = nn.PReLU()", "h = self.{n}(h)"),
    "relu in place": ("self.{n} = nn.ReLU(inplace=True)", "h = self.{n}(h * 1.5)"),
    "dropout": ("self.{n} = nn.Dropout(0.3)", "h = self.{n}(h)"),
    "residual": ("self.{n} = nn.Linear(6, 6)", "h = h + self.{n}(h).tanh()"),
    "sequential": ("self.{n} = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 6))", "h = self.{n}(h)"),
    "list": (
        "self.{n} = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])",
        "for layer in self.{n}:\n    h = layer(h).tanh()",
    ),
    "parameter": ("self.{n} = nn.Parameter(torch.full((6,), 0.5))", "h = h * self.{n}"),
    "parameters in a list": (
        "self.{n} = nn.ParameterList([torch.full((6,), 0.5), torch.full((6,), 0.1)])",
        "h = h * self.{n}[0] + self.{n}[1]",
    ),
    "weight tied": ("self.{n} = nn.Linear(6, 6)", "h = F.linear(self.{n}(h), self.{n}.weight.t())"),
    "same weight twice": (
        "self.{n} = nn.Linear(6, 6)\nself.{n}b = nn.Linear(6, 6)\nself.{n}b.weight = self.{n}.weight",
        "h = self.{n}b(self.{n}(h).tanh())",
    ),
    "conv1d": (
        "self.{n} = nn.Conv1d(1, 2, 3, padding=1)",
        "h = self.{n}(h.unsqueeze(1)).mean(1)",
    ),
    "conv2d": (
        "self.{n} = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU())",
        "h = self.{n}(h.view(-1, 1, 2, 3)).sum(1).flatten(1)",
    ),
    "pool": ("self.{n} = nn.MaxPool1d(2)", "h = self.{n}(h.unsqueeze(1)).squeeze(1).repeat(1, 2)"),
    "gru": (
        "self.{n} = nn.GRU(2, 3, batch_first=True)",
        "h = self.{n}(h.view(-1, 3, 2))[0][:, :2].reshape(-1, 6)",
    ),
    "lstm": (
        "self.{n} = nn.LSTM(3, 6, batch_first=True)",
        "h = self.{n}(h.view(-1, 2, 3))[1][0][0]",
    ),
    "lstm cell": (
        "self.{n} = nn.LSTMCell(3, 6)",
        "{n} = None\nfor t in range(2):\n    {n} = self.{n}(h.view(-1, 2, 3)[:, t], {n})\nh = {n}[0]",
    ),
    "attention": (
        "self.{n} = nn.MultiheadAttention(6, 2, batch_first=True)",
        "h = h + self.{n}(h[None], h[None], h[None])[0][0]",
    ),
    "sdpa": (
        "self.{n} = nn.Linear(2, 6)",
        "q, k, v = self.{n}(h.view(-1, 3, 2)).chunk(3, -1)\n"
        "h = F.scaled_dot_product_attention(q, k, v, is_causal=True).flatten(1)",
    ),
    "sdpa with a learnt bias": (
        "self.{n} = nn.Linear(2, 6)\nself.{n}_bias = nn.Parameter(torch.zeros(3, 1))",
        "q, k, v = self.{n}(h.view(-1, 3, 2)).chunk(3, -1)\n"
        "h = F.scaled_dot_product_attention(q, k, v, self.{n}_bias * k[..., :1].mT).flatten(1)",
    ),
    "attention by hand": (
        "self.{n} = nn.Linear(6, 18)",
        "q, k, v = self.{n}(h).split(6, -1)\nh = ((q @ k.t()) / 2.4).softmax(-1) @ v",
    ),
    "transformer": (
        "self.{n} = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)",
        "h = self.{n}(h[:, None])[:, 0]",
    ),
    "embedding": ("self.{n} = nn.Embedding(5, 6)", "h = h + self.{n}((h[:, 0] * 3).long().clamp(0, 4))"),
    "embedding of a table": (
        "self.{n} = nn.Embedding(4, 6, padding_idx=0)",
        "h = h * self.{n}(torch.arange(h.shape[0]) % 4)",
    ),
    "bilinear": ("self.{n} = nn.Bilinear(6, 6, 6)", "h = self.{n}(h, h.flip(1))"),
    "weight norm": ("self.{n} = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))", "h = self.{n}(h)"),
    "spectral norm": ("self.{n} = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))", "h = self.{n}(h)"),
    "einsum": ("self.{n} = nn.Parameter(torch.eye(6) * 0.5)", 'h = torch.einsum("bi,ij->bj", h, self.{n})'),
    "slices written": ("", "h = h.clone()\nh[:, :2] = h[:, 2:4] * 2\nh[:, 5].mul_(0.5)"),
    "in place": ("self.{n} = nn.Parameter(torch.ones(6))", "h = h * 2\nh.add_(self.{n}).clamp_(max=4)"),
    "chunks": ("", "a, b = h.chunk(2, 1)\nh = torch.cat([a * b.sigmoid(), a + b], 1)"),
    "where": ("", "h = torch.where(h > 0, h, h * 0.1)"),
    "sort": ("", "h = h.sort(1)[0] + h.cumsum(1)"),
    "gather": ("", "h = h.gather(1, h.argsort(1)) + h[:, [0, 0, 1, 1, 2, 2]]"),
    "norm": ("", "h = F.normalize(h, dim=1)"),
    "checkpoint": ("self.{n} = nn.Linear(6, 6)", "h = checkpoint(self.{n}, h, use_reentrant=False).tanh()"),
    "reentrant checkpoint": (
        "self.{n} = nn.Linear(6, 6)",
        "h = checkpoint(self.{n}, h, use_reentrant=True).tanh() if h.requires_grad else self.{n}(h)",
    ),
    "dropout in a checkpoint": (
        "self.{n} = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5))",
        "h = checkpoint(self.{n}, h, use_reentrant=False)",
    ),
    "autocast": (
        "self.{n} = nn.Linear(6, 6)",
        "with torch.autocast(h.device.type, torch.bfloat16):\n    h = self.{n}(h)\nh = h.float()",
    ),
    "custom function": ("", "h = Twice.apply(h)"),
    "no_grad inside": ("", "with torch.no_grad():\n    {n} = h.mean(0)\nh = h - {n}"),
    "detach": ("", "h = h + h.detach() * 0.5"),
    "buffer used": ('self.register_buffer("{n}", torch.full((6,), 0.5))', "h = h * self.{n}"),
    "buffer written": (
        'self.register_buffer("{n}", torch.zeros(6))',
        "self.{n}.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)\nh = h - self.{n}",
    ),
    "buffer replaced": (
        'self.register_buffer("{n}", torch.zeros(6))',
        "self.{n} = self.{n} * 0.9 + h.detach().mean(0) * 0.1\nh = h - self.{n}",
    ),
    "buffer copied to": (
        'self.register_buffer("{n}", torch.zeros(6))',
        "with torch.no_grad():\n    self.{n}.copy_(h.mean(0))\nh = h + self.{n}",
    ),
    "ring buffer": (
        'self.register_buffer("{n}", torch.zeros(3, 6))\nself.register_buffer("{n}at", torch.zeros((), dtype=torch.long))',
        "self.{n}[self.{n}at % 3] = h.detach()[0]\nself.{n}at += 1\nh = h + self.{n}.mean(0)",
    ),
    "attribute set": ("self.{n} = None", "self.{n} = h"),
    "detached attribute set": ("self.{n} = None", "self.{n} = h.detach()"),
    "attribute read": ("self.{n} = torch.zeros(6)", "h = h + self.{n}\nself.{n} = h.detach().mean(0) * 0.1"),
    "counter": ("self.{n} = 0", "self.{n} += 1\nh = h * (1 + self.{n} % 2)"),
    "list appended": ("self.{n} = []", "self.{n}.append(h.detach().mean())"),
    "shape asked": ("", "h = h * h.shape[0] if h.size(0) > 2 else h + 1"),
    "training asked": ("", "h = h * 2 if self.training else h"),
    "view kept": ("self.{n} = None", "self.{n} = h[:, 1:3]"),
    "random noise": ("", "h = h + torch.randn(6) * 0.1 if self.training else h"),
    "value read": ("", "h = h * 2 if h.sum() > 0 else h"),
}

#: name -> expression, with `params`
OPTIMIZERS: dict[str, list[str]] = {
    "SGD": [
        "lr=0.1",
        "lr=0.1, momentum=0.9",
        "lr=0.05, momentum=0.8, nesterov=True",
        "lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01",
        "lr=0.1, momentum=0.5, maximize=True",
    ],
    "Adam": [
        "lr=0.01",
        "lr=0.01, amsgrad=True",
        "lr=0.01, weight_decay=0.1, betas=(0.8, 0.95)",
        "lr=0.01, maximize=True",
    ],
    "AdamW": ["lr=0.01", "lr=0.01, amsgrad=True, weight_decay=0.1", "lr=0.01, fused=True"],
    "Adadelta": ["lr=0.5", "lr=0.5, weight_decay=0.1"],
    "Adafactor": ["lr=0.05", "lr=0.05, weight_decay=0.1"],
    "Adagrad": ["lr=0.05", "lr=0.05, lr_decay=0.1, initial_accumulator_value=0.1"],
    "Adamax": ["lr=0.01"],
    "ASGD": ["lr=0.05", "lr=0.05, t0=2, lambd=0.01"],
    "NAdam": ["lr=0.01", "lr=0.01, decoupled_weight_decay=True, weight_decay=0.1"],
    "RAdam": ["lr=0.01", "lr=0.1, betas=(0.5, 0.6)"],
    "RMSprop": ["lr=0.01", "lr=0.01, momentum=0.9", "lr=0.01, centered=True, momentum=0.5"],
    "Rprop": ["lr=0.01"],
    "LBFGS": ["lr=0.1, max_iter=2", "lr=0.1, max_iter=3, history_size=2, line_search_fn='strong_wolfe'"],
    "Muon": ["lr=0.02"],
    "SparseAdam": ["lr=0.05"],
}

SCHEDULERS = [
    "StepLR({o}, 2, gamma=0.5)",
    "ExponentialLR({o}, 0.8)",
    "CosineAnnealingLR({o}, 4)",
    "LambdaLR({o}, lambda epoch: 1 / (1 + epoch))",
    "MultiplicativeLR({o}, lambda epoch: 0.9)",
    "LinearLR({o}, 0.1, total_iters=3)",
    "ConstantLR({o}, 0.5, total_iters=2)",
    "PolynomialLR({o}, 6)",
    "MultiStepLR({o}, [1, 3], gamma=0.5)",
    "OneCycleLR({o}, max_lr=0.1, total_steps=40, cycle_momentum=False)",
    "CosineAnnealingWarmRestarts({o}, 3)",
    "CyclicLR({o}, 0.01, 0.1, step_size_up=2, cycle_momentum=False)",
    "ReduceLROnPlateau({o}, patience=0)",
]

LOSSES = [
    "F.mse_loss(out, y)",
    "F.smooth_l1_loss(out, y)",
    "(out - y).pow(2).mean()",
    "F.cross_entropy(out, labels)",
    "F.nll_loss(out.log_softmax(-1), labels)",
    "F.binary_cross_entropy_with_logits(out, y.sigmoid())",
    "(out * y).sum() * 0.1",
    "out.square().mean()",
    "F.huber_loss(out, y, reduction='sum')",
    "F.cross_entropy(out, labels, label_smoothing=0.1, weight=torch.arange(1.0, 7.0))",
]

#: what the caller keeps of each step
KEPT = [
    "kept.append([p.grad for p in net.parameters()])",
    "kept.append(first.grad)",
    "kept.append(first.grad[:1] if first.grad is not None else None)",
    "kept.append(None if first.grad is None else first.grad.detach())",
    "kept.append(None if first.grad is None else first.grad.clone())",
    "kept.append(first.grad.view(-1) if i % 2 and first.grad is not None else None)",
    "kept.append(first.detach())",
    "kept.append(first)",
    "kept.append(first.data)",
    "kept.append(first.detach().clone())",
    "kept.append([p.detach().clone() for p in net.parameters()])",
    "kept.append(net.state_dict())",
    "kept.append({k: v.clone() for k, v in net.state_dict().items()})",
    "kept.append(copy.deepcopy(net.state_dict()))",
    "kept.append(result)",
    "kept.append(loss)",
    "kept.append(loss.detach())",
    "kept.append(list(net.buffers()))",
    "kept.append(optimizer.state_dict()['state'])",
    "kept.append(optimizer.state_dict())",
    "kept.append(copy.deepcopy(optimizer.state_dict()))",
    "kept.append([v for s in optimizer.state.values() for v in s.values()])",
    "kept.append([v.clone() for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)])",
    "kept.append([v.detach() for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)])",
    "kept.append((x, y))",
    "kept.append(first.grad is last_grad)\nlast_grad = first.grad",
    "kept.append(copy.deepcopy(net))",
    "kept.append(getattr(net, 'last', None))",
]

#: what the caller changes between two steps
CHANGES = [
    "with torch.no_grad():\n    first.mul_(0.9)",
    "first.data = first.data * 0.9",
    "first.data.add_(0.01)",
    "if first.grad is not None:\n    first.grad.zero_()",
    "if first.grad is not None:\n    first.grad = first.grad * 0.5",
    "if first.grad is not None:\n    first.grad.mul_(0.5)",
    "first.grad = None",
    "first.grad = torch.ones_like(first)",
    "for p in net.parameters():\n    p.grad = None",
    "for g in optimizer.param_groups:\n    g['lr'] *= 0.9",
    "net.load_state_dict({k: v.clone() for k, v in net.state_dict().items()})",
    "optimizer.load_state_dict(optimizer.state_dict())",
    "optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))",
    "if i == 3:\n    optimizer.state.clear()",
    "for s in optimizer.state.values():\n    for v in s.values():\n        if isinstance(v, torch.Tensor) and v.dim():\n            v.mul_(0.5)",  # noqa: E501
    "if i == 3:\n    for s in optimizer.state.values():\n        for v in s.values():\n            if isinstance(v, torch.Tensor) and v.dim():\n                v[0] = 0.25",  # noqa: E501
    "if i == 4:\n    first.requires_grad_(False)",
    "if i in (2, 4):\n    first.requires_grad_(i == 4)",
    "net.train(i % 3 != 1)",
    "net.eval() if i == 3 else net.train()",
    "torch.manual_seed(i)",
    "net.zero_grad(set_to_none=False)",
    "optimizer.zero_grad(set_to_none=i % 2 == 0)",
    "x.add_(1)",
    "if i == 3:\n    net.extra = nn.Linear(6, 6)\n    optimizer.add_param_group({'params': list(net.extra.parameters())})",
    "handle = first.register_hook(lambda g: g * 0.5) if i == 2 else handle.remove() if i == 4 else None if i < 2 else handle",
    "if i == 2:\n    first.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum()))",
    "if kept and isinstance(kept[-1], torch.Tensor) and not kept[-1].requires_grad and kept[-1].dtype is torch.float32:\n    kept[-1].add_(1)",  # noqa: E501
    "with torch.no_grad():\n    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(net.parameters()) * 0.9, net.parameters())",
    "result = loss = None",
    "kept.clear()",
    "gc.collect()",
    "with torch.no_grad():\n    for b in net.buffers():\n        if b.is_floating_point():\n            b.mul_(0.5)",
    "if i == 3:\n    optimizer.param_groups[0]['weight_decay'] = 0.2",
    "torch.rand(1)",
]


def _network(d: Draft) -> None:
    names = d.choices("layers", list(LAYERS), 2 + d.roll("depth", 4))
    init, forward = ["self.first = nn.Linear(6, 6)"], []
    at = d.roll("where the first layer is", 2)
    if at == 0:
        forward.append("h = self.first(h)")
    for k, name in enumerate(names):
        if not d.on(f"layer {k}: {name}"):
            continue
        own, use = (text.replace("{n}", f"l{k}") for text in LAYERS[name])
        if own:
            init.append(own)
        forward.append(use)
    if at:
        forward.append("h = self.first(h)")
    if d.maybe("last output kept by the module", 0.15):
        init.append("self.last = None")
        forward.append(
            "self.last = " + d.choice("how it is kept", ["h", "h.detach()", "h.mean()", "h.sum().item()", "h[0]"])
        )
    returned = d.choice("forward returns", ["h", "h", "h", "h, h.mean()", "{'out': h, 'norm': h.norm()}", "h, x"])
    d.picked = {"h": "out = net({x})", "h, h.mean()": "out, mean = net({x})"}.get(
        returned, "out = net({x})['out']" if "{" in returned else "out, same = net({x})"
    )
    d.add("top", "class Net(nn.Module):")
    d.add("top", "    def __init__(self):\n        super().__init__()\n" + indented("\n".join(init), 8))
    d.add(
        "top",
        "    def forward(self, x):\n        h = x\n" + indented("\n".join(forward), 8) + f"\n        return {returned}",
    )
    d.add("top", "net = Net()")
    d.add("top", "first = net.first.weight")


def _optimizer(d: Draft) -> str:
    name = d.choice("optimizer", [*OPTIMIZERS, *list(OPTIMIZERS)[:-1], "SGD", "Adam", "AdamW"])
    settings = d.choice("settings", OPTIMIZERS[name])
    if not d.on("optimizer " + name):
        name, settings = "SGD", "lr=0.1"
    elif not d.on("settings of it"):
        settings = OPTIMIZERS[name][0]
    params = "net.parameters()"
    if name == "Muon":
        params = "[p for p in net.parameters() if p.dim() == 2]"
    elif name == "SparseAdam":
        d.add("top", "table = nn.Embedding(5, 6, sparse=True)")
        params = "table.parameters()"
    elif name != "LBFGS" and d.maybe("two groups", 0.25):
        params = (
            "[{'params': [p for p in net.parameters() if p.dim() > 1], 'lr': 0.03}, "
            "{'params': [p for p in net.parameters() if p.dim() < 2]}]"
        )
    elif name != "LBFGS" and d.maybe("named parameters", 0.1):
        params = "net.named_parameters()"
    d.add("top", f"optimizer = torch.optim.{name}({params}, {settings})")
    return name


def _around(d: Draft) -> None:
    """Schedulers, averages, hooks, scaling."""
    if d.maybe("scheduler", 0.35):
        scheduler = d.choice("which scheduler", SCHEDULERS).replace("{o}", "optimizer")
        d.add("top", f"scheduler = torch.optim.lr_scheduler.{scheduler}")
        line = "scheduler.step(1.0)" if "Plateau" in scheduler else "scheduler.step()"
        d.add(d.choice("where it steps", ["after", "after", "after", "end"]), line)
    if d.maybe("average", 0.2):
        how = d.choice(
            "which average",
            [
                "AveragedModel(net)",
                "AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))",
                "AveragedModel(net, avg_fn=lambda a, p, n: a * 0.9 + p * 0.1)",
                "AveragedModel(net, use_buffers=True)",
            ],
        )
        d.add("top", f"average = {how}")
        d.add(d.choice("where it averages", ["after", "end"]), "average.update_parameters(net)")
    if d.maybe("average by hand", 0.2):
        d.add("top", "shadow = [p.detach().clone() for p in net.parameters()]")
        line = d.choice(
            "how it averages",
            [
                "with torch.no_grad():\n    for s, p in zip(shadow, net.parameters()):\n        s.lerp_(p, 0.1)",
                "with torch.no_grad():\n    for s, p in zip(shadow, net.parameters()):\n        s.mul_(0.9).add_(p, alpha=0.1)",
                "shadow = [s * 0.9 + p.detach() * 0.1 for s, p in zip(shadow, net.parameters())]",
                "torch._foreach_lerp_(shadow, [p.detach() for p in net.parameters()], 0.1)",
                "for s, p in zip(shadow, net.parameters()):\n    s.copy_(p.detach())",
            ],
        )
        inside = "shadow =" not in line and d.roll("the average inside the step", 2)
        d.add("end" if inside else "after", line)
    if d.maybe("hooks", 0.25):
        d.add(
            "top",
            d.choice(
                "which hook",
                [
                    "net.first.register_forward_hook(lambda m, a, out: out * 0.9)",
                    "net.first.register_forward_hook(lambda m, a, out: seen.append(out.detach().mean()))",
                    "net.first.register_forward_pre_hook(lambda m, a: (a[0] * 1.1,))",
                    "net.first.register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,) if gi[0] is not None else None)",
                    "first.register_hook(lambda g: g * 0.5)",
                    "first.register_hook(lambda g: seen.append(g))",
                    "first.register_post_accumulate_grad_hook(lambda p: p.grad.clamp_(-0.01, 0.01))",
                    "first.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))",
                    "optimizer.register_step_post_hook(lambda o, a, k: seen.append(o.param_groups[0]['lr']))",
                    "optimizer.register_step_pre_hook(lambda o, a, k: None)",
                    "for p in net.parameters():\n    p.register_hook(lambda g: g.clamp(-0.05, 0.05))",
                ],
            ),
        )


def _step(d: Draft, name: str) -> None:
    """The step, in one function or in pieces, of which some are compiled."""
    zero = d.choice(
        "zero_grad",
        ["optimizer.zero_grad()"] * 3
        + [
            "optimizer.zero_grad(set_to_none=False)",
            "net.zero_grad()",
            "for p in net.parameters():\n    p.grad = None",
            "",
        ],
    )
    where_zero = d.choice("where zero_grad is", ["begin", "begin", "middle", "end", "after", "before"])
    loss = d.choice("loss", LOSSES)
    backward = d.choice(
        "backward",
        ["loss.backward()"] * 4
        + [
            "loss.backward(retain_graph=True)\nloss.backward()",
            "loss.backward()\nF.mse_loss(first @ first, first * 2).backward()",
            "for p, g in zip(net.parameters(), torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)):\n    p.grad = g",
            "(loss / 2).backward()",
            "for part, other in zip(out.chunk(2), y.chunk(2)):\n    F.mse_loss(part, other).backward(retain_graph=True)",
            "torch.autograd.backward([loss, out.sum() * 0.1])",
            "loss.backward(inputs=list(net.parameters()))",
            "out.retain_grad()\nloss.backward()\nseen.append(out.grad)",
            "penalty = sum((p ** 2).sum() for p in net.parameters())\n(loss + 0.01 * penalty).backward()",
            "for part in (x[:2], x[2:]):\n    {net(part)}.square().mean().backward()",
            "g = torch.autograd.grad(loss, first, create_graph=True, allow_unused=True)[0]\n"
            "(loss + (g.square().sum() if g is not None else 0)).backward()",
        ],
    )
    backward = backward.replace("{net(part)}", d.picked.replace("{x}", "part").partition("= ")[2].strip())
    if "part" in backward and "out, " in d.picked:
        backward = backward.replace("net(part).square", "net(part)[0].square")
    clip = d.choice(
        "clipping",
        [""] * 3
        + [
            "nn.utils.clip_grad_norm_(net.parameters(), 0.1)",
            "norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)",
            "nn.utils.clip_grad_value_(net.parameters(), 0.01)",
            "nn.utils.clip_grad_norm_(net.parameters(), 0.5, norm_type=1.0)",
            "nn.utils.clip_grad_norm_([first], 0.01)",
            "for p in net.parameters():\n    if p.grad is not None:\n        p.grad.mul_(0.5)",
            "for p in net.parameters():\n    if p.grad is not None:\n        p.grad.add_(torch.randn_like(p.grad) * 0.01)",
        ],
    )
    if not d.on("clipping " + clip):
        clip = ""
    if not d.on("backward " + backward):
        backward = "loss.backward()"
    if not d.on("zero_grad " + zero + where_zero):
        zero, where_zero = "optimizer.zero_grad()", "begin"
    if not d.on("loss " + loss):
        loss = "out.square().mean()"
    forward = d.picked.replace("{x}", "x") + f"\nloss = {loss}"
    if name == "SparseAdam":
        forward += "\nloss = loss + table(labels % 5).square().mean()"
    if name == "LBFGS":
        backward = backward.replace("create_graph=True, ", "retain_graph=True, ")
        inner = (
            f"optimizer.zero_grad()\n{forward}\n{backward.replace('loss.backward(retain_graph=True)', '')}\nreturn loss"
        )
        body = "def closure():\n" + indented(inner, 4) + "\nloss = optimizer.step(closure)\nout = None"
        pieces = {"whole": body}
    else:
        step = "optimizer.step()"
        if d.maybe("updated by hand", 0.12):
            step = "with torch.no_grad():\n    for p in net.parameters():\n        if p.grad is not None:\n" + indented(
                d.choice(
                    "how by hand",
                    [
                        "p -= 0.1 * p.grad",
                        "p.sub_(p.grad, alpha=0.1)",
                        "p.add_(p.grad, alpha=-0.1)\np.grad.zero_()",
                        "p.data -= 0.1 * p.grad.data",
                        "p.copy_(p - 0.1 * p.grad)\np.grad = None",
                        "p.data = p.data - 0.1 * p.grad",
                    ],
                ),
                12,
            )
        elif d.maybe("a second optimizer", 0.08):
            d.add("top", "second = torch.optim.SGD(net.first.parameters(), lr=0.01, momentum=0.5)")
            step = "optimizer.step()\nsecond.step()"
        elif d.maybe("scaler", 0.05):
            d.add("top", "scaler = torch.amp.GradScaler('cpu', init_scale=4.0)")
            backward = backward.replace("loss.backward()", "scaler.scale(loss).backward()")
            step = "scaler.step(optimizer)\nscaler.update()"
        if d.maybe("accumulation", 0.2):
            step, zero, where_zero = "if i % 2:\n    optimizer.step()\n    optimizer.zero_grad()", "", "begin"
        if d.maybe("two steps", 0.05):
            step = "optimizer.step()\noptimizer.step()"
        begin = zero if where_zero == "begin" else ""
        middle = zero if where_zero == "middle" else ""
        d.add("end", zero if where_zero == "end" else "")
        d.add("after" if where_zero == "after" else "before", zero if where_zero in ("before", "after") else "")
        pieces = {
            "begin": begin,
            "forward": forward,
            "middle": middle,
            "backward": backward,
            "clip": clip,
            "step": step,
        }
        pieces["end"] = "\n".join(d.section("end"))
    how = d.choice(
        "what is compiled",
        ["step"] * 6 + ["net", "forward", "forward and backward", "update", "net method", "optimizer.step"],
    )
    if name == "LBFGS" and how not in ("step", "net", "net method"):
        how = "step"
    if how in ("net", "net method", "forward") and "create_graph" in backward:  # PyTorch's error, compiled
        pieces["backward"] = pieces["backward"].replace("create_graph=True, ", "retain_graph=True, ")
    returned = d.choice(
        "the step returns",
        ["loss"] * 3
        + [
            "loss.detach()",
            "loss, out",
            "None",
            "{'loss': loss}",
            "loss.item()",
            "loss, first.grad",
            "[out.detach()]",
            "out",
        ],
    )
    if not d.on("returns " + returned):
        returned = "loss"
    args = "x, y, labels" + (", i" if "if i % 2" in pieces.get("step", "") else "")
    every = [p for p in pieces.values() if p]
    if how in ("net", "net method"):
        if not (how == "net" and name == "Muon"):
            d.add("top", "net = compile(net)" if how == "net" else "net.compile() if compile is not same else None")
        d.function("step", args, every, returned, compiled=False)
    elif how == "step":
        d.function("step", args, every, returned, compiled=True)
    elif how == "forward":
        d.function("forward", "x, y, labels", [pieces["forward"]], "loss, out", compiled=True)
        rest = [
            pieces["begin"],
            "loss, out = forward(x, y, labels)",
            *[pieces[k] for k in ("middle", "backward", "clip", "step", "end")],
        ]
        d.function("step", args, [p for p in rest if p], returned, compiled=False)
    elif how == "forward and backward":
        work = [pieces[k] for k in ("forward", "middle", "backward") if pieces[k]]
        d.function("work", "x, y, labels", work, "loss, out", compiled=True)
        rest = [pieces["begin"], "loss, out = work(x, y, labels)", *[pieces[k] for k in ("clip", "step", "end")]]
        d.function("step", args, [p for p in rest if p], returned, compiled=False)
    else:
        if how == "optimizer.step":
            d.function("update", "", ["optimizer.step()"], "None", compiled=True)
            rest = [pieces[k] for k in ("begin", "forward", "middle", "backward", "clip")]
            rest.append(
                "update()" if "if i % 2" not in pieces["step"] else "if i % 2:\n    update()\n    optimizer.zero_grad()"
            )
        else:
            counted = "if i % 2" in pieces["step"]
            own = [pieces[k] for k in ("clip", "step") if pieces[k]]
            d.function("update", "i" if counted else "", own, "None", compiled=True)
            rest = [pieces[k] for k in ("begin", "forward", "middle", "backward")]
            rest.append("update(i % 2)" if counted else "update()")
        rest.append(pieces["end"])
        d.function("step", args, [p for p in rest if p], returned, compiled=False)
    names = {"loss": "loss = result", "loss, out": "loss, out = result", "{'loss': loss}": "loss = result['loss']"}
    unpack = names.get(returned, "loss = out = torch.zeros(())")
    sizes = d.choice("batch sizes", [[4], [4], [4], [4, 3], [4, 4, 2], [5, 3, 4], [3, 3, 3, 4]])
    if not d.on(f"batch sizes {sizes}"):
        sizes = [4]
    data = d.choice(
        "data",
        ["fresh"] * 3 + ["one", "views of a data set", "needs grad"],
    )
    if not d.on("data " + data):
        data = "fresh"
    make = f"n = {sizes}[i % {len(sizes)}]\n"
    if data == "one":
        d.add("top", "x, y, labels = torch.randn(5, 6), torch.randn(5, 6), torch.randint(0, 6, (5,))")
        if sizes != [4]:
            make += "x, y, labels = x[:n], y[:n], labels[:n]\nif n == 5 or len(x) < n:\n    x, y, labels = torch.randn(n, 6), torch.randn(n, 6), torch.randint(0, 6, (n,))\n"  # noqa: E501
    elif data == "views of a data set":
        d.add("top", "X, Y, LABELS = torch.randn(40, 6), torch.randn(40, 6), torch.randint(0, 6, (40,))")
        make += "x, y, labels = X[i * n : i * n + n], Y[i * n : i * n + n], LABELS[i * n : i * n + n]\n"
    else:
        make += "x, y, labels = torch.randn(n, 6), torch.randn(n, 6), torch.randint(0, 6, (n,))\n"
        if data == "needs grad":
            make += "x.requires_grad_()\n"
    d.add("data", make)
    d.add("call", f"result = step({args})\n{unpack}")


def training(d: Draft) -> str:
    """The text of a program: names, and a function `call(i)`."""
    d.add("top", "kept, seen, last_grad, handle, loss, result = [], [], None, None, None, None")
    _network(d)
    if d.maybe("float64", 0.05):
        d.add("top", "net = net.double() if torch.empty(0).device.type == 'cpu' else net\nfirst = net.first.weight")
        d.picked = d.picked.replace("{x}", "{x}.to(first.dtype)")
    name = _optimizer(d)
    _around(d)
    _step(d, name)
    for k in range(d.roll("kept things", 4)):
        line = d.choice(f"kept {k}", KEPT)
        if d.on(f"kept {k}: {line}"):
            d.add("after", line)
    for k in range(max(0, d.roll("changes", 5) - 2)):
        line = d.choice(f"change {k}", CHANGES)
        if d.on(f"change {k}: {line}"):
            d.add(d.choice(f"where change {k} is", ["before", "after"]), line)
    return d.program("kept seen last_grad handle loss result out x y labels first shadow optimizer")
