"""Random functions as Python text: caches, views of arguments, state of Python's, modes, and callers who keep what they get."""

from __future__ import annotations

from .draft import Draft, indented

#: name -> (lines at the top, lines of the function, in which h is (n, 6) and x an argument like it, lines of the caller)
PARTS: dict[str, tuple[str, str, str]] = {
    "arithmetic": ("", "h = torch.tanh(h * 2 + 1)", ""),
    "matmul": ("W = torch.randn(6, 6)", "h = h @ W", ""),
    "weight": ("w = torch.randn(6, 6, requires_grad=True)", "h = h @ w", ""),
    "weight of the caller's that changes": ("V = torch.randn(6, 6)", "h = h @ V", "V.mul_(0.9)"),
    "weight that is replaced": ("U = torch.randn(6, 6)", "h = h @ U", "U = torch.randn(6, 6)"),
    "module": ("lin = nn.Linear(6, 6)", "h = lin(h)", ""),
    "module in eval": ("bn = nn.BatchNorm1d(6).eval()", "h = bn(h)", "bn.train(i == 4)"),
    "dropout": ("", "h = F.dropout(h, 0.4)", ""),
    "noise": ("", "h = h + torch.rand(6)", ""),
    "normal noise": ("", "h = h + torch.randn_like(h) * 0.1", ""),
    "permutation": ("", "h = h[:, torch.randperm(6)]", ""),
    "generator": ("gen = torch.Generator().manual_seed(5)", "h = h + torch.rand(6, generator=gen).to(h.device)", ""),
    "seeded inside": ("", "torch.manual_seed(3)\nh = h + torch.rand(6)", ""),
    "seeded outside": ("", "h = h * torch.rand(6)", "torch.manual_seed(i % 2)"),
    "cache by int": ("cache = torch.zeros(8, 6)", "cache[at] = h[0]\nh = h + cache.sum(0)", ""),
    "cache by tensor": ("cache2 = torch.zeros(8, 6)", "cache2[pos] = h[:1].detach()\nh = h + cache2.mean(0)", ""),
    "cache by index_copy": (
        "cache3 = torch.zeros(8, 6)",
        "cache3.index_copy_(0, pos, h[:1].detach())\nh = h - cache3[:2].sum(0)",
        "",
    ),
    "cache shifted": (
        "cache4 = torch.zeros(3, 6)",
        "cache4.copy_(torch.cat([cache4[1:], h[:1].detach()]))\nh = h + cache4.mean(0)",
        "",
    ),
    "cache grown": (
        "cache5 = [torch.zeros(1, 6)]",
        "cache5[0] = torch.cat([cache5[0], h[:1].detach()])\nh = h + cache5[0].mean(0)",
        "",
    ),
    "cache attended": (
        "K = torch.zeros(8, 6)",
        "K[pos] = h[:1].detach()\nh = F.scaled_dot_product_attention(h[None], K[None], K[None])[0]",
        "",
    ),
    "past that grows": ("past = []", "past.append(h[:1].detach())\nh = h + torch.cat(past[-3:]).mean(0)", ""),
    "parameters as a dict": (
        "params = {'w': torch.ones(6, 6) * 0.1, 'b': torch.zeros(6)}",
        "h = h @ params['w'] + params['b']",
        "params = {k: v * 0.9 for k, v in params.items()}",
    ),
    "functional call": (
        "layer = nn.Linear(6, 6)\nown = {k: v.detach().clone() for k, v in layer.named_parameters()}",
        "h = torch.func.functional_call(layer, own, (h,))\nown['weight'].mul_(0.9)",
        "",
    ),
    "gradient of a functional call": (
        "layer2 = nn.Linear(6, 6)\nown2 = {k: v.detach().clone() for k, v in layer2.named_parameters()}",
        "g = torch.func.grad(lambda p: torch.func.functional_call(layer2, p, (h.detach(),)).square().mean())(own2)\n"
        "for k in own2:\n    own2[k].sub_(g[k], alpha=0.1)\nh = h + own2['bias']",
        "",
    ),
    "hidden state": (
        "hidden = torch.zeros(6)",
        "hidden.copy_(torch.tanh(hidden + h.detach().mean(0)))\nh = h * hidden",
        "",
    ),
    "hidden state bound anew": (
        "memory = Box(h=torch.zeros(6))",
        "memory.h = torch.tanh(memory.h + h.detach().mean(0))\nh = h * memory.h",
        "",
    ),
    "mode changed": ("", "torch.set_grad_enabled(False)\nh = h * 2", "torch.set_grad_enabled(True)"),
    "attribute of a function": ("def tool(a):\n    tool.n += 1\n    return a * tool.n\ntool.n = 0", "h = tool(h)", ""),
    "attribute of itself": ("", "other.n = getattr(other, 'n', 0) + 1\nh = h * other.n", ""),
    "class attribute": ("class Shared:\n    n = 0", "Shared.n += 1\nh = h * Shared.n", ""),
    "no_grad function": ("@torch.no_grad()\ndef quiet(a):\n    return a * 2", "h = h + quiet(h)", ""),
    "cache in a module": (
        "class Cached(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.register_buffer('k', torch.zeros(8, 6))\n        self.n = 0\n"
        "    def forward(self, h):\n        self.k[self.n % 8] = h[0].detach()\n        self.n += 1\n        return h + self.k[: self.n].mean(0)\n"  # noqa: E501
        "cached = Cached()",
        "h = cached(h)",
        "",
    ),
    "count in a dict": ("state = {'n': 0}", "state['n'] += 1\nh = h * state['n']", ""),
    "count in a closure": (
        "def counting():\n    n = 0\n    def f(h):\n        nonlocal n\n        n += 1\n        return h * n\n    return f\ncount = counting()",  # noqa: E501
        "h = count(h)",
        "",
    ),
    "list appended": ("log = []", "log.append(h.detach().sum())", ""),
    "list of shapes": ("shapes = []", "shapes.append(tuple(h.shape))", ""),
    "list appended and cleared": ("log2 = []", "log2.append(h)\nif len(log2) > 2:\n    log2.clear()", ""),
    "dict of tensors": ("store = {}", "store['last'] = h.detach()", ""),
    "dict of tensors read": (
        "memo = {'h': torch.zeros(6)}",
        "h = h + memo['h']\nmemo['h'] = h.detach().mean(0) * 0.5",
        "",
    ),
    "global scalar": ("scale = 2.0", "h = h * scale", "scale = 2.0 + i % 3"),
    "global scalar that stays": ("shift = 0.5", "h = h + shift", ""),
    "global flag": ("flag = True", "h = h + 1 if flag else h - 1", "flag = i % 2 == 0"),
    "global tensor bound anew": ("total = torch.zeros(6)", "total = total + h.detach().sum(0)", ""),
    "global tensor added to": ("sums = torch.zeros(6)", "sums.add_(h.detach().sum(0))", ""),
    "object": ("box = Box(value=1.5)", "h = h * box.value", "box.value = 1.5 + i // 4"),
    "object with a tensor": ("thing = Box(t=torch.ones(6))", "h = h * thing.t", "thing.t = thing.t * 1.1"),
    "object written": ("slot = Box(t=torch.ones(6))", "slot.t.mul_(0.9)\nh = h * slot.t", ""),
    "object that keeps": ("keeper = Box(t=None)", "keeper.t = h", ""),
    "default argument": ("", "h = other(h)", ""),
    "argument written": ("", "x.mul_(1.5)", ""),
    "row of the argument written": ("", "x[0] = 1.0", ""),
    "column of the argument written": ("", "x[:, 1].add_(1)", ""),
    "argument written then read": ("", "x.add_(1)\nh = h + x", ""),
    "second argument written": ("", "y.copy_(h.detach()[: len(y)])", ""),
    "sum into the second": ("", "y += h.detach()[: len(y)]", ""),
    "both used": ("", "h = h + y.sum()", ""),
    "swap": ("A = torch.zeros(6)\nB = torch.ones(6)", "t = A.clone()\nA.copy_(B)\nB.copy_(t)\nh = h + A - B", ""),
    "old value kept": ("C = torch.zeros(6)", "old = C.clone()\nC.add_(1)\nh = h + old", ""),
    "exchange of names": (
        "pair = [torch.zeros(6), torch.ones(6)]",
        "pair[0], pair[1] = pair[1], pair[0]\nh = h + pair[0]",
        "",
    ),
    "view of a state": ("S = torch.zeros(4, 6)", "v = S[1]\nv.add_(h.detach().mean(0))\nh = h + S.sum(0)", ""),
    "state by a view": ("S2 = torch.zeros(4, 6)\nrow = S2[2]", "row.add_(1)\nh = h + S2.sum(0)", ""),
    "state through .data": ("P = nn.Parameter(torch.ones(6))", "P.data.mul_(0.9)\nh = h * P.detach()", ""),
    "state of numbers": ("step_no = torch.zeros((), dtype=torch.long)", "step_no.add_(1)\nh = h * step_no", ""),
    "two states of one value": ("D = torch.zeros(6)\nE = D.clone()", "D.add_(1)\nh = h + E + D", "E.add_(2)"),
    "state set to another": ("G = torch.zeros(6)\nH = torch.ones(6)", "G.copy_(H)\nH.add_(1)\nh = h + G", ""),
    "size asked": ("", "h = h * h.shape[0] + h.numel()", ""),
    "type asked": ("", "h = h.to(x.dtype) + (1 if x.is_contiguous() else 2)", ""),
    "grad asked": ("", "h = h + (1 if x.requires_grad else 2) + (3 if torch.is_grad_enabled() else 4)", ""),
    "value read": ("", "h = h + 1 if h.sum() > 0 else h - 1", ""),
    "item": ("", "h = h * float(h.detach().abs().mean().item() > 1)", ""),
    "mask": ("", "h = h + h[h > 0].sum()", ""),
    "nonzero": ("", "h = h + (h > 0).nonzero().shape[0]", ""),
    "loop": ("", "for k in range(3):\n    h = h + k * x.mean()", ""),
    "rows": ("", "h = torch.stack([r * k for k, r in enumerate(h)])", ""),
    "try": ("", "try:\n    h = h.view(5, 5)\nexcept RuntimeError:\n    h = h * 2", ""),
    "raises sometimes": ("", "if flag2 and at == 3:\n    raise ValueError('three')", "flag2 = i < 5"),
    "raises after a write": ("R = torch.zeros(6)", "R.add_(1)\nif at == 5:\n    raise ValueError('five')", ""),
    "printed": ("", "print('', end='')", ""),
    "in place on a result": ("", "h = h * 1\nh[:, 0] = 5\nh[0, :].mul_(2)", ""),
    "autocast": ("", "with torch.autocast(h.device.type, torch.bfloat16):\n    h = (h @ torch.ones(6, 6)).float()", ""),
    "no_grad": ("", "with torch.no_grad():\n    h = h * h.norm()", ""),
    "inference mode": (
        "",
        "with torch.inference_mode():\n    extra = h.detach() * 2\nh = h + extra.sum().clone() * 0 + 1",
        "",
    ),
    "grad inside": (
        "",
        "with torch.enable_grad():\n    z = h.detach().requires_grad_()\n    (g,) = torch.autograd.grad(z.pow(3).sum(), z)\nh = h + g",
        "",
    ),
    "second derivative": (
        "",
        "with torch.enable_grad():\n    z = h.detach().requires_grad_()\n    (g,) = torch.autograd.grad(z.pow(3).sum(), z, create_graph=True)\n"  # noqa: E501
        "    (g,) = torch.autograd.grad(g.sum(), z)\nh = h + g",
        "",
    ),
    "func.grad": ("", "h = h + torch.func.grad(lambda a: (a * a).sum())(h.detach())", ""),
    "vmap": ("", "h = torch.func.vmap(lambda a: a * a.sum())(h)", ""),
    "backward inside": (
        "q = torch.ones(6, requires_grad=True)",
        "with torch.enable_grad():\n    (q * h.detach()).sum().backward()",
        "",
    ),
    "indices": ("", "h = h[:, [5, 4, 3, 2, 1, 0]] + h.index_select(1, torch.tensor([0, 0, 1, 1, 2, 2]))", ""),
    "constant": ("", "h = h + torch.tensor([1.0, 2, 3, 4, 5, 6])", ""),
    "arange": ("", "h = h + torch.arange(h.shape[0]).unsqueeze(1)", ""),
    "integers": ("", "k = (h * 3).long() % 4\nh = h + F.one_hot(k[:, 0].clamp(0, 3), 6)", ""),
    "topk": ("", "v, k = h.topk(2, 1)\nh = h.scatter(1, k, v * 2)", ""),
    "max": ("", "v, k = h.max(1)\nh = h - v[:, None] + k[:, None]", ""),
    "double": ("", "h = (h.double() * 2).float() if h.device.type == 'cpu' else h * 2", ""),
    "complex": ("", "h = h + torch.fft.rfft(h, dim=1).abs().sum()", ""),
    "conjugate": ("", "z = torch.complex(h, h * 0.5).conj()\nh = h + (z * z).real - z.imag", ""),
    "state through a conjugate": (
        "K = torch.ones(6, dtype=torch.complex64)\nseen_K = K.conj()",
        "seen_K.add_(0.5j)\nseen_K.imag.mul_(0.5)\nh = h + K.real + seen_K.imag",
        "",
    ),
    "inner compiled": ("inner = compile(lambda a: a * 2 + 1)", "h = inner(h)", ""),
    "helper": ("def helper(a, k=3):\n    return a * k", "h = helper(h) + helper(h, k=2)", ""),
    "partial": ("half = functools.partial(torch.mul, torch.tensor(0.5))", "h = half(h)", ""),
    "lambda": ("", "h = (lambda a: a.cumsum(1))(h)", ""),
    "identity asked": ("same_x = None", "h = h + 1 if x is same_x else h", "same_x = x"),
    "attribute of the argument": ("", "h = h + x.mark if hasattr(x, 'mark') else h", "x.mark = 1.5"),
    "requires_grad_ inside": ("", "z = h.detach()\nz.requires_grad_()\nh = h + z.detach()", ""),
    "out=": ("O = torch.zeros(6)", "torch.sum(h.detach(), 0, out=O)\nh = h + O", ""),
    "foreach": ("L = [torch.zeros(6), torch.ones(2)]", "torch._foreach_add_(L, 1.0)\nh = h + L[0]", ""),
    "zero_": ("Z = torch.ones(6)", "Z.zero_()\nZ.add_(h.detach()[0])\nh = h + Z", ""),
    "set_ of data": (
        "T = nn.Parameter(torch.ones(6), requires_grad=False)",
        "T.data = h.detach()[0] * 1.0\nh = h + T",
        "",
    ),
    "resized state": ("N = [torch.zeros(2)]", "N[0] = torch.zeros(len(N[0]) % 3 + 1)\nh = h + N[0].shape[0]", ""),
    "set": ("names = set()", "names.add(at)\nh = h + len(names)", ""),
    "iterator": ("numbers = iter(range(100))", "h = h * next(numbers)", ""),
    "chance": ("", "h = h * random.random()", ""),
    "enumerated attributes": (
        "bag = Box(a=1.0, b=2.0)",
        "for k in sorted(vars(bag)):\n    h = h + getattr(bag, k)",
        "bag.c = float(i // 3)",
    ),
    "string": ("mode = 'tanh'", "h = getattr(torch, mode)(h)", "mode = 'sin' if i > 4 else 'tanh'"),
    "fractional": ("", "h = h + (x.sum() * 0 + 1) / 3", ""),
    "flipped": ("", "h = h.flip(0).roll(1, 1)", ""),
    "masked_fill": (
        "",
        "h = h.masked_fill(h > 1, 0.0)\nh.masked_fill_(h < -1, -1.0) if not h.requires_grad else None",
        "",
    ),
    "split and joined": ("", "h = torch.cat([c + k for k, c in enumerate(h.split(2, 1))], 1)", ""),
    "expanded": ("", "h = h + h.mean(0, keepdim=True).expand_as(h)", ""),
    "unfold": ("", "h = h + h.unfold(1, 2, 2).sum(-1).repeat(1, 2)", ""),
    "where": ("", "h = torch.where(h > y.sum(), h, -h)", ""),
    "clone and write": ("", "c = h.clone()\nc[0] = 0\nh = h + c", ""),
    "detached write": ("", "c = (h * 2).detach()\nc.mul_(2)\nh = h + c", ""),
    "write to an expanded copy": ("", "c = h[:1].expand(3, 6).clone()\nc[1] += 1\nh = h + c.sum(0)", ""),
    "in place with grad": ("", "c = h * 2\nc.add_(1).relu_()\nh = h + c", ""),
}

RETURNED = [
    "h",
    "h",
    "h",
    "x",
    "h, x",
    "x, h, y",
    "h, h",
    "[h, h.t()]",
    "{'a': h, 'b': [x, 3, 'text', None]}",
    "h, h[:, :2]",
    "h[:, 1:3]",
    "h.t()",
    "h[0]",
    "h.chunk(2, 1)",
    "h.unbind(0)",
    "x[1:]",
    "x.t()",
    "x.view(-1)",
    "x.detach()",
    "x.data",
    "x[:1], x[1:]",
    "y",
    "y[:1], h",
    "h.max(1)",
    "h.sort(1)",
    "h.sum()",
    "h.sum().item()",
    "h.tolist()",
    "None",
    "h.shape",
    "(h, (h.sum(), {'n': h.shape[0]}))",
    "h.detach(), h",
    "h.detach()",
    "h.clone(), h",
    "h if h.shape[0] > 3 else x",
    "Pair(h, x)",
    "Box(h=h)",
    "h.long()",
    "h > 0",
    "h.expand(2, *h.shape)",
    "h.to(torch.float16)",
    "h[h > 0]",
    "h, at",
    "torch.zeros(2)",
    "torch.tensor([1.0, 2.0])",
    "SHARED",
    "SHARED[0]",
    "SHARED.clone()",
    "h + SHARED, SHARED",
    "h.reshape(2, -1) if h.numel() % 2 == 0 else h",
    "h.contiguous()",
    "x.contiguous()",
    "x.reshape(-1)",
    "x.to(torch.float32)",
    "x.expand_as(x)",
    "h.requires_grad",
    "torch.complex(h, h).conj()",
    "x._neg_view(), torch.complex(x, x).conj().imag",
]

#: what the caller does with what it gets
AFTER = [
    "kept.append(result)",
    "kept.append(result)",
    "kept.append(x)",
    "kept.append(x.clone())",
    "kept.append(first_of(result))",
    "t = first_of(result)\nif t is not None and t.requires_grad and t.is_floating_point():\n    t.sum().backward()",
    "t = first_of(result)\nif t is not None and t.requires_grad and t.is_floating_point():\n    pending.append(t.sum())\n"
    "if i == 5 and pending:\n    sum(pending).backward()\n    pending.clear()",
    "t = first_of(result)\nif t is not None and t.requires_grad and t.is_floating_point():\n"
    "    t.sum().backward(retain_graph=True)\n    t.sum().backward()",
    "t = first_of(result)\nif t is not None and not t.requires_grad and t.is_floating_point() and not t.is_inference():\n    t.add_(1)",
    "t = first_of(result)\nif t is not None and t.shape == x.shape and t.dtype is torch.float32:\n    last = t.detach()",
    "t = first_of(result)\nif t is not None and t.shape == x.shape and t.dtype is torch.float32:\n    last = t.detach().clone()",
    "x.add_(1) if not x.requires_grad and not x.is_inference() else None",
    "kept.append([t.detach() for t in all_of(result)])",
    "kept.append([t.clone() for t in all_of(result)])",
    "kept.append([t[:1] for t in all_of(result) if t.dim()])",
    "kept.append(SHARED)",
    "kept.append(SHARED.clone())",
    "kept.append(SHARED[1:])",
    "kept.append(SHARED.tolist())",
    "SHARED.add_(1)",
    "SHARED = SHARED * 0.5",
    "result = None",
    "gc.collect()",
    "kept.clear()",
    "if i == 3:\n    torch.set_default_dtype(torch.float32)",
    "torch.rand(2)",
    "kept.append(result is x)",
    "kept.append(copy.deepcopy(result) if not any(t.requires_grad for t in all_of(result)) else None)",
    "kept.append([t._version for t in all_of(result) if not t.is_inference()])",
]

#: of results that lead to each other, of parts, of views
GRADIENTS = """found = [t for t in all_of(result) if t.requires_grad and not t.is_leaf and t.is_floating_point()]
for t in found:
    t.retain_grad()
if found:
    sum([(t * t).float().sum() for t in found]).backward()
    kept.append([t.grad for t in found])"""

ARGUMENTS = ["fresh"] * 4 + [
    "one",
    "last",
    "same twice",
    "a view of the first",
    "the whole and a part",
    "transposed",
    "expanded",
    "sliced",
    "needs grad",
    "history",
    "views of a data set",
    "integers",
    "float16",
    "another size",
    "parameter",
    "inference tensor",
]

TOP = """
import collections, functools, random
Pair = collections.namedtuple("Pair", "a b")
class Box:
    def __init__(self, **values):
        self.__dict__.update(values)
def other(h, by=[2.0]):
    return h * by[0]
def all_of(r):
    if isinstance(r, torch.Tensor):
        return [r]
    if isinstance(r, dict):
        r = list(r.values())
    return [t for v in r for t in all_of(v)] if isinstance(r, (list, tuple)) else []
def first_of(r):
    return (all_of(r) or [None])[0]
random.seed(0)
kept, pending, result, last, flag2 = [], [], None, torch.zeros(4, 6), True
SHARED = torch.ones(3, 6)
"""


def _arguments(d: Draft) -> str:
    kind = d.choice("arguments", ARGUMENTS)
    if not d.on("arguments " + kind):
        kind = "fresh"
    sizes = d.choice("sizes", [[4], [4], [4], [4, 3], [2, 5, 4], [4, 0, 1]])
    if not d.on(f"sizes {sizes}"):
        sizes = [4]
    make = f"n = {sizes}[i % {len(sizes)}]\nx, y = torch.randn(n, 6), torch.randn(2, 6)\n"
    if d.maybe("windows that slide", 0.1):
        d.add("top", "DATA = torch.randn(50, 6)")
        make += "x, y = DATA[3 * i + 1 : 3 * i + 1 + n], DATA[4 * i + 5 : 4 * i + 7]\n"
    if kind == "one":
        d.add("top", "x, y = torch.randn(4, 6), torch.randn(2, 6)")
        make = ""
    elif kind == "views of a data set":
        d.add("top", "X = torch.randn(40, 6)")
        make += "x = X[i * 4 : i * 4 + n]\n"
    else:
        make += {
            "last": "x = last if last.shape[0] == n else x",
            "same twice": "y = x",
            "a view of the first": "y = x[:2]",
            "the whole and a part": "x = torch.randn(n + 2, 6)\ny = x[-2:]\nx = x[:-2] if i % 2 else x",
            "transposed": "x = torch.randn(6, n).t()",
            "expanded": "x = torch.randn(1, 6).expand(n, 6) if i % 2 else x",
            "sliced": "x = torch.randn(n, 12)[:, ::2]",
            "needs grad": "x.requires_grad_()",
            "history": "base = x.requires_grad_()\nx = base * 2",
            "integers": "x = (x * 10).to(torch.int32)",
            "float16": "x = x.half()",
            "another size": "x = torch.randn(2 + i % 4, 6)",
            "parameter": "x = nn.Parameter(x)",
            "inference tensor": "with torch.inference_mode():\n    x = torch.randn(n, 6)",
        }.get(kind, "")
    if d.maybe("gradients of all results", 0.15):
        d.add("after", GRADIENTS)
        make += "\nif x.is_floating_point() and not x.requires_grad and not x.is_inference():\n    x = x.detach().requires_grad_()"
        make += d.choice("how it requires grad", ["", " * 1.0", "[:]"])
    return make


def inference(d: Draft) -> str:
    """The text of a program: names, and a function `call(i)`."""
    body, globals_ = [], []
    start = d.choice("h starts as", ["x", "x", "x * 1.0", "x + y.sum()"])
    caller = []
    d.add("top", TOP)
    for k, name in enumerate(d.choices("parts", list(PARTS), 1 + d.roll("how many", 5))):
        if not d.on(f"part {k}: {name}"):
            continue
        top, use, after = PARTS[name]
        if top not in d.section("top"):
            d.add("top", top)
        body.append(use)
        if after:
            caller.append(after)
        globals_ += [v for v in ("total",) if f"{v} =" in use and v not in globals_]
    returned = d.choice("returned", RETURNED)
    if not d.on("returned " + returned):
        returned = "h"
    mode = d.choice(
        "mode of the function", [""] * 5 + ["torch.no_grad()", "torch.inference_mode()", "torch.enable_grad()"]
    )
    if not d.on("mode " + mode):
        mode = ""
    form = d.choice(
        "form", ["function"] * 5 + ["module", "method", "closure", "keyword", "list", "dict", "numbers", "callable"]
    )
    if not d.on("form " + form):
        form = "function"
    lines = "\n".join([*[f"global {v}" for v in globals_], f"h = {start}", *body])
    if not any(word in lines for word in ("pos", "at]", "at ==")):
        passed, taken = "x, y", "x, y"
    elif "pos" in lines and not any(word in lines for word in ("at]", "at ==", "(at)")):
        passed, taken = "x, y, pos=torch.tensor([i % 8])", "x, y, pos"
    else:
        passed, taken = "x, y, i, torch.tensor([i % 8])", "x, y, at, pos"
    if "(at)" in lines and "at" not in taken.split(", "):
        passed, taken = "x, y, i, torch.tensor([i % 8])", "x, y, at, pos"
    if returned == "h, at" and "at" not in taken.split(", "):
        returned = "h"
    text = lines + f"\nreturn {returned}"
    if mode:
        text = f"with {mode}:\n" + indented(text, 4)
    call = f"f({passed})"
    if form == "module":
        d.add("top", f"class M(nn.Module):\n    def forward(self, {taken}):\n{indented(text, 8)}\nf = compile(M())")
    elif form == "method":
        d.add("top", f"class M:\n    def run(self, {taken}):\n{indented(text, 8)}\nf = compile(M().run)")
    elif form == "callable":
        d.add("top", f"class M:\n    @compile\n    def __call__(self, {taken}):\n{indented(text, 8)}\nf = M()")
    elif form == "closure":
        d.add(
            "top",
            f"def make():\n    own = torch.ones(6)\n    def f({taken}):\n        own.mul_(1.1)\n{indented(text, 8)}\n    return compile(f)\nf = make()",  # noqa: E501
        )
    elif form == "keyword":
        d.add("top", f"@compile\ndef f({taken}, *args, extra=1.0, **more):\n    x = x * extra\n{indented(text, 4)}")
        call = f"f({passed}, extra=1.0 + i % 2, more=y)"
        if "at" in taken.split(", "):
            call = call.replace("torch.tensor([i % 8])", "pos=torch.tensor([i % 8])")
    elif form == "list":
        d.add("top", f"@compile\ndef f(xs, *rest):\n    {taken}, = [*xs, *rest]\n{indented(text, 4)}")
        call = call.replace("f(x, y", "f([x, y]").replace("pos=", "")
    elif form == "dict":
        d.add("top", f"@compile\ndef f(d, {taken.removeprefix('x, ')}):\n    x = d['x']\n{indented(text, 4)}")
        call = call.replace("f(x, ", "f({'x': x, 'k': 3}, ")
    elif form == "numbers":
        d.add(
            "top",
            f"@compile\ndef f({taken}, a=1, b=0.5, c='s', e=None, g=True):\n    x = x * a * b if g and c else x\n{indented(text, 4)}",
        )
        call = call[:-1] + ", a=1 + i // 4, b=0.5, g=i != 3)"
    else:
        d.add("top", f"@compile\ndef f({taken}):\n{indented(text, 4)}")
    d.add("data", _arguments(d))
    outer = d.choice("mode of the caller", [""] * 6 + ["torch.no_grad()", "torch.inference_mode()"])
    if outer and d.on("mode of the caller " + outer):
        d.add("call", f"with {outer}:\n    result = {call}")
    else:
        d.add("call", f"result = {call}")
    for line in caller:
        d.add("after", line)
    for k in range(d.roll("what follows", 4)):
        line = d.choice(f"after {k}", AFTER)
        if d.on(f"after {k}: {line}"):
            d.add("after", line)
    return d.program("kept pending result last x y scale flag flag2 U params mode same_x SHARED total base")
