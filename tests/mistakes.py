"""What beginners do wrong: programs, and what a library says of each. Knows no library itself, so it runs wherever one does.

    for name, source in ROWS:
        said(source, torch, device)     # the exception, its whole message, and the warnings

`python -m json.tool` reads what `record(torch)` gives, so one interpreter can tell another what to expect.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

# One program a line; `\n` begins another line of it. Names: torch, nn, F, device, and those of `names()`.
MISTAKES = {
    "shapes of products": r"""
        torch.ones(64, 10) @ torch.ones(12, 5)
        torch.ones(3) @ torch.ones(4)
        torch.ones(2, 3) @ torch.ones(2)
        torch.ones(2) @ torch.ones(3, 4)
        torch.ones(2, 3, 4) @ torch.ones(2, 3, 4)
        torch.ones(2, 3, 4) @ torch.ones(3, 4, 5)
        torch.matmul(torch.ones(()), torch.ones(2))
        torch.mm(a, a)
        torch.mm(torch.ones(2, 3, 4), a)
        torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 5, 6))
        torch.bmm(a, a)
        torch.addmm(torch.ones(3), a, torch.ones(4, 5))
        torch.mv(a, a)
        torch.dot(torch.ones(3), torch.ones(4))
        nn.Linear(12, 5)(torch.ones(64, 10))
        nn.Linear(12, 5)(torch.ones(10))
        nn.Linear(12, 5)(torch.ones(2, 3, 10))
        nn.Linear(12, 5, bias=False)(torch.ones(64, 10))
        F.linear(a, torch.ones(4, 2), torch.ones(4))
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 2))(a)
        nn.Bilinear(3, 4, 2)(a, a)
        nn.Sequential(nn.Flatten(), nn.Linear(784, 10))(torch.ones(32, 1, 28, 27))
    """,
    "shapes of layers": r"""
        nn.Conv2d(3, 8, 3)(torch.ones(4, 1, 28, 28))
        nn.Conv2d(1, 8, 3)(torch.ones(28, 28))
        nn.Conv2d(1, 8, 3)(torch.ones(2, 2, 1, 28, 28))
        nn.Conv2d(1, 8, 5)(torch.ones(1, 1, 4, 4))
        nn.Conv1d(4, 2, 3)(torch.ones(2, 3, 10))
        nn.Conv1d(4, 2, 3)(torch.ones(2, 3, 4, 5))
        nn.Conv3d(1, 2, 3)(torch.ones(1, 2, 5, 5, 5))
        nn.ConvTranspose2d(3, 8, 3)(torch.ones(4, 1, 8, 8))
        nn.Conv2d(4, 6, 3, groups=3)
        nn.BatchNorm1d(3)(torch.ones(1, 3))
        nn.BatchNorm2d(3)(torch.ones(1, 3, 1, 1))
        nn.BatchNorm2d(3)(torch.ones(2, 4, 5, 5))
        nn.BatchNorm2d(3)(torch.ones(2, 3))
        nn.BatchNorm1d(3)(torch.ones(2, 3, 4, 5))
        nn.InstanceNorm2d(3)(torch.ones(2, 3, 1, 1))
        nn.GroupNorm(2, 3)
        nn.GroupNorm(2, 4)(torch.ones(2, 3, 5))
        nn.LayerNorm(4)(a)
        nn.LayerNorm((2, 4))(a)
        nn.MaxPool2d(3)(torch.ones(1, 1, 2, 2))
        nn.MaxPool2d(2)(torch.ones(3))
        nn.AvgPool2d(2, padding=2)(torch.ones(1, 1, 4, 4))
        nn.LSTM(3, 4)(torch.ones(5, 2, 6))
        nn.LSTM(3, 4)(torch.ones(5))
        nn.LSTM(3, 4)(torch.ones(5, 2, 3), (torch.ones(1, 3, 4), torch.ones(1, 3, 4)))
        nn.LSTM(3, 4, batch_first=True)(torch.ones(5, 2, 3), (torch.ones(1, 2, 4), torch.ones(1, 2, 4)))
        nn.GRU(3, 4)(torch.ones(5, 2, 3), torch.ones(2, 4))
        nn.RNN(3, 4)(torch.ones(5, 2, 4))
        nn.LSTMCell(3, 4)(torch.ones(2, 5))
        nn.GRUCell(3, 4)(torch.ones(2, 3), torch.ones(3, 4))
        nn.MultiheadAttention(5, 2)
        nn.MultiheadAttention(4, 2)(torch.ones(2, 3, 5), torch.ones(2, 3, 5), torch.ones(2, 3, 5))
        nn.TransformerEncoderLayer(5, 2)
        nn.PixelShuffle(2)(torch.ones(1, 3, 2, 2))
        nn.Unflatten(1, (2, 2))(a)
        F.pad(a, (1, 1, 1))
        F.interpolate(a, size=4)
    """,
    "losses": r"""
        F.cross_entropy(a, torch.tensor([0, 3]))
        F.cross_entropy(a, torch.tensor([-1, 0]))
        F.cross_entropy(a, torch.tensor([0.0, 1.0]))
        F.cross_entropy(a, torch.tensor([0, 1, 2]))
        F.cross_entropy(a, torch.tensor([[0], [1]]))
        F.cross_entropy(a, torch.ones(2, 3, dtype=torch.int64))
        F.cross_entropy(a, torch.tensor([0, 1], dtype=torch.int32))
        F.cross_entropy(a, torch.tensor([True, False]))
        F.cross_entropy(torch.ones(2, 3, 4), torch.zeros(2, 5, dtype=torch.int64))
        F.cross_entropy(torch.ones(2, 3, 4, 4), torch.zeros(2, 1, 4, 4, dtype=torch.int64))
        F.cross_entropy(a, torch.tensor([0, 1]), weight=torch.ones(2))
        F.cross_entropy(i, torch.tensor([0, 0]))
        F.cross_entropy(torch.tensor(1.0), torch.tensor(0))
        F.nll_loss(a, torch.tensor([0, 3]))
        F.nll_loss(a, torch.tensor([0.0, 1.0]))
        F.nll_loss(a, torch.tensor([0]))
        F.nll_loss(a, torch.tensor([0, 1]), reduction="average")
        nn.NLLLoss()(a, a)
        nn.CrossEntropyLoss()(a, torch.tensor([5, 0]))
        F.mse_loss(a, torch.ones(2))
        F.mse_loss(a, torch.ones(2, 1))
        nn.MSELoss()(torch.ones(4, 1), torch.ones(4))
        F.mse_loss(a, a, reduction="none!")
        F.l1_loss(torch.ones(4, 1), torch.ones(4))
        F.smooth_l1_loss(torch.ones(4, 1), torch.ones(4))
        F.huber_loss(torch.ones(4, 1), torch.ones(4))
        F.binary_cross_entropy(torch.tensor([1.5]), torch.tensor([1.0]))
        F.binary_cross_entropy(torch.tensor([-0.5, 0.5]), torch.tensor([1.0, 0.0]))
        F.binary_cross_entropy(torch.tensor([0.5]), torch.tensor([2.0]))
        F.binary_cross_entropy(torch.tensor([0.5]), torch.tensor([1]))
        F.binary_cross_entropy(torch.rand(2, 1), torch.ones(2))
        F.binary_cross_entropy_with_logits(torch.ones(2, 1), torch.ones(2))
        F.kl_div(torch.log_softmax(a, 1), torch.softmax(a, 1))
        F.cosine_embedding_loss(a, a, torch.ones(3))
        F.triplet_margin_loss(a, a, torch.ones(3, 4))
        F.one_hot(torch.tensor([0, 5]), 3)
        F.one_hot(torch.tensor([-1]), 3)
        F.one_hot(torch.tensor([0.0]), 3)
        F.softmax(a)
        F.log_softmax(a)
        nn.Softmax()(a)
        F.cross_entropy(a, torch.tensor([0, 1]), size_average=True)
        F.ctc_loss(torch.ones(5, 2, 3), torch.ones(2, 2, dtype=torch.int64), (5,), (2, 2))
    """,
    "indices": r"""
        a[2]
        a[0, 3]
        a[:, 5]
        a[0, 0, 0]
        a[torch.tensor([2])]
        a[torch.tensor([0.5])]
        a[[0, 9]]
        a[torch.tensor([0, 1]), torch.tensor([0, 7])]
        a[torch.tensor([0, 1, 1]), torch.tensor([0, 1])]
        a[torch.tensor([True, False, True])]
        a[torch.ones(2, 4, dtype=torch.bool)]
        a[1.5]
        a[None, None, 0, 0, 0, 0]
        a[::-1]
        a[0:2:0]
        a[3] = 1
        a[torch.tensor([9])] = 1.0
        a[0] = torch.ones(4)
        a[:, 1:] = torch.ones(3, 2)
        a[torch.tensor([0, 1])] = torch.ones(3, 3)
        a[0, 0] = torch.ones(2)
        a[0] = "x"
        a[0] = [1.0, 2.0, 3.0]
        torch.tensor(1)[0]
        nn.Embedding(3, 2)(torch.tensor([3]))
        nn.Embedding(3, 2)(torch.tensor([-1]))
        nn.Embedding(3, 2)(torch.tensor([1.0]))
        nn.Embedding(3, 2)(3)
        nn.Embedding(3, 2, padding_idx=4)
        nn.EmbeddingBag(3, 2)(torch.tensor([1, 2]))
        nn.EmbeddingBag(3, 2)(torch.tensor([[1, 5]]))
        torch.gather(a, 1, torch.tensor([[3]]))
        torch.gather(a, 1, torch.tensor([0]))
        torch.gather(a, 1, torch.tensor([[0.0]]))
        torch.gather(a, 0, torch.tensor([[0, 0, 0, 0]]))
        a.scatter_(1, torch.tensor([[3]]), 1.0)
        a.scatter_(1, torch.tensor([[0]]), torch.ones(1, 1, dtype=torch.int64))
        a.index_select(0, torch.tensor([2]))
        a.index_select(1, torch.tensor([3]))
        a.index_select(0, torch.tensor([[0]]))
        a.index_add_(0, torch.tensor([0]), torch.ones(2, 3))
        a.take(torch.tensor([6]))
        a.topk(4)
        a.sum(2)
        a.sum(dim=-3)
        a.mean((0, 0))
        a.argmax(3)
        a.transpose(0, 2)
        a.select(0, 5)
        a.narrow(1, 2, 2)
        a.size(2)
        a.unbind(3)
        a.max(5)
        torch.zeros(0).max()
        torch.zeros(0).argmin()
        torch.zeros(2, 0).max(1)
        torch.multinomial(torch.tensor([1.0, -1.0]), 1)
        torch.multinomial(torch.tensor([1.0, 1.0]), 3)
        torch.bernoulli(torch.tensor([1.5]))
        torch.masked_select(a, torch.ones(3, 3, dtype=torch.bool))
        torch.where(torch.ones(2, dtype=torch.int64), a, a)
        a.masked_fill(torch.ones(2, 3), 0)
        a.masked_fill(a > 1, "x")
    """,
    "rearranging": r"""
        torch.cat([a, torch.ones(3, 2)])
        torch.cat([a, torch.ones(2, 4)])
        torch.cat([a, torch.ones(3)])
        torch.cat(a, a)
        torch.cat([])
        torch.cat([a, 1])
        torch.cat([a, a], dim=2)
        torch.cat([a, a], axis=5)
        torch.stack([a, torch.ones(2, 4)])
        torch.stack([])
        torch.stack([a, a], dim=4)
        torch.stack([1, 2])
        a.view(5)
        a.view(-1, 4)
        a.view(-1, -1)
        a.t().view(6)
        a.t().view(-1)
        a.transpose(0, 1).contiguous().view(4, 2)
        torch.ones(2, 3, 4).permute(0, 2, 1).view(2, 12)
        a.reshape(4, 2)
        a.reshape(-1, 5)
        a.reshape(2, -1, -1)
        a.reshape("x")
        a.expand(2, 4)
        a.expand(3)
        a.expand(-1, 3, 3)
        a.permute(0)
        a.permute(0, 0)
        a.permute(0, 3)
        a.unsqueeze(5)
        a.squeeze(3)
        a.repeat(2)
        a.flatten(1, 0)
        a.split(-1)
        a.split([1, 2], 1).x
        a.split([1, 1], 1)
        a.chunk(0)
        a + torch.ones(2, 4)
        a * torch.ones(3, 2)
        a - torch.ones(2)
        torch.add(a, torch.ones(4))
        torch.maximum(a, torch.ones(2))
        torch.where(a > 1, a, torch.ones(2))
        torch.ones(3).add_(a)
        z = torch.ones(3)\nz += torch.ones(2, 3)
        torch.ones(3).copy_(torch.ones(4))
        torch.ones(3).mul_(torch.ones(2, 1))
        torch.einsum("ij,jk->ik", a, a)
        torch.einsum("ij,k->il", a, torch.ones(3))
        torch.einsum("ijk->k", a)
        a.as_strided((9,), (1,))
        a.unfold(1, 4, 1)
        torch.broadcast_to(a, (2, 4))
        torch.ones(-2)
        torch.zeros(2, -1)
        a.T.T.T.view(6)
        torch.ones(2, 3, 4).T
        a.contiguous().view(torch.int64)
        torch.outer(a, a)
        torch.cross(torch.ones(2, 4), torch.ones(2, 4), dim=1)
        torch.tril(torch.ones(3))
        torch.diag(torch.ones(2, 2, 2))
    """,
    "types": r"""
        a @ torch.ones(3, 2, dtype=torch.float16)
        a.to("cpu") @ torch.ones(3, 2, dtype=torch.float64, device="cpu")
        a.mm(torch.ones(3, 2, dtype=torch.int64))
        a @ torch.ones(3, 2, dtype=torch.int64)
        torch.ones(3, dtype=torch.int64) @ torch.ones(3)
        torch.bmm(torch.ones(1, 2, 3), torch.ones(1, 3, 2, dtype=torch.int64))
        torch.addmm(torch.ones(2, dtype=torch.int64), a, torch.ones(3, 2))
        nn.Linear(3, 2)(torch.ones(4, 3, dtype=torch.int64))
        nn.Linear(3, 2)(torch.ones(4, 3).half())
        nn.Linear(3, 2)(torch.ones(4, 3, dtype=torch.bool))
        nn.Conv2d(1, 2, 3)(torch.ones(1, 1, 5, 5, dtype=torch.uint8))
        nn.Conv2d(1, 2, 3)(torch.ones(1, 1, 5, 5, dtype=torch.int64))
        nn.Conv2d(1, 2, 3)(torch.ones(1, 1, 5, 5).half())
        nn.LSTM(3, 4)(torch.ones(5, 2, 3, dtype=torch.int64))
        nn.LayerNorm(3)(torch.ones(2, 3, dtype=torch.int64))
        nn.BatchNorm1d(3)(torch.ones(2, 3, dtype=torch.int64))
        i.mean()
        i.std()
        i.add_(1.5)
        i /= 2
        i.div_(2)
        i += a[:, :1]
        i.sqrt_()
        i *= 1.5
        i.exp_()
        i.normal_()
        i.softmax(0)
        torch.log_softmax(i, 0)
        F.dropout(i)
        F.gelu(i)
        F.mse_loss(i, i).backward()
        a & 1
        a | a
        ~a
        a << 1
        -torch.ones(2, dtype=torch.bool)
        torch.ones(2, dtype=torch.bool) - torch.ones(2, dtype=torch.bool)
        a + "b"
        a + None
        a + [1, 2, 3]
        "b" * a
        a == "b" and 1
        torch.tensor("text")
        torch.tensor([None])
        torch.tensor({})
        torch.tensor([[1, 2], [3]])
        torch.tensor([[1], 2])
        torch.tensor([1, "a"])
        torch.tensor([1, 2], requires_grad=True)
        torch.tensor(300, dtype=torch.uint8)
        torch.tensor([2**70])
        torch.tensor(1.0, dtype="float32")
        torch.zeros("3")
        torch.zeros(2.5)
        torch.zeros([2.5])
        torch.zeros(2, "x")
        torch.zeros((2, 3), dtype="float")
        torch.ones(None)
        torch.arange("a")
        torch.arange(0, 3, -1)
        torch.arange(3, 0)
        torch.linspace(0, 1, -1)
        torch.full((2,))
        torch.full((2,), "a")
        torch.randint(5, (2,)).x
        torch.randint(5, 2, (2,))
        torch.randint(0, 5, 3)
        torch.randn("a")
        torch.rand(2, 3, 4.5)
        torch.eye(-1)
        torch.from_numpy([1, 2])
        torch.from_numpy(3)
        i.requires_grad_()
        nn.Parameter(i)
        nn.Parameter([1.0])
        torch.set_default_dtype(torch.int64)
        a.to("float")
        a.to(3.5)
        a.type("torch.NoTensor")
        torch.relu(3)
        torch.exp("b")
        torch.sum(3)
        torch.sum([1, 2])
        torch.mean([1.0])
        torch.abs(-1)
        torch.sqrt(2)
        torch.stack((a, None))
        nn.ReLU()([1, 2])
        F.relu([1.0])
        nn.Linear(3, 2)([1.0, 2.0, 3.0])
        nn.Linear(3, 2)(__import__("numpy").ones((1, 3), "float32"))
        nn.Conv2d(1, 2, 3)(None)
        nn.Linear(2, "3")
        nn.Linear(2.0, 3)
        nn.Linear(-1, 2)
        nn.Conv2d(1, 2)
        F.cross_entropy([1.0], [0])
    """,
    "one value": r"""
        a.item()
        torch.zeros(0).item()
        bool(a)
        bool(torch.zeros(0))
        if a > 1: pass
        while a: pass
        not a
        a and a
        float(a)
        int(a)
        complex(a)
        range(torch.tensor(1.5))
        [1, 2, 3][torch.tensor(1.0)]
        [1, 2, 3][a]
        len(torch.tensor(1))
        iter(torch.tensor(1))
        for z in torch.tensor(3): pass
        list(torch.tensor(1))
        a in [1, 2]
        x.numpy()
        (x * 2).numpy()
        x.tolist().numpy
        __import__("numpy").array(x)
        __import__("numpy").sum(x * 2)
        float(x)
        print(torch.ones(2).bfloat16().numpy())
        "{:.2f}".format(a)
        f"{a:.3f}"
        "%d" % torch.ones(2)
        round(a.sum(), "x")
        hash(a) and a.shape[5]
        a.shape = (3, 2)
        max(a)
        sorted(a)
        {a: 1}[torch.ones(1)]
        a.nothing
        a.foo = 1\na.fooo
        torch.nothing
        torch.nn.Nothing
        F.nothing(a)
        torch.tensor(a)
        torch.tensor(x)
        torch.tensor([a, a])
        torch.tensor([torch.tensor(1.0), torch.tensor(2.0)]).numpy().x
        x.new_tensor(x).x
        torch.as_tensor("a")
    """,
    "gradients": r"""
        x.add_(1)
        x += 1
        x -= 0.1 * x
        x[0] = 1
        x.zero_()
        x[0].mul_(2)
        x.view(-1).add_(1)
        nn.Linear(2, 2).weight.fill_(0)
        nn.Linear(2, 2).weight[0] = 0.0
        y = (x * x).sum(); y.backward(); y.backward()
        y = x.exp().sum(); torch.autograd.grad(y, x); torch.autograd.grad(y, x)
        y = x.sigmoid(); y.sum().backward(); y.mean().backward()
        y = nn.Linear(3, 1)(a).sum(); y.backward(); y.backward()
        x.backward()
        (x * 2).backward()
        (x * 2).backward(torch.ones(4))
        (x * 2).backward(torch.ones(3, 2))
        a.sum().backward()
        a.backward()
        x.detach().sum().backward()
        with torch.no_grad(): y = (x * 2).sum()\ny.backward()
        x.argmax().backward()
        (x > 0).sum().backward()
        x.sum().item().backward()
        F.cross_entropy(x, torch.tensor([0, 1])).detach().backward()
        y = x.exp(); y.add_(1); y.sum().backward()
        y = x.sigmoid(); y.zero_(); y.sum().backward()
        y = x.tanh(); y += 1; y.sum().backward()
        y = x * 1; z = y * y; y[0] = 0; z.sum().backward()
        y = x.relu(); z = y.pow(2); y.mul_(2); z.sum().backward()
        y = nn.Linear(3, 3)(x); z = y.softmax(1); z.mul_(2); z.sum().backward()
        w = nn.Parameter(torch.ones(3, 3)); y = (a @ w).relu() @ w; w.data.add_(1)\nwith torch.no_grad(): w.add_(1)\ny.sum().backward()
        torch.autograd.grad(x.sum(), a)
        torch.autograd.grad(x.sum(), torch.ones(2, requires_grad=True))
        torch.autograd.grad(x * 2, x)
        torch.autograd.grad(a.sum(), x)
        torch.autograd.grad(x.sum(), [])
        (x * 2).requires_grad = False
        (x * 2).requires_grad_(False)
        a.requires_grad = "yes"
        i.requires_grad = True
        (x * 2).grad
        y = x * 2; y.sum().backward(); y.grad
        a.grad.zero_()
        x.grad = torch.ones(5)
        x.grad = 3
        x.grad = torch.ones(2, 3, dtype=torch.int64)
        x.data = 3
        x.register_hook(3)
        a.register_hook(print)
        a.retain_grad()
        x.resize_(3)
        import copy; copy.deepcopy(x * 2)
        torch.save(lambda z: z, "/nonexistent/x.pt")
        with torch.autograd.detect_anomaly(check_nan=True): torch.sqrt(x * 0 - 1).sum().backward()
        with torch.autograd.set_detect_anomaly(True): (torch.tensor(0.0, requires_grad=True).sqrt() * 0).backward()
        with torch.inference_mode(): y = torch.ones(2)\ny.requires_grad_()
        with torch.inference_mode(): y = torch.ones(2)\n(y * torch.ones(2, requires_grad=True)).sum().backward()
        with torch.inference_mode(): y = torch.ones(2)\ny.add_(1)
        class Bad(torch.autograd.Function): pass\nBad.apply(x)
        class Two(torch.autograd.Function): forward = lambda ctx, x: x * 2; backward = lambda ctx, g: (g, g)\nTwo.apply(x).sum().backward()
        class Non(torch.autograd.Function): forward = staticmethod(lambda ctx, x: x * 2)\nNon.apply(x).sum().backward()
        class Old(torch.autograd.Function): forward = lambda self, x: x * 2\nOld()(x)
    """,
    "modules": r"""
        class Net(nn.Module):\n    def __init__(self):\n        self.l = nn.Linear(1, 1)\nNet()
        class Net(nn.Module):\n    def __init__(self):\n        self.w = nn.Parameter(torch.ones(1))\nNet()
        class Net(nn.Module):\n    def __init__(self):\n        self.n = 1\nNet()(a)
        class Net(nn.Module):\n    pass\nNet()(a)
        class Net(nn.Module):\n    def forward(self, x): return x\nNet()()
        class Net(nn.Module):\n    def forward(self, x): return x\nNet()(a, a)
        class Net(nn.Module):\n    def forward(self, x): return self.fc(x)\nNet()(a)
        nn.Linear(3, 2)()
        nn.Linear(3, 2)(a, a)
        nn.Linear(3)
        nn.Linear()
        nn.Linear(3, 2, bais=True)
        nn.Linear(3, 2, True, None, None, 1)
        nn.Conv2d(1, 2, kernel=3)
        nn.Dropout(1.5)
        nn.Dropout(p=-1)
        nn.Linear(3, 2).nothing
        nn.Linear(3, 2).weight = torch.ones(2, 3)
        nn.Linear(3, 2).weight = 3
        nn.Linear(3, 2)[0]
        nn.Sequential(nn.ReLU())[1]
        nn.Sequential(nn.ReLU(), 3)
        nn.Sequential([nn.ReLU()])
        nn.ModuleList([nn.ReLU()])[3]
        nn.ModuleList([nn.ReLU()])(a)
        nn.ModuleList(nn.ReLU())
        nn.ModuleDict({"a": nn.ReLU()})["b"]
        nn.ParameterList([3])[4]
        nn.Module()(1)
        nn.Module().forward(1)
        nn.Module().add_module("x", 3)
        nn.Module().add_module("a.b", nn.ReLU())
        nn.Module().register_buffer("a.b", a)
        nn.Module().register_parameter("w", a)
        nn.Module().register_parameter("w", x * 2)
        nn.Linear(3, 2).get_submodule("q")
        nn.Linear(3, 2).train(3)
        nn.Linear(3, 2).to("nowhere")
        nn.Linear(3, 2).to(torch.int64)
        nn.Linear(3, 2).load_state_dict({"weight": torch.ones(2, 3)})
        nn.Linear(3, 2).load_state_dict({})
        nn.Linear(3, 2).load_state_dict({"weight": torch.ones(2, 3), "bias": torch.ones(2), "more": torch.ones(1)})
        nn.Linear(3, 2).load_state_dict({"weight": torch.ones(3, 2), "bias": torch.ones(2)})
        nn.Linear(3, 2).load_state_dict({"module.weight": torch.ones(2, 3), "module.bias": torch.ones(2)})
        nn.Linear(3, 2).load_state_dict({"weight": 3, "bias": torch.ones(2)})
        nn.Linear(3, 2).load_state_dict(nn.Linear(3, 2))
        nn.Linear(3, 2).load_state_dict("model.pt")
        nn.Linear(3, 2).load_state_dict(None)
        t = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2), nn.Linear(2, 1)); nn.Sequential(nn.Linear(3, 4)).load_state_dict(t.state_dict())
        nn.BatchNorm1d(3).load_state_dict({"weight": torch.ones(3)})
        nn.Linear(3, 2).weight.data.add(torch.ones(3, 2))
        nn.init.xavier_uniform_(torch.ones(3))
        nn.init.kaiming_normal_(nn.Linear(3, 2))
        nn.init.normal_(3)
        nn.Transformer(d_model=10, nhead=3)
        nn.Embedding(3, 2, max_norms=1)
        nn.ReLU(3)(a, 2)
        nn.Flatten(1, 2, 3)
        nn.Upsample(scale_factor=2, mode="nothing")(torch.ones(1, 1, 2, 2))
        nn.CrossEntropyLoss(weights=torch.ones(3))
        nn.LSTM(3, 4, num_layer=2)
        nn.LSTM(3, 4, dropout=0.5)
        nn.LSTM(3, 0)
    """,
    "optimizers": r"""
        torch.optim.SGD([])
        torch.optim.SGD([], lr=0.1)
        torch.optim.Adam(nn.ReLU().parameters())
        torch.optim.SGD([x], lr=-1)
        torch.optim.SGD([x], lr="a")
        torch.optim.SGD(x, lr=1)
        torch.optim.SGD([x * 2], lr=1)
        torch.optim.SGD([3], lr=1)
        torch.optim.SGD(["w"], lr=1)
        torch.optim.SGD(nn.Linear(2, 2), lr=0.1)
        torch.optim.SGD([x], lr=0.1, momentum=-1)
        torch.optim.SGD([x], lr=0.1, nesterov=True)
        torch.optim.SGD([x], learning_rate=0.1)
        torch.optim.SGD()
        torch.optim.Adam([x], lr=-1)
        torch.optim.Adam([x], betas=(1.5, 0.9))
        torch.optim.Adam([x], betas=(0.9, 1.9))
        torch.optim.Adam([x], betas=0.9)
        torch.optim.Adam([x], eps=-1)
        torch.optim.Adam([x], weight_decay=-1)
        torch.optim.AdamW([x], momentum=0.9)
        torch.optim.RMSprop([x], alpha=-1)
        torch.optim.Adam([{"params": [x]}, {"params": [x]}])
        torch.optim.Adam([{"param": [x]}])
        torch.optim.Adam([x, x])
        torch.optim.Adam([x]).load_state_dict({})
        torch.optim.Adam([x]).load_state_dict(torch.optim.Adam([x, torch.ones(1, requires_grad=True)]).state_dict())
        torch.optim.LBFGS([{"params": [x]}, {"params": [torch.ones(1, requires_grad=True)]}])
        torch.optim.LBFGS([x]).step()
        o = torch.optim.SGD([x], lr=0.1); s = torch.optim.lr_scheduler.StepLR(o, 1); s.step()
        o = torch.optim.SGD([x], lr=0.1); s = torch.optim.lr_scheduler.StepLR(o, 1); s.step(); o.step()
        torch.optim.lr_scheduler.StepLR(x, 1)
        torch.optim.lr_scheduler.StepLR(torch.optim.SGD([x], lr=0.1))
        torch.optim.lr_scheduler.LambdaLR(torch.optim.SGD([x], lr=0.1), [1, 2])
        torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD([x], lr=0.1)).step()
        torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD([x], lr=0.1), factor=2.0)
        torch.optim.lr_scheduler.OneCycleLR(torch.optim.SGD([x], lr=0.1), 0.1)
        torch.optim.lr_scheduler.CosineAnnealingLR(torch.optim.SGD([x], lr=0.1))
        torch.optim.lr_scheduler.CyclicLR(torch.optim.Adam([x]), 0.1, 1)
        torch.optim.lr_scheduler.StepLR(torch.optim.SGD([x], lr=0.1), 1).step(3)
        nn.utils.clip_grad_norm_([x], "a")
        nn.utils.clip_grad_norm_([x])
        torch.optim.Nothing([x])
    """,
    "arguments": r"""
        F.linear(a, torch.ones(2, 3), bais=None)
        F.linear(a)
        F.relu(a, inplaces=True)
        F.dropout(a, -0.1)
        F.dropout(a, p=2)
        F.gelu(a, approximate="sin")
        F.interpolate(torch.ones(1, 1, 2, 2), size=3, scale_factor=2)
        F.interpolate(torch.ones(1, 1, 2, 2), scale_factor=2, mode="nothing")
        F.interpolate(torch.ones(1, 1, 2, 2))
        F.max_pool2d(torch.ones(1, 1, 4, 4))
        F.conv2d(torch.ones(1, 1, 4, 4))
        F.softmax(a, dim=3)
        F.softmax(a, axis=1)
        F.normalize(a, dims=1)
        torch.softmax(a)
        torch.sum(a, foo=1)
        torch.sum(a, dim="x")
        a.sum("x")
        a.sum(foo=1)
        torch.mean(a, dims=0)
        torch.exp()
        torch.exp(a, a)
        torch.add(a)
        torch.add(a, "b")
        torch.matmul(a)
        torch.cat()
        torch.cat(tensor=[a])
        torch.clamp(a)
        torch.clamp(a, "x")
        torch.norm(a, p="nothing")
        torch.linspace(0, 1)
        torch.arange()
        torch.zeros(2, device="nothing")
        torch.zeros(2, device="cpu:x")
        torch.zeros(2, device=3.5)
        torch.ones(2, device=3.5)
        torch.tensor(1, device=3.5)
        torch.tensor([1], dtype="int")
        torch.cumsum(a, 0, dtype="float32")
        torch.prod(a, dtype="float32")
        torch.softmax(a, 1, dtype="float32")
        torch.zeros_like(a, dtype="float32")
        torch.tril_indices(2, 2, dtype="int64")
        torch.eye(2.0)
        torch.eye(torch.tensor(2)).x
        a.topk(torch.tensor(1)).values.x
        a.tril(torch.tensor(1)).x
        torch.diag_embed(a, torch.tensor(1)).x
        torch.multinomial(a, torch.tensor(1)).x
        torch.gather(a)
        torch.gather(a, 0)
        torch.allclose(a)
        torch.maximum(a)
        torch.trace()
        torch.layer_norm(a)
        torch.take_along_dim(a)
        a.cross()
        a.index_select(0)
        a.flip()
        a.tile()
        a.resize_()
        a.sum_to_size()
        a.squeeze(1.5)
        a.squeeze(0, 1).x
        torch.arange(1, "a")
        torch.arange(1, foo=2)
        torch.arange(1, 2, 3, 4)
        torch.rand()
        torch.randint(5)
        torch.randint(5, 3)
        torch.randint(0, 5.5, (2,))
        torch.randint(0, 5, size=3)
        torch.normal(0.0, 1.0)
        torch.zeros(2, requires_grads=True)
        torch.ones(2, dtypes=torch.int64)
        torch.randn(2, 3, seed=1)
        torch.tensor()
        torch.tensor([1], dtypes=torch.int64)
        torch.tensor(1, 2)
        torch.device("nothing")
        torch.device("GPU")
        torch.device("cuda0")
        torch.device("")
        torch.manual_seed("a")
        torch.manual_seed()
        a.to()
        a.to("gpu")
        a.view()
        a.reshape()
        a.permute("a")
        a.topk()
        a.topk("a")
        a.sort(descending="yes").x
        a.max(dim="a")
        a.unsqueeze()
        a.squeeze("a")
        a.clamp_(min="a")
        a.uniform_(1, 0)
        a.normal_(0, -1)
        a.fill_(torch.ones(2))
        a.bernoulli_(2)
        torch.normal(0.0, -1.0, (2,))
        torch.eye("a")
        torch.load("/nonexistent/model.pt")
        torch.load("/nonexistent")
        torch.load(3)
        torch.load(__import__("io").BytesIO(b""))
        torch.load(__import__("io").BytesIO(b"this is no checkpoint"))
        torch.save()
        torch.save(a)
        torch.save(a, "/nonexistent/folder/model.pt")
        torch.set_grad_enabled()
        torch.set_printoptions(profile="nothing")
        torch.utils.data.DataLoader([1, 2], batch_size=0)
        torch.utils.data.DataLoader([1, 2], batch_size="a")
        torch.utils.data.DataLoader([1, 2], batch_size=-1)
        torch.utils.data.DataLoader([1, 2], batchsize=2)
        torch.utils.data.DataLoader([1, 2], shuffle=True, sampler=[0])
        torch.utils.data.DataLoader([1, 2], num_workers=-1)
        torch.utils.data.DataLoader([], shuffle=True)
        torch.utils.data.DataLoader()
        list(torch.utils.data.DataLoader([torch.ones(2), torch.ones(3)], batch_size=2))
        list(torch.utils.data.DataLoader([None, None]))
        list(torch.utils.data.DataLoader([object()]))
        list(torch.utils.data.DataLoader([(1, 2), (3,)], batch_size=2))
        torch.utils.data.DataLoader([1])[0]
        torch.utils.data.random_split([1, 2], [3])
        torch.utils.data.random_split([1, 2], [0.5, 0.6])
        torch.utils.data.TensorDataset(torch.ones(2), torch.ones(3))
        torch.utils.data.Subset([1, 2], [5])[0]
        class D(torch.utils.data.Dataset): pass\nD()[0]
        class D(torch.utils.data.Dataset): pass\nlen(D())
        class D(torch.utils.data.Dataset):\n    def __getitem__(self, k): return k\ntorch.utils.data.DataLoader(D(), shuffle=True)
        torch.no_grad(3)
        torch.nn.functional.scaled_dot_product_attention(a, a, torch.ones(3, 4))
        torch.distributions.Normal(0.0, -1.0)
        torch.distributions.Categorical(torch.tensor([-1.0, 2.0]))
        torch.distributions.Bernoulli(2.0)
    """,
}
ROWS = [
    (f"{group}: {source.strip()}", source.strip())
    for group, text in MISTAKES.items()
    for source in text.strip().splitlines()
]

_AT_LEAST = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
_GOT = (
    "Expected all tensors to be on the same device, but got {} is on {}, different from other tensors on {} "
    "(when checking argument in method wrapper_CUDA_{})"
)
#: two devices in one operation, and what PyTorch says with CUDA: `g` is on the GPU, `c` on the CPU, both (2, 3)
TWO_DEVICES = [
    ("g + c", _AT_LEAST),
    ("g.add_(c)", _AT_LEAST),
    ("g * 2 - c / 3", _AT_LEAST),
    ("g > c", _AT_LEAST),
    ("F.mse_loss(g, c)", _AT_LEAST),
    ("torch.where(g > 0, g, c)", _AT_LEAST),
    ("g @ c.T", _GOT.format("mat2", "cpu", "cuda:0", "mm")),
    ("c @ g.T", _GOT.format("mat2", "cuda:0", "cpu", "mm")),
    ("torch.bmm(g[None], c.T[None])", _GOT.format("mat2", "cpu", "cuda:0", "bmm")),
    ("nn.Linear(3, 2, device=g.device)(c)", _GOT.format("mat1", "cpu", "cuda:0", "addmm")),
    ("nn.Linear(3, 2, device='cpu')(g)", _GOT.format("mat1", "cuda:0", "cpu", "addmm")),
    ("nn.Linear(3, 2, device=g.device)(c[None])", _GOT.format("mat1", "cpu", "cuda:0", "addmm")),
    ("nn.Linear(3, 2, bias=False, device=g.device)(c)", _GOT.format("mat2", "cuda:0", "cpu", "mm")),
    ("torch.cat([g, c])", _GOT.format("tensors", "cpu", "cuda:0", "cat")),
    ("torch.stack([c, g])", _GOT.format("tensors", "cuda:0", "cpu", "cat")),
    ("g.gather(1, c.long())", _GOT.format("index", "cpu", "cuda:0", "gather")),
    ("g.index_select(0, c[0].long())", _GOT.format("index", "cpu", "cuda:0", "_index_select")),
    ("nn.Embedding(3, 2, device=g.device)(c.long())", _GOT.format("index", "cpu", "cuda:0", "_index_select")),
    ("F.cross_entropy(g, c[:, 0].long())", _GOT.format("target", "cpu", "cuda:0", "nll_loss_forward")),
    ("F.nll_loss(c, g[:, 0].long())", _GOT.format("target", "cuda:0", "cpu", "nll_loss_forward")),
    (
        "nn.Conv2d(1, 2, 2, device=g.device)(c[None, None])",
        "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same or input should be a "
        "MKLDNN tensor and weight is a dense tensor",
    ),
    (
        "nn.Conv2d(1, 2, 2, device='cpu')(g[None, None])",
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
    ),
]


def names(torch: Any) -> dict[str, Any]:
    """The arguments of the mistakes: `a` (2, 3) floats, `i` (2, 1) integers, `x` (2, 3) that requires grad."""
    return {
        "torch": torch,
        "nn": torch.nn,
        "F": torch.nn.functional,
        "a": torch.arange(6.0).reshape(2, 3),
        "i": torch.tensor([[1], [2]]),
        "x": torch.arange(1.0, 7.0).reshape(2, 3).requires_grad_(),
    }


def said(source: str, torch: Any, device: str = "cpu") -> dict[str, Any]:
    """{"type", "message", "warnings": [[category, text], …]} of a program; the type is "" where nothing was raised.

    What a device finds out may come with the read, so a result is read.
    """
    here = {**names(torch), "device": device}
    kind = message = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run(source.replace("\\n", "\n"), here, torch)
        except Exception as e:
            kind, message = type(e).__name__, str(e)
    heard = [[w.category.__name__, plain(str(w.message))] for w in caught]
    return {"type": kind, "message": plain(message), "warnings": heard}


def run(source: str, here: dict[str, Any], torch: Any) -> None:
    try:
        code = compile(source, "mistake", "eval")
    except SyntaxError:
        exec(compile(source, "mistake", "exec"), here)
        return
    result = eval(code, here)
    if isinstance(result, torch.Tensor):
        result.detach().tolist()


def plain(text: str) -> str:
    """A message without what differs from build to build: places in sources, C++ stacks, addresses, and the name of the device."""
    text = re.sub(r" \(Triggered internally at [^)]*\)", "", text)
    text = re.sub(r"\n?(Exception raised from|C\+\+ CapturedTraceback|frame #)[\s\S]*$", "", text)
    text = text.replace(" (if PyTorch has it: tabtorch does not have it yet)", "")
    text = text.replace("mtia, webgpu device type", "mtia, privateuseone device type")  # the place of other backends
    text = re.sub(r'(?m)^  File "[^\n]*(\n    [^\n]*)*\n?', "", text)
    text = re.sub(r"\nThe device \([\s\S]*$", "", text)  # of an index that the device found
    text = re.sub(r"0x[0-9a-f]{6,}", "0x", text)
    text = text.replace("webgpu:0", "cpu").replace("torch.webgpu.", "torch.").replace("torch.cuda.", "torch.")
    return text.replace("tabtorch.", "torch.").strip()


def record(torch: Any) -> dict[str, dict[str, Any]]:
    """What a library says of every program, by its source."""
    return {source: said(source, torch) for _, source in ROWS}
